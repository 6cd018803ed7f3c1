"""Locks on files: one for the length of a `with`, one for a task's name, and holds that keep a task from removal.

Each is unlocked before its descriptor is closed, because a child that the host forked may have the descriptor open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

from outlast.linux.files import open_regular
from outlast.storage.layout import LAUNCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

LOCK_TIMEOUT_S = 30.0  # these locks are held for milliseconds: a process that holds one longer was stopped
_SHORTEST_PAUSE_S = 0.0005  # about what a merge of a session takes
_LONGEST_PAUSE_S = 0.02
_STRUCT_FLOCK = "hhqqi"  # type, whence, start, length (0: all of it), pid (always 0 for these locks)
_REMOVAL_S = 1.0  # a removal holds the lock for the length of one rename
_NAME_BYTES = 64


class FileLock:
    """An exclusive flock on an open file. Leaving the `with` unlocks and closes it.

    It waits no longer than `timeout` seconds (30) for another process, and then raises `on_timeout`.
    """

    def __init__(self, fd: int, timeout: float | None = None, on_timeout: Exception | None = None) -> None:
        self._fd, self._timeout = fd, LOCK_TIMEOUT_S if timeout is None else timeout
        self._on_timeout = on_timeout or TimeoutError(errno.ETIMEDOUT, "another process holds a lock for too long")

    def __enter__(self) -> Self:
        try:
            self._lock_before(time.monotonic() + self._timeout)
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def _lock_before(self, deadline: float) -> None:
        # flock has no timeout, and a signal to interrupt it would belong to the host.
        pause = _SHORTEST_PAUSE_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise self._on_timeout from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


class NameLock(FileLock):
    """The file that says which task has a name, locked while that is read and changed."""

    def __init__(self, path: str, opener: Callable[[str], int]) -> None:
        super().__init__(opener(path))
        self._path, self._opener = path, opener

    def __enter__(self) -> Self:
        super().__enter__()
        while not self._is_current():
            os.close(self._fd)
            self._fd = self._opener(self._path)
            super().__enter__()
        return self

    def _is_current(self) -> bool:
        """Return whether the path still leads to our file: it may have been removed while we waited for the lock."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    @property
    def task_id(self) -> str:
        return os.pread(self._fd, _NAME_BYTES, 0).decode(errors="replace").strip()

    def assign(self, task_id: str) -> None:
        os.pwrite(self._fd, task_id.ljust(_NAME_BYTES - 1).encode() + b"\n", 0)


def try_flock(fd: int) -> bool:
    """Lock an open file without waiting; close it and return False if another process holds the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        os.close(fd)
        return False


# --- holds -------------------------------------------------------------------------------
#
# A hold is a shared lock on `launch.json`, which exists before the task is published, so the process that starts a
# task holds it from its first moment. It is an open file description lock (F_OFD_SETLK): unlike flock it can be
# queried (F_OFD_GETLK) without being taken, so a probe neither makes a concurrent `Hold.take` fail nor looks like a
# holder to another probe. A remover takes the lock exclusively and keeps it until the directory is renamed.


class Hold:
    """Keeps tasks that have ended from being removed while a caller still has to report them."""

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
                fd = _open_launch(directory, os.O_RDONLY)
            except OSError:
                return self
            if _try_lock(fd, fcntl.F_RDLCK):
                self._fds.append(fd)
                return self
            os.close(fd)  # open it again: after the removal there is no such file
            if time.monotonic() >= deadline:
                return self
            time.sleep(_SHORTEST_PAUSE_S)

    def close(self) -> None:
        while self._fds:
            unlock_and_close(self._fds.pop())


def is_held(directory: str) -> bool:
    """Return whether a caller still has to report this task."""
    fd = _open_launch(directory, os.O_RDONLY)
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _lock_request(fcntl.F_WRLCK))
    finally:
        os.close(fd)
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def lock_for_removal(directory: str) -> int | None:
    """Keep new holds out until the task is renamed; None if it is held. Release with `unlock_and_close`."""
    fd = _open_launch(directory, os.O_RDWR)
    if _try_lock(fd, fcntl.F_WRLCK):
        return fd
    os.close(fd)
    return None


def unlock_and_close(fd: int) -> None:
    _try_lock(fd, fcntl.F_UNLCK)
    os.close(fd)


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock_request(how))
        return True
    except OSError:
        return False  # a conflicting lock, or a file system without locks


def _lock_request(how: int) -> bytes:
    return struct.pack(_STRUCT_FLOCK, how, os.SEEK_SET, 0, 0, 0)


def _open_launch(directory: str, how: int) -> int:
    return open_regular(os.path.join(directory, LAUNCH), how)
