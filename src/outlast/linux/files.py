"""Files: open them although a command may have replaced them, find programs."""

from __future__ import annotations

import errno
import os
import stat


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file; OSError (ENXIO) for everything else.

    O_NONBLOCK: opening a FIFO that stands in its place would otherwise wait for its other end, without a bound.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENXIO, "It is not a regular file", path)
    return fd


def find_program(name: str, path: str | None, cwd: str = "") -> str | None:
    """The path of a program, as `execvp` finds it (`shutil.which` imports every kind of archive)."""
    if "/" in name:
        return name if _is_program(os.path.join(cwd, name)) else None
    path = os.defpath if path is None else path
    found = (os.path.join(cwd, place, name) for place in (path.split(":") if path else ()))
    return next(filter(_is_program, found), None)


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)
