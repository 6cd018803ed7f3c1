"""Ends tasks: cancels what is pending, ends the process trees of what runs, and waits until that is recorded."""

from __future__ import annotations

from functools import partial

from outlast.executors.local.end_one import cancel_pending, check_visible, record_kill
from outlast.executors.local.offspring import cancel_pending_offspring, end_offspring
from outlast.light import extend, signal
from outlast.linux import process
from outlast.linux.process_tree import end_trees
from outlast.storage import record
from outlast.storage.task_directory import Hold, has_terminal
from outlast.storage.watch import Deadline, until
from outlast.types import Receipt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.executors.base import Executor
    from outlast.linux.process_tree import Ended

_RECORD_WAIT_S = 5.0  # from the death of a tree until it is recorded: milliseconds, unless the disk is stuck
_TREES_AT_ONCE = 100  # each process of a tree takes a descriptor while it is being ended
_AGENT = "agent-"


def end_tasks(executor: Executor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
    """End these tasks; returns when they are gone, with a receipt for each that names survivors."""
    receipts: list[Receipt] = []
    for start in range(0, len(task_ids), _TREES_AT_ONCE):
        some = task_ids[start : start + _TREES_AT_ONCE]
        with Hold() as hold:  # once they have ended, another thread or process may remove them
            for task_id in some:
                hold.take(executor.registry.home.task(task_id))
            try:
                receipts += _end(executor, some, grace, by, rule)
            except OSError as error:
                raise executor.explain(some[0], error) from None
    return receipts


def _end(executor: Executor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
    directory = executor.registry.home.task
    started = [one for one in task_ids if not cancel_pending(directory(one), by, rule)]
    # A command may start tasks that are to outlast it. Ending an agent means ending all that it does.
    agents = [one for one in started if one.startswith(_AGENT)]
    for one in agents:
        cancel_pending_offspring(directory(one), by)  # they must not start because the agent frees its slot
    ended = dict(zip(started, _end_trees(executor, started, grace, by, rule), strict=True))
    for one in agents:
        more, left = end_offspring(directory(one), grace, by)
        ended[one] = (*ended[one][0], *more), (*ended[one][1], *left)
    executor.advance()  # the on-end program of a killed guard may never have run
    receipts = []
    for one in task_ids:
        pids, survivors = ended.get(one, ((), ()))
        receipts.append(extend(Receipt, executor.status(one), ended=pids, survivors=survivors))
    return receipts


def _end_trees(executor: Executor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Ended]:
    """End tasks that have, or had, processes. Returns the pids that ended and the survivors of each."""
    directories = [executor.registry.home.task(task_id) for task_id in task_ids]
    for directory in directories:
        check_visible(directory)
    for directory in directories:
        record_kill(directory, by, rule)
    looks = [(partial(record.guards_of, directory), has_terminal(directory)) for directory in directories]
    ended = end_trees(looks, record.is_foreign_guard, grace)
    for task_id, directory, (_, survivors) in zip(task_ids, directories, ended, strict=True):
        if not survivors:
            # A caller inside of the task must not wait until it is closed: it would wait for its own end.
            inside = process.is_below(record.guards_of(directory).keeper)
            with executor.watch(task_id) as watch:
                is_recorded = partial(executor.has_reached, task_id, "ended" if inside else "closed")
                until(watch, is_recorded, Deadline(_RECORD_WAIT_S))
    return ended


def interrupt(executor: Executor, task_id: str) -> bool:
    """Send SIGINT to the command's process group; returns whether there is one. A pending task ends."""
    directory = executor.registry.home.task(task_id)
    if not executor.has_reached(task_id, "begun"):
        executor.kill([task_id], 0.0, "kill", "interrupted before it began")
        return True
    try:
        check_visible(directory)
        return process.send(record.guards_of(directory).command, signal.SIGINT, to_group=True)
    except OSError as error:
        raise executor.explain(task_id, error) from None
