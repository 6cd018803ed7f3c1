"""How a guard wakes any number of waiters when its task changes.

Two FIFOs, `bell.0` and `bell.1`, are in the task's directory, and the supervisor holds the write end of one of them.
To wake the waiters it opens the other one and closes this one: every process that has both open for reading sees a
hang-up, which `poll` and `epoll` report. So a waiter needs no thread, there is no limit on waiters (inotify has
128 instances for each user), and when the supervisor dies the kernel closes its end and the waiters wake as well.

A wake-up only means "look again". A waiter opens the FIFOs first, then looks, then waits: a change after the look
hangs up a FIFO that is open already. A third pair in `outbox/` wakes those who wait for any task.
"""

from __future__ import annotations

import os

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
