"""A warm task can be let go by its caller, while its supervisor writes down that it runs: whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outlast import Shell, process
from outlast.errors import DamagedTask
from outlast.executors.nursery import Prepared
from outlast.executors.starting import _Start
from outlast.frozen import replaced
from outlast.model import Guards, Result, terms
from outlast.store import session_files, staging, status
from outlast.supervise import request
from tests.conftest import eventually


def warmed(shell: Shell, home: str) -> tuple[str, Guards]:
    """The directory in which the next task waits, and who watches it."""
    shell.run("true")
    shell.run("true")

    def found() -> tuple[str, Guards] | None:
        for name in os.listdir(os.path.join(home, "staging")):
            directory = os.path.join(home, "staging", name)
            try:
                return directory, status.guards_of(directory)
            except (OSError, KeyError, DamagedTask):  # it is just being prepared
                continue
        return None

    where: tuple[str, Guards] = eventually(found)
    return where


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: (stat := process.stat_of(pid)) is None or stat.state == "T")
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def begun_by(shell: Shell, command: str) -> tuple[threading.Thread, list[Result]]:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(shell.run(command)))
    thread.start()
    return thread, results


def test_the_command_runs_while_its_supervisor_still_sleeps(shell, home, tmp_path):
    _, guards = warmed(shell, home)
    before = time.time()
    with stopped(guards.supervisor.pid):
        thread, results = begun_by(shell, f"touch {tmp_path}/ran; echo out; exit 3")
        eventually((tmp_path / "ran").exists)
        task = shell.list()[0]
        assert task.status == "running"
        assert task.started_at >= before - 1
        assert task.elapsed_ms < 60_000
    thread.join(20)
    (result,) = results
    assert (result.output, result.exit_code, result.pid) == ("out\n", 3, guards.command.pid)
    assert result.started_at >= before - 1


def test_a_supervisor_stands_back_only_until_there_is_a_task(shell, home, tmp_path):
    _, guards = warmed(shell, home)
    waiting = guards.supervisor.pid
    eventually(lambda: os.sched_getscheduler(waiting) == os.SCHED_BATCH)
    assert os.sched_getscheduler(guards.command.pid) == os.SCHED_OTHER
    os.mkfifo(tmp_path / "gate")
    thread, _ = begun_by(shell, f"read -r _ < {tmp_path}/gate")
    eventually(lambda: os.sched_getscheduler(waiting) == os.SCHED_OTHER)
    (tmp_path / "gate").write_text("\n")
    thread.join(20)


def test_a_supervisor_that_dies_before_it_knew_is_replaced(shell, home, tmp_path):
    _, guards = warmed(shell, home)
    before = time.time()
    with stopped(guards.supervisor.pid):
        thread, results = begun_by(shell, f"touch {tmp_path}/ran; sleep 0.2; echo out; exit 3")
        eventually((tmp_path / "ran").exists)
        os.kill(guards.supervisor.pid, signal.SIGKILL)
    thread.join(20)
    (result,) = results
    assert (result.output, result.exit_code, result.pid) == ("out\n", 3, guards.command.pid)
    assert result.started_at >= before - 1
    assert 100 < result.elapsed_ms < 60_000
    assert shell.run("echo next").output == "next\n"


def prepared_of(shell: Shell) -> Prepared:
    """What the shell has prepared, taken from it."""
    (one,) = shell.executor._warm._prepared
    shell.executor._warm._prepared = []
    return one


def told_to_begin(shell: Shell, one: Prepared, command: str) -> None:
    """Write down what it is to run and give the word, as a start does; no more than that."""
    assert shell._asked is not None
    launch = replaced(shell._asked[1], command=command)
    found = shell.executor._enter(one.staged, one.published, _Start(launch, None))
    assert found is not None
    assert request.say(one._line, request.Word(terms(found[1]), -1, (time.time(), time.monotonic())))


@pytest.mark.parametrize("published", [False, True], ids=["before it publishes", "before it lets go"])
def test_what_a_caller_that_dies_leaves_undone_its_supervisor_does(shell, home, tmp_path, published):
    _, guards = warmed(shell, home)
    one = prepared_of(shell)
    with stopped(guards.supervisor.pid):
        told_to_begin(shell, one, f"echo ran >> {tmp_path}/ran")
        if published:
            os.rename(one.staged, one.published)
        one.hang_up()
    eventually(lambda: os.path.isdir(one.published))
    assert shell.wait(os.path.basename(one.published), timeout=20).exit_code == 0
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_what_a_keeper_gave_up_nobody_can_publish(shell, home, tmp_path):
    """The supervisor died after it was told and before anybody published it: there is no task, and never will be."""
    _, guards = warmed(shell, home)
    one = prepared_of(shell)
    with stopped(guards.supervisor.pid):
        told_to_begin(shell, one, f"touch {tmp_path}/ran")
        os.kill(guards.supervisor.pid, signal.SIGKILL)
    keeper = guards.keeper
    assert keeper
    eventually(lambda: not process.is_alive(keeper))
    assert not one._let_go()
    assert request.answer(one._line) is None
    eventually(lambda: not process.is_alive(guards.command))
    assert not (tmp_path / "ran").exists()
    assert not os.path.exists(one.published)
    assert shell.run("echo next").output == "next\n"


def test_a_start_whose_supervisor_dies_at_that_moment_finds_another(shell, home, tmp_path):
    for _ in range(3):
        _, guards = warmed(shell, home)
        with stopped(guards.supervisor.pid):
            os.kill(guards.supervisor.pid, signal.SIGKILL)
            assert shell.run(f"echo ran >> {tmp_path}/ran; cat {tmp_path}/ran").exit_code == 0
    assert (tmp_path / "ran").read_text() == "ran\n" * 3


@pytest.mark.parametrize("first", ["guard", "caller"])
def test_renaming_decides(tmp_path, monkeypatch, first):
    staged, published = tmp_path / "staged", tmp_path / "published"
    staged.mkdir()
    monkeypatch.chdir(staged)
    if first == "caller":
        os.rename(staged, published)
        assert not staging.put_aside(str(staged), str(published))
        assert not staging.publish(str(staged), str(published))
        assert staging.is_here(str(published))
    else:
        assert staging.put_aside(str(staged), str(published))
        assert not published.exists()
        with pytest.raises(FileNotFoundError):
            os.rename(staged, published)
        with pytest.raises(FileNotFoundError):
            staging.publish(str(staged), str(published))


def test_letting_go_of_what_runs_already_does_nothing(tmp_path):
    staging.let_go(str(tmp_path))
    os.mkfifo(tmp_path / session_files.GO)
    staging.let_go(str(tmp_path))  # nobody reads it
    reader = os.open(tmp_path / session_files.GO, os.O_RDONLY | os.O_NONBLOCK)
    staging.let_go(str(tmp_path))
    assert os.read(reader, 10) == staging.GO_WORD
    os.close(reader)
