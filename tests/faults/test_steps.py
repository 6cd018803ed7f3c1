"""Fault 3: a kill at every step into the kernel, of every process that takes part in a task's life."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import OutlastError
from outlast.executors import nursery
from outlast.model import Task
from tests.conftest import eventually, processes_of
from tests.faults import stepping
from tests.faults.support import ROOT, SOURCE, closed, numbers, output, python

MOST_STEPS = 1000  # no life has so many; one that seems to is not getting on
LIMIT_S = 0.05
LATE = {"with a child that prints later": b"late\n"}
LIMITED = "that reaches its limit"
CHILDREN = ["with a child that prints later", "with a silent child"]

_NURSERY = """\
import sys
sys.path[:0] = {paths!r}
from tests.faults import stepping
stepping.nursery({plan!r}, {marks!r})
"""


class Steps:
    """Tasks whose processes are killed by plan."""

    def __init__(self, home: str, place: Path) -> None:
        self.home, self._place = home, place
        self._plan, self._marks, self._ran = place / "plan", place / "marks", place / "ran"
        self._number = 0
        script = _NURSERY.format(paths=[SOURCE, ROOT], plan=str(self._plan), marks=str(self._marks))
        (place / "nursery.py").write_text(script)

    def run(self, shell: Shell, plan: dict[str, int], kind: str = "plain") -> tuple[Task | None, list[str]]:
        """One task under a plan: what it came to, if it was started, and who was killed at what."""
        self._plan.write_text(json.dumps(plan))
        for file in (self._marks, self._ran):
            file.write_text("")
        self._number += 1
        limit = LIMIT_S if kind == LIMITED else None
        try:
            task = shell.start(stepping.command(str(self._place), self._number, kind), limit=limit)
        except OutlastError:
            return None, self._marks.read_text().splitlines()
        return closed(shell, task), self._marks.read_text().splitlines()

    def check(self, task: Task | None, story: list[str], kind: str = "plain") -> None:
        """It ran once and all of it is known; or nobody got an id, and it did not run."""
        ran = self._ran.read_text().split()
        if task is None:
            assert not ran, f"it ran, but its caller got no id: {story}"
            return
        assert ran == [str(self._number)], story
        if kind == LIMITED:
            assert (task.status, task.reason, task.signal) == ("killed", "timeout", 15), story
        else:
            assert (task.exit_code, task.reason) == (stepping.code(self._number), "exit"), story
        assert output(task) == numbers(self._number) + LATE.get(kind, b""), story

    def check_truth(self, task: Task | None, story: list[str]) -> None:
        """It ran once at most, and nothing that is said of it is wrong. What both guards took with them is missing."""
        # By its number: what a lost command does later must not be taken for this one's.
        ran = self._ran.read_text().split().count(str(self._number))
        assert ran <= (task is not None), story
        if task is not None:
            known = (task.reason, task.exit_code)
            never = [] if ran else [("spawn-error", None)]  # they died before they let it begin
            assert known in [("lost", None), ("exit", stepping.code(self._number)), *never], story
            assert numbers(self._number).startswith(output(task)), story

    def check_nothing_else_is_there(self, shell: Shell, tasks: int) -> None:
        """No half task, nothing left over from preparing one, no process."""
        home = Path(self.home)
        assert len(list((home / "tasks").iterdir())) == tasks == len(shell.list())
        shell.executor._warm.close()
        eventually(lambda: not list((home / "staging").iterdir()))
        eventually(lambda: not processes_of(self.home), what="all processes to leave")

    def until_it_passes(
        self, shell: Shell, role: str, kind: str = "plain", every: int = 1, also: tuple[str, int] = ("", 0)
    ) -> int:
        """Kill `role` at its first step, its second … until it gets to its end unharmed; how many tasks there were."""
        tasks = 0
        for step in range(1, MOST_STEPS, every):
            task, story = self.run(shell, dict([also, (role, step)]), kind)
            self.check(task, story, kind)
            tasks += task is not None
            if not any(line.startswith(f"{role} ") for line in story):
                return tasks
        pytest.fail(f"{role} did not get to its end in {MOST_STEPS} steps")

    def first_step_with_a_task(self, shell: Shell, role: str) -> int:
        """From this step on, the death of `role` leaves a task behind."""
        return next(step for step in range(1, MOST_STEPS) if self.run(shell, {role: step})[0])


@pytest.fixture
def steps(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps(home, tmp_path)
    monkeypatch.setattr(nursery, "_SCRIPT", str(tmp_path / "nursery.py"))
    return made


@pytest.mark.parametrize("role", ["s", "k"], ids=["supervisor", "keeper"])
def test_a_guard_dies_at_every_step_of_its_life(steps: Steps, shell: Shell, role: str) -> None:
    tasks = steps.until_it_passes(shell, role)
    steps.check_nothing_else_is_there(shell, tasks)


@pytest.mark.parametrize("role", ["s", "k"], ids=["supervisor", "keeper"])
@pytest.mark.parametrize("kind", [*CHILDREN, LIMITED])
def test_a_guard_dies_at_some_steps_with_a_command(steps: Steps, shell: Shell, role: str, kind: str) -> None:
    steps.until_it_passes(shell, role, kind, every=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", ["s", "k"], ids=["supervisor", "keeper"])
@pytest.mark.parametrize("kind", [*CHILDREN, LIMITED])
def test_a_guard_dies_at_every_step_with_a_command(steps: Steps, shell: Shell, role: str, kind: str) -> None:
    tasks = steps.until_it_passes(shell, role, kind)
    steps.check_nothing_else_is_there(shell, tasks)


def test_the_ender_dies_at_some_steps_and_the_limit_holds(steps: Steps, shell: Shell) -> None:
    steps.until_it_passes(shell, "s.1", LIMITED, every=6)


@pytest.mark.parametrize(("first", "then"), [("s", "k.2"), ("k", "s.1")], ids=["supervisor", "keeper"])
def test_a_guard_that_replaces_another_dies_too(steps: Steps, shell: Shell, first: str, then: str) -> None:
    """The other guard of the pair lives all the time, so nothing may be lost."""
    born = steps.first_step_with_a_task(shell, first)
    steps.until_it_passes(shell, then, every=3, also=(first, born))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("first", "then"), [("s", "k.2"), ("k", "s.1")], ids=["supervisor", "keeper"])
@pytest.mark.parametrize("kind", ["plain", CHILDREN[0]])
def test_every_pair_of_steps_of_a_guard_and_its_successor(
    steps: Steps, shell: Shell, first: str, then: str, kind: str
) -> None:
    born = steps.first_step_with_a_task(shell, first)
    for step in range(born, MOST_STEPS):
        steps.until_it_passes(shell, then, kind, also=(first, step))
        if not steps.run(shell, {first: step})[1]:
            return


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_pair_of_steps_of_both_guards(steps: Steps, shell: Shell) -> None:
    """Both can be dead at once then, and the task lost; but no code is ever wrong, and nothing runs twice."""
    story = [""]
    for supervisor in range(1, MOST_STEPS):
        for keeper in range(1, MOST_STEPS):
            task, story = steps.run(shell, {"s": supervisor, "k": keeper})
            steps.check_truth(task, story)
            if not any(line.startswith("k ") for line in story):
                break
        if not story:
            return


def test_the_nursery_dies_at_every_step_of_its_life(steps: Steps, home: str) -> None:
    for step in range(1, MOST_STEPS):
        with Shell.open(home=home) as shell:
            task, story = steps.run(shell, {"n": step})
            steps.check(task, story)
            if not story:
                return


def test_the_host_dies_at_every_step_of_a_start(home: str, tmp_path: Path) -> None:
    """Whoever got an id finds the task complete; whoever got none may find it, but then complete too."""
    code = "from tests.faults import stepping; stepping.hosts(*sys.argv[1:])"
    ran = subprocess.run(python(code, home, str(tmp_path)), capture_output=True, timeout=100, check=True)
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told[-1]["task_id"], "the last host was not killed"
    markers = (tmp_path / "ran").read_text().split()
    for said in told:
        found = said["tasks"]
        assert len(found) == markers.count(str(said["step"])) <= 1, said
        assert found or not said["task_id"], said
        for task in found:
            assert said["task_id"] in ("", task["task_id"]), said
            assert (task["exit_code"], task["reason"]) == (stepping.code(said["step"]), "exit"), said
            assert task["output"].encode() == numbers(said["step"]), said
