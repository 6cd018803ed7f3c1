"""A name makes two starts of the same command one task, wherever it runs."""

from __future__ import annotations

from outlast.errors import BadInput, OutlastError, quote
from outlast.types import LOCAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.storage.name_lock import NameLock
    from outlast.storage.queue import Queue
    from outlast.storage.registry import Registry
    from outlast.storage.task_directory import Hold
    from outlast.types import Launch, Task


def start_named(
    queue: Queue, registry: Registry, launch: Launch, hold: Hold | None, start: Callable[[NameLock | None], Task]
) -> tuple[Task, bool]:
    """Start a task, or find the unfinished one that has its name. Returns it, and whether it is new."""
    if not launch.name:
        return start(None), True
    with queue.lock_name(launch.session, launch.name) as name:
        found = _find_named(registry, launch, name.task_id)
        if found is None:
            return start(name), True
        if hold is not None:
            hold.take(registry.home.task(found.task_id))
        return found, False


def _find_named(registry: Registry, launch: Launch, task_id: str) -> Task | None:
    try:
        task = registry.get(task_id) if task_id else None
    except OutlastError:
        return None
    if task is None or task.finished:
        return None
    other = _find_difference(task, launch)
    if other:
        raise BadInput(
            f"The name {quote(launch.name)} belongs to {task_id}, which is {task.status} and {other}; "
            "end it, or use another name."
        )
    return task


def _find_difference(task: Task, launch: Launch) -> str:
    if task.command != launch.command:
        return "is another command"
    if task.executor != launch.executor:
        return "runs on another machine" if task.executor != LOCAL else "runs on this machine"
    return "runs in another directory" if task.cwd != launch.cwd else ""
