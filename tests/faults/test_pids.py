"""Fault 9: the pid of a process of ours becomes a stranger's. No signal ever goes to it, and it is never claimed.

The kernel hands out the pid that we want inside a pid namespace of our own, through
`ns_last_pid`. Each scenario runs as the first process of one; there the stranger is.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import AlreadyEnded, OutlastError
from outlast.light import replace
from outlast.linux import process, process_tree
from outlast.storage import record
from outlast.types import Identity, Stdin, Task
from tests.conftest import Cli, eventually
from tests.faults.support import (
    closed,
    dice,
    directory_of,
    end,
    end_both,
    guards_of,
    inside,
    namespace,
    pids_can_be_chosen,
    replace_guard,
)
from tests.guard_files import write_guards

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

TELLING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


class Stranger:
    """A process that has the pid of one of ours that is gone, leads a session, and tells of every signal."""

    def __init__(self, before: Identity) -> None:
        self._told, teller = os.pipe()
        os.set_blocking(self._told, False)
        pid = _fork_as(before, lambda: _tell_of_signals(teller))
        os.close(teller)
        eventually(lambda: self._heard().endswith(b"\0"), what="the stranger to be there")
        self.who = process.identity(pid)
        assert self.who.tick != before.tick

    def _heard(self) -> bytes:
        try:
            return os.read(self._told, 100)
        except BlockingIOError:
            return b""

    def leave(self) -> None:
        """Check that nobody touched it, and end it."""
        state = process.stat_of(self.who.pid).state  # type: ignore[union-attr]
        assert state in "SRD", f"somebody stopped or ended the stranger: {state}"
        heard = self._heard().replace(b"\0", b"")  # of a fork that got another pid and was killed
        assert not heard, f"somebody sent the stranger {[signal.Signals(number).name for number in heard]}"
        os.kill(self.who.pid, signal.SIGKILL)
        os.waitpid(self.who.pid, 0)
        os.close(self._told)


def _fork_as(before: Identity, life: Callable[[], None]) -> int:
    """Fork a process that has the pid of `before`, which must be gone, and another start tick."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(before.pid - 1))
        pid = os.fork()
        if not pid:
            life()
            os._exit(1)
        if pid == before.pid and process.identity(pid).tick != before.tick:
            return pid
        os.kill(pid, signal.SIGKILL)  # somebody else was quicker, or we were too quick
        os.waitpid(pid, 0)
        _reap()
    raise AssertionError(f"the pid {before.pid} is not to be had; {process.stat_of(before.pid)}")


def _tell_of_signals(teller: int) -> None:
    os.setsid()
    for number in TELLING:
        signal.signal(number, lambda got, _: os.write(teller, bytes([got])) and None)
    os.write(teller, b"\0")
    while True:
        signal.pause()


def _reap() -> None:
    """We are init here."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def is_gone(who: Identity) -> bool:
    _reap()
    return process.stat_of(who.pid) is None


def refused(shell: Shell, task: Task) -> bool:
    try:
        shell.kill(task.task_id)
    except AlreadyEnded:
        return True
    return False


# --- the scenarios -----------------------------------------------------------------------


def of_a_finished_task(shell: Shell) -> None:
    task = closed(shell, shell.start("exit 3"))
    command = guards_of(task).command
    eventually(lambda: is_gone(command))
    stranger = Stranger(command)
    assert refused(shell, task)
    assert not shell.executor.interrupt(task.task_id)
    assert (shell.show(task.task_id).exit_code, shell.show(task.task_id).children) == (3, ())
    stranger.leave()


def of_a_command_whose_child_goes_on(shell: Shell, *orders: str) -> None:
    task = shell.start("setsid sleep 300 & read x; exit 0", stdin=Stdin(open=True))
    command = guards_of(task).command
    eventually(lambda: [one for one in process.children_of(command.pid) if _name(one) == "sleep"])
    (child,) = process.children_of(command.pid)
    for name in orders:
        replace_guard(task, name)
        _reap()
    shell.send(task.task_id, "\n")
    shell.wait(task.task_id)
    eventually(lambda: is_gone(command))
    stranger = Stranger(command)
    assert shell.show(task.task_id).children == (child,)
    assert not shell.executor.interrupt(task.task_id)
    receipt = shell.kill(task.task_id)
    assert (receipt.ended, receipt.survivors) == ((child,), ()), receipt
    stranger.leave()


def _name(pid: int) -> str:
    stat = process.stat_of(pid)
    return stat.name if stat else ""


def of_a_supervisor_that_is_still_recorded(shell: Shell) -> None:
    task = shell.start("cat; sleep 300", stdin=Stdin(open=True))
    replace_guard(task, "supervisor")  # the first one's pid is the session of its successors, and stays reserved
    before = guards_of(task)
    replace_guard(task, "supervisor")
    eventually(lambda: is_gone(before.supervisor))
    write_guards(before, directory_of(task))  # as it was a moment ago
    stranger = Stranger(before.supervisor)
    assert shell.show(task.task_id).status == "running"
    shell.send(task.task_id, "text\n", eof=True)
    receipt = shell.kill(task.task_id)
    assert stranger.who.pid not in receipt.ended + receipt.survivors
    assert receipt.closed
    stranger.leave()


def of_both_guards_and_the_command(shell: Shell) -> None:
    task = shell.start("exec sleep 300")
    before = guards_of(task)
    assert before.keeper
    end_both(task)
    end(before.command)
    ours = (before.supervisor, before.keeper, before.command)
    eventually(lambda: all(map(is_gone, ours)))
    strangers = [Stranger(who) for who in ours]
    assert refused(shell, task)
    assert not shell.executor.interrupt(task.task_id)
    lost = shell.show(task.task_id)
    assert (lost.reason, lost.exit_code, lost.children) == ("lost", None, ())
    assert shell.wait(task.task_id, timeout=1).reason == "lost"
    for stranger in strangers:
        stranger.leave()


def of_both_guards_while_the_command_goes_on(shell: Shell) -> None:
    task = shell.start("exec sleep 300")
    before = guards_of(task)
    assert before.keeper
    end_both(task)
    ours = (before.supervisor, before.keeper)
    eventually(lambda: all(map(is_gone, ours)))
    strangers = [Stranger(who) for who in ours]
    assert shell.show(task.task_id).reason == "lost"
    receipt = shell.kill(task.task_id)
    assert before.command.pid in receipt.ended
    for stranger in strangers:
        assert stranger.who.pid not in receipt.ended + receipt.survivors
        stranger.leave()


SCENARIOS: dict[str, Callable[[Shell], None]] = {
    "a finished task": of_a_finished_task,
    "a command whose child goes on": of_a_command_whose_child_goes_on,
    "a command whose guards were replaced and whose child goes on": lambda shell: of_a_command_whose_child_goes_on(
        shell, "supervisor", "keeper", "supervisor"
    ),
    "a supervisor that is still recorded": of_a_supervisor_that_is_still_recorded,
    "both guards and the command": of_both_guards_and_the_command,
    "both guards while the command goes on": of_both_guards_while_the_command_goes_on,
}


def play(home: str, name: str) -> None:
    """One scenario; called inside a namespace."""
    with Shell.open(home=home, prepare=False) as shell:
        SCENARIOS[name](shell)


def play_many(home: str, seed: str, times: str) -> None:
    chance = random.Random(int(seed))
    with Shell.open(home=home, prepare=False) as shell:
        for _ in range(int(times)):
            SCENARIOS[chance.choice(list(SCENARIOS))](shell)
            shell.clean(all_finished=True)


@pytest.fixture
def wild(home: str) -> str:
    """A state directory for use inside a namespace where pids can be chosen."""
    pids_can_be_chosen()
    return home


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_stranger_with_the_pid_of(wild: str, name: str) -> None:
    inside("tests.faults.test_pids.play", wild, name)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_strangers(wild: str) -> None:
    inside("tests.faults.test_pids.play_many", wild, str(dice().randrange(1 << 32)), "1000", seconds=3500)


# --- another boot ------------------------------------------------------------------------


def test_a_process_of_another_boot_is_nobody(shell: Shell) -> None:
    """Same pid, same start tick, another boot: after a reboot both can be anybody's."""
    running = shell.start("exec sleep 300")
    command = guards_of(running).command
    other = replace(command, boot="00000000-0000-0000-0000-000000000000")
    assert process.is_alive(command)
    assert not process.is_alive(other)
    assert process.open_pidfd(other) is None
    assert not process.send(other, signal.SIGKILL)
    assert not process.send(other, signal.SIGKILL, to_group=True)
    assert process.is_alive(command)


def test_a_task_of_another_boot_is_lost_and_claims_nobody(shell: Shell) -> None:
    running = shell.start("exec sleep 300")
    task = shell.start("exec sleep 300")
    command = guards_of(task).command
    end_both(task)
    end(command)
    old = {
        name: replace(who, boot="00000000-0000-0000-0000-000000000000")
        for name in ("supervisor", "keeper", "command")
        if (who := getattr(guards_of(running), name))
    }
    guards = replace(guards_of(task), **old)
    write_guards(guards, directory_of(task))
    lost = shell.show(task.task_id)
    assert (lost.status, lost.reason, lost.exit_code, lost.children) == ("failed", "lost", None, ())
    assert process_tree.look(guards, record.is_foreign_guard, process.Table).members == {}
    with pytest.raises(OutlastError):
        shell.kill(task.task_id)
    assert shell.show(running.task_id).status == "running"


# --- another container -------------------------------------------------------------------


def test_a_task_of_another_container_is_seen_and_not_killed(cli: Cli, shell: Shell) -> None:
    """Two containers share a state directory. The pids of one are strangers, or nobody, in the other."""
    task = shell.start("exec sleep 300")
    words = [*namespace(), *cli.command]
    listed = subprocess.run([*words, "ps"], env=cli.env, capture_output=True, text=True, timeout=60, check=True)
    assert task.task_id in listed.stdout
    for grace in ("0", "1"):
        every = [*words, "kill", "--grace", grace, task.task_id]
        killed = subprocess.run(every, env=cli.env, capture_output=True, text=True, timeout=60)
        assert killed.returncode not in (0, None)
        assert "another container" in killed.stderr
        assert "Traceback" not in killed.stderr
    found = shell.show(task.task_id)
    assert (found.status, found.ended_by) == ("running", None)
    assert shell.kill(task.task_id, grace=0).ended_by is not None


def test_a_process_of_another_pid_namespace_is_nobody(shell: Shell) -> None:
    """Same pid, same start tick, same boot, another namespace: eight of eight such collisions killed a stranger."""
    command = guards_of(shell.start("exec sleep 300")).command
    boot, _, own = command.boot.partition(":")
    other = replace(command, boot=f"{boot}:{int(own) + 1}")
    assert process.is_alive(command)
    assert not process.is_alive(other)
    assert not process.send(other, signal.SIGKILL)
    assert not process.send(other, signal.SIGKILL, to_group=True)
    assert process.is_alive(replace(command, boot=boot))  # recorded by a version that knew no namespaces
