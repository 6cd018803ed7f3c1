"""What is kept: the list, what each session sees, ids, clean-up, and what a reboot leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from outlast import Shell, Task
from outlast.errors import AlreadyEnded, BadInput, DamagedTask, NewerTask, StartFailed, UnknownTask
from outlast.executors.local import LocalExecutor
from outlast.light import fields, replace
from outlast.linux import process
from outlast.storage import layout, record, removal, task_directory
from outlast.storage.registry import Registry
from outlast.storage.task_directory import Hold
from tests.conftest import eventually
from tests.faults.support import end_both
from tests.guard_files import write_guards

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

HOUR_S = 3600


def directory_of(task: Task) -> str:
    return os.path.dirname(task.output_file)


def closed(shell: Shell, *tasks: Task) -> None:
    for task in tasks:
        eventually(partial(_is_closed, shell, task))


def _is_closed(shell: Shell, task: Task) -> bool:
    return shell.show(task.task_id).closed


def age(task: Task, hours: float) -> None:
    """Let a closed task have ended that much earlier."""
    slot = record.read(directory_of(task))["outcome"]
    record.write("outcome", {**slot, "ended": slot["ended"] - hours * HOUR_S}, directory_of(task))


def _is_unwatched(task: Task) -> bool:
    return not record.has_guard(directory_of(task))


def forget_index(home: str) -> None:
    for ending in ("", "-wal", "-shm"):
        path = os.path.join(home, "index.sqlite" + ending)
        if os.path.exists(path):
            os.unlink(path)


# --- list ----------------------------------------------------------------------------------


def test_the_list_is_newest_first_and_has_everything(shell):
    commands = ["exit 3", "true", "pytest --version || true", "sleep 60"]
    tasks = [shell.start(command, description=f"the {n}th") for n, command in enumerate(commands)]
    for task in tasks[:3]:
        closed(shell, task)
    listed = shell.list()
    assert [task.task_id for task in listed] == [task.task_id for task in reversed(tasks)]
    assert [task.status for task in listed] == ["running", "completed", "completed", "failed"]
    assert [task.category for task in listed] == ["bash", "test", "bash", "bash"]
    assert [task.description for task in listed] == ["the 3th", "the 2th", "the 1th", "the 0th"]
    assert [task.exit_code for task in listed] == [None, 0, 0, 3]
    assert all(task.kind == "bash" and task.pid and task.started_at for task in listed)
    for task in listed[1:]:
        assert fields(shell.show(task.task_id)) == fields(task)


def test_the_list_is_filtered(shell):
    done, failed, running = shell.run("true"), shell.run("false"), shell.start("sleep 60")
    killed = shell.start("sleep 61")
    shell.kill(killed.task_id)
    expected = {
        "completed": [done],
        "failed": [failed],
        "error": [failed],
        "running": [running],
        "killed": [killed],
        "cancelled": [killed],
        "pending": [],
    }
    for name, tasks in expected.items():
        assert [task.task_id for task in shell.list(status=name)] == [task.task_id for task in tasks]
    assert len(shell.list(kind="bash")) == 4
    assert shell.list(kind="agent") == []
    with pytest.raises(BadInput, match="no status 'done'"):
        shell.list(status="done")


def test_lines_are_counted_and_counted_on(shell, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = shell.start(f"printf 'a\\nb\\nc'; echo e >&2; read -r x < {gate}; printf '\\nd\\n'", split=True)
    eventually(lambda: shell.reader.line_counts(task) == (2, 1))
    gate.write_text("go\n")
    closed(shell, task)
    assert shell.reader.line_counts(task) == (4, 1)
    assert shell.reader.line_counts(task) == (4, 1)


def test_a_running_task_has_run_for_a_while(shell):
    task = shell.start("sleep 60")
    first = shell.show(task.task_id).elapsed_ms
    eventually(lambda: shell.show(task.task_id).elapsed_ms > first + 50)
    assert shell.show(task.task_id).ended_at is None


# --- sessions ------------------------------------------------------------------------------


def test_a_session_sees_only_its_own_tasks(home):
    with Shell.open(home=home, session="one") as one, Shell.open(home=home, session="two") as two:
        mine = one.start("echo secret; sleep 60", stdin="x")
        other = two.run("echo mine")
        assert [task.task_id for task in one.list()] == [mine.task_id]
        assert [task.task_id for task in two.list()] == [other.task_id]
        assert [task.task_id for task in two.list(session="one")] == [other.task_id]
        asks = (two.show, two.read, two.wait, two.kill, two.send, lambda part: list(two.follow(part)))
        for part in (mine.task_id, mine.task_id[5:], mine.task_id[:-1], mine.task_id.upper()):
            for ask in asks:
                with pytest.raises(UnknownTask) as caught:
                    ask(part)
                assert mine.task_id not in caught.value.message.replace(f"'{part.lower()}'", "")
        assert two.clean(all_finished=True) == 1
        assert one.kill(mine.task_id).status == "killed"


def test_an_ambiguous_part_does_not_tell_of_other_sessions(home):
    with Shell.open(home=home, session="one") as one, Shell.open(home=home, session="two") as two:
        mine = one.run("true")
        two.run("true")
        assert one.show("bash-").task_id == mine.task_id


def test_an_operator_sees_every_session(home):
    with Shell.open(home=home, session="one") as one, Shell.open(home=home, operator=True) as operator:
        task = one.start("sleep 60")
        assert [seen.session for seen in operator.list()] == ["one"]
        assert operator.list(session="two") == []
        assert operator.kill(task.task_id).status == "killed"


def test_the_session_comes_from_the_environment(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_SESSION", "named")
    with Shell.open(home=home) as shell:
        assert shell.session == "named"
        assert shell.run("echo $OUTLAST_SESSION").output == "named\n"


# --- ids -----------------------------------------------------------------------------------


def test_an_id_is_its_kind_and_eight_hex_digits(shell):
    kind, _, digits = shell.run("true").task_id.partition("-")
    assert kind == "bash"
    assert len(digits) == 8
    int(digits, 16)


@pytest.fixture
def next_ids(monkeypatch, shell):
    """Let the next ids be these, then random ones again; what is left of them. No prepared shell takes one of them."""
    shell.starter._prepares = False
    shell.starter._preparer.cancel()

    def choose(*task_ids):
        tokens, real = [task_id.removeprefix("bash-") for task_id in task_ids], layout.random_token
        monkeypatch.setattr(layout, "random_token", lambda: tokens.pop(0) if tokens else real())
        return tokens

    return choose


def test_a_collision_is_tried_again_and_costs_the_other_task_nothing(shell, next_ids):
    first = shell.run("echo first; exit 3")
    closed(shell, first)
    left = next_ids(first.task_id, first.task_id)
    second = shell.run("echo second")
    assert not left, "these ids were not tried"
    assert second.task_id != first.task_id
    assert second.output == "second\n"
    again = shell.read(first.task_id)
    assert (again.output, again.exit_code) == ("first\n", 3)
    assert {task.task_id for task in shell.list()} == {first.task_id, second.task_id}


def test_a_collision_with_a_running_task_of_another_session_is_harmless(home, next_ids):
    with Shell.open(home=home, session="one") as one, Shell.open(home=home, session="two") as two:
        first = one.start("sleep 60")
        next_ids(first.task_id)
        second = two.run("true")
        assert [task.task_id for task in one.list()] == [first.task_id]
        assert [task.task_id for task in two.list()] == [second.task_id]
        assert one.kill(first.task_id).status == "killed"


def test_a_collision_with_a_task_that_is_being_prepared_is_harmless(shell, next_ids):
    index = shell.executor.registry.index
    index.add(("bash-aaaaaaaa", "another", time.time(), 5))
    os.mkdir(f"{shell.executor.registry.home.staging}/bash-aaaaaaaa.11111111")
    before = index.row("bash-aaaaaaaa")
    left = next_ids("bash-aaaaaaaa")
    assert shell.run("true").task_id != "bash-aaaaaaaa"
    assert not left
    assert index.row("bash-aaaaaaaa") == before


def test_a_collision_at_the_last_moment_is_tried_again(shell, home, next_ids, monkeypatch):
    """The directory was not there when we looked, and is when the task is published."""
    first = shell.run("echo first")
    closed(shell, first)
    shell.executor.registry.index.forget(first.task_id)
    left = next_ids(first.task_id)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    second = shell.run("echo second")
    assert not left
    assert second.task_id != first.task_id
    assert second.output == "second\n"
    assert open(first.output_file).read() == "first\n"
    shell.close()
    eventually(lambda: os.listdir(os.path.join(home, "staging")) == [])


def test_ids_that_are_all_taken_are_an_error_that_leaves_nothing(shell, home, monkeypatch):
    first = shell.run("true")
    monkeypatch.setattr(layout, "random_token", lambda: first.task_id.removeprefix("bash-"))
    with pytest.raises(StartFailed, match="No free task id"):
        shell.run("true")
    assert os.listdir(os.path.join(home, "tasks")) == [first.task_id]
    assert [task.task_id for task in shell.list()] == [first.task_id]


# --- clean ---------------------------------------------------------------------------------


def test_clean_removes_what_ended_long_ago_with_its_output(shell, home):
    old, new, running = shell.run("echo old"), shell.run("echo new"), shell.start("sleep 60")
    closed(shell, old, new)
    age(old, 25)
    forget_index(home)
    with Shell.open(home=home) as again:
        assert again.clean() == 1
        assert {task.task_id for task in again.list()} == {new.task_id, running.task_id}
    assert not os.path.exists(directory_of(old))
    with Shell.open(home=home) as again:
        with pytest.raises(UnknownTask):
            again.read(old.task_id)
        again.kill(running.task_id)


def test_clean_takes_an_age(shell, home):
    tasks = [shell.run("true") for _ in range(3)]
    closed(shell, *tasks)
    for hours, task in zip((1, 5, 9), tasks, strict=True):
        age(task, hours)
    forget_index(home)
    with Shell.open(home=home) as again:
        assert again.clean(older_than_hours=20) == 0
        assert again.clean(older_than_hours=4) == 2
        assert again.clean(older_than_hours=0) == 1
        assert again.list() == []


def test_clean_of_all_that_finished_spares_what_runs(shell):
    done = [shell.run("true"), shell.run("false")]
    running = shell.start("sleep 60")
    server = shell.run("sleep 61 & true")
    closed(shell, *done)
    assert shell.clean(all_finished=True) == 2
    # What a finished task left running is still its own.
    assert {task.task_id for task in shell.list()} == {running.task_id, server.task_id}
    shell.kill(server.task_id)
    assert shell.clean(all_finished=True) == 1
    assert shell.show(running.task_id).status == "running"


def test_an_age_that_makes_no_sense_is_refused(shell):
    for hours in (-1, -0.5):
        with pytest.raises(BadInput, match="hours"):
            shell.clean(older_than_hours=hours)


def test_every_start_prunes_though_nobody_ever_looked(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_RETENTION_HOURS", "10")
    with Shell.open(home=home) as shell:
        tasks = [shell.start("true") for _ in range(5)]
        for task in tasks:
            eventually(partial(_is_unwatched, task))
            age(task, 11)
    with Shell.open(home=home) as shell:
        unseen = "UPDATE tasks SET created = created - 40000, ended = NULL, view = NULL"
        shell.executor.registry.index._db.execute(unseen)
        fresh = shell.run("true")
        assert os.listdir(os.path.join(home, "tasks")) == [fresh.task_id]


def test_a_start_prunes_a_bounded_number(shell):
    tasks = [shell.run("true") for _ in range(5)]
    closed(shell, *tasks)
    assert shell.executor.registry.prune(0, most=3) == 3
    assert shell.executor.registry.prune(0, most=3) == 2
    assert 0 < removal.AT_ONCE <= 100
    assert Registry.prune.__defaults__ == (removal.AT_ONCE, None)


def test_a_running_task_is_never_pruned(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_RETENTION_HOURS", "0")
    with Shell.open(home=home) as shell:
        running = shell.start("sleep 60")
        for _ in range(3):
            shell.run("true")
        assert shell.show(running.task_id).status == "running"
        shell.kill(running.task_id)


def test_a_task_that_is_ended_stays_until_its_receipt_is_written(shell, monkeypatch):
    task = shell.start("sleep 60")
    monkeypatch.setattr(LocalExecutor, "advance", lambda self: self.registry.prune(0.0))  # as another process may
    assert shell.kill(task).status == "killed"
    assert shell.executor.registry.prune(0.0) == 1


# --- a reboot, and other losses ------------------------------------------------------------


@pytest.fixture
def abandoned(shell, home):
    """A running task as a crash of the machine leaves it: copied, with guards that are dead."""

    def make(**changes):
        task = shell.start("echo before; sleep 60", description="lost one")
        eventually(lambda: shell.read(task.task_id).output)
        directory = os.path.join(home, "tasks", "bash-10571057")
        shutil.copytree(directory_of(task), directory, copy_function=_copy)
        shell.kill(task.task_id)
        guards = record.guards_of(directory)
        boot = changes.pop("boot", guards.command.boot)
        named = {name: replace(getattr(guards, name), boot=boot) for name in ("supervisor", "keeper", "command")}
        write_guards(replace(guards, **named, **changes), directory)
        forget_index(home)
        return directory

    return make


def _copy(source, target):
    if not os.path.isfile(source):
        return os.mkfifo(target, 0o600)
    return shutil.copy2(source, target)


def test_what_ran_when_the_machine_went_down_is_lost(abandoned, home):
    abandoned(boot="00000000-0000-0000-0000-000000000000")
    with Shell.open(home=home) as shell:
        task = shell.show("bash-10571057")
        assert (task.status, task.reason) == ("failed", "lost")
        assert (task.exit_code, task.signal, task.ended_at) == (None, None, None)
        assert "unknown how it ended" in str(task.error)
        assert task.elapsed_ms >= 0
        assert task.closed
        assert shell.read(task.task_id).output == "before\n"
        assert task.task_id in {one.task_id for one in shell.list(status="failed")}
        assert shell.wait(task.task_id).reason == "lost"
        assert b"".join(piece.data for piece in shell.follow(task.task_id)) == b"before\n"
        with pytest.raises(AlreadyEnded, match="lost"):
            shell.kill(task.task_id)
        assert shell.clean(all_finished=True) == 2


def test_pids_of_another_boot_mean_nothing(abandoned, home):
    """After a reboot the same pids, even with the same ticks, belong to strangers."""
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        me = process.identity(stranger.pid)
        directory = abandoned()
        other = replace(me, boot="00000000-0000-0000-0000-000000000000")
        gone = replace(other, pid=1 << 22)
        guards = replace(record.guards_of(directory), supervisor=gone, keeper=gone, command=other)
        write_guards(guards, directory)
        with Shell.open(home=home) as shell:
            assert shell.show("bash-10571057").reason == "lost"
            with pytest.raises(AlreadyEnded):
                shell.kill("bash-10571057")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("who", ["its own host", "another one"])
def test_guards_that_died_together_leave_no_exit_code(shell, home, who):
    """And who waits for the task is told at once, though the command itself goes on."""
    task = shell.start("echo out; sleep 60")
    eventually(lambda: shell.read(task.task_id).output)
    ended: list[Task] = []
    with Shell.open(home=home) as other:
        asked = shell if who == "its own host" else other
        waiter = threading.Thread(target=lambda: ended.append(asked.wait(task.task_id, timeout=40)))
        waiter.start()
        eventually(lambda: who == "its own host" or _holds_a_process())
        end_both(task)
        waiter.join(10)
    left = [*process.Table().children.get(task.pid, []), task.pid]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not waiter.is_alive(), "nobody woke the waiter"
    assert [(one.status, one.reason, one.exit_code) for one in ended] == [("failed", "lost", None)]
    assert shell.read(task.task_id).output == "out\n"


def _holds_a_process() -> bool:
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "pidfd" in os.readlink(f"/proc/self/fd/{fd}"):
                return True
        except OSError:
            continue  # closed since it was listed
    return False


def test_a_code_that_the_keeper_recorded_last_is_the_truth(abandoned, home):
    directory = abandoned(boot="00000000-0000-0000-0000-000000000000")
    record.write("code", {"exit": 7, "cpu": 0.1}, directory)
    with Shell.open(home=home) as shell:
        task = shell.show("bash-10571057")
        assert (task.status, task.reason, task.exit_code) == ("failed", "exit", 7)
        assert task.elapsed_ms >= 0
        assert task.ended_at is not None


# --- damage --------------------------------------------------------------------------------


def test_the_index_can_be_lost(home):
    with Shell.open(home=home) as shell:
        done, running = shell.run("echo a; exit 3"), shell.start("sleep 60")
        closed(shell, done)
        before = shell.list()
    forget_index(home)
    with Shell.open(home=home) as shell:
        assert [(task.task_id, task.status) for task in shell.list()] == [(t.task_id, t.status) for t in before]
        assert fields(shell.show(done.task_id)) == fields(before[1])
        assert shell.kill(running.task_id).status == "killed"


@pytest.mark.parametrize("junk", [b"", b"garbage", os.urandom(20_000)], ids=["empty", "short", "random"])
def test_an_index_full_of_garbage_is_made_anew(home, junk):
    with Shell.open(home=home) as shell:
        done, running = shell.run("echo a; exit 3"), shell.start("sleep 60")
        closed(shell, done)
    forget_index(home)
    with open(os.path.join(home, "index.sqlite"), "wb") as file:
        file.write(junk)
    with Shell.open(home=home) as shell:
        assert {task.task_id for task in shell.list()} == {done.task_id, running.task_id}
        assert shell.kill(running.task_id).status == "killed"
        assert shell.run("exit 4").exit_code == 4
        assert len(shell.list()) == 3


def test_an_index_with_damaged_pages_is_made_anew(home):
    with Shell.open(home=home) as shell:
        tasks = [shell.run(f"exit {n}", description="x" * 500) for n in range(12)]
        closed(shell, *tasks)
        shell.list()
    path = os.path.join(home, "index.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with Shell.open(home=home) as shell:
        assert sorted(int(str(task.exit_code)) for task in shell.list()) == list(range(12))
        assert shell.run("exit 40").exit_code == 40
    with Shell.open(home=home) as shell:
        assert len(shell.list()) == 13


def test_an_index_that_is_deleted_while_it_is_open_hides_no_task(home):
    with Shell.open(home=home) as one:
        first = one.run("true")
        forget_index(home)
        with Shell.open(home=home) as two:
            assert [task.task_id for task in two.list()] == [first.task_id]
            second = one.run("true")
            assert {task.task_id for task in two.list()} == {first.task_id, second.task_id}
            assert two.show(second.task_id).status == "completed"


def _make_index_of_another_version(home: str) -> None:
    """As a version with other tables would leave the file: made in place, while others have it open."""
    with sqlite3.connect(os.path.join(home, "index.sqlite")) as db:
        for name in ("tasks", "sums"):
            db.execute(f"DROP TABLE {name}")
            db.execute(f"CREATE TABLE {name} (other TEXT)")
        db.execute("PRAGMA user_version = 99")
    db.close()


def test_a_process_goes_on_when_another_version_makes_the_index_anew(home):
    with Shell.open(home=home) as shell:
        first, running = shell.run("echo a; exit 3"), shell.start("sleep 60")
        _make_index_of_another_version(home)
        second = shell.run("exit 4")
        assert {task.task_id for task in shell.list()} == {first.task_id, running.task_id, second.task_id}
        assert shell.kill(running.task_id).status == "killed"


def test_an_index_of_another_version_is_replaced_and_not_changed(home):
    """A process of that version that has it open finds the file gone and opens the new one."""
    with Shell.open(home=home) as shell:
        first = shell.run("exit 3")
    path = os.path.join(home, "index.sqlite")
    _make_index_of_another_version(home)
    with open(path, "rb") as old, Shell.open(home=home) as shell:
        assert [task.task_id for task in shell.list()] == [first.task_id]
        assert not os.path.samestat(os.fstat(old.fileno()), os.stat(path))


def test_a_task_is_listed_if_the_index_is_replaced_while_it_starts(home, monkeypatch):
    """Before its launch is written, where nothing on disk says what it is, and after."""
    for name in ("write_launch", "add_offspring"):
        with Shell.open(home=home) as shell, Shell.open(home=home, operator=True) as other:
            shell.list()
            real = getattr(task_directory, name)

            def replace_index_first(*args, other=other, real=real):
                forget_index(home)
                other.list()
                real(*args)

            monkeypatch.setattr(task_directory, name, replace_index_first)
            monkeypatch.setenv("OUTLAST_TASK_ID", "bash-00000000")
            task = shell.run("exit 3")
            monkeypatch.undo()
            assert [found.session for found in other.list() if found.task_id == task.task_id] == ["default"]


@pytest.mark.parametrize("name", ["launch.json", "record", "command", "lock"])
@pytest.mark.parametrize("how", ["missing", "empty", "garbage", "directory"])
def test_a_damaged_task_harms_no_other(home, name, how):
    with Shell.open(home=home, operator=True) as shell:
        broken, sound, running = shell.run("true"), shell.run("echo fine; exit 3"), shell.start("sleep 60")
        closed(shell, broken, sound)
    path = os.path.join(directory_of(broken), name)
    os.unlink(path)
    if how == "directory":
        os.mkdir(path)
    elif how != "missing":
        with open(path, "wb") as file:
            file.write(b"" if how == "empty" else os.urandom(4096))
    forget_index(home)
    texts = {("command", "empty"), ("command", "garbage")}  # any text could have been the command
    harmless = texts | {("lock", "empty"), ("lock", "garbage")}  # any regular file can be locked
    with Shell.open(home=home, operator=True) as shell:
        expected = {sound.task_id, running.task_id} | ({broken.task_id} if (name, how) in harmless else set())
        assert {task.task_id for task in shell.list()} == expected
        if (name, how) not in harmless:
            for ask in (shell.show, shell.read, shell.kill, shell.wait, lambda part: list(shell.follow(part))):
                with pytest.raises(DamagedTask, match=broken.task_id):
                    ask(broken.task_id)
        assert shell.read(sound.task_id).output == "fine\n"
        assert shell.run("exit 4").exit_code == 4
        assert shell.kill(running.task_id).status == "killed"
        shell.clean(all_finished=True)
        assert os.listdir(os.path.join(home, "tasks")) == []


def test_a_task_of_a_newer_version_says_so(home):
    with Shell.open(home=home) as shell:
        task = shell.run("true")
        path = os.path.join(directory_of(task), "launch.json")
        values = json.loads(open(path).read())
        with open(path, "w") as file:
            json.dump({**values, "format": 99}, file)
    with Shell.open(home=home) as shell, pytest.raises(DamagedTask, match="newer version"):
        shell.show(task.task_id)
    with Shell.open(home=home, operator=True) as shell:
        assert shell.clean() == shell.clean(all_finished=True) == 0  # nothing is wrong with it
        with pytest.raises(NewerTask):
            shell.read(task.task_id)
        with open(path, "w") as file:
            json.dump(values, file)
        assert shell.show(task.task_id).exit_code == 0
        assert shell.clean(all_finished=True) == 1


def test_a_task_that_somebody_still_has_to_report_is_not_removed(home):
    with Shell.open(home=home) as shell:
        task = shell.run("true")
        closed(shell, task)
        directory = shell.executor.registry.home.task(task.task_id)
        with Hold().take(directory), Hold().take(directory):
            assert shell.clean(all_finished=True) == 0
        assert shell.clean(all_finished=True) == 1
        seen = []
        shell.run("echo x", on_output=lambda piece: seen.append(shell.clean(all_finished=True)))
        assert set(seen) == {0}


def test_many_processes_open_a_new_state_directory_at_once(home):
    program = f"from outlast import Shell; raise SystemExit(Shell.open({home!r}).run('exit 7').exit_code)"
    hosts = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(8)]
    assert [host.wait(60) for host in hosts] == [7] * 8
    with Shell.open(home=home) as shell:
        assert [task.exit_code for task in shell.list()] == [7] * 8


def test_looking_changes_nothing(home):
    with Shell.open(home=home) as shell:
        task = shell.run("echo a; exit 3")
        closed(shell, task)

        def files():
            return {
                entry.name: (entry.stat().st_mtime_ns, entry.stat().st_size) for entry in os.scandir(directory_of(task))
            }

        before = files()
        for _ in range(2):
            shell.show(task.task_id), shell.read(task.task_id), shell.list(), list(shell.follow(task.task_id))
        assert files() == before
