"""Publishes tasks that have to wait as pending, and starts them when it is their turn."""

from __future__ import annotations

import time

from outlast.executors.local.description import describe, explain_refusal
from outlast.guard.client import Refused, start_guard
from outlast.storage import task_directory
from outlast.storage.task_directory import view_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.executors.local.staged_task import StagedTask
    from outlast.storage.queue import Queue, Turn
    from outlast.types import Launch, Task


def publish_pending(queue: Queue, task: StagedTask, launch: Launch) -> Task:
    """Publish a task that begins later. Raises `Refused` if its id is taken."""
    try:
        queue.enqueue(task.staged, task.published, launch)
    except OSError as error:
        if (refused := Refused(error.errno or 0, str(error))).is_taken:
            raise refused from None
        raise
    return view_started(task.published, launch, None, time.time(), "pending")


def start_pending(queue: Queue, turn: Turn) -> bool:
    """Start a pending task and close the turn; returns whether the task began."""
    try:
        launch = task_directory.read_with_secrets(turn.directory)
        with describe(turn.directory, turn.directory, launch) as description:
            description.give("lock", turn.lock)
            description.hold(turn.slot)
            description.extend(("remove", path) for path in queue.files_of_pending(turn.directory))
            connection = start_guard(description.encode(), description.inherited)
        try:
            connection.wait_started()
        except Refused as refused:
            if not refused.is_gone:
                queue.end_unrun(turn.directory, explain_refusal(launch, refused))
            return False
        finally:
            connection.leave()
        return True
    finally:
        turn.close()
