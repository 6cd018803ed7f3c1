"""What it takes to end one task: cancel it while it is pending, or record who ends it."""

from __future__ import annotations

import os
import select
import time

from outlast.errors import OutOfReach, SystemRefused
from outlast.light import signal
from outlast.linux import process
from outlast.storage import record
from outlast.storage.queue import Queue
from outlast.types import Running

_RETRY_S = 0.005
_START_WAIT_S = 5.0  # another process that starts the task takes milliseconds, unless it was stopped


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
    """Refuse to signal a task of another pid namespace: its pids are those of other processes here, or of none."""
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
