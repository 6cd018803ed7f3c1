"""The files of a task that belong to its session.

before    the snapshot that the command begins with (a hard link)
start     what bash has by itself, written by the first command of a session
state     what the shell dumps after the command; present and complete only if the shell came to its end
moved     the caller stopped waiting, so the session does not take over what the command changes
go        the FIFO on which a prepared shell waits for its command

The guards only pass these files to the shell. Reading them is up to the next user of the session.
"""

from __future__ import annotations

import os

BEFORE, START, STATE, MOVED, GO = "before", "start", "state", "moved", "go"

# `before` first: a task without it has nothing to merge, so a crash between two unlinks does no harm.
_TEMPORARY = (BEFORE, START, STATE, GO)


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is removed once the session has merged the task."""
    return name in _TEMPORARY


def remove_all(directory: str) -> None:
    """Remove what the session no longer needs. Keeps `moved`, which notices look at."""
    for name in _TEMPORARY:
        _unlink(f"{directory}/{name}")


def skip_dump(directory: str) -> None:
    """Let the shell of a task that keeps no state end without dumping it."""
    _unlink(f"{directory}/{BEFORE}")


def is_moved(directory: str) -> bool:
    return os.path.exists(f"{directory}/{MOVED}")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it is not there, or the task was removed
