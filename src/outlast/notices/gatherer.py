"""From the tasks' files to the outbox: which tasks began, ended, or left processes behind."""

from __future__ import annotations

import os
import time

from outlast.errors import OutlastError
from outlast.storage import record, task_events
from outlast.storage.index import NOTICE_DUE, NOTICE_IF_CALLER_DIED
from outlast.storage.outbox import Found
from outlast.storage.record import has_guard
from outlast.types import Ended, Pending, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outlast.storage.outbox import Happened, Outbox
    from outlast.storage.registry import Registry
    from outlast.storage.task_events import Observation

LEFT_BEHIND = "left-behind"  # a kind of notice
AT_ONCE = 500  # tasks in one transaction
LEAVING_S = 1.0  # how long the children of a command may take to end after it
_COARSE_NS = 50_000_000  # ten times what the clock of files may lag behind: a record changes twice at the same time


class Gathered:
    """What one `gather` found besides notices: which tasks to watch, and when to look again."""

    def __init__(self) -> None:
        self.new = 0
        self.alive: list[Observation] = []  # tasks that run or are pending
        self.again_in: float | None = None

    def look_again(self, seconds: float) -> None:
        self.again_in = max(0.0, seconds if self.again_in is None else min(self.again_in, seconds))


class Gatherer:
    """Gathers for one process. `more` finds what else there is to report about a task that has begun."""

    def __init__(
        self, registry: Registry, outbox: Outbox, more: Callable[[Observation, Gathered], None] | None = None
    ) -> None:
        self._registry, self.outbox, self._more = registry, outbox, more
        self._put: set[tuple[str, str]] = set()  # events that are in the outbox
        self._alive: dict[str, tuple[Observation, int]] = {}
        self._is_first = True

    def gather(self, session: str | None, everything: bool = False) -> Gathered:
        """Put what there is to report (of a session) into the outbox.

        Foreground tasks are only looked at if `everything` is wanted, and the first time: their callers may have
        died before this process began.
        """
        kinds = (NOTICE_DUE, NOTICE_IF_CALLER_DIED) if everything or self._is_first else (NOTICE_DUE,)
        self._is_first = False
        found = Gathered()
        ids = self._registry.index.with_notice_due(session, kinds)
        for start in range(0, len(ids), AT_ONCE):
            self._gather_some(ids[start : start + AT_ONCE], found)
        return found

    def _gather_some(self, ids: list[str], found: Gathered) -> None:
        notices: list[Found] = []
        events: list[Happened] = []
        closed: list[str] = []
        for task_id in ids:
            if (unchanged := self._get_unchanged(task_id)) is not None:
                found.alive.append(unchanged)
                continue
            # Both before the look: a change after it must give the record another time than this one.
            changed_at, looked_at = _record_changed_at(self._registry.home.task(task_id)), time.time_ns()
            seen = task_events.observe(self._registry, task_id)
            if seen is None:
                continue
            notices += self._notices(seen, found)
            events += self._new_events(seen)
            if seen.task.closed:
                closed.append(task_id)
            elif not seen.task.finished:
                found.alive.append(seen)
                if looked_at - changed_at > _COARSE_NS and not seen.launch.notify:
                    self._alive[task_id] = (seen, changed_at)
        events.sort(key=lambda event: event.at)
        notices.sort(key=lambda notice: notice.at)
        found.new += self.outbox.put(notices, events)
        # After the transaction: if we die in between, the tasks are found again, and the outbox ignores duplicates.
        self._registry.index.set_notice_due(closed, 0)
        self._put = {key for key in self._put if key[0] not in set(closed)} if closed else self._put

    # A thousand running tasks need not be read again for each one that ends.

    def _get_unchanged(self, task_id: str) -> Observation | None:
        known = self._alive.get(task_id)
        if known is None:
            return None
        seen, changed_at = known
        try:
            is_alive = isinstance(seen.status, Pending) or has_guard(seen.directory)
        except OSError:
            is_alive = False
        if is_alive and _record_changed_at(seen.directory) == changed_at:
            return seen
        del self._alive[task_id]
        return None

    def _notices(self, seen: Observation, found: Gathered) -> Iterator[Found]:
        if self._more is not None and isinstance(seen.status, (Running, Ended)) and seen.launch.notify:
            self._more(seen, found)  # first: what it printed came before its end
        yield from task_events.list_notices(seen)
        if task_events.needs_notice(seen) and isinstance(seen.status, Ended) and not seen.task.closed:
            yield from self._left_behind(seen, found)

    def _left_behind(self, seen: Observation, found: Gathered) -> Iterator[Found]:
        since = time.time() - (seen.task.ended_at or 0.0)
        if 0 <= since < LEAVING_S:
            found.look_again(LEAVING_S - since)
            return
        try:
            children = self._registry.get(seen.task.task_id).children
        except OutlastError:
            return
        if children:
            facts = {**task_events.facts_of(seen.task), "children": list(children)}
            yield Found(seen.task.task_id, LEFT_BEHIND, 0, seen.task.session, time.time(), facts)

    def _new_events(self, seen: Observation) -> list[Happened]:
        task_id = seen.task.task_id
        new = [event for event in task_events.list_events(seen) if (task_id, event.type) not in self._put]
        self._put |= {(task_id, event.type) for event in new}
        return new


def _record_changed_at(directory: str) -> int:
    try:
        return os.stat(os.path.join(directory, record.NAME)).st_mtime_ns
    except OSError:
        return 0
