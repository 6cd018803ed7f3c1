"""Ends what an agent started: the tasks started from inside of it, and from inside of those.

They are tasks with process trees of their own. The agent itself has ended by then, so it starts nothing new; what its
tasks start while they are being ended is found in the next round.
"""

from __future__ import annotations

import os
import select
import time
from functools import partial

from outlast.errors import OutlastError, OutOfReach
from outlast.executors.local.end_one import cancel_pending, check_visible, record_kill
from outlast.linux.process_tree import end_trees
from outlast.storage import record, task_directory
from outlast.storage.layout import STAGING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ROUNDS = 20  # one is enough, unless the tasks start others while they are being ended
_PUBLISH_WAIT_S = 0.5  # a guard that was told to start before its caller was killed publishes the task soon
_RETRY_S = 0.02
_REMOVED = (OSError, OutlastError, KeyError, TypeError, ValueError)  # what looking at a removed task raises


def cancel_pending_offspring(directory: str, by: str) -> None:
    """Cancel the pending tasks that the agent in `directory` started."""
    for one in _descendants(directory, set()):
        try:
            cancel_pending(one, by, _rule(directory))
        except _REMOVED:
            continue


def end_offspring(directory: str, grace: float, by: str) -> tuple[list[int], list[int]]:
    """End all tasks started from inside of the agent in `directory`. Returns the pids that ended and the survivors."""
    ended: list[int] = []
    survivors: list[int] = []
    tried: set[str] = set()
    for _ in range(_ROUNDS):
        alive = [one for one in _living(directory) if one not in tried]
        if not alive:
            break
        tried.update(alive)
        running = [one for one in alive if not cancel_pending(one, by, _rule(directory)) and _is_visible(one)]
        for one in running:
            record_kill(one, by, _rule(directory))
        looks = [(partial(record.guards_of, one), task_directory.has_terminal(one)) for one in running]
        for gone, left in end_trees(looks, record.is_foreign_guard, grace):
            ended += gone
            survivors += left
    return ended, survivors


def _is_visible(directory: str) -> bool:
    try:
        check_visible(directory)
    except OutOfReach:
        return False  # it is in a container of its own, and ends with that
    return True


def _rule(directory: str) -> str:
    return f"ended with {os.path.basename(directory)}, which started it"


def _living(directory: str) -> Iterator[str]:
    """The directories of all descendants that are pending, run, or left processes running."""
    tasks = os.path.dirname(directory)
    deadline = time.monotonic() + _PUBLISH_WAIT_S
    for one in _descendants(directory, set()):
        while not os.path.isdir(one) and _is_staged(tasks, one) and time.monotonic() < deadline:
            select.select([], [], [], _RETRY_S)
        try:
            if record.is_pending(one) or record.has_guard(one):
                yield one
        except _REMOVED:
            continue


def _descendants(directory: str, seen: set[str]) -> Iterable[str]:
    for task_id in task_directory.read_offspring(directory):
        one = os.path.join(os.path.dirname(directory), task_id)
        if one not in seen:
            seen.add(one)
            yield one
            yield from _descendants(one, seen)


def _is_staged(tasks: str, one: str) -> bool:
    staging = os.path.join(os.path.dirname(tasks), STAGING)
    return any(name.startswith(os.path.basename(one)) for name in os.listdir(staging))
