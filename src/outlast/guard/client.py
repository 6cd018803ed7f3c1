"""Starts `outlast-guard` for a task, talks to it and waits for it: docs/guard.md defines descriptions and messages.

One connection belongs to one task. Closing it changes nothing for a task that runs; a prepared task, which waits for
its command, is removed by its guard. Processes without a connection wait for the bells of the task. Everything that
can be waited for is a descriptor, and the order is always: arm, look, wait. Whatever changes after the look makes a
descriptor ready that was armed before it.
"""

from __future__ import annotations

import errno
import os
import select
import time

from outlast.guard.build import find_guard
from outlast.light import socket
from outlast.linux import process
from outlast.storage import output, record, status
from outlast.storage.bell import Listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from outlast.types import Launch

    Value = str | bytes | int | float
    Item = tuple[str, Value]

HEADER = b"outlast-launch 1\n"
START_PATIENCE_S = 30.0  # a disk or a sandbox that is slow; a guard that hangs longer than this is stuck
_MOST_BYTES = 4096  # of a message
_FDS_TO_START = 4  # a socket pair, the launch description, /dev/null
_FDS_TO_READ = 8  # descriptors that waiting for a task and reading it take at most
_ENDLESS_S = 1e9  # longer than any clock counts
# The bell of a pending task wakes its waiters when it begins. But if both guards of a running task are killed with
# kill -9, no process starts the next one. So a waiter checks the queue itself.
_QUEUE_RECHECK_S = 0.5
_LONGEST_POLL_S = 1e6  # poll takes a C int of milliseconds, which is 24 days


# --- descriptions and messages -----------------------------------------------------------


def encode_items(items: Iterable[Item]) -> bytes:
    """Encode items as the guard reads them: also those that let a prepared task begin."""
    return b"".join(_encode(key, value) for key, value in items)


def encode_launch(items: Iterable[Item]) -> bytes:
    """Encode a whole launch description."""
    return HEADER + encode_items(items) + _encode("end", b"")


def _encode(key: str, value: Value) -> bytes:
    if isinstance(value, float):
        value = f"{value:.9f}"
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return b"%s %d\n%s\n" % (key.encode(), len(data), data)


def limit_items(launch: Launch) -> Iterator[Item]:
    """Yield what a prepared shell is told with its command: how long it may run, how much of its output is kept."""
    bound = output.bound_of(launch.output_limit, launch.split)
    yield from (("head", bound.head), ("segment", bound.segment), ("floor", launch.free_floor), ("grace", launch.grace))
    if launch.limit is not None and launch.limit < _ENDLESS_S:
        yield "limit", launch.limit


def parse_message(message: bytes) -> tuple[str, list[str]]:
    """Parse what the guard says: a word, and what belongs to it. The reason of a refusal is one string."""
    word, _, rest = message.decode("utf-8", "surrogateescape").partition(" ")
    return word, rest.split(" ", 1) if word == "refused" else rest.split()


# --- start -------------------------------------------------------------------------------


class Refused(Exception):
    """There is no task, and there will be none."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_taken = number in (errno.EEXIST, errno.ENOTEMPTY)  # another task has the id
        self.is_gone = number == errno.ECHILD  # no guard is left that could say why


class Connection:
    """The caller's end of the connection to a guard."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._ended = False

    def fileno(self) -> int:
        """Return the descriptor; readable when the guard said something: that the command ended, above all."""
        return self._socket.fileno()

    def begin(self, limits: Iterable[Item]) -> None:
        """Let a prepared task begin. A guard that is gone does not hear it, and `wait_started` says so."""
        try:
            self._socket.sendall(encode_items(limits))
        except OSError:
            pass

    def wait_started(self) -> tuple[int, float]:
        """Wait until the task exists; returns the command's pid and the time. Raises `Refused`."""
        deadline = time.monotonic() + START_PATIENCE_S
        while True:
            match self._read(max(0.0, deadline - time.monotonic())):
                case "started", [pid, _, at]:
                    return int(pid), float(at)
                case "refused", [number, reason]:
                    raise Refused(int(number), reason)
                case None | ("", _):
                    raise Refused(errno.ECHILD, "both guard processes were killed at the start")

    def is_prepared(self) -> bool:
        """Return whether a prepared task still waits for its command."""
        while not self._ended and (message := self._read(0.0)) is not None:
            self._ended = message[0] != "prepared"
        return not self._ended

    def has_ended(self) -> bool:
        """Return whether the guard said that the command ended. False: it may have ended all the same.

        The end of the connection alone proves nothing: a killed guard closes it before it releases the task's lock.
        """
        while not self._ended and (message := self._read(0.0)) is not None:
            self._ended = message[0] == "ended"
            if message[0] == "":
                break
        return self._ended

    def _read(self, timeout: float) -> tuple[str, list[str]] | None:
        """Return the next message; one without a word at the end of the connection; None if none came in time."""
        if not is_ready(self.fileno(), timeout):
            return None
        try:
            return parse_message(self._socket.recv(_MOST_BYTES))
        except ConnectionResetError:
            return "", []

    def close(self) -> None:
        """Stop listening. A task that runs goes on; a prepared one is removed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # a process that the host forked has it open, too
        except OSError:
            pass
        self._socket.close()

    def leave(self) -> None:
        """Stop listening to a task that runs."""
        self._socket.close()


def check_descriptors_left() -> None:
    """Raise OSError if too few descriptors are left to start a guard, wait for its task and read it.

    Before the guard starts: from then on the task may be published, and a caller that fails would not know of it.
    """
    opened: list[int] = []
    try:
        while len(opened) < _FDS_TO_START + _FDS_TO_READ:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in opened:
            os.close(fd)


def start_guard(description: bytes, inherit: Iterable[int]) -> Connection:
    """Start a guard with this launch description, which names the descriptors `inherit`. OSError if that fails."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened: list[int] = []
    try:
        opened.append(launch := open_in_memory(description))
        opened.append(null := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        # dup2 of a descriptor to itself clears its close-on-exec flag in the child only.
        kept = [launch, theirs.fileno(), *inherit]
        actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in kept] + [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
        guard = find_guard()
        # Not the caller's environment: it may hold secrets, and the guard lives long. The variable is for interpreters
        # that `on-end` executes and that find their library only by it.
        env = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
        pid = os.posix_spawn(guard, [guard, str(launch), str(theirs.fileno())], env, file_actions=actions)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        for fd in opened:
            os.close(fd)
    try:
        os.waitpid(pid, 0)  # it forks the keeper and exits at once; the keeper says what happens
    except ChildProcessError:
        pass  # the host reaps its children itself
    return Connection(ours)


def open_in_memory(data: bytes) -> int:
    """Return a descriptor from which `data` can be read."""
    fd = os.memfd_create("outlast", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


# --- wait --------------------------------------------------------------------------------


class Watch:
    """What to wait on until a local task changes: its bells and its keeper's death, or a `connection` to its guard."""

    def __init__(self, directory: str, connection: Connection | None = None, ends_only: bool = False) -> None:
        """With `ends_only` it is not woken by what the command prints."""
        self._directory, self._ends_only = directory, ends_only
        self._connection = os.dup(connection.fileno()) if connection is not None else -1
        self._processes: tuple[int, ...] = ()
        self._command_runs = False
        self.look_again_s: float | None = None  # while the task is pending
        self._bell = Listener(directory)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def fds(self) -> tuple[int, ...]:
        return (*self._bell.fds, *self._processes) or (self._connection,)

    def arm(self) -> bool:
        """Notice every change from now on. Look at the task after this, unless it returns False: it has not ended."""
        if self._ends_only:
            self._bell.close()
            if self._connection >= 0 and not is_ready(self._connection):
                self._close_processes()
                return False
        try:
            if self._ends_only:
                self._watch_processes("command", "supervisor", "keeper")
            if not self._command_runs:  # with `ends_only`: it ended already; wait until its end is recorded
                self._bell.rearm()
                self._watch_processes("keeper")
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise status.explain_error(self._directory, error) from None
        return True

    def _watch_processes(self, *names: str) -> None:
        self._close_processes()
        self.look_again_s, self._command_runs = None, False
        if "guards" not in record.read(self._directory):
            self.look_again_s = _QUEUE_RECHECK_S
            return
        guards = status.guards_of(self._directory)
        for name in names:
            identity = getattr(guards, name)
            fd = process.open_pidfd(identity) if identity else None
            if fd is not None and is_ready(fd):
                os.close(fd)  # it ended; nothing more will come of it
                fd = None
            if name == "command":
                self._command_runs = fd is not None
            self._processes += (fd,) if fd is not None else ()

    def wait(self, timeout: float | None) -> bool:
        """Block until something changed; False if the timeout came first."""
        longest = _LONGEST_POLL_S if self.look_again_s is None else self.look_again_s
        try:
            ready = _poll(self.fds, longest if timeout is None else min(max(0.0, timeout), longest))
        except OSError as error:
            raise status.explain_error(self._directory, error) from None
        return ready or timeout is None or timeout > longest  # after a part of a long wait: look again

    def _close_processes(self) -> None:
        for fd in self._processes:
            os.close(fd)
        self._processes = ()

    def close(self) -> None:
        self._bell.close()
        self._close_processes()
        if self._connection >= 0:
            os.close(self._connection)
            self._connection = -1


def is_ready(fd: int, timeout: float = 0.0) -> bool:
    """Return whether there is something to read, or an end to see."""
    return _poll((fd,), timeout)


def _poll(fds: Iterable[int], timeout: float) -> bool:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


class Deadline:
    """When a wait ends, if ever."""

    def __init__(self, timeout: float | None) -> None:
        self._at = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def over(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at


def until(watch: Watch, done: Callable[[], bool], deadline: Deadline) -> bool:
    """Wait until `done`, or until the deadline; returns whether it is done."""
    while True:
        if watch.arm() and done():
            return True
        in_time = watch.wait(deadline.left())
        if done():
            return True  # before arming again: mostly this is the end
        if not in_time:
            return False
