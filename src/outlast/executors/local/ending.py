"""Ends tasks: cancels what is pending, ends the process trees of what runs, and waits until that is recorded."""

from __future__ import annotations

import os
import select
import time

from outlast.errors import OutOfReach, SystemRefused
from outlast.frozen import extended, replaced
from outlast.light import signal
from outlast.linux import process
from outlast.linux.process_tree import end_trees
from outlast.storage import record
from outlast.storage.queue import Queue
from outlast.storage.watch import Deadline, until
from outlast.types import Receipt, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.executors.local.executor import LocalExecutor

_RETRY_S = 0.005
_START_WAIT_S = 5.0  # another process that starts the task takes milliseconds, unless it was stopped
_RECORD_WAIT_S = 5.0  # from the death of a tree until it is recorded: milliseconds, unless the disk is stuck
_TREES_AT_ONCE = 100  # each process of a tree takes a descriptor while it is being ended
_AGENT = "agent-"


def end_tasks(executor: LocalExecutor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
    """End these tasks; returns when they are gone, with a receipt for each that names survivors."""
    receipts: list[Receipt] = []
    for start in range(0, len(task_ids), _TREES_AT_ONCE):
        some = task_ids[start : start + _TREES_AT_ONCE]
        try:
            receipts += _end(executor, some, grace, by, rule)
        except OSError as error:
            raise executor.trouble(some[0], error) from None
    return receipts


def _end(executor: LocalExecutor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
    started = [one for one in task_ids if not cancel_pending(executor.directory(one), by, rule)]
    receipts = {one: _receipt(executor, one) for one in task_ids if one not in started}
    receipts |= {one.task_id: one for one in _end_started(executor, started, grace, by, rule)}
    executor.advance()  # the on-end program of a killed guard may never have run
    return [receipts[one] for one in task_ids]


def _end_started(executor: LocalExecutor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
    """End tasks that have, or had, processes. With an agent, end all that was started from inside of it."""
    # A command may start tasks that are to outlast it. Ending an agent means ending all that it does.
    if not any(one.startswith(_AGENT) for one in task_ids):
        return _end_trees(executor, task_ids, grace, by, rule)
    from outlast.executors.local.offspring import cancel_pending_offspring, end_offspring

    agents = {one: executor.directory(one) for one in task_ids if one.startswith(_AGENT)}
    for directory in agents.values():
        cancel_pending_offspring(directory, by)  # they must not start because the agent frees its slot
    receipts = _end_trees(executor, task_ids, grace, by, rule)
    for number, receipt in enumerate(receipts):
        if receipt.task_id in agents:
            ended, left = end_offspring(agents[receipt.task_id], grace, by)
            receipts[number] = replaced(receipt, ended=(*receipt.ended, *ended), survivors=(*receipt.survivors, *left))
    return receipts


def _end_trees(executor: LocalExecutor, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
    directories = [executor.directory(task_id) for task_id in task_ids]
    for directory in directories:
        check_visible(directory)
    for directory in directories:
        record_kill(directory, by, rule)
    looks = [lambda directory=directory: record.guards_of(directory) for directory in directories]
    ended = end_trees(looks, record.is_foreign_guard, grace)
    for task_id, (_, survivors) in zip(task_ids, ended, strict=True):
        if not survivors:
            _wait_recorded(executor, task_id)
    return [_receipt(executor, one, *pids) for one, pids in zip(task_ids, ended, strict=True)]


def _wait_recorded(executor: LocalExecutor, task_id: str) -> None:
    # A caller inside of the task must not wait until it is closed: it would wait for its own end.
    inside = process.is_below(record.guards_of(executor.directory(task_id)).keeper)
    is_recorded = executor.has_ended if inside else executor.is_closed
    with executor.watch(task_id) as watch:
        until(watch, lambda: is_recorded(task_id), Deadline(_RECORD_WAIT_S))


def _receipt(
    executor: LocalExecutor, task_id: str, ended: tuple[int, ...] = (), survivors: tuple[int, ...] = ()
) -> Receipt:
    return extended(Receipt, executor.status(task_id), ended=ended, survivors=survivors)


def cancel_pending(directory: str, by: str, rule: str) -> bool:
    """Cancel a task that waits in the queue. Returns False if it has, or had, processes."""
    queue = Queue(os.path.dirname(os.path.dirname(directory)))
    deadline = time.monotonic() + _START_WAIT_S
    while record.is_pending(directory):
        if queue.cancel(directory, by, rule):
            return True
        # Another process holds the task's lock to start it. Wait until it has.
        if time.monotonic() > deadline:
            raise SystemRefused(f"The process that starts {os.path.basename(directory)} does not go on; try again.")
        select.select([], [], [], _RETRY_S)
    return "guards" not in record.read(directory)


def check_visible(directory: str) -> None:
    """Refuse to signal a task of another pid namespace: its pids are those of strangers here, or of nobody."""
    if not process.is_visible(record.guards_of(directory).command.boot) and record.has_guard(directory):
        raise OutOfReach(
            f"{os.path.basename(directory)} runs in another container (pid namespace), so its processes cannot be seen "
            "from here; end it from there."
        )


def record_kill(directory: str, by: str, rule: str) -> None:
    """Record who ends a running task, and send SIGCONT to its guards: a stopped guard would not record the end."""
    if isinstance(record.status_of(directory)[0], Running):
        record.write_ending(by, rule, time.time(), directory)
    guards = record.guards_of(directory)
    for guard in (guards.supervisor, guards.keeper):
        if guard:
            process.send(guard, signal.SIGCONT)
