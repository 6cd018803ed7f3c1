"""Where each reader of a task stands. A file for each reader, beside the output, gone with the task."""

from __future__ import annotations

import fcntl
import os

from outlast.model import START, Cursor
from outlast.store.locks import Held

_DIRECTORY = "readers"
_LINE = 48  # bytes of a place, always: so a new one can be written over an old one


def place_of(directory: str, reader: str) -> Cursor:
    """How far `reader` has read."""
    try:
        fd = os.open(_path(directory, reader), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return START
    with Held(fd, fcntl.LOCK_SH):  # not the half of what somebody is just writing
        line = os.read(fd, _LINE)
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
    line = f"{place.stdout} {place.stderr}".ljust(_LINE - 1) + "\n"
    try:
        # Over the old one: renaming a new one into its place would make ext4 write it to the disk.
        fd = _opened(_path(directory, reader))
    except OSError:
        return
    try:
        with Held(fd):
            os.pwrite(fd, line.encode(), 0)
    except OSError:
        # A full disk must not make reading fail. It can still take the place of one that has
        # a file; for a reader that is new, what it reads now will be new again.
        pass


def _opened(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        try:
            os.mkdir(os.path.dirname(path), 0o700)
        except FileExistsError:
            pass
        return os.open(path, flags, 0o600)


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
