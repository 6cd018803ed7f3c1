"""Starts `outlast-guard` for a task, and reads what it says.

One connection belongs to one task. Closing it changes nothing for a task that runs; a prepared task, which waits for
its command, is removed by its guard.
"""

from __future__ import annotations

import errno
import os
import select
import time

from outlast.frozen import frozen
from outlast.guard.build import find_guard
from outlast.guard.protocol import encode_items, parse_message
from outlast.light import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from outlast.guard.protocol import Item

START_PATIENCE_S = 30.0  # a disk or a sandbox that is slow; a guard that hangs longer than this is stuck
_MOST_BYTES = 4096  # of a message


@frozen
class Started:
    """The task exists, and its command was released."""

    pid: int
    time: float


@frozen
class Refused:
    """There is no task, and there will be none."""

    errno: int
    reason: str

    @property
    def is_taken(self) -> bool:
        """Whether another task has the id."""
        return self.errno in (errno.EEXIST, errno.ENOTEMPTY)


GONE = Refused(errno.ECHILD, "both guard processes were killed at the start")


class Connection:
    """The caller's end of the connection to a guard."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._ended = False

    def fileno(self) -> int:
        """Readable when the guard said something: that the command ended, above all."""
        return self._line.fileno()

    def begin(self, terms: Iterable[Item]) -> None:
        """Let a prepared task begin. A guard that is gone does not hear it, and `wait_started` says so."""
        try:
            self._line.sendall(encode_items(terms))
        except OSError:
            pass

    def wait_started(self) -> Started | Refused | None:
        """Wait until the task exists or was refused; None if the guard says nothing for too long."""
        deadline = time.monotonic() + START_PATIENCE_S
        while True:
            message = self._read(max(0.0, deadline - time.monotonic()))
            if message is None:
                return None
            match message:
                case "started", [pid, _, at]:
                    return Started(int(pid), float(at))
                case "refused", [number, reason]:
                    return Refused(int(number), reason)
                case "", _:
                    return GONE

    def is_prepared(self) -> bool:
        """Whether a prepared task still waits for its command."""
        while not self._ended and (message := self._read(0.0)) is not None:
            self._ended = message[0] != "prepared"
        return not self._ended

    def has_ended(self) -> bool:
        """Whether the guard said that the command ended. False: it may have ended all the same.

        The end of the connection alone proves nothing: a killed guard closes it before it releases the task's lock.
        """
        while not self._ended and (message := self._read(0.0)) is not None:
            self._ended = message[0] == "ended"
            if message[0] == "":
                break
        return self._ended

    def _read(self, patience: float) -> tuple[str, list[str]] | None:
        """The next message; one without a word at the end of the connection; None if none came in time."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        if not poll.poll(patience * 1000):
            return None
        try:
            return parse_message(self._line.recv(_MOST_BYTES))
        except ConnectionResetError:
            return "", []

    def close(self) -> None:
        """Stop listening. A task that runs goes on; a prepared one is removed."""
        try:
            self._line.shutdown(socket.SHUT_RDWR)  # closing is not enough: a process that the host forked has it open
        except OSError:
            pass
        self._line.close()

    def leave(self) -> None:
        """Stop listening to a task that runs."""
        self._line.close()


def start_guard(description: bytes, inherit: Iterable[int]) -> Connection:
    """Start a guard with this launch description, which names the descriptors `inherit`. OSError if that fails."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launch = os.memfd_create("outlast-launch", os.MFD_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        _write_all(launch, description)
        # dup2 of a descriptor to itself clears its close-on-exec flag in the child only.
        kept = [launch, theirs.fileno(), *inherit]
        actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in kept] + [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)]
        guard = find_guard()
        words = [guard, str(launch), str(theirs.fileno())]
        # Not the caller's environment: it may hold secrets, and the guard lives long. The variable is for interpreters
        # that `on-end` executes and that find their library only by it.
        env = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
        pid = os.posix_spawn(guard, words, env, file_actions=actions)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(launch)
        os.close(null)
    try:
        os.waitpid(pid, 0)  # it forks the keeper and exits at once; the keeper says what happens
    except ChildProcessError:
        pass  # the host reaps its children itself
    return Connection(ours)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
