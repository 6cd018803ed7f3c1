"""Ending a task: the whole tree, with a receipt; what cannot be ended says why."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time

import pytest

from outlast import Shell
from outlast.errors import AlreadyEnded, AmbiguousTask, BadInput, SystemRefused, UnknownTask
from outlast.executors.local import end_one
from outlast.linux import process
from tests.conftest import eventually, processes_of
from tests.guard_files import write_guards

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

PYTHON = sys.executable


def alive(pid: int) -> bool:
    stat = process.stat_of(pid)
    return stat is not None and not stat.dead


def pids_in(path, count: int) -> list[int]:
    """The pids that a command wrote into a file, once all are there."""
    eventually(lambda: len(_numbers(path)) == count)
    return _numbers(path)


def _numbers(path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except FileNotFoundError:
        return []


def test_a_kill_ends_the_task_and_tells_who_asked(shell):
    task = shell.start("echo before; sleep 60")
    eventually(lambda: shell.read(task.task_id).output)
    receipt = shell.kill(task.task_id)
    assert (receipt.status, receipt.reason, receipt.signal) == ("killed", "killed", signal.SIGTERM)
    assert receipt.exit_code is None
    assert f"process {os.getpid()}" in receipt.ended_by
    assert task.pid in receipt.ended
    assert receipt.survivors == ()
    assert receipt.closed
    assert not any(alive(pid) for pid in receipt.ended)
    assert shell.read(task.task_id).output == "before\n"


def test_the_receipt_names_every_process(shell, tmp_path):
    task = shell.start(
        f"for i in 1 2 3; do sleep 60 & echo $! >> {tmp_path}/pids; done; echo $$ >> {tmp_path}/pids; wait"
    )
    pids = pids_in(tmp_path / "pids", 4)
    receipt = shell.kill(task.task_id)
    assert sorted(receipt.ended) == sorted(pids)


def test_what_left_the_session_is_ended_too(shell, tmp_path):
    pids = tmp_path / "pids"
    task = shell.start(
        f"setsid bash -c 'echo $$ >> {pids}; exec sleep 61' & (setsid sleep 62 & echo $! >> {pids}) & sleep 63"
    )
    found = pids_in(pids, 2)
    receipt = shell.kill(task.task_id)
    assert set(found) <= set(receipt.ended)
    assert not any(alive(pid) for pid in found)
    assert receipt.survivors == ()


def test_a_daemon_that_forked_twice_is_ended_too(shell, tmp_path):
    daemon = (
        "import os, sys, time\n"
        "if os.fork(): sys.exit()\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.closerange(0, 100)\n"
        "os.environ.clear()\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    result = shell.run(f"{PYTHON} - <<'E'\n{daemon}E")
    (pid,) = pids_in(tmp_path / "pids", 1)
    assert result.status == "completed"
    assert shell.show(result.task_id).children == (pid,)
    receipt = shell.kill(result.task_id)
    assert receipt.ended == (pid,)
    assert not alive(pid)
    # The command had ended by itself, and that stays true.
    assert (receipt.status, receipt.exit_code) == ("completed", 0)


def test_what_ignores_the_request_is_ended_after_the_grace(shell, tmp_path):
    ready = tmp_path / "pids"
    task = shell.start(f"trap '' TERM INT HUP; echo $$ >> {ready}; while :; do sleep 0.05; done")
    pids_in(ready, 1)
    began = time.monotonic()
    receipt = shell.kill(task.task_id, grace=0.4)
    assert 0.4 <= time.monotonic() - began < 10
    assert (receipt.status, receipt.signal) == ("killed", signal.SIGKILL)
    assert not alive(task.pid)


def test_what_obeys_is_not_waited_for_longer_than_it_takes(shell, tmp_path):
    ready = tmp_path / "pids"
    task = shell.start(f"trap 'echo cleaned up; exit 7' TERM; echo $$ >> {ready}; while :; do sleep 0.05; done")
    pids_in(ready, 1)
    began = time.monotonic()
    receipt = shell.kill(task.task_id, grace=60)
    assert time.monotonic() - began < 20
    assert (receipt.status, receipt.reason, receipt.exit_code) == ("killed", "killed", 7)
    assert shell.read(task.task_id).output.endswith("cleaned up\n")


def test_no_grace_at_all(shell, tmp_path):
    ready = tmp_path / "pids"
    task = shell.start(f"trap '' TERM; echo $$ >> {ready}; while :; do sleep 60; done")
    pids_in(ready, 1)
    began = time.monotonic()
    assert shell.kill(task.task_id, grace=0).status == "killed"
    assert time.monotonic() - began < 5


def test_a_stopped_tree_is_continued_so_that_it_can_end(shell, tmp_path):
    ready = tmp_path / "pids"
    task = shell.start(f"trap 'echo ended well; exit 0' TERM; sleep 60 & echo $! $$ >> {ready}; wait")
    pids = pids_in(ready, 2)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all((stat := process.stat_of(pid)) and stat.state == "T" for pid in pids))
    assert shell.show(task.task_id).status == "running"
    began = time.monotonic()
    receipt = shell.kill(task.task_id, grace=30)
    assert time.monotonic() - began < 10
    assert sorted(receipt.ended) == sorted(pids)
    assert shell.read(task.task_id).output == "ended well\n"


def test_a_finished_task_cannot_be_killed(shell):
    result = shell.run("exit 3")
    with pytest.raises(AlreadyEnded, match=r"has ended already \(exit code 3\)"):
        shell.kill(result.task_id)
    assert shell.show(result.task_id).exit_code == 3


def test_a_killed_task_cannot_be_killed_again(shell):
    task = shell.start("sleep 60")
    shell.kill(task.task_id)
    with pytest.raises(AlreadyEnded, match="killed"):
        shell.kill(task.task_id)


def test_the_children_that_a_finished_task_left_can_be_ended(shell):
    result = shell.run("sleep 60 & sleep 61 & echo $!; exit 5")
    assert len(result.children) == 2
    receipt = shell.kill(result.task_id)
    assert receipt.ended == result.children
    assert (receipt.status, receipt.reason, receipt.exit_code) == ("failed", "exit", 5)
    assert receipt.children == ()
    with pytest.raises(AlreadyEnded):
        shell.kill(result.task_id)


def test_several_tasks_end_at_once(shell):
    tasks = [shell.start("trap '' TERM; while :; do sleep 60; done") for _ in range(5)]
    began = time.monotonic()
    receipts = shell.kill_all([task.task_id for task in tasks], grace=0.5)
    assert time.monotonic() - began < 5 * 0.5 + 5
    assert [receipt.task_id for receipt in receipts] == [task.task_id for task in tasks]
    assert all(receipt.status == "killed" and receipt.pid in receipt.ended for receipt in receipts)


def test_naming_a_task_twice_ends_it_once(shell):
    task = shell.start("sleep 60")
    assert len(shell.kill_all([task.task_id, task.task_id[:10]])) == 1


def test_nothing_is_ended_if_one_of_them_is_unknown(shell):
    task = shell.start("sleep 60")
    with pytest.raises(UnknownTask):
        shell.kill_all([task.task_id, "bash-nothing"])
    done = shell.run("true")
    with pytest.raises(AlreadyEnded):
        shell.kill_all([task.task_id, done.task_id])
    assert shell.show(task.task_id).status == "running"
    assert alive(task.pid)


@pytest.mark.parametrize("grace", [-1, float("nan"), "2"])
def test_a_grace_that_makes_no_sense_is_refused(shell, grace):
    task = shell.start("sleep 60")
    with pytest.raises(BadInput, match="grace"):
        shell.kill(task.task_id, grace=grace)
    assert shell.show(task.task_id).status == "running"


def test_a_part_of_an_id_is_enough_and_an_ambiguous_one_lists_the_candidates(shell):
    task, other = shell.start("sleep 60"), shell.start("sleep 61")
    with pytest.raises(AmbiguousTask) as caught:
        shell.kill("bash-")
    assert task.task_id in caught.value.message
    assert other.task_id in caught.value.message
    assert shell.kill(task.task_id.removeprefix("bash-")).task_id == task.task_id
    assert shell.kill(" " + other.task_id.upper() + "\n").task_id == other.task_id


def test_a_mistyped_id_is_answered_with_near_ones(shell):
    task = shell.start("sleep 60")
    wrong = task.task_id[:-1] + "x"
    with pytest.raises(UnknownTask) as caught:
        shell.kill(wrong)
    assert wrong in caught.value.message
    assert task.task_id in caught.value.message


@pytest.mark.parametrize("part", ["", " ", ".", "..", "/", "../tasks", "*", "%", "bash-'"])
def test_what_is_no_id_finds_nothing(home, part):
    with Shell.open(home=home, operator=True) as shell:
        shell.run("true")
        with pytest.raises(UnknownTask):
            shell.kill(part)


def test_a_task_can_end_itself_from_inside(shell, home):
    program = f"from outlast import Shell; Shell.open({home!r}, prepare=False).kill('$OUTLAST_TASK_ID', grace=0.2)"
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    task = shell.start(f'sleep 60 & {PYTHON} -c "{program}"; echo never', env=env)
    began = time.monotonic()
    ended = shell.wait(task.task_id, timeout=60)
    assert (ended.status, ended.reason) == ("killed", "killed")
    eventually(lambda: shell.show(task.task_id).closed)
    assert time.monotonic() - began < 4, "it waited for its own end"
    assert "never" not in shell.read(task.task_id).output
    assert not [one for one in processes_of(home).values() if "/staging/" not in one]


@pytest.fixture
def nested(shell, home):
    """A task that starts another one and then does something; both."""

    def start(then: str):
        program = f"from outlast import Shell; print(Shell.open({home!r}).start('sleep 60').task_id)"
        env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        outer = shell.start(f'{PYTHON} -c "{program}"; {then}', env=env)
        inner = eventually(lambda: shell.read(outer.task_id).output).strip()
        return outer, shell.show(inner)

    return start


def test_a_task_started_inside_another_outlasts_its_kill(shell, nested):
    outer, inner = nested("sleep 61")
    receipt = shell.kill(outer.task_id)
    assert receipt.survivors == ()
    assert inner.pid not in receipt.ended
    assert shell.show(inner.task_id).status == "running"
    ended = shell.kill(inner.task_id)
    assert inner.pid in ended.ended
    assert (ended.status, ended.reason) == ("killed", "killed")


def test_a_task_started_inside_another_outlasts_its_end(shell, nested):
    outer, inner = nested("exit 3")
    eventually(lambda: shell.show(outer.task_id).closed, what="the other task is no part of it")
    assert (shell.show(outer.task_id).exit_code, shell.show(outer.task_id).children) == (3, ())
    assert shell.show(inner.task_id).status == "running"
    shell.kill(inner.task_id)


def test_to_be_named_like_a_guard_saves_nobody(shell, tmp_path):
    pids, done = tmp_path / "pids", shell.run("true")
    rename = "import time; open('/proc/self/comm', 'w').write('outlast-sup'); time.sleep(60)"
    there = os.path.dirname(done.output_file)  # as a guard of that task would be
    task = shell.start(f'{PYTHON} -c "{rename}" & echo $! >> {pids}; wait', cwd=there)
    (pid,) = pids_in(pids, 1)
    eventually(lambda: (stat := process.stat_of(pid)) and stat.name == "outlast-sup")
    assert pid in shell.kill(task.task_id).ended
    assert not alive(pid)


def test_a_stranger_with_the_same_pid_is_left_alone(shell):
    """The record names a pid; the process that has it now is another one."""
    from outlast.light import replace
    from outlast.storage import record

    done = shell.run("true")
    eventually(lambda: shell.show(done.task_id).closed)
    stranger = shell.start("sleep 60")
    directory = os.path.dirname(done.output_file)
    guards = record.guards_of(directory)
    write_guards(replace(guards, command=replace(guards.command, pid=stranger.pid)), directory)
    assert not shell.executor.interrupt(done.task_id)
    with pytest.raises(AlreadyEnded):
        shell.kill(done.task_id)
    assert alive(stranger.pid)
    assert stranger.pid in shell.kill(stranger.task_id).ended


@pytest.mark.parametrize("gone", [1, 5, 40, 100, 150])
@pytest.mark.parametrize("grace", ["0", "0.2"])
def test_a_killer_that_is_killed_leaves_no_stopped_process_behind(cli, home, tmp_path, gone, grace):
    """kill -9 of `outlast kill` at the moment when it has stopped or ended so many processes of the tree."""
    with Shell.open(home=home) as shell:
        task = shell.start(
            f"trap '' TERM; for i in {{1..150}}; do sleep 60 & echo $! >> {tmp_path}/pids; done; "
            f"while :; do sleep 60; done"
        )
        pids = pids_in(tmp_path / "pids", 150)
        killer = cli.start("kill", "--grace", grace, task.task_id)
        while killer.poll() is None and sum(not is_running(pid) for pid in pids) < gone:
            pass
        killer.kill()
        killer.communicate()
        stopped = [pid for pid in pids if (stat := process.stat_of(pid)) and stat.state in "Tt"]
        assert stopped == []
        try:
            assert shell.kill(task.task_id, grace=0).survivors == ()
        except AlreadyEnded:
            pass  # the killer had finished


def is_running(pid: int) -> bool:
    stat = process.stat_of(pid)
    return stat is not None and stat.state not in "TtZX"


def test_a_process_that_lost_term_gets_it_again(shell):
    """As a child of bash does that is between fork and exec: it still has a handler that does nothing."""
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    task = shell.start(f'exec {PYTHON} -c "{program}"')
    eventually(lambda: shell.read(task.task_id).output)
    assert shell.kill(task.task_id, grace=60).signal == signal.SIGTERM  # not KILL, after the whole grace


def test_a_process_that_catches_term_gets_it_once(shell):
    task = shell.start("trap 'echo caught' TERM; echo up; while :; do sleep 0.01; done")
    eventually(lambda: shell.read(task.task_id).output)
    shell.kill(task.task_id, grace=1)
    assert shell.read(task.task_id).output.count("caught") == 1


def test_a_pending_task_that_is_just_being_started_is_waited_for_with_a_bound(shell, monkeypatch):
    monkeypatch.setattr(end_one, "_START_WAIT_S", 0.1)
    first = shell.start("exec sleep 60", name="first")
    pending = shell.start("echo never", after=[first.task_id])
    fd = os.open(os.path.join(os.path.dirname(pending.output_file), "lock"), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)  # as a process that starts it, and was stopped
    try:
        with pytest.raises(SystemRefused, match="does not go on; try again"):
            shell.kill(pending.task_id)
    finally:
        os.close(fd)
    assert shell.kill(pending.task_id).status == "killed"
