"""Commands side by side, in the background, with variables of their own; and what belongs to nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import AsyncShell, Shell
from outlast.types import Task
from tests.conftest import Cli, end_all, eventually
from tests.faults.support import namespace, python


@pytest.fixture
def named(home: str) -> Iterator[Shell]:
    with Shell.open(home=home, session="s") as opened:
        yield opened
        end_all(opened)


def gate(path: Path) -> str:
    """Words that wait until somebody writes to a pipe."""
    os.mkfifo(path)
    return f"read -r _ < {path}"


def beside(shell: Shell, *commands: str) -> list[threading.Thread]:
    threads = [threading.Thread(target=shell.run, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    return threads


def running(shell: Shell, count: int) -> bool:
    return len(shell.list(status="running")) == count


def test_each_merges_only_what_it_changed(named: Shell, tmp_path: Path) -> None:
    named.run("a=0; b=0; gone=1; f() { echo old; }; shopt -s nullglob; cd /")
    wait_a, wait_b = gate(tmp_path / "a"), gate(tmp_path / "b")
    threads = beside(
        named,
        f"{wait_a}; a=1; unset gone; cd /usr; shopt -u nullglob; alias x=y",
        f"{wait_b}; b=2; f() {{ echo new; }}; set -o pipefail; umask 027; arr=(1 2)",
    )
    eventually(lambda: running(named, 2))
    for one in ("a", "b"):
        (tmp_path / one).write_text("\n")
    for thread in threads:
        thread.join(30)
    told = named.run(
        "echo $a $b ${gone-none} $PWD ${arr[1]} $(umask); f; alias; shopt -q nullglob || set -o | grep pipef"
    )
    assert told.output.split() == ["1", "2", "none", "/usr", "2", "0027", "new", "alias", "x='y'", "pipefail", "on"]


def test_the_first_two_commands_of_a_session(named: Shell, tmp_path: Path) -> None:
    wait_a, wait_b = gate(tmp_path / "a"), gate(tmp_path / "b")
    threads = beside(named, f"{wait_a}; IFS=:; shopt -u sourcepath", f"{wait_b}; b=2")
    eventually(lambda: running(named, 2))
    for one in ("a", "b"):
        (tmp_path / one).write_text("\n")
    for thread in threads:
        thread.join(30)
    assert named.run('printf %q "$IFS"; echo " $b"; shopt sourcepath').output == ": 2\nsourcepath     \toff\n"


def test_many_side_by_side(named: Shell) -> None:
    for thread in beside(named, *(f"v{number}={number}; shared+=x" for number in range(12))):
        thread.join(60)
    expected = " ".join(str(number) for number in range(12))
    assert named.run("echo " + " ".join(f"$v{number}" for number in range(12))).output == expected + "\n"


def test_a_background_command_begins_with_the_state_and_leaves_it(named: Shell) -> None:
    named.run("a=1; f() { echo f $a; }; cd /usr")
    task = named.start("f; pwd; a=2; cd /")
    named.wait(task.task_id, 30)
    assert named.read(task.task_id).output == "f 1\n/usr\n"
    assert named.run("echo $a; pwd").output == "1\n/usr\n"


def test_what_one_call_is_given_does_not_stay(named: Shell) -> None:
    named.run("A=1; export B=1; cd /usr")
    env = {"A": "x\ny'", "B": "2", "NEW": "3", "odd.name": "4"}
    told = named.run('echo "$A $B $NEW"; pwd; env | grep odd; C=5', env=env, cwd="/etc")
    assert told.output == "x\ny' 2 3\n/etc\nodd.name=4\n"
    assert named.run("echo $A $B ${NEW-none} $C; pwd; env | grep -c odd; true").output == "1 1 none 5\n/usr\n0\n"


def test_what_a_command_changes_further_stays(named: Shell) -> None:
    named.run("A=1; B=1", env={"X": "y"})
    named.run("A=3; unset B; cd /tmp", env={"A": "2", "B": "2"}, cwd="/etc")
    assert named.run("echo $A ${B-none}; pwd").output == "3 none\n/tmp\n"


def test_the_first_call_of_a_session_may_have_its_own(named: Shell) -> None:
    here = os.getcwd()
    assert named.run("echo $A; pwd; B=1", env={"A": "1"}, cwd="/etc").output == "1\n/etc\n"
    assert named.run("echo ${A-none} $B; pwd; shopt -q sourcepath && echo on").output == f"none 1\n{here}\non\n"


def test_colour_for_one_call(named: Shell) -> None:
    named.run("true")
    assert named.run("echo ${NO_COLOR-none}", env={"FORCE_COLOR": "1"}).output == "none\n"
    assert named.run("echo $NO_COLOR ${FORCE_COLOR-none}").output == "1 none\n"


def test_whom_nobody_waits_for_any_more_changes_nothing(named: Shell, tmp_path: Path) -> None:
    named.run("a=1")
    result = named.run(f"{gate(tmp_path / 'g')}; a=2", wait=0.01)
    assert result.status == "running"
    (tmp_path / "g").write_text("\n")
    assert named.wait(result.task_id, 30).status == "completed"
    assert named.run("echo $a").output == "1\n"


def test_a_coroutine_that_is_cancelled_stopped_waiting(home: str, tmp_path: Path) -> None:
    async def main() -> str:
        async with AsyncShell.open(home=home, session="s") as shell:
            await shell.run("a=1")
            waiting = asyncio.create_task(shell.run(f"{gate(tmp_path / 'g')}; a=2"))
            while not (started := await shell.list(status="running")):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            (tmp_path / "g").write_text("\n")
            await shell.wait(started[0].task_id, 30)
            return (await shell.run("echo $a")).output

    assert asyncio.run(main()) == "1\n"


def test_a_coroutine_that_is_cancelled_while_its_command_begins_stopped_waiting(home: str, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def main() -> str:
        async with AsyncShell.open(home=home, session="s") as shell:
            await shell.run("a=1")
            launch = shell.plain.starter.launch

            def slowly(*args: Any, **how: Any) -> tuple[Task, bool]:
                found = launch(*args, **how)
                begun.set()
                go_on.wait(30)
                return found

            shell.plain.starter.launch = slowly  # type: ignore[method-assign]
            waiting = asyncio.create_task(shell.run(f"{gate(tmp_path / 'g')}; a=2"))
            await asyncio.to_thread(begun.wait, 30)
            asyncio.get_running_loop().call_later(0.1, go_on.set)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            shell.plain.starter.launch = launch  # type: ignore[method-assign]
            (tmp_path / "g").write_text("\n")
            await shell.wait((await shell.list())[0].task_id, 30)
            return (await shell.run("echo $a")).output

    assert asyncio.run(main()) == "1\n"


def test_a_caller_that_is_killed_has_not_stopped_waiting(cli: Cli, named: Shell, tmp_path: Path) -> None:
    caller = cli.start("run", "--session", "s", f"{gate(tmp_path / 'g')}; a=2; cd /usr")
    task = eventually(lambda: named.list(status="running"))[0]
    caller.send_signal(signal.SIGKILL)
    caller.communicate(timeout=30)
    (tmp_path / "g").write_text("\n")
    named.wait(task.task_id, 30)
    assert named.run("echo $a; pwd").output == "2\n/usr\n"


def test_the_successor_of_a_supervisor_keeps_the_state(named: Shell, home: str, tmp_path: Path) -> None:
    from outlast.storage import record

    named.run("a=1")
    thread = beside(named, f"{gate(tmp_path / 'g')}; a=2")[0]
    task = eventually(lambda: named.list(status="running"))[0]
    directory = os.path.join(home, "tasks", task.task_id)
    first = record.guards_of(directory).supervisor
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: record.guards_of(directory).supervisor != first)
    (tmp_path / "g").write_text("\n")
    thread.join(30)
    assert named.run("echo $a").output == "2\n"


def test_a_command_that_was_killed_leaves_the_state_before_it(named: Shell, tmp_path: Path) -> None:
    named.run("a=1")
    thread = beside(named, f"a=2; {gate(tmp_path / 'g')}")[0]
    task = eventually(lambda: [one for one in named.list(status="running") if one.pid])[0]
    assert task.pid
    os.kill(task.pid, signal.SIGKILL)
    thread.join(30)
    assert named.run("echo $a").output == "1\n"


# --- whose state -------------------------------------------------------------------------


def test_a_shell_without_a_name_has_a_state_of_its_own(home: str) -> None:
    with Shell.open(home=home) as one, Shell.open(home=home) as other:
        one.run("a=1; cd /usr")
        other.run("a=2")
        assert one.run("echo $a; pwd").output == "1\n/usr\n"
        assert other.run("echo $a").output == "2\n"
        assert one.show(one.run("true").task_id).session == "default"
        assert one.sessions.state().directory == "/usr"
        assert len(os.listdir(os.path.join(home, "sessions"))) == 2
    assert os.listdir(os.path.join(home, "sessions")) == []


def test_the_state_of_a_process_that_is_gone_is_swept(home: str, cli: Cli) -> None:
    pid = os.fork()
    if not pid:
        Shell.open(home=home).run("a=1")
        os._exit(0)
    os.waitpid(pid, 0)
    sessions = os.path.join(home, "sessions")
    (left,) = os.listdir(sessions)
    with Shell.open(home=home) as shell:
        shell.run("true")
        assert left not in os.listdir(sessions)


def test_another_container_does_not_sweep_the_state_of_a_living_process(home: str) -> None:
    """Two containers share a state directory; in the other one our pid is a stranger, or nobody."""
    code = "from outlast import Shell\nwith Shell.open(home=sys.argv[1]) as shell: shell.run('true')"
    with Shell.open(home=home) as shell:
        shell.run("a=1; cd /usr")
        subprocess.run([*namespace(), *python(code, home)], timeout=60, check=True)
        assert shell.run("echo $a; pwd").output == "1\n/usr\n"


def test_the_command_line_without_a_session_remembers_nothing(cli: Cli, home: str) -> None:
    cli("run", "export A=1; cd /usr", check=0)
    assert cli("run", "echo ${A-none}; pwd").stdout == f"none\n{os.getcwd()}\n"
    assert os.listdir(os.path.join(home, "sessions")) == []


def test_the_command_line_in_a_session(cli: Cli) -> None:
    cli("run", "--session", "x", "a=1; cd /usr; exit 3", check=3)
    assert cli("run", "--session", "x", "echo $a; pwd").stdout == "1\n/usr\n"
    cli.env["OUTLAST_SESSION"] = "x"
    assert cli("run", "echo $a; a=2").stdout == "1\n"
    task = cli("run", "--bg", "echo $a; a=3").stdout.strip()
    cli("wait", task)
    assert cli("logs", task).stdout == "2\n"
    assert cli("run", "--wait", "20", "echo $a").stdout == "2\n"


def test_a_command_inside_of_one_without_a_session_remembers_nothing_either(cli: Cli, home: str) -> None:
    cli("run", f"{' '.join(cli.command)} run 'b=2; cd /usr'", check=0)
    assert os.listdir(os.path.join(home, "sessions")) == []


def test_a_command_inside_of_a_session_is_in_it(cli: Cli) -> None:
    inside = f"a=1; {' '.join(cli.command)} run 'b=2; cd /usr'"
    cli("run", "--session", "x", inside, check=0)
    assert cli("run", "--session", "x", "echo $a $b; pwd").stdout == "1 2\n/usr\n"


def test_functions_are_kept_also_without_compgen(named: Shell) -> None:
    """The dump lists functions with it, because most sessions have none."""
    named.run("f() { echo f; }")
    named.run("enable -n compgen; g() { echo g; }; unset -f f")
    assert named.run("g; declare -F f").output == "g\n"
