"""Secrets that a server shares with the next one: random, in a file that only its owner can read."""

from __future__ import annotations

import os
import stat

from outlast.errors import StateRefused

_BYTES = 32


def secret(directory: str, name: str) -> str:
    """The secret of that name, made at the first time."""
    path = os.path.join(directory, name)
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    os.makedirs(directory, 0o700, exist_ok=True)
    aside = f"{path}.{os.urandom(4).hex()}"
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(os.urandom(_BYTES).hex() + "\n")
    try:
        os.link(aside, path)  # the first one wins; whoever reads it sees all of it
    except FileExistsError:
        pass
    finally:
        os.unlink(aside)
    return _read(path)


def _read(path: str) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise StateRefused(f"Others can read or wrote {path}; remove it, and a new one is made.")
        text = file.read(256).strip()
    if len(text) < _BYTES:
        raise StateRefused(f"{path} holds no secret of {_BYTES} characters; remove it, and a new one is made.")
    return text
