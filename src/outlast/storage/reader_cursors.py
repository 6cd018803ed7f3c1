"""How far each reader has read a task's output: a file for each reader in `readers/`, removed with the task.

A reader locks its file (flock) while it reads from its cursor and moves the cursor. So two processes that read as the
same reader never get the same bytes.
"""

from __future__ import annotations

import os

from outlast.errors import ReaderBusy
from outlast.linux.files import FileLock, open_regular
from outlast.types import START, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

LOCK_TIMEOUT_S = 10.0  # how long one process waits for another one that reads as the same reader
_DIRECTORY = "readers"
_LINE = 48  # bytes of a cursor, always: so that a new one is written over the old one


class ReaderCursor:
    """The cursor of one reader. While it is open, no other process reads as the same reader."""

    cursor: Cursor = START

    def __init__(self, directory: str, reader: str) -> None:
        self._path = _path(directory, reader)
        self._lock: FileLock | None = None

    def __enter__(self) -> Self:
        self._fd = _open(self._path)
        if self._fd < 0:
            return self
        self._lock = FileLock(self._fd, LOCK_TIMEOUT_S, _busy).__enter__()
        self.cursor = _parse(os.pread(self._fd, _LINE, 0))
        return self

    def save(self, cursor: Cursor) -> None:
        """Store how far the reader has read."""
        if self._fd < 0 or cursor == self.cursor:
            return
        line = f"{cursor.stdout} {cursor.stderr}".ljust(_LINE - 1) + "\n"
        try:
            # Overwrite the old one: a rename would make ext4 write it to the disk at once.
            os.pwrite(self._fd, line.encode(), 0)
        except OSError:
            return  # the disk is full. Only a new reader needs space; it gets the same output once more.
        self.cursor = cursor

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.__exit__()
            self._lock, self._fd = None, -1


def _busy() -> ReaderBusy:
    return ReaderBusy(
        "What is new cannot be read now: another process is reading it as the same reader; "
        "try again when that has finished, or read from a cursor."
    )


def read_cursor(directory: str, reader: str) -> Cursor:
    """Return how far `reader` has read, without waiting for a process that reads at this moment."""
    try:
        fd = open_regular(_path(directory, reader))
    except FileNotFoundError:
        return START
    try:
        line = os.pread(fd, _LINE, 0)
        while (again := os.pread(fd, _LINE, 0)) != line:
            line = again  # a torn read: one half may be old, the other one new
        return _parse(line)
    finally:
        os.close(fd)


def _parse(line: bytes) -> Cursor:
    try:
        stdout, stderr = line.split()
        return Cursor(max(0, int(stdout)), max(0, int(stderr)))
    except ValueError:
        return START


def claim_once(directory: str, reader: str) -> bool:
    """Return True for the first caller only; on a full disk for each: a sentence twice is better than never."""
    with ReaderCursor(directory, reader) as place:
        is_first = place.cursor == START
        place.save(Cursor(1, 0))
    return is_first


def _open(path: str) -> int:
    """Open the file of a cursor; -1 if there is none, and the disk is full or read-only."""
    try:
        os.mkdir(os.path.dirname(path), 0o700)
    except OSError:
        pass  # mostly it is there
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return open_regular(path, flags)
        except OSError:
            continue  # the cursor that is there can still be read
    return -1


def _path(directory: str, reader: str) -> str:
    return os.path.join(directory, _DIRECTORY, _file_name(reader))


def _file_name(reader: str) -> str:
    # The name of a reader may contain any character; a file name may not.
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else f"%{ord(c):x}." for c in reader)
    if len(safe) > 150:
        from hashlib import sha256

        # Unlike any name that was not shortened: there a dot follows each %.
        safe = safe[:80] + "%" + sha256(reader.encode(errors="surrogatepass")).hexdigest()
    return safe or "%"
