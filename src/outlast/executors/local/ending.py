"""Before a tree is ended: a pending task is cancelled, and a running one gets a record of who ends it."""

from __future__ import annotations

import os
import select
import time

from outlast.errors import OutOfReach, SystemRefused
from outlast.light import signal
from outlast.linux import process
from outlast.storage import record, status
from outlast.storage.queue import Queue
from outlast.types import Running

_LOOK_AGAIN_S = 0.005
_BEGIN_WAIT_S = 5.0  # another process that starts the task takes milliseconds, unless it was stopped


def has_begun(directory: str, by: str, rule: str) -> bool:
    """Return whether a task has, or had, processes to end. A pending task is cancelled at once."""
    queue = Queue(os.path.dirname(os.path.dirname(directory)))
    deadline = time.monotonic() + _BEGIN_WAIT_S
    while status.is_pending(directory):
        if queue.cancel(directory, by, rule):
            return False
        if time.monotonic() > deadline:
            raise SystemRefused(f"The process that starts {os.path.basename(directory)} does not go on; try again.")
        select.select([], [], [], _LOOK_AGAIN_S)
    return "guards" in record.read(directory)


def check_visible(directory: str) -> None:
    """Refuse to end a task that runs in another pid namespace: its pids are those of strangers here, or of nobody."""
    if not process.is_visible(status.guards_of(directory).command.boot) and status.has_guard(directory):
        raise OutOfReach(
            f"{os.path.basename(directory)} runs in another container (pid namespace), so its processes cannot be seen "
            "from here; end it from there."
        )


def announce(directory: str, by: str, rule: str) -> None:
    """Record who ends a task that runs, and wake its guards: one that somebody stopped would not record the end."""
    runs = isinstance(status.status_of(directory)[0], Running)
    if runs:
        status.write_ending(by, rule, time.time(), directory)
    guards = status.guards_of(directory)
    for guard in (guards.supervisor, guards.keeper):
        if guard:
            process.send(guard, signal.SIGCONT)
