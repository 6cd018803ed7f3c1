"""Opening the files of a task. A command can replace them, so none of them is trusted to be a file."""

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
