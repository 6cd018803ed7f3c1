"""What running tasks use at this moment: CPU and memory of their process trees, read off /proc."""

from __future__ import annotations

import os
import time
from functools import cache

from outlast.errors import OutlastError
from outlast.light import frozen
from outlast.linux import activity, process_tree
from outlast.linux.process import Table
from outlast.storage import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from outlast.linux.process import Stat
    from outlast.shell.shell import Shell

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LAST_LINE = 200  # characters


@frozen
class Sample:
    """One look at a task: its CPU so far in ticks, and when."""

    ticks: Mapping[int, int]
    at: float


class Usage:
    """Looks at running tasks, and knows what they used between two looks."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._samples: dict[str, Sample] = {}
        self.latest: dict[str, dict[str, Any]] = {}

    def look(self, task_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return cpu, memory, activity and last line of these tasks, which run."""
        table, found, samples = cache(Table), {}, {}
        for task_id in task_ids:
            members = members_of(self._shell, task_id, table)
            samples[task_id] = sample = Sample({pid: stat.cpu_ticks for pid, stat in members.items()}, time.monotonic())
            found[task_id] = {
                "cpu": _share(self._samples.get(task_id), sample),
                "memory": sum(map(memory_of, members)),
                "activity": activity.of_task(members) or None,
                "last_line": last_line(self._shell, task_id),
            }
        self._samples, self.latest = samples, found
        return found


def members_of(shell: Shell, task_id: str, table: Any = Table) -> dict[int, Stat]:
    """Return the living processes of a task, without its guards."""
    try:
        guards = record.guards_of(shell.executor.registry.home.task(task_id))
        return process_tree.look(guards, record.is_foreign_guard, table).members
    except (OSError, OutlastError, KeyError, TypeError, ValueError):
        return {}  # pending, or just being removed


def _share(before: Sample | None, now: Sample) -> float | None:
    """Return percent of one core between two looks; None if there was only one."""
    if before is None or now.at <= before.at:
        return None
    # A process that ended in between is not counted any more, and one that is new counts from its start.
    used = sum(ticks - before.ticks.get(pid, 0) for pid, ticks in now.ticks.items())
    return round(max(0, used) * 100 / _TICKS_S / (now.at - before.at), 1)


def memory_of(pid: int) -> int:
    """Return the bytes of a process that are in memory, without what it shares with files."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE_BYTES


def last_line(shell: Shell, task_id: str) -> str | None:
    """Return the last line that a task printed, as text."""
    try:
        text = shell.read(task_id, tail=1, max_chars=_LAST_LINE).output.strip()
    except (OutlastError, OSError):
        return None
    return text.rpartition("\n")[2][:_LAST_LINE] or None
