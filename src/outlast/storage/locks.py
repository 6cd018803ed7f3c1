"""A lock (flock) that is held for the length of a `with`."""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_SHORTEST_PAUSE_S = 0.0005  # about what a merge takes
_LONGEST_PAUSE_S = 0.02


class Held:
    """An open file whose lock is held; both are let go of at the end.

    With `patience` (seconds) it waits no longer than that for another process, and then raises `otherwise`.
    """

    def __init__(
        self,
        fd: int,
        how: int = fcntl.LOCK_EX,
        patience: float | None = None,
        otherwise: Exception | None = None,
    ) -> None:
        self._fd, self._how = fd, how
        self._patience, self._otherwise = patience, otherwise or TimeoutError()

    def __enter__(self) -> Self:
        try:
            if self._patience is None:
                fcntl.flock(self._fd, self._how)
            else:
                self._lock_within(self._patience)
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def _lock_within(self, patience: float) -> None:
        # flock has no timeout, and a signal to interrupt it would belong to the host.
        deadline = time.monotonic() + patience
        pause = _SHORTEST_PAUSE_S
        while True:
            try:
                fcntl.flock(self._fd, self._how | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._otherwise from None
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough: what the host forked may have it open
        os.close(self._fd)
