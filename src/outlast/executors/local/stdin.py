"""Writes to the input of a running task that keeps it open."""

from __future__ import annotations

import errno
import os
import select

from outlast.errors import InputRefused
from outlast.linux.files import open_regular
from outlast.storage.layout import END_OF_INPUT, STDIN

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
_CHUNK_BYTES = 65536
_WAKE = "wake"  # the named pipe on which a guard listens for the end of the input


def write_input(directory: str, data: bytes) -> None:
    """Write all of it, or refuse: a command that does not read must not block the caller for ever."""
    task_id = os.path.basename(directory)
    fd = _open_input(directory, task_id)
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    sent = 0
    try:
        while sent < len(data):
            if not poll.poll(INPUT_PATIENCE_S * 1000):
                raise InputRefused(f"{task_id} does not read its input: {sent} of {len(data)} bytes were taken.")
            try:
                sent += os.write(fd, data[sent : sent + _CHUNK_BYTES])
            except BlockingIOError:
                continue  # another process filled the pipe between the poll and the write
    except BrokenPipeError:
        raise InputRefused(f"{task_id} closed its input after {sent} of {len(data)} bytes.") from None
    finally:
        os.close(fd)


def _open_input(directory: str, task_id: str) -> int:
    try:
        path = os.path.join(directory, STDIN)
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise InputRefused(f"{task_id} has closed its input.") from None
        raise


def end_input(directory: str) -> None:
    """Tell the guards to close the input. A guard that replaces one of them later finds the file."""
    os.close(open_regular(os.path.join(directory, END_OF_INPUT), os.O_WRONLY | os.O_CREAT))
    try:
        fd = os.open(os.path.join(directory, _WAKE), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # no guard listens now
    try:
        os.write(fd, b"\0")
    except OSError:
        pass  # the pipe is full, so the guard wakes up anyway
    finally:
        os.close(fd)
