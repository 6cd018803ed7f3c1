"""From the tasks' own files to the outbox: what ended, what began, what was left behind.

Nobody writes a notice when a task ends. Whoever wants to know gathers: looks at the tasks of
which something may be left to tell, and puts what it finds into the outbox. So a foreground
command pays nothing, no process has to live for it, and nothing is lost while nobody listens.
"""

from __future__ import annotations

import os
import time

from outlast.errors import DamagedTask, OutlastError, UnknownTask
from outlast.frozen import frozen
from outlast.light import sqlite3
from outlast.storage import launchfile, record, sessions, view
from outlast.storage.outbox import Found, Happened, Outbox
from outlast.storage.status import is_watched
from outlast.types import Ended, Lost, Pending, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from outlast.storage.registry import Registry
    from outlast.types import Launch, Status, Task

ENDED, LEFT_BEHIND = "ended", "left-behind"  # kinds of notices
QUEUED, STARTED, MOVED, OVER = "task.queued", "task.started", "task.background", "task.ended"  # types of events
BACKGROUND, FOREGROUND = 1, 2  # what the index says of an untold task
AT_ONCE = 500  # tasks that one transaction is about
LEAVING_S = 1.0  # a command that ended may leave its children so long to end as well
_COARSE_NS = 50_000_000  # ten times what the clock of a file system may lag behind
COMMAND_CHARS = 500  # of a command that a notice repeats


@frozen
class Seen:
    """One task that something may be left to tell of."""

    task: Task
    launch: Launch
    status: Status
    directory: str


class Gathered:
    """What one gathering found besides: whom to watch, and when to look again."""

    def __init__(self) -> None:
        self.new = 0
        self.alive: list[Seen] = []  # those that run or wait
        self.again_in: float | None = None

    def look_again(self, seconds: float) -> None:
        self.again_in = max(0.0, seconds if self.again_in is None else min(self.again_in, seconds))


class Gatherer:
    """Gathers for one process. `more` finds what else there is to tell of a task that has begun."""

    def __init__(
        self, registry: Registry, outbox: Outbox, more: Callable[[Seen, Gathered], None] | None = None
    ) -> None:
        self._registry, self.outbox, self._more = registry, outbox, more
        self._told: set[tuple[str, str]] = set()  # events that we know to be in
        self._alive: dict[str, tuple[Seen, int]] = {}
        self._looked = False

    def gather(self, session: str | None, everything: bool = False) -> Gathered:
        """Put in what there is to tell (of a session).

        What is in the foreground is only looked at if `everything` is wanted, and the first time: its caller may
        have died before us.
        """
        kinds = (BACKGROUND, FOREGROUND) if everything or not self._looked else (BACKGROUND,)
        self._looked = True
        index, found = self._registry.index, Gathered()
        ids = index.untold(session, kinds)
        for start in range(0, len(ids), AT_ONCE):
            self._gather_some(ids[start : start + AT_ONCE], found)
        return found

    def _unchanged(self, task_id: str) -> Seen | None:
        """A task that runs, or waits, as when we last looked. A thousand others must not be read for each that ends."""
        known = self._alive.get(task_id)
        if known is None:
            return None
        seen, changed = known
        try:
            same = _changed(seen.directory) == changed and (
                isinstance(seen.status, Pending) or is_watched(seen.directory)
            )
        except OSError:
            same = False
        if not same:
            del self._alive[task_id]
        return seen if same else None

    def _remember(self, seen: Seen, changed: int) -> None:
        # The clock of files is coarse: what was changed just now may change again and look the same.
        if not seen.launch.notify and time.time_ns() - changed > _COARSE_NS:
            self._alive[seen.task.task_id] = (seen, changed)

    def _gather_some(self, ids: list[str], found: Gathered) -> None:
        notices: list[Found] = []
        events: list[Happened] = []
        over: list[str] = []
        for task_id in ids:
            if (same := self._unchanged(task_id)) is not None:
                found.alive.append(same)
                continue
            changed = _changed(self._registry.home.task(task_id))  # before the look: what comes after it is new
            seen = look(self._registry, task_id)
            if seen is None:
                continue
            notices += self._notices(seen, found)
            events += self._events(seen)
            if seen.task.closed:
                over.append(task_id)
            elif not seen.task.finished:
                found.alive.append(seen)
                self._remember(seen, changed)
        events.sort(key=lambda one: one.at)
        notices.sort(key=lambda one: one.at)
        found.new += self.outbox.put(notices, events)
        # After the transaction: whoever dies in between leaves it to be found again, and it is told once.
        self._registry.index.set_untold(over, 0)
        self._told -= {(task_id, kind) for task_id in over for kind in (QUEUED, STARTED, MOVED, OVER)}

    def _notices(self, seen: Seen, found: Gathered) -> Iterator[Found]:
        if self._more is not None and isinstance(seen.status, (Running, Ended)) and seen.launch.notify:
            self._more(seen, found)  # first: what it printed came before its end
        yield from ended(seen)
        if is_told(seen) and isinstance(seen.status, Ended) and not seen.task.closed:
            yield from self._left_behind(seen, found)

    def _left_behind(self, seen: Seen, found: Gathered) -> Iterator[Found]:
        since = time.time() - (seen.task.ended_at or 0.0)
        if 0 <= since < LEAVING_S:
            found.look_again(LEAVING_S - since)
            return
        try:
            children = self._registry.get(seen.task.task_id).children
        except OutlastError:
            return
        if children:
            facts = {**facts_of(seen.task), "children": list(children)}
            yield Found(seen.task.task_id, LEFT_BEHIND, 0, seen.task.session, time.time(), facts)

    def _events(self, seen: Seen) -> list[Happened]:
        new = [one for one in happened(seen) if (seen.task.task_id, one.type) not in self._told]
        self._told |= {(seen.task.task_id, one.type) for one in new}
        return new


def _changed(directory: str) -> int:
    """When a task's record was last written; 0 if there is none."""
    try:
        return os.stat(os.path.join(directory, record.NAME)).st_mtime_ns
    except OSError:
        return 0


def look(registry: Registry, task_id: str) -> Seen | None:
    """A task as it is now; None if it is not there (yet, or any more), or cannot be understood."""
    directory = registry.home.task(task_id)
    try:
        launch = registry.launch_of(task_id)
        return Seen(*_glance(directory, launch), directory)
    except (UnknownTask, DamagedTask, OSError, KeyError, TypeError, ValueError):
        return None


def _glance(directory: str, launch: Launch) -> tuple[Task, Launch, Status]:
    task, status = view.glance(directory, launch)
    return task, launch, status


def gather_before_removal(registry: Registry, task_id: str) -> Callable[[], object] | None:
    """A task is about to be removed: what nobody has been told of it stays in the outbox.

    On a full disk that works only when the task is gone: then what is returned does it.
    """
    seen = look(registry, task_id)
    if seen is None or not is_told(seen):
        return None
    notices, events = list(ended(seen)), list(happened(seen))

    def put() -> None:
        outbox = Outbox(registry.home.path)
        try:
            outbox.put(notices, events)
        finally:
            outbox.close()

    return None if _done(put) else lambda: _done(put)


def _done(put: Callable[[], None]) -> bool:
    try:
        put()
    except (OSError, OutlastError, sqlite3.Error):
        return False
    return True


def is_told(seen: Seen) -> bool:
    """Whether somebody is to be told of its end: not of a foreground command whose caller got the result."""
    if seen.launch.background or isinstance(seen.status, Lost):
        return True
    if isinstance(seen.status, Ended) and seen.status.unheard:
        return True
    return _moved(seen.directory) is not None


def _moved(directory: str) -> float | None:
    """When a foreground command was left alone, if it was."""
    try:
        return os.stat(os.path.join(directory, sessions.MOVED)).st_mtime
    except OSError:
        return None


def ended(seen: Seen) -> Iterator[Found]:
    """The notice of its end, if it has ended."""
    if isinstance(seen.status, (Ended, Lost)) and is_told(seen):
        at = seen.task.ended_at or time.time()
        yield Found(seen.task.task_id, ENDED, 0, seen.task.session, at, facts_of(seen.task))


def happened(seen: Seen) -> Iterator[Happened]:
    """Everything that has happened to a task so far."""
    task, facts = seen.task, {**facts_of(seen.task), "trace": seen.launch.trace, "background": is_told(seen)}
    if seen.launch.after or isinstance(seen.status, Pending) or task.pid is None:
        created = launchfile.made_at(seen.directory)
        yield Happened(task.task_id, QUEUED, task.session, created, {**facts, "status": "pending", **_NOT_YET})
    if task.pid is not None:
        yield Happened(task.task_id, STARTED, task.session, task.started_at, {**facts, "status": "running", **_NOT_YET})
    if not seen.launch.background and (moved := _moved(seen.directory)) is not None:
        yield Happened(task.task_id, MOVED, task.session, moved, {**facts, "status": "running", **_NOT_YET})
    if isinstance(seen.status, (Ended, Lost)):
        yield Happened(task.task_id, OVER, task.session, task.ended_at or time.time(), facts)


_NOT_YET: dict[str, Any] = {
    **dict.fromkeys(("reason", "exit_code", "signal", "ended_by", "error", "ended_at")),
    "elapsed_ms": 0,
}


def facts_of(task: Task) -> dict[str, Any]:
    """What of a task is worth telling, under the names that others rely on."""
    names = (
        *("kind", "category", "status", "reason", "exit_code", "signal", "ended_by", "error", "description", "name"),
        *("cwd", "pid", "pgid", "started_at", "ended_at", "elapsed_ms", "output_file"),
    )
    return {"command": task.command[:COMMAND_CHARS], **{name: getattr(task, name) for name in names}, "children": []}
