"""Holds: a probe never disturbs a holder, and a held task is never removed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell
from outlast.storage.locks import Hold, is_held

ROUNDS = 3000
PROBE = """import sys
from outlast.storage.locks import is_held
print(is_held(sys.argv[1]), flush=True)
while True:
    is_held(sys.argv[1])
"""


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[str]:
    """A task directory whose hold two other processes probe all the time."""
    (tmp_path / "launch.json").write_text("{}")
    words = [sys.executable, "-c", PROBE, str(tmp_path)]
    probers = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(2)]
    for prober in probers:
        assert prober.stdout is not None
        assert prober.stdout.readline(), "the prober did not start"
    yield str(tmp_path)
    for prober in probers:
        with prober:
            assert prober.poll() is None, "a prober ended by itself"
            prober.kill()


def test_a_probe_does_not_keep_anyone_from_taking_a_hold(probed: str) -> None:
    missed = 0
    for _ in range(ROUNDS):
        with Hold().take(probed):
            missed += not is_held(probed)
    assert missed == 0, f"{missed} of {ROUNDS} holds were not taken"


def test_two_probes_do_not_take_each_other_for_a_holder(probed: str) -> None:
    false = sum(is_held(probed) for _ in range(ROUNDS))
    assert false == 0, f"{false} of {ROUNDS} probes saw a holder that was not there"


def test_a_hold_ends_when_it_is_closed_also_if_a_fork_still_has_it_open(tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_text("{}")
    first, second = Hold().take(str(tmp_path)), Hold().take(str(tmp_path))
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        first.close()
        assert is_held(str(tmp_path)), "the second holder was forgotten"
        second.close()
        assert not is_held(str(tmp_path))
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
