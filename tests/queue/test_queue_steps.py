"""A kill at every step into the kernel, of whoever begins a pending task: it begins once, and is not forgotten."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from outlast import OutlastError, Shell
from outlast.executors import nursery
from outlast.model import Task
from tests.conftest import eventually
from tests.faults.support import ROOT, SOURCE, closed
from tests.faults.test_steps import _NURSERY, MOST_STEPS


class Steps:
    """Pending tasks that are begun under a plan of who is killed at what."""

    def __init__(self, place: Path) -> None:
        self._plan, self._marks, self._ran = place / "plan", place / "marks", place / "ran"
        self._ran.touch()
        self._number = 0
        script = _NURSERY.format(paths=[SOURCE, ROOT], plan=str(self._plan), marks=str(self._marks))
        (place / "nursery.py").write_text(script)
        os.mkfifo(place / "gate")
        self._gate = os.open(place / "gate", os.O_RDWR)
        self._wait = f"read -r _ < {place / 'gate'}"
        self.plan()

    def plan(self, **plan: int) -> None:
        self._plan.write_text(json.dumps({name.replace("_", "."): step for name, step in plan.items()}))

    def story(self) -> list[str]:
        return self._marks.read_text().splitlines() if self._marks.exists() else []

    def command(self) -> str:
        self._number += 1
        return f"echo =$STEP >> {self._ran}; exit {self._number % 100}"

    @property
    def _env(self) -> dict[str, str]:
        return {"STEP": str(self._number)}  # whoever begins it at last must have it

    def begun_by_a_caller(self, shell: Shell, role: str, step: int) -> tuple[list[Task], str]:
        """One that waits for what is over, so that a nursery begins it."""
        self._marks.write_text("")
        done = shell.run("true")
        self.plan(**{role: step})
        command = self.command()
        task = shell.start(command, after=[done.task_id], env=self._env)
        self.plan()
        return [closed(shell, task)], self._marks.read_text()

    def begun_by_another(self, shell: Shell, role: str, step: int) -> tuple[list[Task], str]:
        """One behind another: its supervisor begins it."""
        self._marks.write_text("")
        self.plan(**{role: step})
        try:
            command = f"{self._wait}; {self.command()}"
            first = shell.start(command, env=self._env)
        except OutlastError:
            self._number -= 1
            return [], self._marks.read_text()  # it died before there was a task
        self.plan()
        command = self.command()
        second = shell.start(command, env=self._env)
        os.write(self._gate, b"go\n")
        return [closed(shell, second), closed(shell, first)], self._marks.read_text()

    def check(self, tasks: list[Task], story: str) -> None:
        ran = self._ran.read_text().split()
        assert sorted(ran) == sorted(f"={n}" for n in range(1, self._number + 1)), story
        for task in tasks:
            assert (task.reason, task.exit_code) == ("exit", int(task.command.split()[-1])), story

    def until_it_passes(self, shell: Shell, how: str, role: str, every: int) -> None:
        story = ""
        for step in range(1, MOST_STEPS, every):
            for _ in range(3):
                tasks, story = getattr(self, how)(shell, role, step)
                self.check(tasks, story)
                if story or step > 1:
                    break  # or it was begun by somebody who had been there before there was a plan
            if not story:
                assert step > 1
                return
        pytest.fail(f"{role} did not get to its end in {MOST_STEPS} steps")


@pytest.fixture
def steps(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    monkeypatch.setattr(nursery, "_SCRIPT", str(tmp_path / "nursery.py"))
    return Steps(tmp_path)


@pytest.mark.parametrize("verb", ["start", "run"])
def test_a_waiter_tries_again_when_a_task_could_not_begin(steps: Steps, shell: Shell, verb: str) -> None:
    """Its supervisor dies again and again; once it does not, the task begins without any other event."""
    done = shell.run("true")
    steps.plan(s=1)

    def life() -> None:
        task = getattr(shell, verb)("exit 7", after=[done.task_id])
        codes.append(shell.wait(task.task_id, timeout=60).exit_code)

    codes: list[int | None] = []
    waiter = threading.Thread(target=life)
    waiter.start()
    eventually(lambda: len(steps.story()) > 4)
    steps.plan()
    waiter.join(timeout=60)
    assert codes == [7]


CASES = [
    ("begun_by_a_caller", "s"),  # its supervisor
    ("begun_by_a_caller", "k"),  # its keeper
    ("begun_by_another", "s"),  # the supervisor of the one before, which begins it
    ("begun_by_another", "s_1"),  # its own keeper, a fork of that
    ("begun_by_another", "s_1_1"),  # its supervisor
]


@pytest.mark.parametrize(("how", "role"), CASES)
def test_somebody_dies_at_some_steps(steps: Steps, shell: Shell, home: str, how: str, role: str) -> None:
    steps.until_it_passes(shell, how, role, every=4)
    assert os.listdir(os.path.join(home, "queue", "entries")) == []
    eventually(lambda: not any(task.children for task in shell.list()))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("how", "role"), CASES)
def test_somebody_dies_at_every_step(steps: Steps, shell: Shell, how: str, role: str) -> None:
    steps.until_it_passes(shell, how, role, every=1)
