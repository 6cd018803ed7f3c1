"""Fault 7: the wall clock is set forward and back while limits run. The real supervisor, with a clock that jumps."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from outlast import Shell, asking, process
from outlast.executors import nursery
from outlast.frozen import replaced
from outlast.model import Task, surroundings, terms
from outlast.permissions import YOLO, decide
from outlast.sessions import prepare
from outlast.store import status
from outlast.store.staging import stage
from outlast.supervise import beginning, request, signals
from tests.conftest import eventually
from tests.faults.support import closed, dice, guard, replace
from tests.frozen_states import freeze

DAY_S = 86_400.0
LATE_S = 5.0  # what a busy machine may add
Clock = Callable[[], float]


def jumping(chance: random.Random) -> Clock:
    """A clock that somebody sets, forward or back, before every look at it."""
    real = time.time
    return lambda: real() + chance.uniform(-30, 30) * DAY_S


def set_once(by: float) -> Clock:
    """A clock that is set once, after the first look at it."""
    real, looks = time.time, iter([0.0])
    return lambda: real() + next(looks, by)


class Odd:
    """Starts tasks whose guards have a clock of their own."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._pids: list[int] = []

    def start(self, command: str, clock: Clock, limit: float | None = None) -> Task:
        shell = self.shell
        asked = asking.request(command, session=shell.session, limit=limit)
        launch = prepare(decide(asked, YOLO), shell.settings, os.environ)
        registry, around = shell.executor.registry, surroundings(launch)
        staged, published = stage(registry.home, launch.kind, around)
        entered = registry.enter(staged, published, launch, shell.settings.state_limit_bytes)
        assert entered is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (wanted,) = request.wanted(staged, published, around)
        pid = os.fork()
        if not pid:
            _supervise(theirs.fileno(), wanted, clock)
        self._pids.append(pid)
        theirs.close()
        os.close(wanted)
        prepared = nursery.Prepared(staged, published, around, ours)
        answer = prepared.begin(terms(entered[1]))
        ours.close()
        assert answer is not None
        assert "error" not in answer, answer
        return shell.show(os.path.basename(published))

    def reap(self) -> None:
        for pid in self._pids:
            os.waitpid(pid, 0)


def _supervise(line: int, request: int, clock: Clock) -> None:
    try:
        for at, fd in enumerate((line, request), 40):
            os.dup2(fd, at, inheritable=False)
        os.closerange(3, 40)
        os.closerange(42, 1024)
        signals.ignore_the_usual()
        time.time = clock
        beginning.start(40, 41)
    finally:
        os._exit(70)


@pytest.fixture
def odd(shell: Shell) -> Iterator[Odd]:
    tasks = Odd(shell)
    yield tasks
    for task in shell.list():
        if task.status == "running":
            shell.kill(task.task_id, grace=0)
    tasks.reap()


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


def run_many(odd: Odd, count: int, chance: random.Random) -> None:
    """Tasks with and without enough time, under clocks that are set back and forth."""
    running = []
    for _ in range(count):
        by = chance.choice([-1, 1]) * chance.choice([1.0, 3600.0, DAY_S, 4000 * DAY_S])
        clock = jumping(random.Random(chance.random())) if chance.random() < 0.5 else set_once(by)
        limit, lasts = chance.choice([(0.4, 60.0), (0.7, 60.0), (30.0, 0.3), (60.0, 0.6)])
        began = time.monotonic()
        running.append((odd.start(f"sleep {lasts}; exit 7", clock, limit), began, limit, lasts))
    for task, *_ in running:
        assert odd.shell.show(task.task_id).elapsed_ms >= 0
    for task, began, limit, lasts in running:
        check(odd.shell, task, began, limit, lasts)


def test_no_limit_strikes_early_or_late_when_the_clock_is_set(odd):
    run_many(odd, 10, dice())


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_five_hundred_limits_under_clocks_that_are_set(odd):
    chance = dice()
    for _ in range(50):
        run_many(odd, 10, chance)


@pytest.mark.parametrize("by", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_new_supervisor_keeps_to_the_limit_too(odd, by):
    began = time.monotonic()
    task = odd.start("sleep 60", set_once(by), limit=1.0)
    replace(task, "supervisor")
    replace(task, "keeper")
    check(odd.shell, task, began, limit=1.0, lasts=60)


def test_a_clock_that_was_set_back_gives_no_negative_duration(shell):
    """Both guards died after the code was recorded and before the rest: the end is told by the file's own time."""
    task = shell.run("exit 7")
    directory = os.path.dirname(task.output_file)
    closed(shell, task)
    eventually(lambda: not process.is_alive(guard(task, "keeper")))
    freeze.blank(Path(directory), "outcome")
    guards = status.guards_of(directory)
    status.write_guards(replaced(guards, started=guards.started + 40 * DAY_S), directory)
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


def test_a_stopped_supervisor_strikes_when_it_goes_on(odd):
    """Time that it slept through counts: the limit is the task's, not the supervisor's."""
    task = odd.start("sleep 60", jumping(dice()), limit=0.5)
    began = time.monotonic()
    process.send(guard(task, "supervisor"), signal.SIGSTOP)
    eventually(lambda: time.monotonic() > began + 0.8)
    process.send(guard(task, "supervisor"), signal.SIGCONT)
    ended = odd.shell.wait(task.task_id, timeout=30)
    assert ended.reason == "timeout"
    assert 800 <= ended.elapsed_ms < 800 + LATE_S * 1000
