"""What running tasks use at this moment: CPU and memory of their process trees, read off /proc."""

from __future__ import annotations

import os
import time
from functools import cache

from outlast.errors import OutlastError
from outlast.light import frozen
from outlast.linux import process_tree
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
        self._shares: dict[str, dict[int, float]] = {}
        self.latest: dict[str, dict[str, Any]] = {}

    def look(self, task_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return cpu, memory, activity and last line of these tasks, which run."""
        table, found, samples, shares = cache(Table), {}, {}, {}
        for task_id in task_ids:
            members = members_of(self._shell, task_id, table)
            samples[task_id] = sample = Sample({pid: stat.cpu_ticks for pid, stat in members.items()}, time.monotonic())
            shares[task_id] = used = _shares(self._samples.get(task_id), sample)
            found[task_id] = {
                "cpu": round(sum(used.values()), 1) if task_id in self._samples else None,
                "memory": sum(map(memory_of, members)),
                "activity": str(self._activity(task_id)) or None,
                "last_line": last_line(self._shell, task_id),
            }
        self._samples, self._shares, self.latest = samples, shares, found
        return found

    def _activity(self, task_id: str) -> str:
        try:
            return self._shell.executor.activity(task_id)
        except (OSError, OutlastError):
            return ""

    def of_processes(self, task_id: str) -> dict[int, float]:
        """Return percent of one core of each process of a task, between its last two looks."""
        return self._shares.get(task_id, {})


def members_of(shell: Shell, task_id: str, table: Any = Table) -> dict[int, Stat]:
    """Return the living processes of a task, without its guards."""
    try:
        guards = record.guards_of(shell.executor.registry.home.task(task_id))
        return process_tree.look(guards, record.is_foreign_guard, table).members
    except (OSError, OutlastError, KeyError, TypeError, ValueError):
        return {}  # pending, or just being removed


def _shares(before: Sample | None, now: Sample) -> dict[int, float]:
    """Return percent of one core of each process between two looks; none if there was only one."""
    if before is None or now.at <= before.at:
        return {}
    # A process that is new counts from its start.
    used = ((pid, max(0, ticks - before.ticks.get(pid, 0))) for pid, ticks in now.ticks.items())
    return {pid: round(ticks * 100 / _TICKS_S / (now.at - before.at), 1) for pid, ticks in used}


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
