"""What a running task does: seen from outside, without asking it."""

from __future__ import annotations

import sys

import pytest

from outlast import Shell, Stdin
from outlast.linux.activity import of_task
from tests.conftest import eventually

SOCKET = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); {}"
DOES = {
    "while :; do :; done": "busy",
    "sleep 60": "sleeping",
    "sleep 60 | cat": "sleeping",  # cat waits for the other, not for a person
    "read line": "waiting for input",
    "kill -STOP $$": "stopped",
    f'{sys.executable} -c "{SOCKET.format("s.accept()")}"': "waiting for network",
    f'{sys.executable} -c "import select; select.select([], [], [], 60)"': "waiting for network or a timer",
}


@pytest.mark.parametrize("command", DOES)
def test_what_a_task_does(shell: Shell, command: str) -> None:
    task = shell.start(command, stdin=Stdin(open=True))
    eventually(lambda: shell.activity(task.task_id) == DOES[command], what=DOES[command])


def test_of_a_task_that_is_over_nothing_is_said(shell: Shell) -> None:
    task = shell.run("true")
    eventually(lambda: shell.show(task.task_id).closed)
    assert shell.activity(task.task_id) == ""
    assert of_task({}) == ""


def test_a_pending_task_does_nothing(shell: Shell) -> None:
    first = shell.start("sleep 60")
    pending = shell.start("true", after=[first.task_id])
    assert shell.activity(pending.task_id) == ""
