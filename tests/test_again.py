"""Guards that take up another task when theirs is over: the same two processes, and nothing of the task before."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from outlast import Shell, process
from outlast.model import Guards
from outlast.store import status
from outlast.supervise.pair import MOST_TASKS
from tests.conftest import eventually, processes_of


def guards_of(home: str, task_id: str) -> Guards:
    return status.guards_of(os.path.join(home, "tasks", task_id))


TOLD = "echo 0 1<>$__outlast_dir/told"  # as a session's shell says how its command ended


def pair_of(home: str, task_id: str) -> tuple[int, int]:
    guards = guards_of(home, task_id)
    assert guards.keeper is not None
    return guards.supervisor.pid, guards.keeper.pid


def held_by(pid: int) -> list[str]:
    paths = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return paths


def settled_pair(shell: Shell, home: str) -> tuple[int, int]:
    """The guards of a task after which there will be another."""
    shell.run("true")
    return pair_of(home, shell.run("true").task_id)


def test_the_same_guards_take_up_one_task_after_the_other(shell, home, tmp_path):
    pair = settled_pair(shell, home)
    seen = []
    for number in range(5):
        result = shell.run(f"cd {tmp_path}; x=$((x + 1)); echo $x $OUTLAST_TASK_ID; exit {number}")
        assert (result.output, result.exit_code) == (f"{number + 1} {result.task_id}\n", number)
        assert pair_of(home, result.task_id) == pair
        seen.append(guards_of(home, result.task_id).command)
    assert len(set(seen)) == 5
    assert shell.run("pwd").output == f"{tmp_path}\n"


def test_while_nothing_changes_two_pairs_take_turns(shell, home):
    shell.run("x=1")
    pairs = [pair_of(home, shell.run("echo $x").task_id) for _ in range(12)]
    assert len(set(pairs[-6:])) == 2
    shell.run("x=2")
    assert [shell.run("echo $x").output for _ in range(6)] == ["2\n"] * 6
    eventually(lambda: len(os.listdir(os.path.join(home, "staging"))) == 2)


def test_nothing_of_one_task_is_open_in_the_next(shell, home):
    pair = settled_pair(shell, home)
    for number in range(3):  # then there are two pairs that take turns
        result = shell.run(f"echo {number}; ls /proc/$$/fd")
        assert result.output.split() == [str(number), "0", "1", "2"]
        assert pair_of(home, result.task_id) == pair
    old = [task.task_id for task in shell.list()]
    for pid in pair:
        eventually(lambda: not [path for path in held_by(pid) if any(one in path for one in old)])  # noqa: B023


def test_a_task_that_left_something_keeps_its_guards_and_only_its_own_is_ended(shell, home):
    settled_pair(shell, home)
    for number in range(5):
        left = shell.run("sleep 100 & echo $!")
        child = process.identity(int(left.output))
        other = shell.run("sleep 0.2; echo well") if number % 2 else None
        receipt = shell.kill(left.task_id, grace=0.1)
        assert not process.is_alive(child)
        assert receipt.survivors == ()
        assert other is None or (other.output, other.status) == ("well\n", "completed")
        after = shell.run("echo after")
        assert (after.output, after.status, after.children) == ("after\n", "completed", ())


def test_ending_a_task_that_is_over_touches_nothing_of_the_next(shell, home):
    settled_pair(shell, home)
    for _ in range(10):
        first = shell.run("true")
        second = shell.start("sleep 0.05; echo well")
        with pytest.raises(Exception, match="ended"):
            shell.kill(first.task_id, grace=0)
        third = shell.run("echo too")
        assert (third.output, third.status) == ("too\n", "completed")
        assert shell.wait(second.task_id).status == "completed"


def test_a_command_that_says_it_is_over_and_is_not_can_be_seen_and_ended(shell, home):
    """It can end its own story early, but not stay unseen, and not run longer than it may."""
    result = shell.run(f"{TOLD}; sleep 60", limit=8.0)
    assert result.status == "completed"
    eventually(lambda: result.pid in shell.show(result.task_id).children)
    eventually(lambda: shell.show(result.task_id).closed)
    assert shell.show(result.task_id).status == "completed"


@pytest.mark.parametrize("said", ["", "nonsense", "256", "7 7", "x" * 70_000])
def test_what_is_not_the_end_of_a_command_is_not_taken_for_it(shell, home, said):
    """Nor does it keep a supervisor busy that there is nothing more to be told."""
    word = f"(printf %s {said} & sleep 0.1; kill $!) 1<>$__outlast_dir/told 2>/dev/null"
    task = shell.run(f"{word}; sleep 0.5; cat /proc/$PPID/stat; exit 3")
    assert (task.status, task.exit_code) == ("failed", 3)
    ticks = task.output.rpartition(")")[2].split()[11:13]
    assert sum(map(int, ticks)) < 25, "the supervisor was busy half of the time"


@pytest.mark.parametrize("trap", ["builtin trap", "trap"])
def test_a_trap_of_the_users_own_may_be_of_any_length(shell, trap):
    for _ in range(2):
        result = shell.run(f"printf -v long '%070000d' 0; {trap} \"echo gone; : $long\" EXIT; x=y")
        assert (result.output, result.exit_code) == ("gone\n", 0)


@pytest.mark.parametrize("which", ["supervisor", "keeper"])
def test_guards_that_die_between_two_tasks_cost_nothing(shell, home, which):
    for _ in range(3):
        pair = settled_pair(shell, home)
        eventually(lambda: os.listdir(os.path.join(home, "staging")))
        os.kill(pair[which == "keeper"], signal.SIGKILL)
        assert shell.run("echo still").output == "still\n"


def test_a_guard_that_dies_while_it_serves_a_later_task_is_replaced(shell, home):
    settled_pair(shell, home)
    for which in (0, 1):
        running = shell.run("x=kept; sleep 0.3; echo done", wait=0.05)
        current = pair_of(home, running.task_id)
        os.kill(current[which], signal.SIGKILL)
        ended = shell.wait(running.task_id, timeout=20)
        assert (ended.status, ended.exit_code) == ("completed", 0)
        assert shell.read(running.task_id).output == "done\n"
        settled_pair(shell, home)


def test_a_supervisor_that_dies_when_it_has_recorded_the_end_keeps_nothing_open(shell, home):
    task = shell.run(f"{TOLD}; sleep 0.5")
    assert task.status == "completed"
    supervisor, _ = pair_of(home, task.task_id)
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: shell.show(task.task_id).closed)
    assert pair_of(home, task.task_id)[0] != supervisor


def test_guards_that_die_one_after_the_other_do_not_keep_the_session(shell, home):
    """The end is told, the state is not there yet, and whoever is replaced meanwhile must leave nothing held."""
    first = shell.run(f"x=kept; {TOLD}; sleep 2")
    assert first.status == "completed"
    supervisor, keeper = pair_of(home, first.task_id)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: pair_of(home, first.task_id)[1] not in (0, keeper))
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: pair_of(home, first.task_id)[0] != supervisor)
    assert shell.run("echo next").output == "next\n"
    eventually(lambda: shell.show(first.task_id).closed)
    assert shell.run("echo $x").output == "kept\n"


def test_a_directory_that_is_gone_makes_no_trouble(shell, home, tmp_path):
    settled_pair(shell, home)
    place = tmp_path / "place"
    place.mkdir()
    assert shell.run(f"cd {place}; rmdir {place}").status == "completed"
    assert shell.run("pwd").output == f"{tmp_path}\n"


def test_they_leave_when_their_host_does(home):
    with Shell.open(home=home) as shell:
        settled_pair(shell, home)
    eventually(lambda: not processes_of(home))
    assert os.listdir(os.path.join(home, "staging")) == []


def test_several_at_once_have_their_guards_ready_the_next_time(shell, home):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        rounds = []
        for _ in range(4):
            results = list(threads.map(lambda n: shell.run(f"sleep 0.1; echo {n}"), range(4)))
            assert [result.output for result in results] == [f"{n}\n" for n in range(4)]
            rounds.append({pair_of(home, result.task_id) for result in results})
    assert rounds[-1] & rounds[-2]


@pytest.mark.soak
def test_after_many_tasks_fresh_guards_come(shell, home):
    pair = settled_pair(shell, home)
    last = [shell.run("true") for _ in range(MOST_TASKS + 20)][-1]
    assert pair_of(home, last.task_id) != pair
