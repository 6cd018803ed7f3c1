"""Writes to the input of a running task that keeps it open."""

from __future__ import annotations

import errno
import os
import select

from outlast.errors import AlreadyEnded, Hint, InputRefused
from outlast.linux.files import open_regular
from outlast.storage.layout import END_OF_INPUT, STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.executors.base import Executor

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
_CHUNK_BYTES = 65536
_OPEN_INPUT = Hint(
    "start it with `--stdin open`", "start it with `stdin=Stdin(open=True)`", "start it with its input open"
)
_WAKE = "wake"  # the named pipe on which a guard listens for the end of the input


def send(executor: Executor, task_id: str, data: bytes, eof: bool) -> None:
    """Write all of `data`, and end the input if `eof`; or refuse, and say why."""
    directory = executor.registry.home.task(task_id)
    if not executor.registry.launch_of(task_id).stdin.open:
        raise InputRefused(f"{task_id} takes no input.", _OPEN_INPUT)
    if executor.has_reached(task_id, "ended"):
        raise AlreadyEnded(f"{task_id} has ended and reads no more input.")
    if not executor.has_reached(task_id, "begun"):
        raise InputRefused(f"{task_id} is pending and reads no input yet; send it once it runs.")
    if os.path.exists(os.path.join(directory, END_OF_INPUT)):
        raise InputRefused(f"The input of {task_id} was ended before; nothing more can be sent.")
    try:
        if data:
            _write(directory, data)
        if eof:
            _end(directory)
    except OSError as error:
        raise executor.explain(task_id, error) from None


def _write(directory: str, data: bytes) -> None:
    """Write all of it, or refuse: a command that does not read must not block the caller for ever."""
    task_id, sent = os.path.basename(directory), 0
    try:
        fd = _open_fifo(directory, STDIN)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise InputRefused(f"{task_id} has closed its input.") from None
        raise
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
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


def _end(directory: str) -> None:
    """Tell the guards to close the input. A guard that replaces one of them later finds the file."""
    os.close(open_regular(os.path.join(directory, END_OF_INPUT), os.O_WRONLY | os.O_CREAT))
    try:
        fd = _open_fifo(directory, _WAKE)
    except OSError:
        return  # no guard listens now
    try:
        os.write(fd, b"\0")
    except OSError:
        pass  # the pipe is full, so the guard wakes up anyway
    finally:
        os.close(fd)


def _open_fifo(directory: str, name: str) -> int:
    return os.open(os.path.join(directory, name), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
