"""Waiting for any task of a state directory: a bell in the outbox that every supervisor rings.

No bell rings when both guards of a task are killed, so the keepers of running tasks are
watched as well; and a task with patterns rings its own bell for each line.
"""

from __future__ import annotations

import os
import select

from outlast.errors import OutlastError
from outlast.linux import process
from outlast.storage import record, watch
from outlast.storage.watch import Listener, is_ready
from outlast.types import LOCAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.notices.gatherer import Gathered
    from outlast.storage.task_events import Observation

_WATCHED_AT_MOST = 200  # tasks whose keepers are watched; of more, one is found dead a little later
_LOOK_AGAIN_S = 5.0  # while there are more
_REPLACED_S = 0.1  # a guard that replaces another needs milliseconds until it is recorded


class StateWatcher:
    """What to wait on until there may be something to gather. Arm, gather, tell it what was found, wait."""

    def __init__(self, outbox: str) -> None:
        for name in watch.NAMES:
            try:
                os.mkfifo(os.path.join(outbox, name), 0o600)
            except FileExistsError:
                continue
        self._house = Listener(outbox)
        self._keepers: dict[str, int] = {}
        self._bells: dict[str, Listener] = {}
        self._again_in: float | None = None

    def arm(self) -> None:
        """From now on every change is noticed. Gather after this."""
        self._house.rearm()
        for task_id, listener in list(self._bells.items()):
            try:
                listener.rearm()
            except OSError:
                self._bells.pop(task_id).close()  # removed

    def watch_gathered(self, gathered: Gathered) -> None:
        """Watch what there is to watch, as far as it was just gathered."""
        self._again_in = gathered.again_in
        alive = {seen.task.task_id: seen for seen in gathered.alive if seen.task.status == "running"}
        for task_id in self._keepers.keys() - alive.keys():
            os.close(self._keepers.pop(task_id))
        for task_id in self._bells.keys() - alive.keys():
            self._bells.pop(task_id).close()
        if len(alive) > _WATCHED_AT_MOST:
            self._look_again(_LOOK_AGAIN_S)
        for task_id, seen in list(alive.items())[:_WATCHED_AT_MOST]:
            self._watch_keeper(task_id, seen)
            if seen.launch.notify and task_id not in self._bells:
                self._bells[task_id] = Listener(seen.directory)
                self._look_again(0.0)  # it may have printed before we listened: gather once more

    def _watch_keeper(self, task_id: str, seen: Observation) -> None:
        if seen.launch.executor != LOCAL:
            return  # its keeper is on another machine; the process that copies rings the bell
        fd = self._keepers.get(task_id)
        if fd is not None and not is_ready(fd):
            return
        if fd is not None:
            os.close(self._keepers.pop(task_id))
        try:
            keeper = record.guards_of(seen.directory).keeper
        except (OSError, OutlastError, KeyError, TypeError, ValueError):
            return
        new = process.open_pidfd(keeper) if keeper else None
        if new is not None and is_ready(new):
            os.close(new)
            new = None
        if new is None:
            self._look_again(_REPLACED_S)  # it is being replaced, or the task ends this moment
        else:
            self._keepers[task_id] = new

    def _look_again(self, seconds: float) -> None:
        self._again_in = seconds if self._again_in is None else min(self._again_in, seconds)

    @property
    def fds(self) -> tuple[int, ...]:
        bells = (fd for listener in self._bells.values() for fd in listener.fds)
        return (*self._house.fds, *self._keepers.values(), *bells)

    def patience(self, patience: float | None) -> float | None:
        """How long to wait at most, of what the caller has."""
        both = [one for one in (patience, self._again_in) if one is not None]
        return min(both, default=None)

    def wait(self, patience: float | None, also: int = -1) -> None:
        """Block until something changed (or `also` is ready), or it is time to look again."""
        poll = select.poll()
        for fd in (*self.fds, *((also,) if also >= 0 else ())):
            poll.register(fd, select.POLLIN)
        most = self.patience(patience)
        poll.poll(None if most is None else min(most, 1e6) * 1000 + 1)

    def close(self) -> None:
        self._house.close()
        for fd in self._keepers.values():
            os.close(fd)
        self._keepers.clear()
        for listener in self._bells.values():
            listener.close()
        self._bells.clear()
