"""Fault 6: few descriptors, no more processes, little memory. Refused with a reason, nothing half done."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import OutlastError, Shell
from outlast.errors import StartFailed
from outlast.guard import client
from outlast.guard.client import find_guard
from outlast.types import Stdin
from tests.conftest import eventually
from tests.faults.support import closed, directory_of, guard, python, replace_guard

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

COMMAND = "echo hi; exit 7"


class Neighbour:
    """A task that ran before anything became scarce, and must not notice."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._task = shell.start("while read -r line; do echo $line; done; exit 9", stdin=Stdin(open=True))
        self._said = 0

    def check(self) -> None:
        self._said += 1
        self._shell.send(self._task.task_id, f"{self._said}\n")
        eventually(lambda: self._shell.read(self._task.task_id, tail=1).output == f"{self._said}\n")

    def finish(self) -> None:
        self._shell.send(self._task.task_id, eof=True)
        assert self._shell.wait(self._task.task_id, timeout=30).exit_code == 9


@pytest.fixture
def neighbour(home: str) -> Iterator[Neighbour]:
    with Shell.open(home=home, session="neighbour", prepare=False) as shell:
        one = Neighbour(shell)
        yield one
        one.check()
        one.finish()


def outcome(act: Callable[[], Any]) -> tuple[Any, OutlastError | None]:
    """What it gave, or the error of ours that it raised. Any other error is a bug."""
    try:
        return act(), None
    except OutlastError as error:
        return None, error


def attempt(home: str, lower: Callable[[], None], raise_again: Callable[[], None]) -> str | None:
    """Start a command while something is scarce: None if it ran and ended as it should, or why it was refused."""
    before = set(os.listdir(os.path.join(home, "tasks")))
    with Shell.open(home=home, prepare=False) as shell:
        lower()
        result, refusal = outcome(lambda: shell.run(COMMAND, wait=30, env={"TOKEN": "canary"}))
        raise_again()
        made = set(os.listdir(os.path.join(home, "tasks"))) - before
        check_staging(home)
        if refusal:
            assert isinstance(refusal, StartFailed)
            assert not made, f"refused ({refusal.message}), and yet there is a task"
            assert refusal.message.endswith(".")
            assert "\n" not in refusal.message
            return refusal.message
        assert made == {result.task_id}
        assert (result.status, result.exit_code, result.output) == ("failed", 7, "hi\n")
        assert fields_agree(shell, result.task_id)
        return None


def fields_agree(shell: Shell, task_id: str) -> bool:
    """Whether the list shows the task as it is."""
    return [task.exit_code for task in shell.list() if task.task_id == task_id] == [7]


def check_staging(home: str) -> None:
    """What could not even be removed for want of a descriptor holds no secret, and goes later."""
    for left in Path(home, "staging").rglob("*"):
        assert left.name not in ("environ", "input"), left


@pytest.fixture
def limited() -> Iterator[Callable[[int, int], tuple[Callable[[], None], Callable[[], None]]]]:
    """Two calls for a limit of this process: lower it to a value, and back."""
    before: dict[int, tuple[int, int]] = {}

    def make(which: int, value: int) -> tuple[Callable[[], None], Callable[[], None]]:
        before[which] = resource.getrlimit(which)
        lower = lambda: resource.setrlimit(which, (value, before[which][1]))  # noqa: E731
        back = lambda: resource.setrlimit(which, before[which])  # noqa: E731
        return lower, back

    yield make
    for which, values in before.items():
        resource.setrlimit(which, values)


# --- descriptors ---------------------------------------------------------------------------


def lowest_free() -> int:
    fd = os.dup(0)
    os.close(fd)
    return fd


def test_few_descriptors_are_a_refusal_or_enough(home, neighbour, limited):
    """From none to enough: each number refuses with its reason or runs the command as it should."""
    reasons: list[str | None] = []
    with Shell.open(home=home, prepare=False) as shell:
        shell.run("true")
    enough = 0
    for count in range(60):
        reasons.append(attempt(home, *limited(resource.RLIMIT_NOFILE, lowest_free() + count)))
        enough = 0 if reasons[-1] else enough + 1
        if enough == 3:
            break
        if count % 8 == 0:
            neighbour.check()
    assert enough == 3, reasons
    assert sum("Too many open files" in (reason or "") for reason in reasons) > 3


HOST = """
import resource
from outlast import OutlastError, Shell
from outlast.types import Stdin
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), hard))
try:
    with Shell.open(sys.argv[1], prepare=False) as shell:
        task = shell.start("echo a; read -r line; echo $line; exit 7", stdin=Stdin(open=True))
        print(task.task_id)
except OutlastError as error:
    print(error.message, file=sys.stderr)
    sys.exit(3)
"""


def test_guards_with_hardly_any_descriptors_still_replace_each_other(home):
    """The fewest with which a task starts must be enough for all of its life."""
    with Shell.open(home=home, prepare=False) as shell:
        shell.run("true")
        survived = 0
        for count in range(8, 40):
            ran = subprocess.run(python(HOST, home, str(count)), capture_output=True, text=True, timeout=60)
            assert ran.returncode in (0, 3), ran.stderr
            if ran.returncode:
                assert len(shell.list()) == 1 + survived
                continue
            task = shell.show(ran.stdout.strip())
            replace_guard(task, "supervisor")
            replace_guard(task, "keeper")
            replace_guard(task, "supervisor")
            shell.send(task.task_id, "b\n")
            ended = shell.wait(task.task_id, timeout=30)
            assert (ended.status, ended.exit_code) == ("failed", 7), f"with {count} descriptors"
            assert shell.read(task.task_id).output == "a\nb\n"
            survived += 1
            if survived == 3:
                return
        pytest.fail("no number of descriptors was enough")


@pytest.mark.parametrize("spare", range(8))
def test_looking_and_ending_with_few_descriptors_is_an_error_of_ours_or_works(home, neighbour, limited, spare):
    with Shell.open(home=home, prepare=False) as shell:
        task = shell.start("echo a; sleep 60")
        eventually(lambda: shell.read(task.task_id).output)
        lower, back = limited(resource.RLIMIT_NOFILE, lowest_free() + spare)
        verbs: list[Callable[[], object]] = [
            lambda: shell.show(task.task_id).status,
            lambda: shell.read(task.task_id).output,
            lambda: [one.task_id for one in shell.list()],
            lambda: shell.wait(task.task_id, timeout=0.05).status,
            lambda: shell.clean(all_finished=True),
            lambda: b"".join(piece.data for piece in shell.follow(task.task_id, timeout=0.05)),
        ]
        expected: list[object] = ["running", "a\n", [task.task_id], "running", 0, b"a\n"]
        for verb, right in zip(verbs, expected, strict=True):
            lower()
            found, error = outcome(verb)
            back()
            assert found == right or "Too many open files" in str(error) or "open database" in str(error)
        lower()
        outcome(lambda: shell.kill(task.task_id, grace=0.5))
        back()
        left = shell.show(task.task_id)
        if left.status == "running" or left.children:  # refused, or stopped for want of descriptors after some of them
            shell.kill(task.task_id, grace=0.5)
        assert closed(shell, task).status == "killed"


# --- processes -----------------------------------------------------------------------------


def my_threads() -> int:
    """How many threads this user has: what the limit counts."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count


@pytest.mark.skipif(os.getuid() == 0, reason="no limit of processes holds for root; the plain user's run has this test")
def test_no_more_processes_is_a_refusal_or_enough(home, neighbour, limited):
    refused = 0
    for spare in range(-4, 12):  # from below: others of this user may end while we count
        reason = attempt(home, *limited(resource.RLIMIT_NPROC, max(1, my_threads() + spare)))
        if reason is None:
            break
        refused += 1
        neighbour.check()
    assert refused, "nothing was scarce"


@pytest.mark.skipif(os.getuid() == 0, reason="no limit of processes holds for root; the plain user's run has this test")
def test_a_task_goes_on_when_there_is_no_process_for_a_new_guard(home, limited):
    with Shell.open(home=home, prepare=False) as shell:
        task = shell.start("read -r line; echo $line; exit 7", stdin=Stdin(open=True))
        keeper = guard(task, "keeper")
        resource.prlimit(
            guard(task, "supervisor").pid, resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1])
        )
        os.kill(keeper.pid, 9)
        shell.send(task.task_id, "still here\n", eof=True)
        ended = shell.wait(task.task_id, timeout=30)
        assert ended.exit_code == 7
        assert shell.read(task.task_id).output == "still here\n"
        closed(shell, task)


# --- memory --------------------------------------------------------------------------------


def test_little_memory_is_a_refusal_or_enough(home, neighbour, tmp_path, monkeypatch):
    """Many variables take memory to pass on; the guards get more and more of it until it is enough."""
    env = {f"BIG{n}": "x" * 100_000 for n in range(8)}
    outcomes, poor, guard_program = [], tmp_path / "poor-guard", find_guard()
    with Shell.open(home=home, prepare=False) as shell:
        monkeypatch.setattr(client, "find_guard", lambda: str(poor))
        for kilobytes in (2000, 8000, 64_000, 66_000, 68_000, 72_000):  # it reserves 64 MiB of addresses for the launch
            poor.write_text(f'#!/bin/sh\nulimit -Sv {kilobytes}\nexec {guard_program} "$@"\n')
            poor.chmod(0o700)
            before = set(os.listdir(os.path.join(home, "tasks")))
            result, error = outcome(lambda: shell.run(COMMAND, wait=30, env=env))
            outcomes.append("refused" if error else "ran")
            if error:
                assert "memory" in error.message
                assert set(os.listdir(os.path.join(home, "tasks"))) == before
                assert os.listdir(os.path.join(home, "staging")) == []
            else:
                assert (result.exit_code, result.output) == (7, "hi\n")
            neighbour.check()
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"refused", "ran"}


def test_a_host_with_little_memory_is_refused_or_served(home, neighbour, limited):
    for megabytes in range(8, 40, 4):
        attempt(home, *limited(resource.RLIMIT_AS, megabytes << 20))
    neighbour.check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_tasks_while_descriptors_are_scarce(home, neighbour, limited):
    with Shell.open(home=home, prepare=False) as shell:
        shell.run("true")
    base = lowest_free()
    for number in range(200):
        attempt(home, *limited(resource.RLIMIT_NOFILE, base + number % 24))
        neighbour.check()
    with Shell.open(home=home, prepare=False) as shell:
        for task in shell.list():
            assert task.exit_code in (0, 7), directory_of(task)
