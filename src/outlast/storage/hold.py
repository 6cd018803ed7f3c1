"""A hold keeps a task that has ended from being removed while a caller still has to report it.

A hold is a shared lock on `launch.json`, which exists before the task is published, so the process that starts
a task holds it from its first moment. The kernel releases the lock when its holder dies.

The lock is an open file description lock (F_OFD_SETLK). Unlike flock it can be queried (F_OFD_GETLK) without being
taken, so a probe neither makes a concurrent `Hold.take` fail nor looks like a holder to another probe. A process that
removes a task takes the lock exclusively and keeps it until the directory is renamed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

from outlast.linux.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_FILE = "launch.json"
_STRUCT_FLOCK = "hhqqi"  # type, whence, start, length (0: all of it), pid (always 0 for these locks)
_REMOVAL_S = 1.0  # a removal holds the lock for the length of one rename
_RETRY_S = 0.001


class Hold:
    """Tasks that are not removed while this is open."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def take(self, directory: str) -> Hold:
        """Hold the task in `directory`, if it can be held; a later look at the task reports what is wrong with it."""
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                fd = _open(directory, os.O_RDONLY)
            except OSError:
                return self
            if _try_lock(fd, fcntl.F_RDLCK):
                self._fds.append(fd)
                return self
            os.close(fd)  # opened again: after the removal there is no such file
            if time.monotonic() >= deadline:
                return self
            time.sleep(_RETRY_S)

    def close(self) -> None:
        while self._fds:
            unlock_and_close(self._fds.pop())


def is_held(directory: str) -> bool:
    """Return whether a caller still has to report this task. Does not disturb anyone who takes a hold."""
    fd = _open(directory, os.O_RDONLY)
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(fd)
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def lock_for_removal(directory: str) -> int | None:
    """Keep new holds out until the task is renamed; None if it is held. Release with `unlock_and_close`."""
    fd = _open(directory, os.O_RDWR)
    if _try_lock(fd, fcntl.F_WRLCK):
        return fd
    os.close(fd)
    return None


def unlock_and_close(fd: int) -> None:
    _try_lock(fd, fcntl.F_UNLCK)  # closing is not enough: a child that the host forked may have it open
    os.close(fd)


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _request(how))
        return True
    except OSError:
        return False  # a conflicting lock, or a file system without locks


def _request(how: int) -> bytes:
    return struct.pack(_STRUCT_FLOCK, how, os.SEEK_SET, 0, 0, 0)


def _open(directory: str, how: int) -> int:
    return open_regular(os.path.join(directory, _FILE), how)
