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
from outlast.frozen import frozen
from outlast.model import Guards
from outlast.store import record, status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.model import Identity, Launch, Outcome


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


class Post:
    """One guard's hold on its task."""

    def __init__(self, published: str, launch: Launch, pipes: tuple[Pipe, ...], stdin: Stdin) -> None:
        self.task_id, self.published, self.launch = os.path.basename(published), published, launch
        self.pipes, self.stdin = pipes, stdin
        self.lock = -1
        self.command: Identity
        self.command_fd = -1
        self.started = 0.0
        self.started_monotonic = 0.0
        self.recoveries = 0
        self._over = False

    def watch_command(self, pid: int) -> None:
        self.command, self.command_fd = process.identity(pid), os.pidfd_open(pid)

    def is_published(self) -> bool:
        try:
            return os.path.samestat(os.stat("."), os.stat(self.published))
        except FileNotFoundError:
            return False

    def take_lock(self) -> None:
        """Hold the lock that says: watched. Waits for a predecessor that is just dying."""
        self.lock = os.open(status.LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def drop_lock(self) -> None:
        """In a fork: let go of our copy, or the lock would outlive its owner."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

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
            return status.outcome_of(known) if known else None
        outcome, cpu = found
        if cpu is None and (known := record.read().get("code")):
            return status.outcome_of(known)  # its parent knew more than we do
        status.write_code(outcome, cpu)
        return outcome

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
            os.waitpid(ended.si_pid, 0)

    def has_other_children(self, *guards: int) -> bool:
        """Whether anything but our fellow guards is our child. Takes a look at the whole process table."""
        table = process.Table()
        below = table.children.get(os.getpid(), ())
        return any(pid not in guards and not table.by_pid[pid].dead for pid in below)

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

    def end_input_if_asked(self) -> None:
        if self.stdin.writer >= 0 and os.path.exists(status.END_OF_INPUT):
            self.end_input()

    def start_clock(self) -> None:
        self.started, self.started_monotonic = time.time(), time.monotonic()

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
