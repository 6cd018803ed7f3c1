"""Which tasks were started from inside of a task: a line for each in a file of its own."""

from __future__ import annotations

import os

from outlast.linux.files import open_regular

_NAME = "offspring"


def note(parent: str, task_id: str) -> None:
    """Write down that `task_id` is about to be started from inside of the task in the directory `parent`."""
    try:
        fd = open_regular(os.path.join(parent, _NAME), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except (FileNotFoundError, NotADirectoryError):
        return  # it is a task of another state directory, or was removed
    try:
        os.write(fd, task_id.encode() + b"\n")
    finally:
        os.close(fd)


def noted(parent: str) -> list[str]:
    """The ids of all that was ever started from inside of it."""
    try:
        fd = open_regular(os.path.join(parent, _NAME))
    except OSError:
        return []
    with open(fd, encoding="utf-8", errors="replace") as file:
        # A name that is no id would lead out of where tasks are.
        return [line for line in file.read().split("\n") if line and "/" not in line and line[0] != "."]
