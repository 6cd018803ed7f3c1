"""Fault 4: the n-th system call fails, n = 1, 2, 3 … until it passes, in the host and in the guards.

`strace` makes a call fail in a process that already runs, so that counting starts with the verb
that is tried. Whatever fails: no hang, no half state, and an error of ours or the right answer.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.errors import AlreadyEnded
from outlast.guard.client import Connection, find_guard
from outlast.linux import process
from outlast.storage import record
from outlast.types import Stdin, Task
from tests.conftest import eventually, processes_of
from tests.faults.support import dice, directory_of, guard, guards_of, python

# Not `close`: what is made to fail is not done, and a descriptor that stays open is no fault that exists.
ERRORS = ("EIO", "ENOSPC", "EMFILE", "ENOMEM", "EINTR")
EVERYWHERE = (
    "openat",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "newfstatat",
    "lseek",
    "fcntl",
    "flock",
    "ioctl",
    "poll",
)
IN_HOSTS = ("mkdir", "getdents64", "pipe2", "sendmsg", "pidfd_open", "pidfd_send_signal", "memfd_create", "socketpair")
IN_GUARDS = (
    *("rename", "unlink", "mknodat", "fallocate", "splice", "dup2", "chdir", "umask", "setsid", "prctl", "statfs"),
    *("clone", "waitid", "pidfd_open", "pidfd_send_signal", "pipe2", "sendto", "mmap", "brk", "memfd_create"),
    *("eventfd2", "signalfd4", "close_range", "getdents64", "readlink", "prlimit64"),
)
CALLS = {"host": EVERYWHERE + IN_HOSTS, "new guards": EVERYWHERE + IN_GUARDS, "guards": EVERYWHERE + IN_GUARDS}
SHORT = 6  # faults tried for each verb in the short form
VERB_PATIENCE_S = 40.0


class Host:
    """A process that does one verb when it is told to, and says how it went.

    It is told by a signal and answers in shared memory: no system call of its own is in the way of the counting.
    """

    CODE = """
import json, mmap, os, signal, traceback
from outlast import OutlastError, Shell
from outlast.light import fields
import outlast.executors.local.end_tasks  # or the kill would load it, and Python's own calls would be counted
from outlast.guard import client
home, task_id, verb, answer, guard = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
memory = mmap.mmap(os.open(answer, os.O_RDWR), 0)
shell = Shell.open(home)
shell.run("true")
shell.show(task_id)
list(shell.follow(task_id, timeout=0))
if guard:
    client.find_guard = lambda: guard
print("prepared", flush=True)
signal.sigwait({signal.SIGUSR1})
said = {}
try:
    if verb == "start":
        said["made"] = shell.start("echo hi; exit 7", env={"TOKEN": "canary"}, stdin="canary").task_id
    elif verb == "kill":
        said["killed"] = fields(shell.kill(task_id, grace=0.3))
    elif verb == "read":
        said["output"] = shell.read(task_id).output
        said["status"] = shell.show(task_id).status
        said["list"] = task_id in [task.task_id for task in shell.list()]
        said["waited"] = shell.wait(task_id, timeout=0.01).status
        said["followed"] = b"".join(piece.data for piece in shell.follow(task_id, timeout=0.01)).decode()
except OutlastError as error:
    said["error"], said["message"] = error.code, error.message
except BaseException as error:
    said["bug"] = traceback.format_exc()
text = json.dumps(said).encode()
memory[1:1 + len(text)] = text
memory[0:1] = b"!"
signal.sigwait({signal.SIGUSR1})
"""

    def __init__(self, home: str, task_id: str, verb: str, answer: Path, guard: str) -> None:
        answer.write_bytes(bytes(1 << 20))
        self._answer = answer
        words = python(self.CODE, home, task_id, verb, str(answer), guard)
        self._host = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.pid = self._host.pid
        assert self._host.stdout is not None
        assert self._host.stdout.readline() == b"prepared\n"

    def go(self) -> None:
        self._host.send_signal(signal.SIGUSR1)

    def said(self) -> dict[str, Any]:
        eventually(self._has_answered, VERB_PATIENCE_S, "an answer: it hangs, or died")
        answer: dict[str, Any] = json.loads(self._answer.read_bytes()[1:].rstrip(b"\0"))
        return answer

    def _has_answered(self) -> bool:
        return self._answer.read_bytes()[:1] == b"!"

    def close(self) -> None:
        self._host.kill()
        self._host.wait()
        assert self._host.stdout is not None
        self._host.stdout.close()


class Fault:
    """The n-th of a call fails, in processes that run already and in what they fork; not in the command itself."""

    def __init__(self, call: str, error: str, n: int, scratch: Path) -> None:
        self.name = f"{call}:{error}:{n}"
        self._log = scratch / "strace.log"
        self._log.unlink(missing_ok=True)
        inject = f"inject={call}:error={error}:when={n}"
        self._words = ["strace", "-f", "-qq", "-b", "execve", "-o", str(self._log), "-e", f"trace={call}", "-e", inject]
        self._strace: subprocess.Popen[bytes] | None = None

    def __str__(self) -> str:
        return self.name

    def strike(self, *pids: int) -> None:
        """Processes that run already."""
        attach = [word for pid in pids for word in ("-p", str(pid))]
        self._strace = tracer = subprocess.Popen([*self._words, *attach], stderr=subprocess.PIPE)
        eventually(lambda: tracer.poll() is not None or all(map(_is_traced, pids)))
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            pytest.skip(f"strace cannot be used here: {tracer.stderr.read().decode().strip()}")

    def new_guard(self, scratch: Path) -> str:
        """A program that is a guard in which the call fails. strace ends with the guards that it starts."""
        path = scratch / "faulty-guard"
        path.write_text(f'#!/bin/sh\n{shlex.join(self._words)} {find_guard()} "$@" >/dev/null 2>&1 &\nexit 0\n')
        path.chmod(0o700)
        return str(path)

    def end(self) -> bool:
        """Let everything go on without faults; whether the call was ever made."""
        if self._strace is not None:
            self._strace.send_signal(signal.SIGTERM)
            try:
                self._strace.wait(5)
            except subprocess.TimeoutExpired:
                # It sometimes waits for ever for a process that was about to execute another. Without it they go on.
                self._strace.kill()
                self._strace.wait(30)
            assert self._strace.stderr is not None
            self._strace.stderr.close()
        return self._log.exists() and "INJECTED" in self._log.read_text(errors="replace")


def _is_traced(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
    return "TracerPid:\t0\n" not in status


class Laboratory:
    """One state directory in which one fault after the other is tried."""

    def __init__(self, home: str, scratch: Path) -> None:
        self.home, self._scratch = home, scratch
        self.shell = Shell.open(home=home)

    def close(self) -> None:
        self.shell.close()

    def task(self) -> Task:
        """A task that runs, printed something, and ends with 7 when it is told to."""
        task = self.shell.start("echo out; read -r x; echo in; exit 7", stdin=Stdin(open=True))
        eventually(lambda: self.shell.read(task.task_id).output == "out\n")
        return task

    def try_one(self, verb: str, where: str, call: str, error: str, n: int) -> bool:
        """Whether the n-th call was reached."""
        task = self.task()
        fault = Fault(call, error, n, self._scratch)
        new_guard = fault.new_guard(self._scratch) if where == "new guards" else ""
        host = Host(self.home, task.task_id, verb, self._scratch / "answer", new_guard)
        if where == "host":
            fault.strike(host.pid)
        elif where == "guards":
            fault.strike(guard(task, "supervisor").pid, guard(task, "keeper").pid)
        try:
            host.go()
            if verb == "finish":
                self.shell.send(task.task_id, "go\n")
                self.shell.wait(task.task_id, 2)
            said = host.said()
            if made := said.get("made"):
                # Not by way of the index: a lock that the host could not give back is held until it ends.
                self.shell.wait(made, 2)
        finally:
            reached = fault.end()
            host.close()
        CHECKS[verb](self, task, said, str(fault))
        self.put_away(task, said, str(fault))
        return reached

    def put_away(self, task: Task, said: dict[str, Any], fault: str) -> None:
        """Nothing is left: no process, no half task, no secret."""
        shell = self.shell
        known = {one.task_id for one in shell.list()}
        assert known == set(os.listdir(os.path.join(self.home, "tasks"))), fault
        for one in shell.list():
            end(shell, one)
        eventually(lambda: all(one.closed for one in shell.list()), what=fault)
        eventually(lambda: not _guards_in(self.home), what=f"{fault}: {processes_of(self.home)}")
        for left in Path(self.home, "staging").rglob("*"):
            assert left.name not in ("environ", "input"), f"{fault} left {left}"
        for one in shell.list():
            assert not {"environ", "input"} & set(os.listdir(directory_of(one))), fault
        shutil.rmtree(os.path.join(self.home, "staging"))
        os.mkdir(os.path.join(self.home, "staging"), 0o700)
        shell.clean(all_finished=True)


def end(shell: Shell, task: Task) -> None:
    """End a task, unless it ended by itself or by what was tried before."""
    try:
        shell.kill(task.task_id, grace=0.2)
    except AlreadyEnded:
        pass


def _guards_in(home: str) -> list[int]:
    # In the staging directory are shells that a host has prepared.
    return [pid for pid, what in processes_of(home).items() if "/staging/" not in what]


def sound(said: dict[str, Any], fault: str) -> None:
    assert "bug" not in said, f"{fault}: {said['bug']}"
    if "error" in said:
        assert said["message"].endswith("."), fault


def check_start(lab: Laboratory, task: Task, said: dict[str, Any], fault: str) -> None:
    sound(said, fault)
    others = [one for one in lab.shell.list() if one.task_id != task.task_id and one.command != "true"]
    if "made" not in said:
        assert not others, f"{fault}: refused ({said['message']}), and yet there is a task"
        return
    (made,) = others
    ended = lab.shell.wait(made.task_id, timeout=VERB_PATIENCE_S)
    outcome = (ended.reason, ended.exit_code)
    assert outcome in (("exit", 7), ("spawn-error", None), ("lost", None)), f"{fault}: {ended}"
    check_output(lab, made, "" if ended.reason == "spawn-error" else "hi\n", fault)
    check_neighbour(lab, task, fault)


def check_neighbour(lab: Laboratory, task: Task, fault: str) -> None:
    """A task that nothing was done to is as it was."""
    lab.shell.send(task.task_id, "go\n")
    ended = lab.shell.wait(task.task_id, timeout=VERB_PATIENCE_S)
    assert (ended.exit_code, lab.shell.read(task.task_id).output) == (7, "out\nin\n"), fault


def check_kill(lab: Laboratory, task: Task, said: dict[str, Any], fault: str) -> None:
    sound(said, fault)
    if "killed" not in said:
        # Refused: it runs and can be ended, or the fault came after the deed.
        end(lab.shell, task)
    elif said["killed"]["survivors"]:
        return
    ended = lab.shell.wait(task.task_id, timeout=VERB_PATIENCE_S)
    assert ended.status == "killed" or (ended.reason, ended.exit_code) == ("lost", None), f"{fault}: {ended}"
    eventually(lambda: not process.is_alive(guards_of(task).command), what=fault)


def check_read(lab: Laboratory, task: Task, said: dict[str, Any], fault: str) -> None:
    sound(said, fault)
    right = {"output": "out\n", "status": "running", "list": True, "waited": "running", "followed": "out\n"}
    found = {name: value for name, value in said.items() if name in right}
    assert found.items() <= right.items(), f"{fault}: {found}"
    assert found == right or "error" in said, fault
    check_neighbour(lab, task, fault)


def check_finish(lab: Laboratory, task: Task, said: dict[str, Any], fault: str) -> None:
    ended = lab.shell.wait(task.task_id, timeout=VERB_PATIENCE_S)
    assert (ended.reason, ended.exit_code) in (("exit", 7), ("lost", None)), f"{fault}: {ended}"
    eventually(lambda: lab.shell.show(task.task_id).closed, what=fault)
    check_output(lab, task, "out\nin\n", fault)


def check_output(lab: Laboratory, task: Task, expected: str, fault: str) -> None:
    """All of it, unless both guards died at once, or what could not be written was dropped and counted."""
    read = lab.shell.read(task.task_id)
    if "outcome" in record.read(directory_of(task)) and not read.dropped_bytes:
        assert read.output == expected, fault
    elif not read.dropped_bytes:
        assert expected.startswith(read.output), fault


CHECKS: dict[str, Callable[[Laboratory, Task, dict[str, Any], str], None]] = {
    "start": check_start,
    "kill": check_kill,
    "read": check_read,
    "finish": check_finish,
}
TRIED = [
    ("start", "host"),
    ("start", "new guards"),
    ("finish", "guards"),
    ("kill", "host"),
    ("kill", "guards"),
    ("read", "host"),
]


@pytest.fixture
def laboratory(home: str, tmp_path: Path) -> Iterator[Laboratory]:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    made = Laboratory(home, tmp_path)
    yield made
    for one in made.shell.list():
        end(made.shell, one)
    made.close()


@pytest.mark.parametrize(("verb", "where"), TRIED)
def test_some_system_call_fails(laboratory, verb, where):
    chance = dice()
    for _ in range(SHORT):
        call, error, n = chance.choice(CALLS[where]), chance.choice(ERRORS), int(chance.triangular(1, 12, 1))
        laboratory.try_one(verb, where, call, error, n)


# What the seed 3538923744 drew from an older list of calls; one of these once made each start hang.
ONCE_HUNG = [
    ("read", "ENOMEM", 5),
    ("getdents64", "EIO", 1),
    ("openat", "ENOMEM", 2),
    ("pidfd_send_signal", "EMFILE", 7),
    ("sendmsg", "ENOMEM", 2),
    ("write", "EINTR", 1),
]


def test_a_start_does_not_hang_when_a_call_of_the_host_fails(laboratory):
    for call, error, n in ONCE_HUNG:
        laboratory.try_one("start", "host", call, error, n)


def test_a_caller_that_cannot_poll_still_learns_that_its_task_began(shell, home, monkeypatch):
    read, failed = Connection._read, list[list[str]]()

    def fail_once(self, timeout):
        if not failed:
            failed.append(eventually(lambda: os.listdir(f"{home}/tasks")))  # too late to take the task back
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return read(self, timeout)

    monkeypatch.setattr(Connection, "_read", fail_once)
    task = shell.start("exit 7")
    assert failed == [[task.task_id]]
    assert shell.wait(task.task_id, timeout=30).exit_code == 7


@pytest.mark.soak
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("verb", "where"), TRIED)
def test_every_system_call_fails_once(laboratory, verb, where, error):
    for call in CALLS[where]:
        n = 1
        while laboratory.try_one(verb, where, call, error, n):
            n += 1
