"""`Preparer`: a thread that prepares the next command's shell, so that the caller does not wait for it."""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER = float("inf")


class Preparer:
    """Calls `prepare` in a thread of its own, some time after it was asked to. The latest request counts."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._changed = threading.Condition()
        self._due, self._closed = _NEVER, False
        self._thread: threading.Thread | None = None

    def request(self, delay: float = 0.0) -> None:
        """Prepare after `delay` seconds."""
        with self._changed:
            self._due = time.monotonic() + delay
            if self._thread is None or not self._thread.is_alive():  # a fork of the host has no such thread
                self._thread = threading.Thread(target=self._work, name="outlast-preparer", daemon=True)
                self._thread.start()
            self._changed.notify()

    def cancel(self) -> None:
        """Forget the request: a command that starts now must not compete with it."""
        self._due = _NEVER

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while self._wait():
            self._prepare()

    def _wait(self) -> bool:
        """Wait until a request is due; returns False when it is closed."""
        with self._changed:
            while not self._closed and (left := self._due - time.monotonic()) > 0:
                self._changed.wait(None if left == _NEVER else left)
            self._due = _NEVER
            return not self._closed
