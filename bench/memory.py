"""What a running task takes in memory that is its own: supervisor and keeper, measured at once."""

from __future__ import annotations

import os

from outlast import Shell
from outlast.store import status


def private_kib(pid: int) -> int:
    """Memory that would be freed if this process ended."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))


def for_each_task(shell: Shell, tasks: int) -> float:
    """MiB for each of so many running tasks."""
    ids = [shell.start("sleep 1000").task_id for _ in range(tasks)]
    try:
        guards = [status.guards_of(os.path.dirname(shell.show(task_id).output_file)) for task_id in ids]
        kib = sum(private_kib(who.pid) for both in guards for who in (both.supervisor, both.keeper) if who is not None)
    finally:
        shell.kill_all(ids)
    return kib / tasks / 1024
