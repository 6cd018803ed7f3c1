"""How the tasks ended that a pending task waits for, also after they were removed.

When a task is removed, each pending task that waits for it gets a file `after.ID` in its directory, which says how the
removed task ended. The caller holds the lock of the queue.
"""

from __future__ import annotations

import os

from outlast.linux.files import open_regular
from outlast.storage import status
from outlast.storage.status import UNREADABLE
from outlast.types import Ended, Exited, Lost, Signalled

_REASON_BYTES = 512


def _describe_end(directory: str) -> str | None:
    """Return None while the task runs or waits, "" if it completed, otherwise the sentence why it did not."""
    found, _, _ = status.status_of(directory)
    match found:
        case Ended(outcome=Exited(0), ending=None):
            return ""
        case Ended(ending=None, outcome=Exited(code)):
            how = f"failed with exit code {code}"
        case Ended(ending=None, outcome=Signalled(number)):
            how = f"was ended by signal {number}"
        case Ended(ending=None):
            how = "could not be started"
        case Ended():
            how = "was killed"
        case Lost():
            how = "was lost"
        case _:
            return None
    return f"{os.path.basename(directory)}, which it was to follow, {how}"


def write_end(directory: str, pending: str) -> None:
    """Note in the directory of a pending task how another one ended. OSError if there is no space for that."""
    try:
        end = _describe_end(directory)
    except UNREADABLE:
        return
    if end is None:
        return
    path = os.path.join(pending, f"after.{os.path.basename(directory)}")
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, b"%s\n" % end.encode())
    except OSError:
        os.unlink(path)  # without its text it would say that the task completed
        raise
    finally:
        os.close(fd)


def read_end(directory: str, pending: str) -> str | None:
    """Return how a task ended, as `_describe_end`; if it was removed, from the note in the pending task."""
    try:
        return _describe_end(directory)
    except UNREADABLE:
        task_id = os.path.basename(directory)
    try:
        with open(open_regular(os.path.join(pending, f"after.{task_id}")), "rb") as file:
            text = file.read(_REASON_BYTES)
    except OSError:
        text = b""
    # Without the newline its writer was killed in the middle.
    complete = text.endswith(b"\n")
    return (
        text[:-1].decode(errors="replace") if complete else f"{task_id}, which it was to follow, is not there any more"
    )
