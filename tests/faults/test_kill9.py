"""Faults 1 and 2: kill -9 of the host, of the supervisor, of the keeper, and of both guards, at any instant."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from outlast import Shell
from outlast.linux import process, process_tree
from outlast.storage import record
from outlast.types import Identity, Stdin, Task
from tests.conftest import Cli, eventually, processes_of
from tests.faults.support import (
    closed,
    codes_outlive_their_parents,
    dice,
    directory_of,
    end,
    end_both,
    guard,
    guards_of,
    is_waiting,
    numbers,
    output,
    python,
    replace_guard,
    stop_guards,
)
from tests.frozen_states import freeze

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

GUARDS = ("supervisor", "keeper")
COUNT = 250  # what a counting command prints while its guards die


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that a command waits on."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


# --- 1: the host -------------------------------------------------------------------------

_HOST = """
from outlast import Shell
home, side, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Shell.open(home=home) as shell:
    for number in range(first, first + 1000):
        text = f"echo {number} >> {side}/ran; seq 1 {1 + number % 50}; exit {number % 256}"
        task = shell.start(text, description=str(number))
        print(number, task.task_id, flush=True)
        if number % 3 == 0:
            shell.wait(task.task_id)
            shell.read(task.task_id, new=True)
"""


def kill_hosts(home: str, side: Path, chance: random.Random, kills: int) -> dict[int, str]:
    """Start hosts and kill each at some instant; the task ids that they told, by number."""
    told: dict[int, str] = {}
    for turn in range(kills):
        words = python(_HOST, home, str(side), str(1000 * turn))
        with subprocess.Popen(words, stdout=subprocess.PIPE) as host:
            assert host.stdout
            lines = [host.stdout.readline()]  # it is under way
            time.sleep(chance.uniform(0, 0.15))  # an instant to be killed at; nothing waits for anything
            host.kill()
            lines += host.stdout.readlines()
        for line in lines:
            if line.endswith(b"\n"):
                number, task_id = line.split()
                told[int(number)] = task_id.decode()
    return told


def check_hosts(home: str, side: Path, told: dict[int, str]) -> int:
    """Every task that was told of, and every one that was not but is there, is complete and ran once; how many."""
    eventually(lambda: not processes_of(home), what="all tasks to end")
    with Shell.open(home=home) as shell:

        def all_that_ran() -> dict[int, Task] | None:
            # What a host had begun when it was killed may be published a moment later.
            tasks = {int(task.description): closed(shell, task) for task in shell.list()}
            ran = [int(word) for word in (side / "ran").read_text().split()]
            return tasks if sorted(ran) == sorted(tasks) else None

        tasks = eventually(all_that_ran, what="each ran once")
    assert told.items() <= {number: task.task_id for number, task in tasks.items()}.items()
    for number, task in tasks.items():
        assert (task.exit_code, task.reason) == (number % 256, "exit"), task
        assert output(task) == numbers(1 + number % 50)
    return len(tasks)


def test_hosts_killed_at_random_instants_lose_nothing(home: str, tmp_path: Path) -> None:
    told = kill_hosts(home, tmp_path, dice(), kills=12)
    assert check_hosts(home, tmp_path, told) >= 12


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_ten_thousand_hosts_killed(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_STATE_LIMIT_BYTES", str(10**13))  # what the dead reserved counts for an hour
    chance, tasks = dice(), 0
    for batch in range(100):
        side = tmp_path / str(batch)
        side.mkdir()
        tasks += check_hosts(f"{home}/{batch}", side, kill_hosts(f"{home}/{batch}", side, chance, kills=100))
    print(f"{tasks} tasks")
    assert tasks >= 5000


# --- 2: one guard at a time --------------------------------------------------------------


def counting(how: str = "exit 7", count: int = COUNT) -> str:
    """A command that prints number after number for some time, and then ends in a way of its own."""
    return f"for n in $(seq 1 {count}); do echo $n; [ $((n % 5)) != 0 ] || sleep 0.005; done; {how}"


ENDINGS: dict[str, dict[str, object]] = {
    "exit 0": {"status": "completed", "exit_code": 0, "signal": None},
    "exit 7": {"status": "failed", "exit_code": 7, "signal": None},
    "exit 137": {"status": "failed", "exit_code": 137, "signal": None},
    "kill -KILL $$": {"status": "failed", "exit_code": None, "signal": 9},
    "kill -SEGV $$": {"status": "failed", "exit_code": None, "signal": 11},
}


def check_counted(task: Task, how: str, count: int = COUNT, may_be_lost: bool = False) -> None:
    assert output(task) == numbers(count)
    if may_be_lost and task.reason == "lost":
        assert task.exit_code is None
        assert task.signal is None
        return
    assert {name: getattr(task, name) for name in ENDINGS[how]} == ENDINGS[how]


@pytest.mark.parametrize("order", [("supervisor",) * 4, ("keeper",) * 4], ids=GUARDS)
@pytest.mark.parametrize("how", ["exit 7", "exit 137", "kill -KILL $$"])
def test_one_guard_is_killed_again_and_again(shell: Shell, order: tuple[str, ...], how: str) -> None:
    task = shell.start(counting(how))
    for name in order:
        replace_guard(task, name)
        assert shell.show(task.task_id).status == "running"
    check_counted(closed(shell, task), how)


@pytest.mark.parametrize("how", ["exit 7", "kill -KILL $$"])
@pytest.mark.parametrize("first", GUARDS)
def test_both_guards_are_killed_in_turn(shell: Shell, first: str, how: str) -> None:
    """The command has another parent then, and only a kernel that tells knows how it ended."""
    task = shell.start(counting(how))
    for name in (first, *(name for name in GUARDS if name != first)) * 2:
        replace_guard(task, name)
        assert shell.show(task.task_id).status == "running"
    check_counted(closed(shell, task), how, may_be_lost=not codes_outlive_their_parents())


def kill_at_random(shell: Shell, chance: random.Random, both: bool) -> int:
    """One task whose guards are killed at random instants until it ends; how many were."""
    how = chance.choice(list(ENDINGS))
    count = chance.randrange(50, 600)
    names = list(GUARDS) if both else [chance.choice(GUARDS)]
    task = shell.start(counting(how, count), split=chance.random() < 0.5)
    kills = 0
    while not shell.executor.has_reached(task.task_id, "ended"):
        name = chance.choice(names)
        before = guard(task, name)
        time.sleep(chance.uniform(0, 0.03))  # an instant to be killed at; nothing waits for anything
        if not process.send(before, signal.SIGKILL):
            continue
        kills += 1
        eventually(lambda: shell.executor.has_reached(task.task_id, "closed") or is_replaced(task, name, before))  # noqa: B023
    check_counted(closed(shell, task), how, count, may_be_lost=both and not codes_outlive_their_parents())
    return kills


def is_replaced(task: Task, name: str, before: Identity) -> bool:
    now = guard(task, name)
    return now != before and process.is_alive(now)


@pytest.mark.parametrize("both", [False, True], ids=["one of them", "both in turn"])
def test_guards_are_killed_at_random_instants(shell: Shell, both: bool) -> None:
    chance = dice()
    assert sum(kill_at_random(shell, chance, both) for _ in range(3)) > 3


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("both", [False, True], ids=["one of them", "both in turn"])
def test_five_thousand_guards_are_killed(shell: Shell, both: bool) -> None:
    chance, kills = dice(), 0
    while kills < 2500:
        kills += kill_at_random(shell, chance, both)
        shell.clean(all_finished=True)


ORDERS = [("supervisor",), ("keeper",), ("supervisor", "keeper"), ("keeper", "supervisor")]
TREE = "sleep 300 & setsid sleep 300 & (setsid sleep 300 &) ; sleep 300"


def start_tree(shell: Shell, limit: float | None = None) -> Task:
    task = shell.start(TREE, limit=limit)
    eventually(
        lambda: (
            [
                stat.name
                for stat in process_tree.look(guards_of(task), record.is_foreign_guard, process.Table).members.values()
            ].count("sleep")
            == 4
        )
    )
    return task


@pytest.mark.parametrize("order", ORDERS, ids=" then ".join)
def test_the_limit_is_in_force_after_guards_were_replaced(shell: Shell, order: tuple[str, ...]) -> None:
    task = start_tree(shell, limit=0.5)
    for name in order:
        replace_guard(task, name)
    ended = closed(shell, task)
    assert (ended.status, ended.reason) == ("killed", "timeout")
    assert ended.elapsed_ms is not None
    assert 500 <= ended.elapsed_ms < 5000


@pytest.mark.parametrize("name", GUARDS)
def test_the_limit_is_in_force_when_a_guard_dies_while_it_strikes(
    monkeypatch: pytest.MonkeyPatch, home: str, name: str
) -> None:
    monkeypatch.setenv("OUTLAST_KILL_GRACE_S", "0.4")
    shell = Shell.open(home=home)
    task = shell.start("trap '' TERM; echo up; while :; do sleep 0.05; done", limit=0.2)
    eventually(lambda: "ending" in record.read(directory_of(task)), what="the limit to strike")
    replace_guard(task, name)
    ended = closed(shell, task)
    assert (ended.status, ended.reason, ended.signal) == ("killed", "timeout", 9)
    shell.close()


@pytest.mark.parametrize("order", ORDERS, ids=" then ".join)
def test_the_whole_tree_can_be_killed_after_guards_were_replaced(shell: Shell, order: tuple[str, ...]) -> None:
    task = start_tree(shell)
    for name in order:
        replace_guard(task, name)
    receipt = shell.kill(task.task_id)
    assert len(receipt.ended) == 5
    assert not receipt.survivors
    assert receipt.closed
    assert (receipt.status, receipt.reason) == ("killed", "killed")


@pytest.mark.parametrize("order", ORDERS, ids=" then ".join)
def test_input_can_be_sent_and_ended_after_guards_were_replaced(shell: Shell, order: tuple[str, ...]) -> None:
    task = shell.start("cat; exit 4", stdin=Stdin(open=True))
    for name in order:
        replace_guard(task, name)
    shell.send(task.task_id, "a\n")
    shell.send(task.task_id, "b\n", eof=True)
    ended = closed(shell, task)
    assert (output(task), ended.exit_code) == (b"a\nb\n", 4)


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_dies_after_the_command_while_a_child_goes_on(shell: Shell, name: str, gate: Path) -> None:
    """The end is known already, the output is not complete yet, and the task can still be closed."""
    task = shell.start(f"(read x < {gate}; seq 1 50) & exit 3")
    assert shell.wait(task.task_id).exit_code == 3
    for _ in range(3):
        replace_guard(task, name)
        assert shell.show(task.task_id).children
    gate.write_text("go\n")
    ended = closed(shell, task)
    assert (output(ended), ended.exit_code) == (numbers(50), 3)


def is_over(task: Task) -> bool:
    return not process.is_alive(guards_of(task).command)


def test_the_end_is_recorded_by_a_successor_while_a_child_goes_on(shell: Shell, gate: Path) -> None:
    """The supervisor dies between the command's end and its record, and nothing happens later to wake the next one."""
    task = shell.start(f"sleep 300 & read x < {gate}; exit 3")
    supervisor = guard(task, "supervisor")
    process.send(supervisor, signal.SIGSTOP)
    gate.write_text("go\n")
    eventually(lambda: "code" in record.read(directory_of(task)))
    end(supervisor)
    ended = shell.wait(task.task_id, timeout=20)
    assert (ended.exit_code, ended.closed, len(ended.children)) == (3, False, 1)
    assert shell.kill(task.task_id).ended == ended.children


# --- 2: both at once ---------------------------------------------------------------------


def test_both_guards_killed_at_once_is_lost_and_never_a_wrong_code(shell: Shell) -> None:
    task = shell.start("echo up; sleep 300; exit 0")
    eventually(lambda: output(task))
    end_both(task)
    lost = shell.show(task.task_id)
    assert (lost.status, lost.reason, lost.exit_code, lost.signal) == ("failed", "lost", None, None)
    assert shell.wait(task.task_id, timeout=5).reason == "lost"
    assert [one.reason for one in shell.list()] == ["lost"]


def test_what_is_left_of_a_lost_task_is_known_and_can_be_killed(shell: Shell) -> None:
    task = start_tree(shell)
    end_both(task)
    lost = shell.show(task.task_id)
    assert len(lost.children) == 5
    receipt = shell.kill(task.task_id)
    assert (receipt.ended, receipt.survivors) == (lost.children, ())
    assert (receipt.reason, receipt.children) == ("lost", ())


def test_a_waiter_learns_of_the_loss(shell: Shell, cli: Cli) -> None:
    task = shell.start("sleep 300")
    with cli.start("wait", task.task_id) as waiter:
        eventually(lambda: is_waiting(waiter.pid))
        end_both(task)
        assert waiter.wait(20) != 0
    shell.kill(task.task_id)


def test_both_guards_killed_after_the_code_was_recorded(shell: Shell) -> None:
    """The code is in the record and what comes after it is not. The code is the true one."""
    task = shell.start("seq 1 9; exit 5")
    closed(shell, task)
    eventually(lambda: not process.is_alive(guard(task, "keeper")))
    freeze.blank(Path(directory_of(task)), "outcome")
    ended = shell.show(task.task_id)
    assert (ended.status, ended.reason, ended.exit_code) == ("failed", "exit", 5)
    assert ended.closed


def test_both_guards_killed_before_they_could_see_the_end(shell: Shell, gate: Path) -> None:
    task = shell.start(f"read x < {gate}; exit 0")
    stop_guards(task, *GUARDS)
    gate.write_text("go\n")
    eventually(lambda: is_over(task))
    for name in GUARDS:
        end(guard(task, name))
    lost = eventually(lambda: (seen := shell.show(task.task_id)).finished and seen)
    assert (lost.status, lost.reason, lost.exit_code, lost.signal) == ("failed", "lost", None, None)


# --- whose code it is --------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look at every process")
def test_the_code_of_a_command_with_more_rights_than_ours(shell: Shell) -> None:
    """The process table says 0 to whoever may not look, and only its parent can know better."""
    mount = shutil.which("mount")
    if not mount or not os.stat(mount).st_mode & stat.S_ISUID:
        pytest.skip("no set-uid program that does no harm")
    for _ in range(10):
        assert shell.run(f"exec {mount} --no-such-option").exit_code == 1
