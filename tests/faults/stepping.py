"""Kills a process of ours at its n-th call into the kernel, n = 1, 2, 3 … until it gets through.

A profile function sees every call of a C function before it is made; those of the modules
that talk to the kernel are the steps. It stays with a process over a fork, and each fork has
a role of its own, so a plan can name whom to kill and when:

    n          the nursery
    k          the first keeper, forked by the nursery
    s          its supervisor
    k.2        the supervisor that this keeper forks when the first one died
    s.1        what the first supervisor forks: a keeper when its own died, or its ender

Standard library only, because it also runs inside a nursery (`python -I -S`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys

STEPS = {"posix", "fcntl", "select", "socket", "_socket", "signal", "_signal", "io", "_io", "sqlite3", "_sqlite3"}
NO_STEPS = {"fspath", "waitstatus_to_exitcode", "getpid", "fileno", "getbuffer", "text_encoding", "register"}


class Life:
    """What a process knows of itself: its role, how many it forked, the steps it made, and the plan."""

    def __init__(self, role: str, marks: str, plan_file: str = "") -> None:
        self.role, self._marks, self._plan_file = role, marks, plan_file
        self.plan: dict[str, int] = {}
        self._forks = self._count = 0

    def begin(self) -> None:
        """From now on every step counts."""
        sys.setprofile(self._at_each_call)

    def _at_each_call(self, _frame: object, event: str, function: object) -> None:
        if event != "c_call" or self.role not in self.plan or not _is_step(function):
            return
        self._count += 1
        if self._count == self.plan[self.role]:
            self._mark(f"{self.role} {self._count} {getattr(function, '__name__', function)}")
            os.kill(os.getpid(), signal.SIGKILL)

    def _mark(self, text: str) -> None:
        fd = os.open(self._marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, text.encode() + b"\n")
        os.close(fd)

    def go_with_forks(self) -> None:
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)

    def _before_fork(self) -> None:
        self._forks += 1

    def _in_child(self) -> None:
        first = {"n": "k", "k": "s" if self._forks == 1 else ""}.get(self.role)
        self.role = first or f"{self.role}.{self._forks}"
        self._forks = self._count = 0
        if self.role == "k":
            self.read_plan()

    def read_plan(self) -> None:
        self.plan = {}  # what follows is no step
        with open(self._plan_file) as file:
            plan = json.load(file)
        self.plan = plan


def _is_step(function: object) -> bool:
    where = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return where in STEPS and getattr(function, "__name__", "") not in NO_STEPS


# --- a nursery ---------------------------------------------------------------------------


def nursery(plan: str, marks: str) -> None:
    """A nursery as ever, but for the plan."""
    import outlast.supervise.supervisor  # noqa: F401 # now: to import is no step
    from outlast.supervise import nursery as real

    life = Life("n", marks, plan)
    life.go_with_forks()
    life.read_plan()
    life.begin()
    real.main()


# --- hosts -------------------------------------------------------------------------------


def hosts(home: str, side: str) -> None:
    """Start one task in each of many hosts, each in a new state directory and killed one step later; tell of it."""
    from outlast import process

    process.become_subreaper()  # whatever a host leaves behind is ours, and its end can be waited for
    passed = False
    step = 0
    while not passed:
        step += 1
        said, passed = _said_by_host(home, side, step)
        while _reap_one():
            pass
        print(json.dumps({"step": step, "task_id": said, "tasks": _found(home)}), flush=True)
        shutil.rmtree(home, ignore_errors=True)


def _said_by_host(home: str, side: str, step: int) -> tuple[str, bool]:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _one_host(home, side, step, writer)
    os.close(writer)
    with open(reader) as file:
        said = file.read()
    return said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _one_host(home: str, side: str, step: int, writer: int) -> None:
    from outlast.shell import Shell

    life = Life("host", os.path.join(side, "marks"))
    life.plan = {"host": step}
    life.begin()
    shell = Shell.open(home=home)
    task = shell.start(command(side, step))
    os.write(writer, task.task_id.encode())
    shell.close()
    sys.setprofile(None)
    os._exit(0)


def _reap_one() -> bool:
    try:
        return bool(os.wait())
    except ChildProcessError:
        return False


def _found(home: str) -> list[dict[str, object]]:
    from outlast.shell import Shell

    if not os.path.isdir(home):
        return []
    found: list[dict[str, object]] = []
    with Shell.open(home=home) as shell:
        for task in shell.list():
            with open(task.output_file) as file:
                how = {"reason": task.reason, "exit_code": task.exit_code, "closed": task.closed}
                found.append({"task_id": task.task_id, "output": file.read(), **how})
    return found


# --- commands ----------------------------------------------------------------------------

_AFTERWARDS = "(while kill -0 $$ 2>&-; do sleep 0.002; done; echo late)"
KINDS = {
    "plain": "{tell}; seq 1 {number}; exit {code}",
    "with a child that prints later": "{tell}; " + _AFTERWARDS + " & seq 1 {number}; exit {code}",
    "with a silent child": "{tell}; " + _AFTERWARDS + " > /dev/null 2>&1 & seq 1 {number}; exit {code}",
    "that reaches its limit": "{tell}; seq 1 {number}; sleep 100",
}


def command(side: str, number: int, kind: str = "plain") -> str:
    """A command that tells of each time it ran, prints as many lines as its number, and has an exit code of its own."""
    return KINDS[kind].format(tell=f"echo {number} >> {side}/ran", number=number, code=code(number))


def code(number: int) -> int:
    return 1 + number % 120
