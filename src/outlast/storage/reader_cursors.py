"""Where each reader of a task stands. A file for each reader, beside the output, gone with the task.

A reader locks its file (flock) while it takes the place, reads from there and moves the place. So two processes that
read as the same reader never get the same bytes.
"""

from __future__ import annotations

import fcntl
import os
import time

from outlast.errors import ReaderBusy
from outlast.linux.files import open_regular
from outlast.storage.locks import Held
from outlast.types import START, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

PATIENCE_S = 10.0  # how long one reader waits for another one of the same name
_RETRY_S = 0.005
_DIRECTORY = "readers"
_LINE = 48  # bytes of a place, always: so a new one can be written over an old one


class Place:
    """How far one reader has read. While it is open, no other process reads as the same reader."""

    cursor: Cursor = START

    def __init__(self, directory: str, reader: str) -> None:
        self._path = _path(directory, reader)
        self._fd = -1

    def __enter__(self) -> Self:
        try:
            self._fd = _opened(self._path)
        except OSError:
            # A full disk, or one that cannot be written to. Reading goes on: from a place that is there.
            try:
                self._fd = open_regular(self._path)
            except OSError:
                return self
        try:
            self._lock()
            self.cursor = _parse(os.pread(self._fd, _LINE, 0))
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def _lock(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ReaderBusy(
                        "What is new cannot be read now: another process is reading it as the same reader; "
                        "try again when that has finished, or read from a cursor."
                    ) from None
            time.sleep(_RETRY_S)

    def move(self, place: Cursor) -> None:
        """Remember how far the reader has read."""
        if self._fd < 0 or place == self.cursor:
            return
        line = f"{place.stdout} {place.stderr}".ljust(_LINE - 1) + "\n"
        try:
            # Over the old one: renaming a new one into its place would make ext4 write it to the disk.
            os.pwrite(self._fd, line.encode(), 0)
        except OSError:
            # A full disk must not make reading fail. It can still take the place of one that has
            # a file; for a reader that is new, what it reads now will be new again.
            return
        self.cursor = place

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough: a child that the host forked may have it open
            os.close(self._fd)
            self._fd = -1


def place_of(directory: str, reader: str) -> Cursor:
    """How far `reader` has read. Does not wait for a reader that is just reading."""
    try:
        fd = open_regular(_path(directory, reader))
    except FileNotFoundError:
        return START
    try:
        line = os.pread(fd, _LINE, 0)
        while (again := os.pread(fd, _LINE, 0)) != line:
            line = again  # it was being written: one half may be old, the other one new
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
    """True for the first caller only. On a full disk it stays True: said twice is better than never."""
    try:
        fd = _opened(_path(directory, reader))
    except OSError:
        return True
    with Held(fd):
        if os.fstat(fd).st_size:
            return False
        try:
            os.write(fd, b"1 0".ljust(_LINE - 1) + b"\n")
        except OSError:
            pass
        return True


def move(directory: str, reader: str, place: Cursor) -> None:
    """Remember how far `reader` has read."""
    with Place(directory, reader) as mine:
        mine.move(place)


def _opened(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT
    try:
        return open_regular(path, flags)
    except FileNotFoundError:
        try:
            os.mkdir(os.path.dirname(path), 0o700)
        except FileExistsError:
            pass
        return open_regular(path, flags)


def _path(directory: str, reader: str) -> str:
    return os.path.join(directory, _DIRECTORY, _file_name(reader))


def _file_name(reader: str) -> str:
    # A name may hold anything; a file name may not.
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else f"%{ord(c):x}." for c in reader)
    if len(safe) > 150:
        from hashlib import sha256

        # Ends unlike any name that was not shortened: there a dot follows each %.
        safe = safe[:80] + "%" + sha256(reader.encode(errors="surrogatepass")).hexdigest()
    return safe or "%"
