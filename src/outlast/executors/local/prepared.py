"""Prepared shells: each has restored its session's state and waits for a command. It changes nothing but the time."""

from __future__ import annotations

import os
import threading

from outlast.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.guard.client import Connection
    from outlast.types import Surroundings

_MOST = 4


@frozen
class Prepared:
    """A shell that waits, and the directory of the task that it will become."""

    staged: str
    published: str
    around: Surroundings
    connection: Connection

    def is_stale(self, around: Surroundings) -> bool:
        """Whether its session has gone on, so that nothing will use it any more."""
        return self.around.state == around.state != "" and self.around.snapshot != around.snapshot


class PreparedShells:
    """Those of this process. If it ends, their guards see the connection close and remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._waiting: list[Prepared] = []

    def take(self, around: Surroundings) -> Prepared | None:
        """One for these surroundings, if there is one."""
        with self._lock:
            self._forget_those_of_our_parent()
            self._drop([one for one in self._waiting if one.is_stale(around)])
            for one in self._waiting:
                if one.around == around:
                    self._waiting.remove(one)
                    if one.connection.is_prepared():
                        return one
                    one.connection.close()
                    return None
        return None

    def count(self, around: Surroundings) -> int:
        """How many wait in these surroundings."""
        with self._lock:
            self._forget_those_of_our_parent()
            return sum(one.around == around for one in self._waiting)

    def put(self, prepared: Prepared) -> None:
        """Keep it, and those for the same surroundings: a host that does something else now does not come back soon."""
        with self._lock:
            self._forget_those_of_our_parent()
            alike = [one for one in self._waiting if one.around == prepared.around][-(_MOST - 1) :]
            self._drop([one for one in self._waiting if one not in alike])
            self._waiting.append(prepared)

    def close(self) -> None:
        with self._lock:
            self._forget_those_of_our_parent()
            self._drop(list(self._waiting))

    def _drop(self, some: list[Prepared]) -> None:
        for one in some:
            one.connection.close()  # its guard kills the shell and removes the directory
        self._waiting = [one for one in self._waiting if one not in some]

    def _forget_those_of_our_parent(self) -> None:
        # After a fork the connections belong to both processes; closing them here would not be noticed there.
        if self._owner != os.getpid():
            self._owner, self._waiting = os.getpid(), []
