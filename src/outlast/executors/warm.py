"""Tasks that are prepared in advance: each waits for its command, and is none if no command comes."""

from __future__ import annotations

import os

from outlast.lean import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.executors.nursery import Prepared
    from outlast.model import Surroundings

_MOST = 4  # so many that ran at once may have their like ready


class Warm:
    """Those of this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._owner = os.getpid()
        self._prepared: list[Prepared] = []

    def take(self, around: Surroundings) -> Prepared | None:
        """One for these surroundings, if there is one. Its shell may still be on its way."""
        with self._guard:
            self._forget_those_of_our_parent()
            self._drop([one for one in self._prepared if one.is_stale(around)])
            # The oldest is ready first.
            found = next((one for one in self._prepared if one.around == around), None)
            if found is not None:
                self._prepared.remove(found)
            return found

    def count(self, around: Surroundings) -> int:
        """How many there are for these surroundings."""
        with self._guard:
            self._forget_those_of_our_parent()
            return sum(one.around == around for one in self._prepared)

    def put(self, prepared: Prepared) -> None:
        """Keep it, and only what is for the same: a host that does something else now does not come back soon."""
        with self._guard:
            self._forget_those_of_our_parent()
            kept = [one for one in self._prepared if one.around == prepared.around]
            room = _MOST - 1
            self._drop([one for one in self._prepared if one not in kept[-room:]])
            self._prepared.append(prepared)

    def close(self) -> None:
        with self._guard:
            self._forget_those_of_our_parent()
            self._drop(self._prepared)

    def _drop(self, some: list[Prepared]) -> None:
        for one in some:
            one.discard()
        self._prepared = [one for one in self._prepared if one not in some]

    def _forget_those_of_our_parent(self) -> None:
        if self._owner != os.getpid():
            self._owner, self._prepared = os.getpid(), []
