"""Files: open them although a command may have replaced them, lock them; find programs."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

LOCK_TIMEOUT_S = 30.0  # these locks are held for milliseconds: a process that holds one longer was stopped
_SHORTEST_PAUSE_S = 0.0005  # about what a merge of a session takes
_LONGEST_PAUSE_S = 0.02


def get_cwd() -> str:
    """Return the directory that this process is in; empty if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file; OSError (ENXIO) for everything else.

    O_NONBLOCK: opening a FIFO that stands in its place would otherwise wait for its other end, without a bound.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENXIO, "It is not a regular file", path)
    return fd


def read_file(path: str, most: int = sys.maxsize) -> bytes:
    """Return what a regular file holds, or its first `most` bytes."""
    fd = open_regular(path)
    try:
        # Not more than its size: `read` allocates as many bytes as it is asked for, and returns at most 2 GiB.
        left, found = min(os.fstat(fd).st_size, most), b""
        while left > len(found) and (data := os.read(fd, left - len(found))):
            found = found + data if found else data
        return found
    finally:
        os.close(fd)


def create_file(path: str, data: bytes = b"") -> None:
    """Create a private file with this data; FileExistsError if there is one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_and_close(fd, data)
    except BaseException:
        os.unlink(path)  # the disk is full: half of a file must not stay
        raise


def write_and_close(fd: int, data: bytes) -> None:
    """Write all of the data to an open file, and close it."""
    try:
        while data:  # one call, unless a signal or a full disk cuts it short
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Remove a file if it is there."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass


def find_program(name: str, path: str | None, cwd: str = "") -> str | None:
    """Return the path of a program, as `execvp` finds it (`shutil.which` imports every kind of archive)."""
    if "/" in name:
        return name if _is_program(os.path.join(cwd, name)) else None
    path = os.defpath if path is None else path
    found = (os.path.join(cwd, place, name) for place in (path.split(":") if path else ()))
    return next(filter(_is_program, found), None)


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _timed_out() -> Exception:
    return TimeoutError(errno.ETIMEDOUT, "another process holds a lock for too long")


class FileLock:
    """An exclusive flock on an open file. Leaving the `with` unlocks and closes it.

    It waits no longer than `timeout` seconds (30) for another process, and then raises what `on_timeout` returns.
    """

    def __init__(self, fd: int, timeout: float | None = None, on_timeout: Callable[[], Exception] = _timed_out) -> None:
        self._fd, self._timeout = fd, LOCK_TIMEOUT_S if timeout is None else timeout
        self._on_timeout = on_timeout

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
        while not try_lock(self._fd):
            if time.monotonic() >= deadline:
                raise self._on_timeout()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def __exit__(self, *_: object) -> None:
        unlock_and_close(self._fd)


def try_lock(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file without waiting; return False if another process holds a lock that excludes this one."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def open_locked(path: str, how: int = fcntl.LOCK_EX, flags: int = os.O_RDONLY) -> int | None:
    """Open and lock a regular file without waiting; None if another process holds a lock that excludes this one."""
    fd = open_regular(path, flags)
    if try_lock(fd, how):
        return fd
    os.close(fd)
    return None


def unlock_and_close(fd: int) -> None:
    """Unlock before closing: a child that the host forked may have the descriptor open."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def measure_size(directory: str, without: tuple[str, ...] = ()) -> int:
    """Return the bytes that a directory takes on disk, without some of its files."""
    size = os.stat(directory).st_blocks * 512
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    size += measure_size(entry.path)
                elif entry.name not in without:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue  # it was removed meanwhile
    return size


def remove_tree(directory: str) -> None:
    """Remove a directory and all that is in it, as far as that can be done."""
    from shutil import rmtree  # takes 4 ms to import

    try:
        os.unlink(directory)  # a planted link is not followed
    except OSError:
        rmtree(directory, ignore_errors=True)
