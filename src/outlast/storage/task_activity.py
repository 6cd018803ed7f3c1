"""What a running task does at this moment: its processes, seen beside its input and its output."""

from __future__ import annotations

import os
import time

from outlast.linux import activity, process, process_tree
from outlast.linux.activity import Activity
from outlast.storage import record
from outlast.storage.layout import STDIN
from outlast.storage.output import FILES


def activity_of(directory: str) -> Activity:
    """Return what the processes of a task do; an empty activity if it has none, or they cannot be seen."""
    try:
        guards = record.guards_of(directory)
        members = process_tree.look(guards, record.is_foreign_guard, process.Table).members
    except record.UNREADABLE:
        return Activity()  # pending, or just being removed
    if not members:
        return Activity()
    # A program may open a terminal of its own (script, tmux); the task's is that of the command's session.
    terminal = next((stat.terminal for stat in members.values() if stat.session == guards.command.pid), 0)
    silent = 0.0 if terminal or _has_printed(directory) else time.monotonic() - guards.monotonic
    return activity.of_task(members, activity.Inputs(f"{directory}/{STDIN}", terminal), silent)


def _has_printed(directory: str) -> bool:
    return any(
        os.path.exists(path) and os.path.getsize(path) for path in (f"{directory}/{name}" for name in FILES.values())
    )
