"""Notices, briefs and events of one shell. Nothing of it is loaded, or made on disk, before it is used."""

from __future__ import annotations

from outlast.errors import BadInput
from outlast.shell.context import translate_errors
from outlast.storage.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from outlast.notices.event_stream import EventStream
    from outlast.notices.notice import Event, Notice
    from outlast.notices.notice_store import NoticeStore
    from outlast.notices.subscription import Calling, Subscription
    from outlast.shell.context import Context
    from outlast.shell.reader import Reader

_BRIEF = "brief"


class Notices:
    """What happened, and the subscribers that are told."""

    def __init__(self, context: Context, reader: Reader) -> None:
        self.context, self._reader = context, reader
        self._board: NoticeStore | None = None

    @property
    def board(self) -> NoticeStore:
        """The notices and events that this shell sees."""
        if self._board is None:
            self._board = self.new_board()
        return self._board

    def new_board(self, scope: str = "") -> NoticeStore:
        """Return a store for another thread; as this shell sees it, or for one session."""
        from outlast.notices.notice_store import NoticeStore

        seen = scope or self.context.scope
        return NoticeStore(
            self.context.executor.registry,
            seen,
            lambda: self.context.redactor.mask,
            self.context.settings.notice_days * 86400,
        )

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None

    @translate_errors
    def subscribe(self, name: str, *, from_now: bool = False) -> Subscription:
        """As `Shell.subscribe`."""
        from outlast.notices.subscription import Subscription, subscriber_name

        subscriber_name(name)
        return Subscription(self.new_board(), name, from_now=from_now, close_board=True)

    @translate_errors
    def on_notice(self, callback: Callable[[Notice], Any], *, name: str, from_now: bool = False) -> Calling:
        """As `Shell.on_notice`."""
        from outlast.notices.subscription import Calling

        if not callable(callback):
            raise BadInput(f"What is to be called with each notice is a function, not {type(callback).__name__}.")
        self.subscribe(name, from_now=from_now).close()  # so that what happens from here on is not missed
        return Calling(lambda: self.subscribe(name), callback)

    @translate_errors
    def latest(self, most: int) -> list[Notice]:
        """As `Shell.notices`."""
        self.board.gather()
        return self.board.newest(most)

    @translate_errors
    def last_number(self) -> int:
        """Return the number of the last notice that there is now."""
        self.board.gather()
        return self.board.outbox.last_notice()

    @translate_errors
    def verify(self, said: str) -> Notice | None:
        """As `Shell.verify`."""
        return self.board.verify(said)

    @translate_errors
    def brief(self) -> str:
        """As `Shell.brief`."""
        from outlast.notices import words
        from outlast.notices.subscription import Subscription

        tasks = [task for task in self._reader.list(session=self.context.session) if not task.finished]
        doing = self._reader.activities(tasks)
        running = [(task, doing.get(task.task_id, "")) for task in tasks]
        with Subscription(self.new_board(self.context.session), _BRIEF, close_board=True) as subscription:
            ended = []
            while taken := subscription.take():
                ended += taken
            text = words.brief(running, ended, self.context.settings.notice_chars)
            if ended:
                subscription.acknowledge()
        return text

    def events(self, *, after: int | None = 0, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """As `Shell.events`."""
        deadline, following = Deadline(timeout), self.following(after)
        try:
            while True:
                some = following.look()
                yield from some
                if not some and (not follow or deadline.over):
                    return
                if not some:
                    following.watch.wait(deadline.left())
        finally:
            following.close()

    @translate_errors
    def following(self, after: int | None) -> EventStream:
        """Return the events behind that number, for a caller that waits for more itself."""
        from outlast.notices.event_stream import EventStream

        return EventStream(self.new_board(), after)
