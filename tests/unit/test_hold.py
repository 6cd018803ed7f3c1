"""Holds: a remover never disturbs a holder, and a held task is never removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell
from outlast.storage.removal import rename_unless_held
from outlast.storage.task_directory import Hold

ROUNDS = 3000
REMOVER = """import sys
from outlast.linux.files import open_regular, try_lock, unlock_and_close
print("begun", flush=True)
while True:
    fd = open_regular(sys.argv[1] + "/launch.json")
    try_lock(fd)
    unlock_and_close(fd)
"""


@pytest.fixture
def wanted(tmp_path: Path) -> Iterator[str]:
    """A task directory that two other processes lock all the time, as a remover does."""
    directory = tmp_path / "task"
    directory.mkdir()
    (directory / "launch.json").write_text("{}")
    words = [sys.executable, "-c", REMOVER, str(directory)]
    removers = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(2)]
    for remover in removers:
        assert remover.stdout is not None
        assert remover.stdout.readline(), "the remover did not start"
    yield str(directory)
    for remover in removers:
        with remover:
            assert remover.poll() is None, "a remover ended by itself"
            remover.kill()


def is_held(directory: str) -> bool:
    return not rename_unless_held(directory, f"{directory}.moved")


def test_a_remover_does_not_keep_anyone_from_taking_a_hold(wanted: str) -> None:
    missed = 0
    for _ in range(ROUNDS):
        with Hold().take(wanted):
            missed += not is_held(wanted)
    assert missed == 0, f"{missed} of {ROUNDS} holds were not taken"


def test_a_hold_ends_when_it_is_closed_also_if_a_fork_still_has_it_open(tmp_path: Path) -> None:
    directory = str(tmp_path / "task")
    os.mkdir(directory)
    Path(directory, "launch.json").write_text("{}")
    first, second = Hold().take(directory), Hold().take(directory)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        first.close()
        assert is_held(directory), "the second holder was forgotten"
        second.close()
        assert not is_held(directory)
        child.kill()


def test_a_hold_taken_just_before_the_removal_keeps_the_task(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the hold in the window between the remover's probe and its rename."""
    task = shell.run("echo kept")
    shell.remove(shell.run("true").task_id)  # a task without a hold goes
    registry, hold = shell.executor.registry, Hold()

    def take_hold(task_id: str) -> bool:
        hold.take(registry.home.task(task_id))
        return False

    monkeypatch.setattr(registry.index, "is_notice_due", take_hold)
    assert not registry.remove(task.task_id), "the task was removed although it is held"
    assert shell.read(task.task_id).output == "kept\n"
    hold.close()
    monkeypatch.undo()
    assert registry.remove(task.task_id)
