"""What both guards of a task hold, so that either can go on alone.

The working directory of a guard is the task's directory: it follows when the directory
is published, and no path has to be carried along.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from outlast import process
from outlast.errors import OutlastError
from outlast.frozen import frozen
from outlast.lean import socket
from outlast.model import BUBBLEWRAP, Exited, Guards
from outlast.store import launchfile, record, staging, status
from outlast.supervise import invoke

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.model import Identity, Outcome, Surroundings, Terms


_SAY_AGAIN_S = 0.01
ALONE_S = 0.05  # after so long without a word of the supervisor a keeper looks by itself how the command ended
REST_S = 0.005  # what is not wanted after this long is not wanted at once: there is time for a rehearsal

# Supervisor to keeper, each word one message:
TASK = b"t"  # with it comes all that is needed to go on with a task without me
PLACE = b"p"  # with it comes the place of a background task
INPUT = b"i"  # the command's input is to end
QUIET = b"q"  # I lie down: wake me when something comes, or at the time that follows
AWAKE = b"w"  # I am up again
NOTED = b"n"  # the command is over and everybody was told: look after your children
DONE = b"d"  # I leave because all is recorded, do not replace me


@frozen
class Pipe:
    """A stream of the command: both ends, held by both guards."""

    stream: str
    reader: int
    writer: int


@frozen
class Stdin:
    """The command's input, and the write end that keeps an open one open."""

    reader: int
    writer: int = -1


def hands() -> tuple[socket.socket, socket.socket]:
    """What two guards talk through: one message is one word."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def heard(hand: socket.socket) -> bytes:
    """The next word of the other guard; nothing if it is dead."""
    try:
        return hand.recv(1024)
    except ConnectionResetError:
        return b""  # it died before it read what we had said


class Post:
    """One guard's hold on its task."""

    def __init__(self, published: str, around: Surroundings, pipes: tuple[Pipe, ...], stdin: Stdin) -> None:
        self.task_id, self.published, self.around = published.rpartition("/")[2], published, around
        self.pipes, self.stdin = pipes, stdin
        self.staged = ""  # where a warm one is, which its caller too may publish
        self.asked = -1  # what was asked, and who runs it: in memory, for who goes on with it
        self.lock = -1
        self.place = -1  # what a background task holds while its command runs
        self.go = -1  # the write end of what the command waits on before it begins
        self.command: Identity
        self.wrapper: Identity | None = None  # the bubblewrap that a command in a sandbox is below
        self.command_fd = -1
        self.started = 0.0
        self.started_monotonic = 0.0
        self.recoveries = 0
        self.orphans = 0  # so many were reaped
        self._over = False
        self._terms: Terms | None = None

    @property
    def terms(self) -> Terms:
        """What was said when it began; on disk, for those who came later."""
        if self._terms is None:
            self._terms = launchfile.read_terms()
        return self._terms

    @terms.setter
    def terms(self, said: Terms) -> None:
        self._terms = said

    def watch_command(self, pid: int, wrapper: int = 0) -> None:
        self.command, self.command_fd = process.identity(pid), os.pidfd_open(pid)
        self.wrapper = process.identity(wrapper) if wrapper else None

    def is_published(self) -> bool:
        """Whether there is a task and it has begun: a pending one is published before it has guards."""
        try:
            return staging.is_here(self.published) and "guards" in record.read()
        except FileNotFoundError:
            return False

    def never_was(self) -> bool:
        """Who would have published it is gone: whether there is no task, and nobody can make it one any more."""
        if not self.staged:
            return not self.is_published()
        if not staging.put_aside(self.staged, self.published):
            return False
        staging.remove_here()
        return True

    def let_command_begin(self) -> None:
        """The task is published. Either guard may say so: the other can die before it does."""
        while True:
            try:
                os.write(self.go, self._go())
                break
            except BrokenPipeError:
                break  # it has begun, or is gone
            except OSError:
                # No memory to write two bytes with. Without them it would end, with a code that is not its own.
                select.select([], [], [], _SAY_AGAIN_S)
        os.close(self.go)
        self.go = -1

    def _go(self) -> bytes:
        if self.around.sandbox is None:
            return staging.GO_WORD
        return invoke.go(launchfile.read()[0].command, self.terms.keeps)

    def take_lock(self, held: int = -1) -> None:
        """Hold the lock that says: watched. Every guard is a fork of us and holds it with us.

        So there is no moment between two guards at which a living task looks like a lost one.
        That of a task that was pending we were given, `held` already.
        """
        if held >= 0:
            self.lock = held
            return
        self.lock = os.open(status.LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def release_lock(self) -> None:
        """All is recorded: nobody watches any more, whoever else still holds the lock."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)

    def free_place(self) -> None:
        """The command is over: another may run, whoever else still holds the place."""
        if self.place >= 0:
            fcntl.flock(self.place, fcntl.LOCK_UN)
            os.close(self.place)
            self.place = -1

    def drop_lock(self) -> None:
        """In a fork that is no guard: let go of our copies, or lock and place would outlive their owners."""
        for fd in (self.lock, self.place):
            if fd >= 0:
                os.close(fd)
        self.lock = self.place = -1

    def write_guards(self, supervisor: Identity, keeper: Identity | None, ender: Identity | None = None) -> None:
        """Record who watches, for strangers too."""
        status.write_guards(
            Guards(
                task_id=self.task_id,
                supervisor=supervisor,
                keeper=keeper,
                ender=ender,
                command=self.command,
                started=self.started,
                monotonic=self.started_monotonic,
                recoveries=self.recoveries,
            )
        )

    def note_end(self) -> Outcome | None:
        """Record how the command ended, if it did. Both guards may: they can only write the same."""
        if known := record.read().get("code"):
            return status.outcome_of(known)
        found = process.ended_how(self.command.pid, self.command_fd)
        if found is None:
            # Its parent may have recorded and reaped it between our two looks.
            known = record.read().get("code")
            found = None if known else self._told_by_bubblewrap()
            if found is None:
                return status.outcome_of(known) if known else None
        outcome, cpu = found
        if cpu is None and (known := record.read().get("code")):
            return status.outcome_of(known)  # its parent knew more than we do
        status.write_code(outcome, cpu)
        return outcome

    def _told_by_bubblewrap(self) -> tuple[Outcome, None] | None:
        """On a kernel before 6.15: a signal is then 128 and its number, unexplained rather than guessed."""
        if self.around.sandbox is None or self.around.sandbox.kind != BUBBLEWRAP or not self.command_is_over():
            return None
        from outlast.supervise import bubblewrap

        code = bubblewrap.status().get("exit-code")
        return None if code is None else (Exited(code), None)

    def may_yet_be_told(self) -> bool:
        """Whether somebody else may still say how the command ended: its parent, if that is not one of us."""
        if process.is_unreaped(self.command_fd):
            return True
        return self.wrapper is not None and process.is_alive(self.wrapper)

    def rehearse(self) -> None:
        """What both guards will do when the command ends; it lives, so nothing comes of it."""
        try:
            self.note_end()
        except (OSError, OutlastError):
            pass  # the supervisor is just making the record
        self.reap()
        self.command_is_over()
        self.end_input_if_asked()

    def reap(self) -> bool:
        """Reap every child that ended, the command only after its end is recorded; whether children are left."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            if ended.si_pid == self.command.pid:
                self.note_end()
            else:
                self.orphans += 1
            os.waitpid(ended.si_pid, 0)

    def has_other_children(self, *guards: int) -> bool:
        """Whether anything but our fellow guards is our child."""
        # One that ended and is not reaped counts: it may have left us a child since we looked,
        # and we are about to be woken for it.
        return any(pid not in guards and not self._watches_another(pid) for pid in process.children_of(os.getpid()))

    def _watches_another(self, pid: int) -> bool:
        stat = process.stat_of(pid)
        return stat is not None and status.watches_another(stat, self.task_id)

    def let_go(self) -> None:
        """The command ended: nobody of us writes to its pipes any more."""
        for pipe in self.pipes:
            if pipe.writer >= 0:
                os.close(pipe.writer)
        self.pipes = tuple(Pipe(pipe.stream, pipe.reader, -1) for pipe in self.pipes)
        self.end_input()

    def end_input(self) -> None:
        if self.stdin.writer >= 0:
            os.close(self.stdin.writer)
            self.stdin = Stdin(self.stdin.reader)

    def end_input_if_asked(self) -> bool:
        """Whether it was asked for, and is done now."""
        asked = self.stdin.writer >= 0 and os.path.exists(status.END_OF_INPUT)
        if asked:
            self.end_input()
        return asked

    def start_clock(self, at: tuple[float, float] | None = None) -> None:
        self.started, self.started_monotonic = at or (time.time(), time.monotonic())

    def share_clock(self) -> None:
        """Take over what the supervisor recorded."""
        guards = status.guards_of(".")
        self.started, self.started_monotonic = guards.started, guards.monotonic

    def command_is_over(self) -> bool:
        """Whether the command ended, recorded or not."""
        if not self._over:
            poll = select.poll()
            poll.register(self.command_fd, select.POLLIN)
            self._over = bool(poll.poll(0))
        return self._over
