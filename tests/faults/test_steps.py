"""Fault 3: a kill at every step into the kernel, of every process that takes part in a task's life."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import StartFailed
from outlast.executors import nursery
from outlast.model import Task
from tests.faults import stepping
from tests.faults.support import ROOT, SOURCE, closed, numbers, output, python

_NURSERY = """\
import sys
sys.path[:0] = {paths!r}
from tests.faults import stepping
stepping.nursery({plan!r}, {marks!r})
"""


class Steps:
    """Tasks whose processes are killed by plan."""

    def __init__(self, shell: Shell, place: Path) -> None:
        self._shell, self._place = shell, place
        self._plan, self._marks = place / "plan", place / "marks"
        self._number = 0
        self.plan({})
        script = _NURSERY.format(paths=[SOURCE, ROOT], plan=str(self._plan), marks=str(self._marks))
        (place / "nursery.py").write_text(script)

    @property
    def script(self) -> str:
        return str(self._place / "nursery.py")

    def plan(self, plan: dict[str, int]) -> None:
        self._plan.write_text(json.dumps(plan))
        self._marks.write_text("")

    def run(self, plan: dict[str, int]) -> tuple[Task | None, list[str]]:
        """One task under a plan: what it came to, if it was started, and who was killed at what."""
        self.plan(plan)
        self._number += 1
        try:
            task = self._shell.start(stepping.command(str(self._place), self._number))
        except StartFailed:
            return None, self._marks.read_text().splitlines()
        return closed(self._shell, task), self._marks.read_text().splitlines()

    def check(self, task: Task | None, story: list[str]) -> None:
        """Promises A to C, for the last task."""
        ran = (self._place / "ran").read_text().split().count(str(self._number)) if (self._place / "ran").exists() else 0
        if task is None:
            assert ran == 0, f"it ran, but its caller got no id: {story}"
            return
        assert (task.exit_code, task.reason) == (stepping.code(self._number), "exit"), story
        assert output(task) == numbers(self._number), story
        assert ran == 1, story


@pytest.fixture
def steps(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps(shell, tmp_path)
    monkeypatch.setattr(nursery, "_SCRIPT", made.script)
    return made


@pytest.mark.parametrize("role", ["s", "s.1"])
def test_a_guard_dies_at_every_step_of_its_life(steps: Steps, role: str) -> None:
    step, marks = 0, [""]
    while marks:
        step += 1
        task, marks = steps.run({role: step})
        print(step, marks, task and (task.status, task.exit_code, task.reason))
        steps.check(task, marks)
    print(step)
