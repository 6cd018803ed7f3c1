"""What running tasks do at this moment, for lists of tasks."""

from __future__ import annotations

from outlast.errors import OutlastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from outlast.linux.activity import Activity
    from outlast.shell.shell import Shell
    from outlast.types import Task


def activities(shell: Shell, tasks: Iterable[Task]) -> dict[str, Activity]:
    """Return by id what those tasks do that run."""
    found = {}
    for task in tasks:
        if task.status == "running":
            try:
                found[task.task_id] = shell.activity(task)
            except OutlastError:
                continue  # removed since it was listed
    return found
