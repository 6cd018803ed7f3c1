"""What the fault tests share: who guards a task, killing one of them, and a pid namespace to be wild in."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import outlast
from outlast import Shell
from outlast.cli.doctor import has_exit_info
from outlast.linux import process
from outlast.storage import record, watch
from outlast.types import Guards, Identity, Task
from tests.conftest import eventually, processes_of

SOURCE = str(Path(outlast.__file__).parent.parent)
ROOT = str(Path(__file__).parent.parent.parent)


def dice() -> random.Random:
    """Chance with the seed that the head of the run prints: `OUTLAST_SEED=… pytest …` repeats it."""
    return random.Random(int(os.environ["OUTLAST_SEED"]))


def directory_of(task: Task) -> str:
    return os.path.dirname(task.output_file)


def guards_of(task: Task) -> Guards:
    return record.guards_of(directory_of(task))


def guard(task: Task, name: str) -> Identity:
    """The supervisor or the keeper of a task, as recorded."""
    found = getattr(guards_of(task), name)
    assert isinstance(found, Identity)
    return found


def end(who: Identity) -> None:
    """kill -9 of one process of ours."""
    assert process.send(who, signal.SIGKILL), f"{who} is gone already"


def replace_guard(task: Task, name: str) -> None:
    """kill -9 of the supervisor or the keeper; returns when another one watches the task."""
    before = guard(task, name)
    end(before)
    eventually(lambda: guard(task, name) != before and process.is_alive(guard(task, name)), what=f"a new {name}")


def stop_guards(task: Task, *names: str) -> None:
    """SIGSTOP of guards. If the keeper is among them, all of them stay stopped until somebody lets them go on."""
    # The keeper first: one that runs lets a stopped supervisor go on at once.
    for who in (guard(task, name) for name in sorted(names)):
        assert process.send(who, signal.SIGSTOP)
        if "keeper" in names:
            eventually(lambda: state_of(who) == "T")  # noqa: B023


def end_both(task: Task) -> None:
    """kill -9 of supervisor and keeper before either can notice."""
    both = [guard(task, "supervisor"), guard(task, "keeper")]
    stop_guards(task, "supervisor", "keeper")
    for who in both:
        end(who)
    eventually(lambda: not any(map(process.is_alive, both)))


def closed(shell: Shell, task: Task) -> Task:
    """The task when nothing of it is left."""
    eventually(lambda: shell.executor.has_reached(task.task_id, "closed"), what=f"the end of {task.task_id}")
    return shell.show(task.task_id)


def left_in_staging(home: str) -> list[str]:
    """Directories of tasks that did not begin. Shells that wait for a command are not among them."""
    watched = {what.rpartition(" in ")[2] for what in processes_of(home).values()}
    paths = [entry.path for entry in os.scandir(os.path.join(home, "staging"))]
    return [path for path in paths if path not in watched]


def output(task: Task) -> bytes:
    return Path(task.output_file).read_bytes()


def numbers(count: int, start: int = 1) -> bytes:
    """What `seq` prints."""
    return b"".join(b"%d\n" % n for n in range(start, count + 1))


def state_of(who: Identity) -> str:
    """The letter that the kernel has for a process; empty if it is gone."""
    stat = process.stat_of(who.pid)
    return stat.state if stat and stat.tick == who.tick else ""


def is_waiting(pid: int) -> bool:
    """Whether a process sleeps and watches a task: by its bell, a pidfd, or a copy of its connection to a guard."""
    try:
        held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2]
    except OSError:
        return False  # one of them was closed meanwhile
    stat = process.stat_of(pid)
    connections = [one for one in held if one.startswith("socket:")]
    bells = [one for one in held if os.path.basename(one) in watch.NAMES]
    waits = "anon_inode:[pidfd]" in held or bells or len(connections) > len(set(connections))
    return bool(waits) and stat is not None and stat.state == "S"


def codes_outlive_their_parents() -> bool:
    """Whether this kernel tells how a process ended after init reaped it (since Linux 6.15)."""
    pid = os.fork()
    if not pid:
        os._exit(7)
    fd = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    try:
        return has_exit_info(fd)
    finally:
        os.close(fd)


def namespace() -> list[str]:
    """The words that run a command as the first process of a pid namespace, which ends with it."""
    words = ["unshare", "-pf" if os.geteuid() == 0 else "-Urpf", "--mount-proc", "--kill-child"]
    if why := _refused(*words, "true"):
        pytest.skip(f"no pid namespace can be made here: {why}")
    return words


def pids_can_be_chosen() -> None:
    """Skip the test where the next pid of a namespace cannot be set."""
    if why := _refused(*namespace(), "sh", "-c", "echo 100 > /proc/sys/kernel/ns_last_pid"):
        pytest.skip(f"the next pid cannot be chosen here: {why}")


@cache
def _refused(*words: str) -> str:
    """Why these words do not work here; empty if they do."""
    try:
        tried = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return tried.stderr.strip() or f"it ended with {tried.returncode}" if tried.returncode else ""


def inside(call: str, *arguments: str, seconds: float = 100) -> str:
    """Run `module.function` with these arguments as the first process of a pid namespace; what it printed."""
    module, _, function = call.rpartition(".")
    code = f"from {module} import {function}; {function}(*sys.argv[1:])"
    ran = subprocess.run(
        [*namespace(), *python(code, *arguments)], capture_output=True, text=True, cwd=ROOT, timeout=seconds
    )
    assert ran.returncode == 0, f"{call}{arguments} failed:\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def python(code: str, *arguments: str) -> list[str]:
    """The words that run `code` with the package and the tests in reach."""
    return [sys.executable, "-c", f"import sys; sys.path[:0] = {[SOURCE, ROOT]!r}\n{code}", *arguments]
