"""The prepared shell: a bash that has restored its session's state and waits for a command.

It changes nothing but the time that the next command takes. There is at most one for each executor. If this process
ends, the guard sees the connection close, kills the shell and removes its directory.
"""

from __future__ import annotations

import os
import threading

from outlast.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.guard.client import Connection
    from outlast.types import Surroundings


@frozen
class Prepared:
    """A shell that waits, and the directory of the task that it will become."""

    staged: str
    published: str
    around: Surroundings
    connection: Connection


class PreparedSlot:
    """Room for one prepared shell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._shell: Prepared | None = None
        self._closed = False

    def take(self, around: Surroundings) -> Prepared | None:
        """Take the shell out if it fits this launch and still waits."""
        with self._lock:
            shell = self._own_shell()
            if shell is None or shell.around != around:
                return None
            self._shell = None
        if shell.connection.is_prepared():
            return shell
        shell.connection.close()
        return None

    def holds(self, around: Surroundings) -> bool:
        with self._lock:
            shell = self._own_shell()
            return shell is not None and shell.around == around

    def put(self, shell: Prepared) -> None:
        """Put a shell in; the guard removes the one that was there."""
        with self._lock:
            # A thread may still prepare a shell while another one closes the executor.
            unused = shell if self._closed else self._own_shell()
            if not self._closed:
                self._shell = shell
        if unused is not None:
            unused.connection.close()

    def close(self) -> None:
        with self._lock:
            shell, self._shell, self._closed = self._own_shell(), None, True
        if shell is not None:
            shell.connection.close()

    def _own_shell(self) -> Prepared | None:
        # After a fork both processes have the connection. The shell belongs to the parent, so the child forgets it.
        if self._owner != os.getpid():
            self._owner, self._shell = os.getpid(), None
        return self._shell


def can_be_prepared(around: Surroundings) -> bool:
    """Return whether the shell of these launches can be started before its command is known."""
    if around.groups or around.stdin.text is not None:
        return False
    return os.path.basename(around.shell) == "bash"
