"""Waiting for a task, by event. Everything that can be waited for here is a file descriptor.

The pattern is always: arm, look, wait. Whatever changes after the look makes a descriptor ready that was armed before
it; a wake-up only means "look again".

Two FIFOs, `bell.0` and `bell.1`, are in the task's directory, and the supervisor holds the write end of one of them.
To wake the waiters it opens the other one and closes this one: every process that has both open for reading sees a
hang-up, which `poll` and `epoll` report. So a waiter needs no thread, there is no limit on waiters (inotify has
128 instances for each user), and when the supervisor dies the kernel closes its end and the waiters wake as well.
A third pair in `outbox/` wakes those who wait for any task.
"""

from __future__ import annotations

import os
import select
import time

from outlast.linux import process
from outlast.storage import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The bell of a pending task wakes its waiters when it begins. But if both guards of a running task are killed with
# kill -9, no process starts the next one. So a waiter checks the queue itself.
_QUEUE_RECHECK_S = 0.5
_LONGEST_POLL_S = 1e6  # poll takes a C int of milliseconds, which is 24 days
NAMES = ("bell.0", "bell.1")


def create(directory: str) -> None:
    """Create the two FIFOs."""
    for name in NAMES:
        os.mkfifo(f"{directory}/{name}", 0o600)


def wake_waiters(directory: str) -> None:
    """Wake the waiters of a task that has no supervisor."""
    for name in NAMES:
        try:
            os.close(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
        except OSError:
            continue  # no process has it open for reading


class Listener:
    """A waiter's side: two descriptors that report a hang-up once the task changed; none before `rearm`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.fds: tuple[int, ...] = ()

    def rearm(self) -> None:
        """Open the FIFOs anew. Look at the task after this, not before."""
        self.close()
        for name in NAMES:
            path = f"{self._directory}/{name}"
            self.fds += (os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC),)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = ()


class Watch:
    """What to wait on until a local task changes: its bell, and its keeper's death.

    The process that started the task may have a `connection` to its supervisor, which says there when the end is
    recorded, or hangs up when it dies.
    """

    def __init__(self, directory: str, connection: int = -1, ends_only: bool = False) -> None:
        """With `ends_only` it is not woken by what the command prints."""
        self._directory, self._ends_only = directory, ends_only
        self._connection = os.dup(connection) if connection >= 0 else -1
        self._heard = False  # whether the connection said or showed something
        self._processes: tuple[int, ...] = ()
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
        self._disarm()
        if self._ends_only and self._connection >= 0 and not self._heard:
            self._heard = is_ready(self._connection)
            return self._heard  # mostly the end: look before arming more; the connection stays ready
        try:
            # If the command ended already, wait until its end is recorded: the bell rings then.
            if not (self._ends_only and self._watch_processes("command", "supervisor", "keeper")):
                self._disarm()
                self._bell.rearm()
                self._watch_processes("keeper")
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise record.explain_error(self._directory, error) from None
        return True

    def _watch_processes(self, *names: str) -> bool:
        """Watch these processes as far as they run; return whether the first one does."""
        self.look_again_s = None
        if "guards" not in record.read(self._directory):
            self.look_again_s = _QUEUE_RECHECK_S
            return False
        guards = record.guards_of(self._directory)
        running = []
        for name in names:
            who = getattr(guards, name)
            fd = process.open_pidfd(who) if who else None
            if fd is not None and is_ready(fd):
                os.close(fd)  # it ended; nothing more will come of it
            elif fd is not None:
                self._processes += (fd,)
                running.append(name)
        return names[0] in running

    def wait(self, timeout: float | None) -> bool:
        """Block until something changed; False if the timeout came first."""
        longest = _LONGEST_POLL_S if self.look_again_s is None else self.look_again_s
        try:
            ready = _poll(self.fds, longest if timeout is None else min(max(0.0, timeout), longest))
        except OSError as error:
            raise record.explain_error(self._directory, error) from None
        return ready or timeout is None or timeout > longest  # after a part of a long wait: look again

    def _disarm(self) -> None:
        self._bell.close()
        for fd in self._processes:
            os.close(fd)
        self._processes = ()

    def close(self) -> None:
        self._disarm()
        if self._connection >= 0:
            os.close(self._connection)
            self._connection = -1


def is_ready(fd: int) -> bool:
    """Return whether there is something to read, or an end to see."""
    return _poll((fd,), 0.0)


def _poll(fds: Iterable[int], seconds: float) -> bool:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Deadline:
    """When a wait ends, if ever."""

    def __init__(self, patience: float | None) -> None:
        self._at = None if patience is None else time.monotonic() + patience

    def left(self) -> float | None:
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def over(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at


def until(watch: Watch, done: Callable[[], bool], deadline: Deadline) -> bool:
    """Wait until `done`, or until the deadline; whether it is done."""
    while True:
        if watch.arm() and done():
            return True
        in_time = watch.wait(deadline.left())
        if done():
            return True  # before arming again: mostly this is it
        if not in_time:
            return False
