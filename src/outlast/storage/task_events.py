"""What there is to report about a task: the notice of its end, and the events of its life, read from its files.

No process writes a notice when a task ends. `notices/gatherer.py` looks at the tasks for which one may be due. So a
foreground command pays nothing for it, and no notice is lost while no process listens.
"""

from __future__ import annotations

import os
import time

from outlast.errors import DamagedTask, OutlastError, UnknownTask
from outlast.light import frozen, sqlite3
from outlast.storage import task_directory
from outlast.storage.layout import LAUNCH
from outlast.storage.outbox import Found, Happened, Outbox
from outlast.types import Ended, Lost, Pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from outlast.storage.index import Index
    from outlast.storage.layout import Home
    from outlast.types import Launch, Status, Task

    class TaskFiles(Protocol):
        """What a `Registry` offers to the modules below it."""

        @property
        def home(self) -> Home: ...
        @property
        def index(self) -> Index: ...
        def launch_of(self, task_id: str) -> Launch: ...


ENDED = "ended"  # a kind of notice
QUEUED, STARTED, MOVED, OVER = "task.queued", "task.started", "task.background", "task.ended"  # types of events
COMMAND_CHARS = 500  # of a command that a notice repeats
_FACTS = (
    *("kind", "category", "status", "reason", "exit_code", "signal", "ended_by", "error", "description", "name"),
    *("cwd", "pid", "pgid", "started_at", "ended_at", "elapsed_ms", "output_file"),
)
_BEFORE_END: dict[str, Any] = {
    **dict.fromkeys(("reason", "exit_code", "signal", "ended_by", "error", "ended_at")),
    "elapsed_ms": 0,
}


@frozen
class Observation:
    """A task as it was at one moment."""

    task: Task
    launch: Launch
    status: Status
    directory: str


def observe(registry: TaskFiles, task_id: str) -> Observation | None:
    """Return a task as it is now; None if there is none (yet, or any more), or if it is damaged."""
    directory = registry.home.task(task_id)
    try:
        launch = registry.launch_of(task_id)
        task, status = task_directory.view_task(directory, launch, None)
    except (UnknownTask, DamagedTask, OSError, KeyError, TypeError, ValueError):
        return None
    return Observation(task, launch, status, directory)


def needs_notice(seen: Observation) -> bool:
    """Return whether the end is to be reported: not of a foreground command whose caller got the result."""
    if seen.launch.background or isinstance(seen.status, Lost):
        return True
    if isinstance(seen.status, Ended) and seen.status.caller_gone:
        return True
    return _moved_at(seen.directory) is not None


def _moved_at(directory: str) -> float | None:
    """Return when the caller of a foreground command stopped waiting, if it did."""
    try:
        return os.stat(os.path.join(directory, task_directory.MOVED)).st_mtime
    except OSError:
        return None


def list_notices(seen: Observation) -> Iterator[Found]:
    """Yield the notice of its end, if it has ended."""
    if isinstance(seen.status, (Ended, Lost)) and needs_notice(seen):
        at = seen.task.ended_at or time.time()
        yield Found(seen.task.task_id, ENDED, 0, seen.task.session, at, facts_of(seen.task))


def list_events(seen: Observation) -> Iterator[Happened]:
    """Yield all events of a task's life so far."""
    task, facts = seen.task, {**facts_of(seen.task), "trace": seen.launch.trace, "background": needs_notice(seen)}
    running = {**facts, "status": "running", **_BEFORE_END}
    if seen.launch.after or isinstance(seen.status, Pending) or task.pid is None:
        created = os.stat(f"{seen.directory}/{LAUNCH}").st_mtime
        yield Happened(task.task_id, QUEUED, task.session, created, {**running, "status": "pending"})
    if task.pid is not None:
        yield Happened(task.task_id, STARTED, task.session, task.started_at, running)
    if not seen.launch.background and (moved := _moved_at(seen.directory)) is not None:
        yield Happened(task.task_id, MOVED, task.session, moved, running)
    if isinstance(seen.status, (Ended, Lost)):
        yield Happened(task.task_id, OVER, task.session, task.ended_at or time.time(), facts)


def facts_of(task: Task) -> dict[str, Any]:
    """Return what notices and events say about a task, under the names that users rely on."""
    return {"command": task.command[:COMMAND_CHARS], **{name: getattr(task, name) for name in _FACTS}, "children": []}


def save_before_removal(registry: TaskFiles, task_id: str) -> Callable[[], object] | None:
    """Put what is to be reported about a task into the outbox, before the task is removed.

    On a full disk that works only after the removal: then it is done by the function that is returned.
    """
    seen = observe(registry, task_id)
    if seen is None or not needs_notice(seen):
        return None
    notices, events = list(list_notices(seen)), list(list_events(seen))

    def put() -> bool:
        try:
            outbox = Outbox(registry.home.path)
            try:
                outbox.put(notices, events)
            finally:
                outbox.close()
        except (OSError, OutlastError, sqlite3.Error):
            return False
        return True

    return None if put() else put
