"""Fault 8: SIGSTOP of the host, the supervisor, the keeper, the task, a reader. Nobody takes a stopped one for dead."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from outlast import Shell
from outlast.linux import process
from outlast.types import Identity, Task
from tests.conftest import Cli, eventually
from tests.faults.support import (
    closed,
    dice,
    end,
    guard,
    guards_of,
    is_waiting,
    numbers,
    output,
    python,
    state_of,
    stop_guards,
)

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

GUARDS = ("supervisor", "keeper")
KILL_S = 1.0  # a stopped task that does not refuse to end is gone within this time


def stop(who: Identity) -> None:
    assert process.send(who, signal.SIGSTOP)
    eventually(lambda: state_of(who) == "T")


def go_on(who: Identity) -> None:
    assert process.send(who, signal.SIGCONT)


def stop_task(task: Task) -> None:
    """Stop a command and what it started, as `kill -STOP` of its group does."""
    stop(guards_of(task).command)
    process.send(guards_of(task).command, signal.SIGSTOP, to_group=True)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that a command waits on."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


# --- guards ------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [("supervisor",), ("keeper",), GUARDS], ids=" and ".join)
def test_a_task_with_stopped_guards_is_running(shell: Shell, stopped: tuple[str, ...]) -> None:
    task, running = shell.start("sleep 0.1; seq 1 1000; exit 6"), shell.start("sleep 300")
    for one in (task, running):
        stop_guards(one, *stopped)
    for _ in range(20):
        assert shell.show(running.task_id).status == "running"
        assert shell.show(task.task_id).reason in (None, "exit")
    for name in stopped:
        process.send(guard(task, name), signal.SIGCONT)
    ended = closed(shell, task)
    assert (ended.exit_code, output(ended)) == (6, numbers(1000))


def test_stopped_guards_lose_no_output(shell: Shell, gate: Path) -> None:
    """More than the pipe holds, so the command waits; it goes on with the supervisor, which lets the keeper go on."""
    task = shell.start(f"read x < {gate}; seq 1 30000; exit 9")
    stop_guards(task, *GUARDS)
    gate.write_text("go\n")
    command = guards_of(task).command
    eventually(lambda: any(state_of_pid(pid) == "S" for pid in process.children_of(command.pid)), what="seq to wait")
    assert output(task) == b""
    assert shell.show(task.task_id).status == "running"
    go_on(guard(task, "supervisor"))
    ended = closed(shell, task)
    assert (ended.exit_code, output(ended)) == (9, numbers(30000))


def state_of_pid(pid: int) -> str:
    stat = process.stat_of(pid)
    return stat.state if stat else ""


@pytest.mark.parametrize("name", GUARDS)
def test_one_stopped_guard_does_not_keep_the_end_from_being_recorded(shell: Shell, name: str, gate: Path) -> None:
    task = shell.start(f"seq 1 9; read x < {gate}; seq 10 30000; exit 8")
    stop_guards(task, name)
    gate.write_text("go\n")
    ended = closed(shell, task)
    assert (ended.exit_code, output(ended)) == (8, numbers(30000))


@pytest.mark.parametrize("name", GUARDS)
def test_the_end_is_recorded_when_one_of_two_stopped_guards_goes_on(shell: Shell, name: str, gate: Path) -> None:
    task = shell.start(f"seq 1 9; read x < {gate}; exit 8")
    stop_guards(task, *GUARDS)
    gate.write_text("go\n")
    eventually(lambda: not process.is_alive(guards_of(task).command))
    assert shell.show(task.task_id).status == "running"
    go_on(guard(task, name))
    ended = closed(shell, task)
    assert (ended.exit_code, output(ended)) == (8, numbers(9))


@pytest.mark.parametrize("name", GUARDS)
def test_a_stopped_guard_whose_fellow_dies_is_still_a_guard(shell: Shell, name: str) -> None:
    task = shell.start("seq 1 5; sleep 0.05; seq 6 9; exit 8")
    stopped = guard(task, name)
    stop_guards(task, *GUARDS)
    end(guard(task, "keeper" if name == "supervisor" else "supervisor"))
    for _ in range(20):
        assert shell.show(task.task_id).status == "running"
    go_on(stopped)
    ended = closed(shell, task)
    assert (ended.exit_code, output(ended)) == (8, numbers(9))


def test_the_limit_strikes_when_a_stopped_supervisor_goes_on(shell: Shell) -> None:
    task = shell.start("sleep 300", limit=0.1)
    stop_guards(task, *GUARDS)
    eventually(lambda: time.time() > task.started_at + 0.3)
    assert shell.show(task.task_id).status == "running"
    go_on(guard(task, "supervisor"))
    assert closed(shell, task).reason == "timeout"


# --- the task ----------------------------------------------------------------------------


def test_a_stopped_task_is_running_and_goes_on(shell: Shell, gate: Path) -> None:
    task = shell.start(f"read x < {gate}; seq 1 100; exit 2")
    command = guards_of(task).command
    stop(command)
    writer = os.open(gate, os.O_RDWR)
    os.write(writer, b"go\n")
    assert shell.wait(task.task_id, timeout=0.1).status == "running"
    go_on(command)
    ended = closed(shell, task)
    os.close(writer)
    assert (ended.exit_code, output(ended)) == (2, numbers(100))


@pytest.mark.parametrize(
    "stopped", [(), ("supervisor",), ("keeper",), GUARDS], ids=lambda names: "+".join(names) or "-"
)
def test_a_stopped_task_is_killed_within_a_second(shell: Shell, stopped: tuple[str, ...]) -> None:
    """And its guards, if somebody stopped them too, record it."""
    task = shell.start("sleep 300 & sleep 300 | cat; exit 1")
    eventually(lambda: len(process.children_of(guards_of(task).command.pid)) == 3)
    stop_task(task)
    stop_guards(task, *stopped)
    before = time.monotonic()
    receipt = shell.kill(task.task_id)
    assert time.monotonic() - before < KILL_S
    assert len(receipt.ended) == 4
    assert (receipt.survivors, receipt.status, receipt.reason) == ((), "killed", "killed")
    assert receipt.closed


def test_a_stopped_task_that_refuses_to_end_is_killed_after_the_grace(shell: Shell) -> None:
    task = shell.start("trap '' TERM; echo up; while :; do sleep 0.1; done")
    eventually(lambda: output(task))
    stop_task(task)
    before = time.monotonic()
    receipt = shell.kill(task.task_id, grace=0.3)
    assert 0.3 <= time.monotonic() - before < 0.3 + KILL_S
    assert (receipt.survivors, receipt.signal, receipt.status) == ((), 9, "killed")


def test_a_stopped_task_reaches_its_limit(shell: Shell) -> None:
    task = shell.start("sleep 300", limit=0.2)
    stop_task(task)
    ended = closed(shell, task)
    assert (ended.status, ended.reason) == ("killed", "timeout")


# --- who looks on ------------------------------------------------------------------------


_HOST = """
from outlast import Shell
with Shell.open(home=sys.argv[1]) as shell:
    print(shell.start("seq 1 9; exit 4").task_id, flush=True)
    shell.wait(shell.start("sleep 300").task_id)
"""


def test_a_stopped_host_holds_nothing_up(shell: Shell, home: str) -> None:
    with subprocess.Popen(python(_HOST, home), stdout=subprocess.PIPE) as host:
        assert host.stdout
        task_id = host.stdout.readline().decode().strip()
        eventually(lambda: len(shell.list()) == 2 and is_waiting(host.pid))
        stop(process.identity(host.pid))
        ended = closed(shell, shell.show(task_id))
        assert (ended.exit_code, output(ended)) == (4, numbers(9))
        assert len(shell.list()) == 2
        assert shell.run("exit 5").exit_code == 5
        for task in shell.list(status="running"):
            assert shell.kill(task.task_id).closed
        host.kill()


def test_a_stopped_reader_holds_nothing_up_and_reads_all(shell: Shell, cli: Cli, gate: Path) -> None:
    task = shell.start(f"seq 1 100; read x < {gate}; seq 101 60000; exit 3")
    with cli.start("logs", "-f", "--raw", task.task_id) as reader:
        assert reader.stdout
        first = reader.stdout.readline()
        stop(process.identity(reader.pid))
        gate.write_text("go\n")
        assert closed(shell, task).exit_code == 3
        os.kill(reader.pid, signal.SIGCONT)
        rest = reader.stdout.read()
    assert first + rest == numbers(60000)


def test_a_stopped_waiter_learns_of_the_end_when_it_goes_on(shell: Shell, cli: Cli, gate: Path) -> None:
    task = shell.start(f"read x < {gate}; exit 3")
    with cli.start("wait", task.task_id) as waiter:
        eventually(lambda: is_waiting(waiter.pid))
        stop(process.identity(waiter.pid))
        gate.write_text("go\n")
        closed(shell, task)
        os.kill(waiter.pid, signal.SIGCONT)
        waiter.communicate(timeout=60)


# --- all of it at random -----------------------------------------------------------------


def stop_at_random(shell: Shell, chance: random.Random) -> None:
    """One task, of which now this and now that process stops for a moment; it is seen as running until it ends."""
    count = chance.randrange(100, 3000)
    task = shell.start(f"for n in $(seq 1 {count}); do echo $n; done; exit {count % 200}")
    while not shell.executor.has_reached(task.task_id, "ended"):
        who = getattr(guards_of(task), chance.choice(("supervisor", "keeper", "command")))
        if not process.send(who, signal.SIGSTOP):
            continue
        time.sleep(chance.uniform(0, 0.02))  # an instant to go on at; nothing waits for anything
        seen = shell.show(task.task_id)
        assert seen.reason in (None, "exit"), seen
        process.send(who, signal.SIGCONT)
    ended = closed(shell, task)
    assert (ended.exit_code, output(ended)) == (count % 200, numbers(count))


def test_processes_stopped_at_random_instants(shell: Shell) -> None:
    chance = dice()
    for _ in range(10):
        stop_at_random(shell, chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_five_hundred_tasks_with_stopped_processes(shell: Shell) -> None:
    chance = dice()
    for _ in range(500):
        stop_at_random(shell, chance)
