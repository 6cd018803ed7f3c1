"""Places, order, fairness, what waits for what, and names: with real processes, through pending to the end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import AsyncShell, OutlastError, Shell
from outlast.errors import AlreadyEnded, BadInput, InputRefused, StartFailed, UnknownTask
from outlast.linux import files
from outlast.storage.queue import Queue
from outlast.types import Stdin, Task
from tests.conftest import Cli, eventually
from tests.faults.support import SOURCE, end_both, is_waiting


@pytest.fixture(autouse=True)
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")


class Gate:
    """What a command waits at until the test opens it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.wait = f"read -r _ < {path}"
        self._fd = os.open(path, os.O_RDWR)

    def open(self, count: int = 1) -> None:
        os.write(self._fd, b"go\n" * count)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def full(shell: Shell, gate: Gate) -> Task:
    """The one place is taken until the gate opens."""
    return shell.start(gate.wait)


def run_python(code: str, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen([sys.executable, "-c", code, *words], env=env, stdout=subprocess.PIPE, text=True)


# --- places ------------------------------------------------------------------------------


def test_by_default_ten_run_and_the_eleventh_waits(home: str, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_MAX_RUNNING")
    with Shell.open(home=home) as shell:
        tasks = [shell.start(gate.wait) for _ in range(11)]
        assert [task.status for task in tasks] == ["running"] * 10 + ["pending"]
        last = tasks[-1]
        assert (last.pid, last.pgid, last.elapsed_ms, last.ended_at, last.waits_for) == (None, None, 0, None, ())
        gate.open()
        eventually(lambda: shell.show(last.task_id).status == "running")
        assert shell.show(last.task_id).pid
        gate.open(10)
        assert {shell.wait(task.task_id, timeout=30).status for task in tasks} == {"completed"}


def test_they_begin_in_the_order_in_which_they_were_queued(
    shell: Shell, full: Task, gate: Gate, tmp_path: Path
) -> None:
    tasks = [shell.start(f"echo {n} >> {tmp_path}/order") for n in range(15)]
    gate.open()
    assert shell.wait(tasks[-1].task_id, timeout=30).exit_code == 0
    assert (tmp_path / "order").read_text().split() == [str(n) for n in range(15)]


def test_a_foreground_command_never_waits_for_a_place(shell: Shell, full: Task, gate: Gate) -> None:
    waiting = shell.start("true")
    assert shell.run("echo here").output == "here\n"
    moved = shell.run(gate.wait, wait=0.05)
    assert (moved.status, shell.show(waiting.task_id).status) == ("running", "pending")
    gate.open(2)
    assert shell.wait(waiting.task_id, timeout=30).status == "completed"


def test_the_queue_goes_on_when_its_enqueuer_is_gone(home: str, tmp_path: Path) -> None:
    code = "import sys; from outlast import Shell; s = Shell.open(home=sys.argv[1])\nfor n in range(5): "
    ran = run_python(code + 's.start(f"sleep 0.1; echo {n} >> {sys.argv[2]}/log")', home, str(tmp_path))
    assert ran.wait(timeout=30) == 0
    # Nobody opens the state directory: each supervisor begins the next one.
    eventually(lambda: (tmp_path / "log").exists() and len((tmp_path / "log").read_text().split()) == 5)


def test_what_left_children_behind_frees_its_place(shell: Shell, gate: Gate) -> None:
    first = shell.start(f"({gate.wait}) & true")
    assert shell.run("true", after=[first.task_id]).status == "completed"
    second = shell.start("true")
    assert shell.wait(second.task_id, timeout=30).status == "completed"
    assert shell.show(first.task_id).children
    gate.open()
    eventually(lambda: shell.show(first.task_id).closed)


def test_a_waiter_begins_what_is_pending_when_both_guards_of_the_running_one_are_killed(
    shell: Shell, home: str, full: Task, gate: Gate
) -> None:
    pending = shell.start("exit 5")
    code = "import sys; from outlast import Shell; print(Shell.open(home=sys.argv[1]).wait(sys.argv[2]).exit_code)"
    waiter = run_python(code, home, pending.task_id)
    eventually(lambda: is_waiting(waiter.pid))
    end_both(full)
    assert waiter.communicate(timeout=30)[0] == "5\n"
    gate.open()  # the lost one still reads
    eventually(lambda: not shell.show(full.task_id).children)


def files_below(home: str) -> dict[str, tuple[int, int]]:
    """When each file was changed and how long it is. Left out: the index, which is a cache, and prepared shells."""
    paths = [Path(home, name) for name in ("tasks", "queue", "sessions")]
    paths += [path for directory in paths for path in directory.rglob("*")]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in paths}


@pytest.mark.parametrize("act", ["run", "kill", "clean"])
def test_reading_starts_no_pending_task_and_the_next_call_that_acts_does(
    shell: Shell, home: str, full: Task, gate: Gate, cli: Cli, act: str
) -> None:
    """Both guards of the running task are killed, so no process advances the queue when it ends."""
    pending, other = shell.start("exit 5"), shell.start("sleep 60")
    end_both(full)
    eventually(lambda: shell.show(full.task_id).reason == "lost")
    before = files_below(home)
    for verb in (["ps", "--all"], ["show", pending.task_id], ["logs", pending.task_id], ["logs", full.task_id]):
        cli(*verb, check=0)
    with Shell.open(home=home, prepare=False) as reader:
        assert reader.show(pending.task_id).status == "pending"
        assert [task.task_id for task in reader.list(status="pending")] == [other.task_id, pending.task_id]
        assert reader.read(pending.task_id).output == ""
    assert files_below(home) == before
    match act:
        case "run":
            shell.run("true")
        case "kill":
            shell.kill(other.task_id)
        case _:
            shell.clean()
    eventually(lambda: shell.show(pending.task_id).exit_code == 5)
    gate.open()  # the lost one still reads
    eventually(lambda: not shell.show(full.task_id).children)


def test_two_sessions_take_turns(home: str, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "2")
    with Shell.open(home=home, session="greedy") as greedy, Shell.open(home=home, session="small") as small:
        for _ in range(10):
            greedy.start(gate.wait)
        late = small.start(gate.wait)
        assert late.status == "pending"
        gate.open()
        eventually(lambda: small.show(late.task_id).status == "running", what="the other session's turn")
        assert [task.status for task in greedy.list()].count("running") == 1
        gate.open(10)
        for task in greedy.list():
            greedy.wait(task.task_id, timeout=30)
        small.wait(late.task_id, timeout=30)


def test_everything_that_is_launched_is_the_askers_own(home: str, gate: Gate, tmp_path: Path) -> None:
    """Whoever begins it is a stranger: another directory, umask, limits, niceness, and variables."""
    code = """if True:
        import os, resource, sys
        from outlast import Shell
        os.chdir(sys.argv[2]); os.umask(0o027); os.nice(3); os.environ["MINE"] = "yes"
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))
        print(Shell.open(home=sys.argv[1]).start(
            "echo $PWD $(umask) $(nice) $MINE $(ulimit -Sn) $(ulimit -Hn)").task_id)"""
    with Shell.open(home=home) as shell:
        shell.start(gate.wait)
        asker = run_python(code, home, str(tmp_path))
        task_id = asker.communicate(timeout=30)[0].strip()
        assert shell.show(task_id).status == "pending"
        assert (Path(home) / "tasks" / task_id / "environ").exists()
        gate.open()
        assert shell.wait(task_id, timeout=30).exit_code == 0
        nice = os.getpriority(os.PRIO_PROCESS, 0) + 3
        assert shell.read(task_id).output == f"{tmp_path} 0027 {nice} yes 123 456\n"
        assert not (Path(home) / "tasks" / task_id / "environ").exists()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) != (123, 456)


# --- looking, reading, waiting -----------------------------------------------------------


def test_a_pending_task_can_be_looked_at_and_followed_to_its_end(shell: Shell, full: Task, gate: Gate) -> None:
    task = shell.start("echo one; echo two; exit 3")
    assert shell.read(task.task_id).output == ""
    assert shell.wait(task.task_id, timeout=0.05).status == "pending"
    assert [one.task_id for one in shell.list(status="pending")] == [task.task_id]
    assert shell.clean(all_finished=True) == 0
    gate.open()
    assert b"".join(piece.data for piece in shell.follow(task.task_id, timeout=30)) == b"one\ntwo\n"
    assert shell.show(task.task_id).exit_code == 3


def test_asyncio_waits_through_pending(home: str, gate: Gate) -> None:
    async def main() -> list[str]:
        async with AsyncShell.open(home=home) as shell:
            await shell.start(gate.wait)
            tasks = [await shell.start(f"echo {n}") for n in range(3)]
            assert tasks[2].status == "pending"
            waits = [asyncio.create_task(shell.wait(task.task_id)) for task in tasks]
            follows = asyncio.create_task(_all(shell, tasks[1].task_id))
            after = asyncio.create_task(shell.run("echo after", after=[tasks[2].task_id]))
            await asyncio.sleep(0)
            gate.open()
            ended = [(await one).status for one in waits]
            return [*ended, await follows, (await after).output]

    async def _all(shell: AsyncShell, task_id: str) -> str:
        return "".join([piece.data.decode() async for piece in shell.follow(task_id)])

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [*["completed"] * 3, "1\n", "after\n"]


def test_input_is_for_those_that_run(shell: Shell, full: Task, gate: Gate) -> None:
    task = shell.start("cat", stdin=Stdin(open=True))
    with pytest.raises(InputRefused, match="pending"):
        shell.send(task.task_id, "x")
    gate.open()
    eventually(lambda: shell.show(task.task_id).status == "running")
    shell.send(task.task_id, "hello\n", eof=True)
    assert shell.wait(task.task_id, timeout=30).exit_code == 0
    assert shell.read(task.task_id).output == "hello\n"


def test_a_given_input_waits_too(shell: Shell, full: Task, gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("x")
    text = shell.start("cat | cat", stdin="as it was")
    gone = shell.start("cat", stdin=Stdin(file=str(tmp_path / "gone")))
    last = shell.start("true")
    (tmp_path / "gone").unlink()
    gate.open()
    assert shell.wait(last.task_id, timeout=30).status == "completed"
    assert shell.read(text.task_id).output == "as it was"
    assert shell.show(text.task_id).pipe_status == (0, 0)
    assert (shell.show(gone.task_id).status, shell.show(gone.task_id).reason) == ("failed", "spawn-error")


def test_kill_of_a_pending_task_ends_it_unrun(shell: Shell, home: str, full: Task, gate: Gate, tmp_path: Path) -> None:
    task = shell.start(f"touch {tmp_path}/ran")
    code = "import sys; from outlast import Shell; print(Shell.open(home=sys.argv[1]).wait(sys.argv[2]).status)"
    waiter = run_python(code, home, task.task_id)
    eventually(lambda: is_waiting(waiter.pid))
    receipts = shell.kill_all([full.task_id, task.task_id])
    assert [receipt.task_id for receipt in receipts] == [full.task_id, task.task_id]
    receipt = receipts[1]
    assert (receipt.status, receipt.reason, receipt.ended, receipt.survivors) == ("killed", "killed", (), ())
    assert receipt.ended_by is not None
    assert receipt.ended_by.startswith("kill by")
    assert waiter.communicate(timeout=30)[0] == "killed\n"
    with pytest.raises(AlreadyEnded):
        shell.kill(task.task_id)
    assert shell.run("echo on").output == "on\n"
    assert not (tmp_path / "ran").exists()
    assert not (Path(home) / "tasks" / task.task_id / "environ").exists()
    assert shell.clean(all_finished=True) == 3


# --- after -------------------------------------------------------------------------------


def test_it_begins_when_all_that_it_waits_for_completed(shell: Shell, full: Task, gate: Gate) -> None:
    first = shell.start("true")
    both = shell.start("echo both", after=[full.task_id, first.task_id])
    assert both.waits_for == (full.task_id, first.task_id)
    gate.open()
    assert shell.wait(both.task_id, timeout=30).status == "completed"


@pytest.mark.parametrize(
    ("command", "why"), [("exit 3", "failed with exit code 3"), ("kill -9 $$", "was ended by signal 9")]
)
def test_what_was_to_follow_a_failure_ends_unrun(shell: Shell, full: Task, gate: Gate, command: str, why: str) -> None:
    failing = shell.start(command)
    skipped = shell.start("echo never", after=[failing.task_id])
    further = shell.start("echo never", after=[skipped.task_id])
    anyway = shell.start("echo anyway", after=[failing.task_id, further.task_id], after_failed="run")
    gate.open()
    assert shell.wait(anyway.task_id, timeout=30).status == "completed"
    for task, before, how in ((skipped, failing, why), (further, skipped, "was killed")):
        ended = shell.wait(task.task_id, timeout=30)
        assert (ended.status, ended.reason, ended.exit_code, ended.pid) == ("killed", "killed", None, None)
        assert ended.ended_by == f"{before.task_id}, which it was to follow, {how}"


def test_a_kill_and_a_loss_are_failures_too(shell: Shell, gate: Gate) -> None:
    for end in (lambda one: shell.kill(one.task_id), end_both):
        first = shell.start(gate.wait)
        second = shell.start("true", after=[first.task_id])
        end(first)
        ended = shell.wait(second.task_id, timeout=30)
        assert ended.status == "killed"
        assert first.task_id in str(ended.ended_by)
    gate.open()  # what was lost still reads
    eventually(lambda: not any(task.children for task in shell.list()))


def test_who_waits_for_others_takes_no_place(shell: Shell, gate: Gate) -> None:
    slow = shell.run(gate.wait, wait=0.05)
    later = shell.start("true", after=[slow.task_id])
    assert later.waits_for == (slow.task_id,)
    assert shell.wait(shell.start("true").task_id, timeout=30).status == "completed"
    assert shell.show(later.task_id).status == "pending"
    gate.open()
    assert shell.wait(later.task_id, timeout=30).status == "completed"


def test_a_foreground_command_waits_for_others_only(shell: Shell, full: Task, gate: Gate) -> None:
    done = shell.run("true")
    assert shell.run("echo now", after=[done.task_id]).output == "now\n"
    still = shell.run("echo later", after=[full.task_id], wait=0.05)
    assert still.status == "pending"
    gate.open()
    assert shell.wait(still.task_id, timeout=30).status == "completed"


def test_a_pending_command_that_nobody_waits_for_keeps_its_state(shell: Shell, full: Task, gate: Gate) -> None:
    shell.run("mark=before")
    still = shell.run("echo $mark", after=[full.task_id], wait=0.05)
    assert still.status == "pending"
    shell.run("mark=after")  # which merges what ended in the session
    gate.open()
    assert shell.wait(still.task_id, timeout=30).status == "completed"
    assert shell.read(still.task_id).output == "before\n"


def test_to_wait_for_what_is_not_there_is_refused(shell: Shell, home: str) -> None:
    with pytest.raises(BadInput, match="no task 'bash-nothere1'"):
        shell.start("true", after=["bash-nothere1"])
    with pytest.raises(BadInput, match="list of task ids"):
        shell.start("true", after="bash-nothere1")
    with pytest.raises(BadInput, match="use run or skip"):
        shell.start("true", after_failed="explode")  # type: ignore[arg-type]
    assert shell.list() == []


def test_a_task_that_was_cleaned_counts_as_it_ended(shell: Shell, full: Task, gate: Gate) -> None:
    done, failed = shell.run("true"), shell.run("exit 3")
    both = shell.start("echo both", after=[full.task_id, done.task_id])
    anyway = shell.start("echo anyway", after=[full.task_id, failed.task_id], after_failed="run")
    assert both.status == "pending"
    assert shell.clean(all_finished=True) >= 1
    for task in (done, failed):
        with pytest.raises(UnknownTask):
            shell.show(task.task_id)
    gate.open()
    assert shell.wait(both.task_id, 30).status == "completed"
    assert shell.read(both.task_id).output == "both\n"
    assert shell.wait(anyway.task_id, 30).status == "completed"


def test_a_task_that_ended_while_another_waited_and_was_cleaned_counts_as_it_ended(
    shell: Shell, full: Task, gate: Gate, tmp_path: Path
) -> None:
    """Here the first task still runs when the second one is queued."""
    other = Gate(tmp_path / "other")
    first = shell.run(other.wait, wait=0)  # in the foreground: it needs no place
    both = shell.start("echo both", after=[first.task_id, full.task_id])
    other.open()
    assert shell.wait(first.task_id, 30).status == "completed"
    eventually(lambda: shell.show(first.task_id).closed)
    shell.remove(first.task_id)
    assert shell.show(both.task_id).status == "pending"
    gate.open()
    assert shell.wait(both.task_id, 30).status == "completed"
    assert shell.read(both.task_id).output == "both\n"


# --- names -------------------------------------------------------------------------------


def test_a_name_makes_two_starts_one_task(shell: Shell, home: str, gate: Gate, tmp_path: Path) -> None:
    first = shell.start(gate.wait, name="server")
    assert first.name == "server"
    assert shell.start(gate.wait, name="server").task_id == first.task_id
    waiting = shell.start("true", name="other")
    assert shell.start("true", name="other").task_id == waiting.task_id
    with pytest.raises(BadInput, match=f"{first.task_id}, which is running"):
        shell.start("true", name="server")
    with pytest.raises(BadInput, match="another directory"):
        shell.start(gate.wait, name="server", cwd=tmp_path)
    with Shell.open(home=home, session="another") as another:
        theirs = another.start(gate.wait, name="server")
        assert theirs.task_id != first.task_id
        another.kill(theirs.task_id)
    gate.open()
    shell.wait(first.task_id, timeout=30)
    assert shell.run("echo new", name="server").output == "new\n"
    with pytest.raises(BadInput, match="no name for a task"):
        shell.start("true", name="a/b")


def test_a_foreground_run_joins_the_task_of_its_name_and_does_not_end_it(
    shell: Shell, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"echo begun; {gate.wait}; echo done"
    first = shell.start(command, name="it")
    monkeypatch.setattr(shell.context, "settings", type(shell.settings)(foreground_limit_s=0.1))
    joined = shell.run(command, name="it")
    assert (joined.task_id, joined.status) == (first.task_id, "running")
    gate.open()
    assert shell.run(command, name="it", wait=30).output.startswith("begun\n")
    shell.wait(first.task_id, timeout=30)


def test_two_who_start_the_same_name_at_once_get_one_task(home: str, gate: Gate, tmp_path: Path) -> None:
    code = "import sys; from outlast import Shell; s = Shell.open(home=sys.argv[1]); sys.stdin.read()\n"
    code += "print(s.start(sys.argv[2], name='one').task_id)"
    env = {**os.environ, "PYTHONPATH": SOURCE}
    words = [sys.executable, "-c", code, home, f"echo x >> {tmp_path}/ran; {gate.wait}"]
    racers = [
        subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(6)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.close()
        racer.stdin = None
    ids = {racer.communicate(timeout=60)[0] for racer in racers}
    assert len(ids) == 1
    gate.open()
    with Shell.open(home=home) as shell:
        assert shell.wait(ids.pop().strip(), timeout=30).exit_code == 0
        assert len(shell.list()) == 1
    assert (tmp_path / "ran").read_text() == "x\n"


def test_clean_forgets_the_names_of_what_it_removes(shell: Shell, home: str, gate: Gate) -> None:
    stays = shell.start(gate.wait, name="stays")
    for name in ("a", "b"):
        shell.run("true", name=name)
    eventually(lambda: shell.clean(all_finished=True) == 0 and len(shell.list()) == 1)
    assert os.listdir(os.path.join(home, "queue", "names")) == ["default:stays"]
    assert shell.start(gate.wait, name="stays").task_id == stays.task_id
    gate.open()
    assert shell.wait(stays.task_id, timeout=30).status == "completed"


# --- on disk -----------------------------------------------------------------------------


def test_leftovers_of_the_dead_are_no_tasks_and_hold_up_nobody(shell: Shell, home: str, full: Task, gate: Gate) -> None:
    """An entry whose task was never published, one that nobody understands, one whose task began."""
    entries = Path(home) / "queue" / "entries"
    pending = shell.start("true")
    for name in (f"{0:020d}.bash-00000000.1.-.default", f"{0:020d}.{full.task_id}.1.-.default", "rubbish"):
        (entries / name).touch()
    assert [task.status for task in shell.list()] == ["pending", "running"]
    gate.open()
    assert shell.wait(pending.task_id, timeout=30).status == "completed"
    assert [one.name for one in entries.iterdir()] == ["rubbish"]


def test_places_are_free_when_all_is_over(shell: Shell, home: str) -> None:
    for _ in range(3):
        shell.wait(shell.start("true").task_id, timeout=30)
    queue = Queue(home)
    assert queue.is_empty()
    fd, _ = eventually(lambda: queue.claim_slot("x", 1))
    assert queue.claim_slot("x", 1) is None
    os.close(fd)


# --- the command line --------------------------------------------------------------------


def test_the_command_line_says_what_waits_for_what(cli: Cli, gate: Gate) -> None:
    first = cli("run", "--bg", gate.wait, check=0)
    assert first.stderr == ""
    running = first.stdout.strip()
    second = cli("run", "--bg", "--name", "two", "echo two", check=0)
    task_id = second.stdout.strip()
    assert second.stderr == f"outlast: {task_id} is pending: it waits for a place.\n"
    third = cli("run", "--bg", "--after", running, "--after", task_id, "exit 4", check=0)
    assert third.stderr.endswith(f"is pending: it waits for {running}, {task_id}.\n")
    table = cli("ps", check=0).stdout
    assert f"pending (waits for {running})" in table
    assert "pending, waits for a place" in cli("show", task_id, check=0).stdout
    assert "queued" in cli("show", task_id).stdout
    assert "1 running, 2 pending" in cli("doctor").stdout
    shown = cli.json("show", task_id)
    assert (shown["status"], shown["pid"], shown["name"]) == ("pending", None, "two")
    assert cli("run", "--bg", "--name", "two", "echo two").stdout == second.stdout
    left = cli("run", "--wait", "0.1", "--after", running, "true", check=0)
    assert " is pending: it waits for bash-" in left.stderr
    assert "outlast logs -f" in left.stderr
    follower = cli.start("logs", "-f", task_id)
    waiter = cli.start("wait", third.stdout.strip())
    foreground = cli.start("run", "--after", third.stdout.strip(), "--after-failed", "run", "echo after; exit 6")
    gate.open()
    assert follower.communicate(timeout=60)[0] == b"two\n"
    waiter.communicate(timeout=60)
    assert waiter.returncode == 4
    assert foreground.communicate(timeout=60)[0] == b"after\n"
    assert foreground.returncode == 6


def test_an_interrupt_ends_a_foreground_command_that_has_not_begun(cli: Cli, gate: Gate) -> None:
    import signal

    running = cli("run", "--bg", gate.wait, check=0).stdout.strip()
    foreground = cli.start("run", "--after", running, "echo never")
    eventually(lambda: is_waiting(foreground.pid))
    foreground.send_signal(signal.SIGINT)
    out, err = foreground.communicate(timeout=60)
    assert (out, foreground.returncode) == (b"", 125)
    assert b"interrupted before it began" in err
    killed = cli("run", "--bg", "true", check=0).stdout.strip()
    assert cli("kill", killed, check=0).stdout == f"{killed}: ended before it began\n"
    gate.open()
    cli("wait", running, check=0)


# --- many --------------------------------------------------------------------------------


def stampede(home: str, cli: Cli, gate: Gate, count: int, listers: int) -> None:
    """Many wait; many look at once; all run."""
    with Shell.open(home=home) as shell:
        shell.start(gate.wait)
        tasks = [shell.start("true") for _ in range(count)]
        lookers = [cli.start("ps", "--json") for _ in range(listers)]
        for one in lookers:
            listed = one.communicate(timeout=100)[0].splitlines()
            assert len(listed) == count + 1
        gate.open()
        assert shell.wait(tasks[-1].task_id, timeout=600).status == "completed"
        assert {task.status for task in shell.list()} <= {"completed", "running"}
        with pytest.raises(OutlastError):
            shell.kill(tasks[0].task_id)


def test_a_hundred_are_pending_and_many_look(home: str, cli: Cli, gate: Gate) -> None:
    stampede(home, cli, gate, 100, 5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_are_pending_and_many_look(home: str, cli: Cli, gate: Gate) -> None:
    stampede(home, cli, gate, 1000, 20)


@pytest.mark.parametrize("file", ["lock", "names/default:n"])
def test_a_process_that_holds_a_lock_is_not_waited_for_without_a_bound(
    shell: Shell, home: str, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """As one does that was stopped in the middle."""
    shell.wait(shell.start("true", name="n").task_id)
    monkeypatch.setattr(files, "LOCK_TIMEOUT_S", 0.1)
    with open(f"{home}/queue/{file}", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StartFailed, match="another process holds a lock"):
            shell.start("true", name="n")
        assert shell.run("echo hi").output == "hi\n"
    assert shell.start("true", name="n").status == "running"
