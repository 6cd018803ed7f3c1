"""A directory that is to become a task, and the guard that waits in it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.guard.client import Connection
    from outlast.types import Launch

# What a shell needs before it knows its command: a prepared shell fits a launch if these are equal.
_SHELL_FIELDS = (
    *("shell", "cwd", "env", "umask", "stdin", "split", "rlimits", "nice", "state", "snapshot", "sandbox", "groups"),
    *("tty", "max_running"),  # so many slots of the queue its guards can hold
)


class StagedTask:
    """A directory that is to become a task, and the connection to its guard once there is one."""

    def __init__(self, paths: tuple[str, str], launch: Launch) -> None:
        self.staged, self.published = paths
        self.task_id = os.path.basename(self.published)
        self.launch, self.owner = launch, os.getpid()
        self.connection: Connection | None = None
        self.slots: list[int] = []  # open files of the queue's slots, which its guards can hold, too

    def is_prepared_for(self, launch: Launch) -> bool:
        """Return whether its shell waits for a command like this one."""
        ours, other = self.launch.__dict__, launch.__dict__
        return all(ours[name] == other[name] for name in _SHELL_FIELDS)

    def is_waiting(self) -> bool:
        """Return whether it is a prepared shell that waits for its command."""
        return self.owner == os.getpid() and self.connection is not None and self.connection.is_prepared()

    def close(self) -> None:
        self.close_slots()
        # After a fork both processes have the connection of a prepared shell, which belongs to the parent.
        if self.connection is not None and self.owner == os.getpid():
            self.connection.close()

    def close_slots(self) -> None:
        while self.slots:
            os.close(self.slots.pop())
