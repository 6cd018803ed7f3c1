"""The connection to one machine: made when it is needed, and again after each loss while it is needed.

One thread connects. Requests are sent by their callers, and each waits for its answer, which another thread brings.
"""

from __future__ import annotations

import threading
import time

from outlast.errors import OutlastError
from outlast.executors.remote import Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.executors.ssh.link import Link

    Answer = tuple[list[str], bytes]

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0  # between two attempts to connect


class Connection:
    """`connect` makes a link; `connected` and `failed` are told what became of it, in the thread that connects."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Link],
        connected: Callable[[Link], None],
        failed: Callable[[OutlastError], None],
    ) -> None:
        self._name, self._connect, self._connected, self._failed = name, connect, connected, failed
        self.changed = threading.Condition()  # protects what follows, and what its owner keeps about tasks
        self._link: Link | None = None
        self._error: OutlastError | None = None
        self._users = 0  # calls that wait for a link, and tasks that are followed
        self._attempts = 0
        self._calls = 0  # each one ends the pause between two attempts: its caller should not wait for that
        self._is_connecting = self._is_closed = False
        self._answers: dict[tuple[str, str], Answer | None] = {}

    @property
    def link(self) -> Link | None:
        """The link, if there is one at this moment."""
        return self._link if self._link is not None and not self._link.is_over else None

    def hold(self) -> Link | None:
        """Stay connected from now on, until `release`; call it with `changed` held."""
        self._users += 1
        self._calls += 1
        self._begin_connecting()
        self.changed.notify_all()
        return self.link

    def release(self) -> None:
        self._users -= 1
        self.changed.notify_all()

    def need(self, patience: float, tries: int = 1 << 30) -> Link:
        """Return the link, made now if need be. Raises `Unreachable`."""
        deadline = time.monotonic() + patience
        with self.changed:
            self._users += 1
            self._calls += 1
            self.changed.notify_all()
            try:
                last = self._attempts + tries
                while (link := self.link) is None:
                    left = deadline - time.monotonic()
                    if self._is_closed or left <= 0 or self._attempts >= last:
                        raise self._error or Unreachable(f"{self._name} does not answer")
                    self._begin_connecting()
                    self.changed.notify_all()
                    self.changed.wait(left)
                return link
            finally:
                self._users -= 1

    def _begin_connecting(self) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            threading.Thread(target=self._keep_connected, daemon=True, name=f"connect-{self._name}").start()

    def _keep_connected(self) -> None:
        """Connect, and again after each loss, while there are users."""
        pause = 0.0
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._is_idle() or self.link is None)
                if self._is_idle():
                    self._is_connecting = False
                    return
                if pause and self._wait_for_call(pause):
                    pause = 0.0
            try:
                if self._link is not None:
                    self._link.close()  # the ssh child of the lost one
                link = self._connect()
            except (OutlastError, OSError) as error:
                self._note_failure(error if isinstance(error, OutlastError) else Unreachable(f"ssh fails: {error}"))
                pause = min(_LONGEST_PAUSE_S, pause * 2 or _PAUSE_S)
                continue
            pause = 0.0
            with self.changed:
                self._link, self._error = link, None
                self.changed.notify_all()
            self._connected(link)

    def _is_idle(self) -> bool:
        return self._is_closed or not self._users

    def _wait_for_call(self, patience: float) -> bool:
        calls = self._calls
        return self.changed.wait_for(lambda: self._is_closed or self._calls != calls, patience)

    def _note_failure(self, error: OutlastError) -> None:
        with self.changed:
            self._error, self._attempts = error, self._attempts + 1
            self.changed.notify_all()
        self._failed(error)

    def close(self) -> None:
        with self.changed:
            self._is_closed, link, self._link = True, self._link, None
            self.changed.notify_all()
        if link is not None:
            link.close()

    # --- requests ------------------------------------------------------------------------------

    def ask(self, link: Link, word: str, task_id: str, number: float, payload: bytes, answer: str) -> None:
        with self.changed:
            self._answers[answer, task_id] = None
        link.send(word, task_id, number, payload)

    def put_answer(self, answer: str, task_id: str, words: list[str], payload: bytes) -> None:
        with self.changed:
            self._answers[answer, task_id] = (words, payload)
            self.changed.notify_all()

    def await_answer(self, link: Link, task_id: str, answer: str, deadline: float) -> Answer | None:
        """Return the answer; None if the connection is lost, or the deadline comes, before it."""
        with self.changed:
            self.changed.wait_for(
                lambda: self._answers.get((answer, task_id)) is not None or link.is_over,
                max(0.0, deadline - time.monotonic()),
            )
            return self._answers.pop((answer, task_id), None)

    def request(self, word: str, task_id: str, number: float, payload: bytes, answer: str, patience: float) -> Answer:
        """Ask until there is an answer: only for what does no harm if it is repeated. Raises `Unreachable`."""
        deadline = time.monotonic() + patience
        while True:
            link = self.need(deadline - time.monotonic())
            self.ask(link, word, task_id, number, payload, answer)
            found = self.await_answer(link, task_id, answer, deadline)
            if found is not None:
                return found
            if time.monotonic() >= deadline:
                raise Unreachable(f"{self._name} did not answer in time")

    def note_loss(self) -> None:
        """The link is over."""
        with self.changed:
            self.changed.notify_all()
