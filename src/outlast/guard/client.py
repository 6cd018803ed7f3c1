"""Starts `outlast-guard` for a task, and talks to it: docs/guard.md defines the description and the messages.

One connection belongs to one task. Closing it changes nothing for a task that runs; a prepared task, which waits for
its command, is removed by its guard.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from functools import cache

from outlast.light import socket
from outlast.storage import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outlast.types import Launch

    Value = str | bytes | int | float
    Item = tuple[str, Value]

HEADER = b"outlast-launch 1\n"
LAUNCH_MOST_HELD = 16  # descriptors that the guards hold for a task, as in guard.h
START_PATIENCE_S = 30.0  # a disk or a sandbox that is slow; a guard that hangs longer than this is stuck
_RETRY_S = 0.01
_MOST_BYTES = 4096  # of a message
_FDS_TO_START = 4  # a socket pair, the launch description, /dev/null
_FDS_TO_READ = 8  # descriptors that waiting for a task and reading it take at most
_ENDLESS_S = 1e9  # longer than any clock counts


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

    def __init__(self, connected: socket.socket, starter: int) -> None:
        """`starter` is the process that forks the keeper and exits: our child."""
        self._socket, self._starter = connected, starter
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
            try:
                message = self._read(max(0.0, deadline - time.monotonic()))
            except OSError as error:
                # `poll` may lack memory for a moment. The guard may publish the task all the same, so keep listening.
                if time.monotonic() >= deadline:
                    raise Refused(errno.ECHILD, str(error)) from None
                time.sleep(_RETRY_S)
                continue
            match message:
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
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(timeout * 1000):
            return None
        try:
            message = self._socket.recv(_MOST_BYTES)
        except ConnectionResetError:
            message = b""
        self.reap_starter()
        return parse_message(message)

    def reap_starter(self) -> None:
        """Reap the process that forked the keeper. Its exit takes a millisecond, in which the caller has other work."""
        starter, self._starter = self._starter, 0
        try:
            if starter:
                os.waitpid(starter, 0)
        except ChildProcessError:
            pass  # the host reaps its children itself

    def close(self) -> None:
        """Stop listening. A task that runs goes on; a prepared one is removed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # a process that the host forked has it open, too
        except OSError:
            pass
        self.leave()

    def leave(self) -> None:
        """Stop listening to a task that runs."""
        self._socket.close()
        self.reap_starter()


def check_descriptors_left() -> None:
    """Raise OSError if too few descriptors are left to start a guard, wait for its task and read it.

    Before the guard starts: from then on the task may be published, and a caller that fails would not know of it.
    """
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(opened) < _FDS_TO_START + _FDS_TO_READ:
            opened.append(os.dup(opened[0]))
    finally:
        for fd in opened:
            os.close(fd)


@cache
def find_guard() -> str:
    """Return the path of the program. In a source tree it is built first if a C file is newer, once in a process."""
    here = os.path.dirname(os.path.abspath(__file__))
    program, builder = os.path.join(here, "outlast-guard"), os.path.join(here, "../../../guard_build.py")
    with os.scandir(here) as entries:
        changed = [entry.stat().st_mtime_ns for entry in entries if entry.name.endswith((".c", ".h"))]
    if changed and (not os.path.exists(program) or os.stat(program).st_mtime_ns < max(changed)):
        from subprocess import run  # a wheel has no C files

        built = run([sys.executable, builder], check=False, capture_output=True, text=True)
        if built.returncode:
            raise RuntimeError(built.stderr)
    return program


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
    return Connection(ours, pid)


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
