"""Ending what an agent started: the tasks that were started from inside of it, and from inside of those.

They are tasks of their own and in nobody's tree but theirs. The agent itself is gone by now, so
nothing new comes from there; what they start meanwhile themselves is found at the next look.
"""

from __future__ import annotations

import os
import select
import time

from outlast.errors import OutlastError, OutOfReach
from outlast.executors.local.ending import announce, check_visible, has_begun
from outlast.frozen import replaced
from outlast.linux.process_tree import end_trees
from outlast.storage import launchfile, status
from outlast.storage.layout import STAGING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outlast.types import Receipt

_AGENT = "agent-"
_ROUNDS = 20  # one is enough, unless they start others while they are being ended
_PUBLISHED_S = 0.5  # from the word to begin until there is a task
_LOOK_AGAIN_S = 0.02
_GONE = (OSError, OutlastError, KeyError, TypeError, ValueError)


def ends_with(task_id: str) -> bool:
    """Whether what was started from inside of a task is ended together with it.

    A command may start what is to outlast it. Who ends an agent means all that it does.
    """
    return task_id.startswith(_AGENT)


def end_offspring(directory: str, receipt: Receipt, grace: float, by: str) -> Receipt:
    """End them; the receipt of their agent, with theirs."""
    ended, survivors = end_all(directory, grace, by)
    return replaced(receipt, ended=(*receipt.ended, *ended), survivors=(*receipt.survivors, *survivors))


def end_pending(directory: str, by: str) -> None:
    """End unrun what an agent started that has not begun: it must not begin because the agent makes room."""
    for one in _descendants(directory, set()):
        try:
            has_begun(one, by, _rule(directory))
        except _GONE:
            continue


def _rule(directory: str) -> str:
    return f"ended with {os.path.basename(directory)}, which started it"


def end_all(directory: str, grace: float, by: str) -> tuple[list[int], list[int]]:
    """End all that was started from inside of the agent in `directory`: the pids that ended and those that did not."""
    ended: list[int] = []
    survivors: list[int] = []
    rule = _rule(directory)
    tried: set[str] = set()
    for _ in range(_ROUNDS):
        alive = [one for one in _living(directory) if one not in tried]
        if not alive:
            break
        tried.update(alive)
        running = [one for one in alive if has_begun(one, by, rule) and _is_visible(one)]
        for one in running:
            announce(one, by, rule)
        looks = [lambda one=one: status.guards_of(one) for one in running]
        for gone, left in end_trees(looks, status.is_foreign_guard, grace):
            ended += gone
            survivors += left
    return ended, survivors


def _is_visible(directory: str) -> bool:
    try:
        check_visible(directory)
    except OutOfReach:
        return False  # it is in a container of its own, and ends with that
    return True


def _living(directory: str) -> Iterator[str]:
    """The directories of all offspring that have not ended, or left something running."""
    tasks = os.path.dirname(directory)
    deadline = time.monotonic() + _PUBLISHED_S
    for one in _descendants(directory, set()):
        while not os.path.isdir(one) and _is_staged(tasks, one) and time.monotonic() < deadline:
            select.select([], [], [], _LOOK_AGAIN_S)  # it was told to begin before who told it was ended
        try:
            if status.is_pending(one) or status.has_guard(one):
                yield one
        except _GONE:
            continue  # removed, or never begun


def _descendants(directory: str, seen: set[str]) -> Iterable[str]:
    for task_id in launchfile.read_offspring(directory):
        one = os.path.join(os.path.dirname(directory), task_id)
        if one not in seen:
            seen.add(one)
            yield one
            yield from _descendants(one, seen)


def _is_staged(tasks: str, one: str) -> bool:
    staging = os.path.join(os.path.dirname(tasks), STAGING)
    return any(name.startswith(os.path.basename(one)) for name in os.listdir(staging))
