"""Tasks with a terminal: what programs find there, and what a person would see."""

from __future__ import annotations

import pytest

from outlast import Shell
from outlast.types import Task
from tests.conftest import eventually


def text_of(shell: Shell, task: Task) -> str:
    """The rows of the screen, without the empty ones at its end."""
    return "\n".join(shell.screen(task).rows).rstrip("\n")


def shows(shell: Shell, task: Task, wanted: str) -> str:
    """Wait until a text is on the screen; returns all of it."""
    try:
        eventually(lambda: wanted in text_of(shell, task), what=repr(wanted))
        return text_of(shell, task)
    except pytest.fail.Exception as failed:
        pytest.fail(f"{failed}; on the screen is:\n{text_of(shell, task)}")
