"""Fault 7: the wall clock is set forward and back while limits run. The real guard, with a clock that jumps."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import guard_build as build
from outlast import Shell
from outlast.guard import client
from outlast.light import replace
from outlast.linux import process
from outlast.storage import record
from outlast.types import Task
from tests.conftest import eventually
from tests.faults.support import closed, dice, directory_of, guard, replace_guard, stop_guards
from tests.frozen_states import freeze
from tests.guard_files import write_guards

DAY_S = 86_400
LATE_S = 5.0  # what a busy machine may add


@pytest.fixture(scope="module")
def odd_guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guard whose wall clock is wrong by the seconds in the file `clock` beside it."""
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("no compiler that links static programs")
    place = tmp_path_factory.mktemp("guard")
    source = str(Path(__file__).parent / "jumping_clock.c")
    flags = ["-Wl,--wrap=clock_gettime", f'-DCLOCK_FILE="{place}/clock"', source]
    build.build(str(place / build.NAME), compiler, [*build.FLAGS, *flags])
    return place / build.NAME


class Clock:
    """The wall clock of the guards. It can be set once, or all the time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._over = threading.Event()
        self.set(0)

    def set(self, by: float) -> None:
        self._file.write_text(f"{by:.0f}")

    def jump(self, chance: random.Random) -> None:
        """In a thread of its own: set the clock, forward or back, until `stop`."""
        while not self._over.wait(0.001):
            self.set(chance.choice([-1, 1]) * chance.choice([1, 3600, DAY_S, 4000 * DAY_S]))

    def stop(self) -> None:
        self._over.set()


@pytest.fixture
def clock(odd_guard: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of every task that is started."""
    monkeypatch.setattr(client, "find_guard", lambda: str(odd_guard))
    return Clock(odd_guard.with_name("clock"))


@pytest.fixture
def jumping(clock: Clock) -> Iterator[random.Random]:
    chance = dice()
    setter = threading.Thread(target=clock.jump, args=[random.Random(chance.random())])
    setter.start()
    yield chance
    clock.stop()
    setter.join()


def check(shell: Shell, task: Task, began: float, limit: float, lasts: float) -> None:
    """A limit struck when it had to, or not at all; and every duration makes sense."""
    ended = shell.wait(task.task_id, timeout=limit + lasts + 30)
    took = time.monotonic() - began
    assert ended.elapsed_ms >= 0
    assert ended.elapsed_ms / 1000 <= took + 0.1
    if lasts < limit:
        assert (ended.status, ended.exit_code) == ("failed", 7)
        assert lasts <= ended.elapsed_ms / 1000
    else:
        assert (ended.status, ended.reason) == ("killed", "timeout")
        assert limit <= ended.elapsed_ms / 1000 < limit + LATE_S
    assert limit > lasts or took < limit + LATE_S


def run_many(shell: Shell, count: int, chance: random.Random) -> None:
    """Tasks with and without enough time, under a clock that is set back and forth."""
    running = []
    for _ in range(count):
        limit, lasts = chance.choice([(0.4, 60.0), (0.7, 60.0), (30.0, 0.3), (60.0, 0.6)])
        began = time.monotonic()
        running.append((shell.start(f"sleep {lasts}; exit 7", limit=limit), began, limit, lasts))
    for task, *_ in running:
        assert shell.show(task.task_id).elapsed_ms >= 0
    for task, began, limit, lasts in running:
        check(shell, task, began, limit, lasts)


def test_no_limit_strikes_early_or_late_when_the_clock_is_set(shell, jumping):
    run_many(shell, 10, jumping)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_five_hundred_limits_under_clocks_that_are_set(shell, jumping):
    for _ in range(50):
        run_many(shell, 10, jumping)


@pytest.mark.parametrize("by", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_the_clock_of_a_guard_is_really_set(shell, clock, by):
    """Or the other tests here would show nothing."""
    clock.set(by)
    task = shell.start("true")
    closed(shell, task)
    assert abs(record.read(directory_of(task))["outcome"]["ended"] - time.time() - by) < 60


@pytest.mark.parametrize("by", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_new_supervisor_keeps_to_the_limit_too(shell, clock, by):
    began = time.monotonic()
    task = shell.start("sleep 60", limit=1.0)
    clock.set(by)
    replace_guard(task, "supervisor")
    replace_guard(task, "keeper")
    check(shell, task, began, limit=1.0, lasts=60)


def test_a_clock_that_was_set_back_gives_no_negative_duration(shell):
    """Both guards died after the code was recorded and before the rest: the end is told by the file's own time."""
    task = shell.run("exit 7")
    directory = os.path.dirname(task.output_file)
    closed(shell, task)
    eventually(lambda: not process.is_alive(guard(task, "keeper")))
    freeze.blank(Path(directory), "outcome")
    guards = record.guards_of(directory)
    write_guards(replace(guards, started=guards.started + 40 * DAY_S), directory)
    again = shell.show(task.task_id)
    assert (again.status, again.exit_code) == ("failed", 7)
    assert again.elapsed_ms >= 0


@pytest.mark.parametrize("by", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_the_hosts_own_clock_may_be_set_while_it_waits(shell, monkeypatch, by):
    task = shell.start("sleep 0.5; exit 7", limit=20)
    monkeypatch.setattr(time, "time", partial(lambda real, by: real() + by, time.time, by))
    assert shell.show(task.task_id).elapsed_ms < 20_000
    began = time.monotonic()
    assert shell.wait(task.task_id, timeout=30).exit_code == 7
    assert time.monotonic() - began < 10
    result = shell.run("sleep 60", wait=0.3)
    assert result.status == "running"
    assert 0 <= result.elapsed_ms < 20_000
    receipt = shell.kill(result.task_id, grace=0.5)
    assert receipt.status == "killed"
    assert 0 <= receipt.elapsed_ms < 30_000


def test_a_stopped_supervisor_strikes_when_it_goes_on(shell, jumping):
    """Time that it slept through counts: the limit is the task's, not the supervisor's."""
    task = shell.start("sleep 60", limit=0.5)
    began = time.monotonic()
    stop_guards(task, "supervisor", "keeper")
    eventually(lambda: time.monotonic() > began + 0.8)
    process.send(guard(task, "supervisor"), signal.SIGCONT)
    ended = shell.wait(task.task_id, timeout=30)
    assert ended.reason == "timeout"
    assert 800 <= ended.elapsed_ms < 800 + LATE_S * 1000
