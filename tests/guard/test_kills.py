"""kill -9 of either guard process at every system call that it makes, and of both in turn.

`stepper.c` runs the guard under ptrace and kills one of its processes at its N-th system call stop. For N = 1, 2, 3 ...
every run has to end in one of two ways: no task was published and the command never ran, or the task is complete, with
the exit code of the kernel, all bytes of its output once, and its program at the end started once. Only if a second
kill comes before the first guard was replaced may the exit code be absent; it is never wrong.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from guard_build import find_compiler
from tests.guard.harness import Item, Launcher, Task, read_stream, refuse_pidfd_info, refuse_splice, wait_until
from tests.guard.test_start import PREPARED, WAITS

SEED = int(os.environ["OUTLAST_SEED"])
PAIRS = 40  # in the short form
MOST_STOPS = 3000
LINES = b"".join(b"line %04d\n" % number for number in range(1000))
PRINT = "for i in {0..999}; do printf 'line %04d\\n' $i; done"


@dataclass
class Scenario:
    """A task, and what it has to leave behind."""

    script: str
    items: list[Item] = field(default_factory=list)
    code: dict[str, int] = field(default_factory=lambda: {"exit": 7})
    head: int | None = None
    prepare: Callable[[Launcher], None] | None = None
    drive: Callable[[Task], None] | None = None


def refuse_files(launcher: Launcher) -> None:
    launcher.preexec = lambda: refuse_splice(also_pipes=False)


def refuse_info(launcher: Launcher) -> None:
    launcher.preexec = refuse_pidfd_info


def send_begin(task: Task) -> None:
    if task.receive()[0] != "prepared":
        return
    with suppress(BrokenPipeError):  # its guards were killed since
        task.begin(("go", b"echo ran >>ran; " + PRINT.encode() + b"; exit 7\n"), ("head", 3000), ("segment", 1000))


# In a terminal it types a line to itself and reads it once, and changes its size, before it prints.
TYPES = """stty -opost -echo; here=$PWD/tasks/t0
until echo hello >"$here/stdin"; do sleep 0.01; done; read -r line
[[ $line == hello ]] || exit 9; ! read -rt 0.02 again || exit 8
trap resized=1 WINCH; echo 90x30 >"$here/size"; echo >"$here/wake"
until [[ ${resized-} ]]; do sleep 0.005; done
[[ $(stty size) == "30 90" ]] || exit 10
echo ran >>ran; printf 'line %04d\\n' {0..999} | cat; exit 7"""
SCENARIOS = {
    "plain": Scenario(f"echo ran >>ran; {PRINT}; exit 7"),
    "bounded": Scenario(f"echo ran >>ran; {PRINT}; exit 7", [("head", 3000), ("segment", 1000)], head=3000),
    "left": Scenario(f"echo ran >>ran; ({PRINT}) & exit 7"),
    "relay": Scenario(f"echo ran >>ran; {PRINT}; exit 7", prepare=refuse_files),
    "old kernel": Scenario(f"echo ran >>ran; {PRINT}; exit 7", prepare=refuse_info),
    "prepared": Scenario(WAITS, PREPARED, head=3000, drive=send_begin),
    "limit": Scenario(
        f"echo ran >>ran; {PRINT}; trap '' TERM; (setsid sleep 60 &) ; while :; do sleep 0.01; done",
        [("limit", 0.15), ("grace", 0.05)],
        {"signal": 9},
    ),
    "terminal": Scenario(TYPES, [("stdin", "open"), ("tty", "80x24")]),
}


@pytest.fixture(scope="session")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("stepper") / "stepper"
    source = Path(__file__).parent / "stepper.c"
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler for the stepper")
    subprocess.run([*compiler, "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", made], check=True)
    return str(made)


def check_kept(scenario: Scenario, task: Task) -> None:
    pieces = read_stream(task.directory, head=scenario.head)
    if scenario.head is None:
        assert pieces == [(0, LINES)]
        return
    assert pieces[0] == (0, LINES[: scenario.head])
    for start, data in pieces[1:]:
        assert LINES[start : start + len(data)] == data
    end = pieces[-1][0] + len(pieces[-1][1])
    assert end == len(LINES)
    assert len(pieces) <= 9


def check_lost(scenario: Scenario, task: Task) -> None:
    """Two kills took both guards, the second before the first was made good: the code is true or absent."""
    if not task.directory.exists():
        return
    assert not task.is_alive()
    found = task.slot("code")
    assert not found or {key: found.get(key) for key in scenario.code} == scenario.code
    for start, data in read_stream(task.directory, head=scenario.head):
        assert LINES[start : start + len(data)] == data


def step(launcher: Launcher, name: str, kills: list[tuple[str, int]], stepper: str) -> tuple[int, int]:
    """One run with these kills: how many took place, and how many stops the first target had."""
    scenario = SCENARIOS[name]
    for stale in ("ran", "ended"):
        (launcher.place / stale).unlink(missing_ok=True)
    words = ["/bin/bash", "-c", f"echo >>{launcher.place}/ended"]
    launcher.wrapper = [stepper, *(str(word) for kill in kills for word in kill), "--"]
    launcher.preexec = None
    if scenario.prepare:
        scenario.prepare(launcher)
    task = launcher.start(scenario.script, *scenario.items, *(("on-end", word) for word in words))
    if scenario.drive:
        scenario.drive(task)
    try:
        said, _ = task.process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{name} {kills}: did not end")
    task.line.close()
    done, both, stops, left = map(int, said.split())
    ran = (launcher.place / "ran").exists()
    assert left == 0, "processes are left"
    if both and done == 2:
        check_lost(scenario, task)
    elif task.directory.exists():
        assert ran, "published, but the command never ran"
        assert not task.is_alive()
        found = task.slot("code")
        assert {key: found.get(key) for key in scenario.code} == scenario.code
        assert task.slot("outcome")["ended"] > 0
        check_kept(scenario, task)
        wait_until((launcher.place / "ended").exists, "the program at the end ran")
        assert (launcher.place / "ended").read_text() == "\n", "it ran twice"
        assert (launcher.place / "ran").read_text() == "ran\n", "the command ran twice"
    else:
        assert not ran, "not published, but the command ran"
        assert not (launcher.place / "ended").exists()
    return done, stops


def step_checked(launcher: Launcher, name: str, kills: list[tuple[str, int]], stepper: str) -> tuple[int, int]:
    try:
        return step(launcher, name, kills, stepper)
    except AssertionError as error:
        raise AssertionError(f"{name} {kills} seed {SEED}: {error}") from error
    finally:
        launcher.tasks.clear()
        for place in ("staging", "tasks"):
            subprocess.run(["rm", "-rf", launcher.place / place / "t0"], check=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", ["supervisor", "keeper"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_every_system_call(launcher: Launcher, stepper: str, name: str, role: str) -> None:
    at = 1
    while step_checked(launcher, name, [(role, at)], stepper)[0]:
        at += 1
        assert at < MOST_STOPS
    assert at > 10, "the stepper saw no system calls"


def kill_pairs(launcher: Launcher, stepper: str, name: str, count: int) -> None:
    rng = random.Random(SEED)
    most = {role: step_checked(launcher, name, [(role, MOST_STOPS)], stepper)[1] for role in ("supervisor", "keeper")}
    for _ in range(count):
        first, second = rng.choice(list(most)), rng.choice(list(most))
        kills = [(first, rng.randint(1, most[first])), (second, rng.randint(1, most[second]))]
        step_checked(launcher, name, kills, stepper)


# Before Linux 6.15 the code is absent if init reaps the command: kill the supervisor, then the keeper that adopted it.
IN_TURN = [name for name in SCENARIOS if name != "old kernel"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IN_TURN)
def test_kills_of_two_in_turn(launcher: Launcher, stepper: str, name: str) -> None:
    kill_pairs(launcher, stepper, name, PAIRS)


@pytest.mark.soak
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("name", IN_TURN)
def test_kills_of_two_in_turn_in_full(launcher: Launcher, stepper: str, name: str) -> None:
    kill_pairs(launcher, stepper, name, 5000)


def test_random_kills_from_outside(launcher: Launcher) -> None:
    """Without ptrace, which changes the timing: kill what the record names, again and again, never both at once."""
    rng = random.Random(SEED)
    script = "exec python3 -Ic \"import sys; sys.stdout.buffer.writelines(b'%09d\\n' % n for n in range(3_000_000))\""
    task = launcher.start(f"{script}")
    task.expect("started")
    killed = 0
    while task.is_alive():
        before = task.slot("guards")["recoveries"]
        if task.slot("outcome"):
            break
        try:
            os.kill(task.pid(rng.choice(["supervisor", "keeper"])), signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed += 1
        limit = time.monotonic() + 10
        while task.is_alive() and task.slot("guards")["recoveries"] == before and not task.slot("outcome"):
            assert time.monotonic() < limit, f"not replaced, seed {SEED}"
        time.sleep(rng.random() * 0.01)
    task.wait_closed()
    assert killed > 3
    assert task.slot("code")["exit"] == 0
    assert task.output() == b"".join(b"%09d\n" % number for number in range(3_000_000))
