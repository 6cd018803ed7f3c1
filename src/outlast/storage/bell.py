"""How a supervisor tells any number of waiters that something changed.

Two named pipes lie in the task's directory, and the supervisor holds the write end of
one of them. To ring, it opens the other and lets go of this one: everybody who had
both open for reading sees a hang-up, which `poll`, `epoll` and `kqueue` all report.
So a waiter holds no thread and nothing polls; it costs the supervisor two system calls
if anybody listens and one if nobody does; there is no limit on waiters, as there is on
inotify instances (128 for each user); and when the supervisor dies, the bell rings by
itself, because the kernel closes its end.

Nothing is said by a ring but "look again". A waiter opens the bell first, then looks,
then waits: whatever changes after its look rings the bell that it holds already.
"""

from __future__ import annotations

import os

NAMES = ("bell.0", "bell.1")
HOUSE = "../../outbox"  # from a task's directory


def hang(directory: str = ".") -> None:
    """Put the two pipes in place."""
    for name in NAMES:
        os.mkfifo(f"{directory}/{name}", 0o600)


def ring_once(directory: str) -> None:
    """Wake everybody who waits on a task that has no supervisor."""
    for name in NAMES:
        try:
            os.close(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
        except OSError:
            continue  # nobody listens


def ring_house(directory: str = ".") -> None:
    """Wake everybody who waits for any task of the state directory that has this one: its own bell is in the outbox."""
    house = f"{directory}/{HOUSE}"
    if os.access(house, os.F_OK):  # most have none
        ring_once(house)


class Listener:
    """A waiter's side: two descriptors that report a hang-up once the bell rang; none before `rearm`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.fds: tuple[int, ...] = ()

    def rearm(self) -> None:
        """Forget the rings so far. Look at the task after this, not before."""
        self.close()
        for name in NAMES:
            path = f"{self._directory}/{name}"
            self.fds += (os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC),)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = ()
