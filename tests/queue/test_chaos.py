"""Everybody with a part in the queue is killed at random: nothing runs twice or is forgotten, and the limit holds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from outlast import OutlastError, Shell
from outlast.linux import process
from outlast.storage import record
from outlast.types import Task
from tests.conftest import processes_of
from tests.faults.support import SOURCE, dice

PLACES = 3
_STARTER = """
import sys
from outlast import OutlastError, Shell
home, session, log, first, last = sys.argv[1:]
with Shell.open(home=home, session=session) as shell:
    for n in range(int(first), int(last)):
        try:
            shell.start(f"echo b {n} >> {log}; sleep 0.2; echo e {n} >> {log}; exit {n % 7}")
        except OutlastError:
            pass
        print(n, flush=True)
"""


class Starters:
    """Processes that start tasks; one that was killed is followed by another that goes on with the next number."""

    def __init__(self, home: str, log: Path, ranges: dict[str, tuple[int, int]]) -> None:
        self._home, self._log, self._ranges = home, log, ranges
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._reached = {session: first for session, (first, _) in ranges.items()}

    def tend(self) -> bool:
        """Replace those that were killed; whether all are through."""
        for session, (_, last) in self._ranges.items():
            one = self._running.get(session)
            if one is not None and one.poll() is None:
                continue
            if one is not None:
                told = [int(line) for line in one.communicate()[0].split()]
                # What was being started when it was killed is started by nobody else.
                self._reached[session] = (told[-1] if told else self._reached[session] - 1) + 2
                if one.returncode == 0:
                    self._reached[session] = last
            if self._reached[session] < last:
                self._running[session] = self._start(session, self._reached[session], last)
            else:
                self._running.pop(session, None)
        return not self._running

    def _start(self, session: str, first: int, last: int) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": SOURCE, "OUTLAST_MAX_RUNNING": str(PLACES)}
        words = [sys.executable, "-c", _STARTER, self._home, session, str(self._log), str(first), str(last)]
        return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)

    def pids(self) -> list[int]:
        """Theirs, and those of their nurseries."""
        own = [one.pid for one in self._running.values()]
        return own + [child for pid in own for child in process.children_of(pid)]


class Killer(threading.Thread):
    """Kills somebody every now and then, until it is told to stop."""

    def __init__(self, home: str, starters: Starters, chance: random.Random, both: bool) -> None:
        super().__init__()
        self._home, self._starters, self._chance, self._both = home, starters, chance, both
        self.stop = threading.Event()
        self.killed = 0

    def run(self) -> None:
        while not self.stop.wait(self._chance.uniform(0.0, 0.1)):
            guards = [pid for pid, what in processes_of(self._home).items() if what.startswith("outlast-")]
            crowd = guards + (self._starters.pids() if self._chance.random() < 0.2 else [])
            if crowd:
                self._kill(self._chance.choice(crowd))

    def _kill(self, pid: int) -> None:
        directory = _directory(pid)
        try:
            if self._both and directory:
                guards = record.guards_of(directory)
                for who in (guards.supervisor, guards.keeper):
                    if who:
                        process.send(who, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        except (OSError, OutlastError, KeyError):
            return
        self.killed += 1
        deadline = time.monotonic() + 10
        while directory and not self._both and not _is_whole(directory) and time.monotonic() < deadline:
            time.sleep(0.002)  # two who die one after the other are another test


def _directory(pid: int) -> str:
    try:
        found = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
    return found if os.path.exists(os.path.join(found, "record")) else ""


def _is_whole(directory: str) -> bool:
    """Whether a task has both its guards, or needs none."""
    try:
        if record.is_pending(directory) or not record.has_guard(directory):
            return True
        guards = record.guards_of(directory)
    except (OSError, OutlastError, KeyError):
        return True  # it was never published
    return all(who is not None and process.is_alive(who) for who in (guards.supervisor, guards.keeper))


def _most_at_once(lines: list[list[str]], lost: set[str]) -> int:
    """How many commands ran at the same time, of those that were watched to their end."""
    running = most = 0
    for what, number in lines:
        if number not in lost:
            running += 1 if what == "b" else -1
            most = max(most, running)
    return most


def play(home: str, tmp_path: Path, count: int, both: bool) -> tuple[list[Task], Counter[str], int]:
    """Start tasks from two sessions while somebody kills; the tasks, how often each began, the most at once."""
    log = tmp_path / "log"
    log.touch()
    half = count // 2
    starters = Starters(home, log, {"one": (0, half), "two": (half, count)})
    with Shell.open(home=home, operator=True) as shell:
        killer = Killer(home, starters, dice(), both)
        starters.tend()
        killer.start()
        try:
            deadline = time.monotonic() + 60
            while not starters.tend() and time.monotonic() < deadline:
                time.sleep(0.01)
            for task in shell.list(status="pending")[: half // 2]:
                shell.wait(task.task_id, timeout=30)
        finally:
            killer.stop.set()
            killer.join()
        for task in shell.list():
            shell.wait(task.task_id, timeout=30)
        tasks = shell.list()
    lines = [line.split() for line in log.read_text().splitlines()]
    lost = {_number(task) for task in tasks if task.reason != "exit"}
    print(f"{len(tasks)} tasks, {killer.killed} killed, {len(lost)} lost")
    assert killer.killed  # how many depends on how fast the machine is
    return tasks, Counter(number for what, number in lines if what == "b"), _most_at_once(lines, lost)


def _number(task: Task) -> str:
    return task.command.split()[2]


def check(tasks: list[Task], began: Counter[str], most: int, may_be_lost: bool) -> None:
    assert most <= PLACES
    assert len(tasks) == len({_number(task) for task in tasks})
    assert began.keys() <= {_number(task) for task in tasks}, "something ran that is no task"
    assert max(began.values()) == 1, "something ran twice"
    for task in tasks:
        assert task.finished, task
        if task.reason == "exit":
            assert (began[_number(task)], task.exit_code) == (1, int(_number(task)) % 7), task
        elif task.reason == "signal":  # a fork of a guard became the command just before it was killed
            assert task.signal == signal.SIGKILL, task
        else:
            assert may_be_lost, task
            assert task.reason in ("lost", "spawn-error"), task


def test_one_of_everybody_is_killed(home: str, tmp_path: Path) -> None:
    tasks, began, most = play(home, tmp_path, 40, both=False)
    check(tasks, began, most, may_be_lost=False)
    assert len(tasks) > 20


def test_both_guards_are_killed(home: str, tmp_path: Path) -> None:
    tasks, began, most = play(home, tmp_path, 40, both=True)
    check(tasks, began, most, may_be_lost=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("both", [False, True])
def test_five_hundred_tasks_and_a_killer(home: str, tmp_path: Path, both: bool) -> None:
    tasks, began, most = play(home, tmp_path, 500, both)
    check(tasks, began, most, may_be_lost=both)
