"""Writes to the input of a running task that keeps it open, and sets the size of its terminal."""

from __future__ import annotations

import errno
import os
import select

from outlast.errors import WITH_TERMINAL, AlreadyEnded, Hint, InputRefused
from outlast.linux.files import open_regular
from outlast.storage.layout import END_OF_INPUT, SIZE, STDIN
from outlast.storage.record import guards_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.executors.base import Executor

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
_CHUNK_BYTES = 65536
_OPEN_INPUT = Hint(
    "start it with `--stdin open`", "start it with `stdin=Stdin(open=True)`", "start it with its input open"
)
_WAKE = "wake"  # the named pipe on which a guard listens for the end of the input, and for a size
_LONGEST_LINE = 4095  # N_TTY_BUF_SIZE of the kernel, without the end of the line
_END_KEY = b"\x04"  # Ctrl-D


def send(executor: Executor, task_id: str, data: bytes, eof: bool) -> None:
    """Write all of `data`, and end the input if `eof`; or refuse, and say why."""
    directory, launch = executor.registry.home.task(task_id), executor.registry.launch_of(task_id)
    if not launch.stdin.open:
        raise InputRefused(f"{task_id} takes no input.", _OPEN_INPUT)
    if executor.has_reached(task_id, "ended"):
        raise AlreadyEnded(f"{task_id} has ended and reads no more input.")
    if not executor.has_reached(task_id, "begun"):
        raise InputRefused(f"{task_id} is pending and reads no input yet; send it once it runs.")
    if os.path.exists(os.path.join(directory, END_OF_INPUT)):
        raise InputRefused(f"The input of {task_id} was ended before; nothing more can be sent.")
    if eof and launch.tty is not None:
        data, eof = end_terminal_input(data), False
    try:
        if launch.tty is not None and max(map(len, data.replace(b"\r", b"\n").split(b"\n"))) > _LONGEST_LINE:
            _check_takes_long_lines(directory)
        if data:
            _write(directory, data)
        if eof:
            os.close(open_regular(os.path.join(directory, END_OF_INPUT), os.O_WRONLY | os.O_CREAT))
            _wake(directory)
    except OSError as error:
        raise executor.explain(task_id, error) from None


def end_terminal_input(data: bytes) -> bytes:
    """Return the input with the key that ends it."""
    # The key ends a line that was begun; only at the beginning of a line it ends the input.
    return data + _END_KEY * (2 if data and not data.endswith((b"\n", b"\r")) else 1)


def resize(executor: Executor, task_id: str, columns: int, rows: int) -> None:
    """Set the size of a task's terminal, or refuse, and say why."""
    directory = executor.registry.home.task(task_id)
    if executor.registry.launch_of(task_id).tty is None:
        raise InputRefused(f"{task_id} has no terminal, so it has no size.", WITH_TERMINAL)
    if executor.has_reached(task_id, "ended"):
        raise AlreadyEnded(f"{task_id} has ended; its screen stays as it is.")
    if not executor.has_reached(task_id, "begun"):
        raise InputRefused(f"{task_id} is pending and has no terminal yet; resize it once it runs.")
    try:
        # In place and always as long: one write, so no reader sees a part of it.
        with open(open_regular(os.path.join(directory, SIZE), os.O_WRONLY | os.O_CREAT), "wb", buffering=0) as file:
            file.write(b"%04dx%04d\n" % (columns, rows))
        _wake(directory)
    except OSError as error:
        raise executor.explain(task_id, error) from None


def _check_takes_long_lines(directory: str) -> None:
    """Refuse a line of which the kernel would drop the end, because the program reads line by line."""
    import termios  # most input is short

    try:
        fd = os.open(f"/proc/{guards_of(directory).command.pid}/fd/0", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return  # it runs as another user, or has closed it
    try:
        takes_lines = bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except termios.error:
        return
    finally:
        os.close(fd)
    if takes_lines:
        raise InputRefused(
            f"The terminal of {os.path.basename(directory)} takes lines of at most {_LONGEST_LINE} bytes while its "
            "program reads line by line; send shorter ones."
        )


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


def _wake(directory: str) -> None:
    """Let the guards look at the files with requests. A guard that replaces one of them later finds them, too."""
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
