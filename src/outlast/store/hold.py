"""Keeps a task that has ended from being removed while somebody still has to report it.

A shared lock on `launch.json`, which is there before the task is published: so whoever
starts a task holds it from its first moment. The kernel lets go of it with its holder.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_FILE = "launch.json"


class Hold:
    """Tasks that are not removed while this is open."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def take(self, directory: str) -> Hold:
        """Hold the task in `directory`, if it can be held; whoever looks at it says what is wrong with it."""
        try:
            fd = _open(directory)
        except OSError:
            return self
        self._fds.append(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass  # it is being removed this moment
        return self

    def close(self) -> None:
        while self._fds:
            fd = self._fds.pop()
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: what the host forked may have it open
            os.close(fd)


def is_held(directory: str) -> bool:
    """Whether somebody still has to report this task."""
    fd = _open(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)  # what the host forked meanwhile may have it open
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _open(directory: str) -> int:
    return os.open(os.path.join(directory, _FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
