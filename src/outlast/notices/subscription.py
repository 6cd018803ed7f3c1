"""A subscriber: claims notices, and acknowledges them when they have been told."""

from __future__ import annotations

import threading
import time

from outlast.errors import BadInput, quote
from outlast.notices import words
from outlast.notices.stop_event import StopEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from outlast.notices.notice import Notice
    from outlast.notices.notice_store import NoticeStore
    from outlast.notices.watcher import StateWatcher

AT_ONCE = 100


class Subscription:
    """One holder of a subscriber's name. What it claimed and did not acknowledge comes again when it is closed or dies.

    Not to be carried across a fork, and for one thread at a time.
    """

    def __init__(self, board: NoticeStore, name: str, *, from_now: bool = False, close_board: bool = False) -> None:
        self.name = name
        self._board = board
        self._owns = close_board
        if from_now:
            board.gather()  # what has ended until now is not news
        self._claims = board.claims(name, from_now)
        self._claimed: dict[int, Notice] = {}
        self._watch: StateWatcher | None = None
        self._in_text: list[int] = []

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def take(self, most: int = AT_ONCE) -> list[Notice]:
        """Claim what there is to tell now, oldest first."""
        watching = self.listening
        watching.arm()
        watching.watch_gathered(self._board.gather())
        return self._take(most)

    def _take(self, most: int) -> list[Notice]:
        taken = [self._board.show(one) for one in self._claims.take(most)]
        self._claimed.update({one.number: one for one in taken})
        return taken

    def is_any(self) -> bool:
        """Whether more is there to be claimed, as far as it was gathered."""
        return self._claims.is_any()

    def acknowledge(self, *notices: Notice | int) -> int:
        """These (all that are claimed, if none is named) were told, and never come again. How many were still ours."""
        numbers = [one if isinstance(one, int) else one.number for one in notices] or list(self._claimed)
        for number in numbers:
            self._claimed.pop(number, None)
        return self._claims.acknowledge(numbers)

    def wait(self, timeout: float | None = None, leave: StopEvent | None = None) -> list[Notice]:
        """Claim what there is to tell; if that is nothing, wait until there is (or `leave` is set), by event."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            taken = self.take()
            left = None if deadline is None else deadline - time.monotonic()
            if taken or (left is not None and left <= 0) or (leave is not None and leave.is_set):
                return taken
            self.listening.wait(left, leave.fd if leave is not None else -1)

    @property
    def listening(self) -> StateWatcher:
        """What to wait on: for those who wait in an event loop."""
        if self._watch is None:
            self._watch = self._board.watch()
        return self._watch

    def __iter__(self) -> Iterator[Notice]:
        """Notices as they come, for ever. Each is acknowledged when the next one is asked for."""
        while True:
            for notice in self.wait():
                yield notice
                self.acknowledge(notice)

    def text(self, budget: int = 2000, known: Callable[[Notice], bool] = lambda notice: False) -> str:
        """All that there is to tell, for a model's next turn; empty if that is nothing.

        What it holds is acknowledged by the next call, because then the model's host has come so far: if it died
        before, it comes again. What is `known` to the model already is acknowledged without being told.
        """
        self.confirm_text()
        self._board.gather(everything=False)
        notices = []
        while taken := self._take(AT_ONCE):
            notices += taken
        self._in_text = [one.number for one in notices]
        return words.for_model([one for one in notices if not known(one)], budget)

    def confirm_text(self) -> None:
        """The last `text` has arrived."""
        if self._in_text:
            self.acknowledge(*self._in_text)
            self._in_text = []

    def close(self) -> None:
        """Give back what was not acknowledged."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._claims.give_back()
        if self._owns:
            self._board.close()


def subscriber_name(name: object) -> str:
    """A name under which notices are claimed."""
    if not isinstance(name, str) or not name.strip() or len(name) > 200 or not name.isprintable():
        raise BadInput(f"{quote(name)} is no name for a subscriber; use up to 200 letters, digits and the like.")
    return name


class Calling:
    """A callback for notices, in a thread. If it raises something, the thread ends, and the notice comes again."""

    def __init__(self, opened: Callable[[], Subscription], callback: Callable[[Notice], object]) -> None:
        self._opened, self._callback = opened, callback
        self._over = StopEvent()
        self._thread = threading.Thread(target=self._run, name="outlast-notices", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._opened() as subscription:
            while not self._over.is_set:
                for notice in subscription.wait(leave=self._over):
                    if self._over.is_set:
                        return
                    self._callback(notice)
                    subscription.acknowledge(notice)

    @property
    def is_alive(self) -> bool:
        """Whether it still calls: not after a call that raised something."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Call no more; a call that is under way is waited for."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._over.close()

    def __enter__(self) -> Calling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
