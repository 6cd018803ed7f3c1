"""Where each reader of a task stands. A file for each reader, beside the output, gone with the task."""

from __future__ import annotations

import os

from outlast.model import START, Cursor

_DIRECTORY = "readers"


def place_of(directory: str, reader: str) -> Cursor:
    """How far `reader` has read."""
    try:
        with open(os.path.join(directory, _DIRECTORY, _file_name(reader))) as file:
            stdout, stderr = file.read(64).split()
            return Cursor(int(stdout), int(stderr))
    except (FileNotFoundError, ValueError):
        return START


def move(directory: str, reader: str, place: Cursor) -> None:
    """Remember how far `reader` has read."""
    readers = os.path.join(directory, _DIRECTORY)
    try:
        os.mkdir(readers, 0o700)
    except FileExistsError:
        pass
    aside = os.path.join(readers, f".{os.urandom(4).hex()}")
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{place.stdout} {place.stderr}\n")
    os.rename(aside, os.path.join(readers, _file_name(reader)))


def _file_name(reader: str) -> str:
    # A name may hold anything; a file name may not.
    safe = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}." for c in reader)
    if len(safe) > 150:
        from hashlib import sha256

        safe = safe[:80] + sha256(reader.encode()).hexdigest()
    return safe or "%"
