"""Where each reader of a task stands. A file for each reader, beside the output, gone with the task."""

from __future__ import annotations

import os

from outlast.model import START, Cursor

_DIRECTORY = "readers"
_LINE = 48  # bytes of a place, always: so a new one can be written over an old one


def place_of(directory: str, reader: str) -> Cursor:
    """How far `reader` has read."""
    try:
        with open(os.path.join(directory, _DIRECTORY, _file_name(reader))) as file:
            stdout, stderr = file.read(64).split()
            return Cursor(max(0, int(stdout)), max(0, int(stderr)))
    except (FileNotFoundError, ValueError):
        return START


def move(directory: str, reader: str, place: Cursor) -> None:
    """Remember how far `reader` has read."""
    path = os.path.join(directory, _DIRECTORY, _file_name(reader))
    line = f"{place.stdout} {place.stderr}".ljust(_LINE - 1) + "\n"
    try:
        _replace(path, line.encode())
    except OSError:
        # A full disk must not make reading fail. It can still take the place of one that has
        # a file; for a reader that is new, what it reads now will be new again.
        _overwrite(path, line.encode())


def _replace(path: str, line: bytes) -> None:
    try:
        os.mkdir(os.path.dirname(path), 0o700)
    except FileExistsError:
        pass
    aside = os.path.join(os.path.dirname(path), f".{os.urandom(4).hex()}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(line)
        os.rename(aside, path)
    except OSError:
        if os.path.lexists(aside):
            os.unlink(aside)
        raise


def _overwrite(path: str, line: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.pwrite(fd, line, 0)
    finally:
        os.close(fd)


def _file_name(reader: str) -> str:
    # A name may hold anything; a file name may not.
    safe = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else f"%{ord(c):x}." for c in reader)
    if len(safe) > 150:
        from hashlib import sha256

        # Ends unlike any name that was not shortened: there a dot follows each %.
        safe = safe[:80] + "%" + sha256(reader.encode(errors="surrogatepass")).hexdigest()
    return safe or "%"
