"""The tasks that a pending task waits for: how each of them ended, also after it was removed.

When a task is removed, each pending task that waits for it gets a file `after.ID` in its directory, which says how
the removed task ended. All of this happens under the lock of the queue.
"""

from __future__ import annotations

import os

from outlast.errors import OutlastError
from outlast.linux.files import open_regular
from outlast.storage import status
from outlast.types import Ended, Exited, Lost, Signalled

UNREADABLE = (OSError, OutlastError, KeyError, TypeError, ValueError)
_MOST_BYTES = 512


def how_it_ended(directory: str) -> str | None:
    """None while the task runs or waits, empty if it completed, otherwise the sentence why it did not."""
    found, _, _ = status.status_of(directory)
    task_id = os.path.basename(directory)
    match found:
        case Ended(outcome=Exited(0), ending=None):
            return ""
        case Ended(ending=None, outcome=Exited(code)):
            return f"{task_id}, which it was to follow, failed with exit code {code}"
        case Ended(ending=None, outcome=Signalled(number)):
            return f"{task_id}, which it was to follow, was ended by signal {number}"
        case Ended(ending=None):
            return f"{task_id}, which it was to follow, could not be started"
        case Ended():
            return f"{task_id}, which it was to follow, was killed"
        case Lost():
            return f"{task_id}, which it was to follow, was lost"
    return None


def how_it_ended_or_was_removed(directory: str, pending: str) -> str | None:
    """As `how_it_ended`, for the pending task in `pending`, which may remember a task that was removed."""
    try:
        return how_it_ended(directory)
    except UNREADABLE:
        task_id = os.path.basename(directory)
        remembered = _recall(pending, task_id)
        return f"{task_id}, which it was to follow, is not there any more" if remembered is None else remembered


def remember(directory: str, pending: str) -> None:
    """Note in the directory of a pending task how another one ended. OSError if there is no space for that."""
    try:
        how = how_it_ended(directory)
    except UNREADABLE:
        return
    if how is None:
        return
    path = _path(pending, os.path.basename(directory))
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, b"%s\n" % how.encode())
    except OSError:
        os.unlink(path)  # without its text it would say that the task completed
        raise
    finally:
        os.close(fd)


def _recall(pending: str, task_id: str) -> str | None:
    try:
        with open(open_regular(_path(pending, task_id)), "rb") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        return None
    # Without the newline its writer was killed in the middle.
    return text[:-1].decode(errors="replace") if text.endswith(b"\n") else None


def _path(pending: str, task_id: str) -> str:
    return os.path.join(pending, f"after.{task_id}")
