"""A lock (flock) that is held for the length of a `with`."""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Held:
    """An open file whose lock is held; both are let go of at the end."""

    def __init__(self, fd: int, how: int = fcntl.LOCK_EX) -> None:
        self._fd, self._how = fd, how

    def __enter__(self) -> Self:
        try:
            fcntl.flock(self._fd, self._how)
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough: what the host forked may have it open
        os.close(self._fd)

    def forget(self) -> None:
        """In a fork of who holds it: let go of our copy, and leave theirs alone."""
        os.close(self._fd)
