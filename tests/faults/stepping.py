"""Kills a process of ours at its n-th call into the kernel, n = 1, 2, 3 … until it gets through.

A profile function sees every call of a C function before it is made; those of the modules
that talk to the kernel are the steps. It stays with a process over a fork, and each fork has
a role of its own, so a plan can name whom to kill and when:

    n          the nursery
    s          the first supervisor, forked by the nursery
    s.1        its keeper             s.1.1   the command before it is executed
    s.1.2      the supervisor that this keeper forks when the first one died
    s.2        the keeper that the first supervisor forks when its own died; or its ender

Standard library only, because it also runs inside a nursery (`python -I -S`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys

_STEPS = frozenset("posix fcntl select socket _socket signal _signal io _io sqlite3 _sqlite3".split())
_NO_STEPS = frozenset("fspath waitstatus_to_exitcode getpid fileno getbuffer text_encoding register".split())

_role = "n"
_forks = 0
_count = 0
_plan: dict[str, int] = {}
_plan_file = _marks_file = ""


def _is_step(function: object) -> bool:
    owner = getattr(function, "__self__", None)
    where = getattr(function, "__module__", None) or type(owner).__module__
    return where in _STEPS and getattr(function, "__name__", "") not in _NO_STEPS


def _at_each_call(frame: object, event: str, function: object) -> None:
    global _count
    if event != "c_call" or _role not in _plan or not _is_step(function):
        return
    _count += 1
    if _count == _plan[_role]:
        _mark(f"{_role} {_count} {getattr(function, '__name__', function)}")
        os.kill(os.getpid(), signal.SIGKILL)


def _mark(text: str) -> None:
    fd = os.open(_marks_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, text.encode() + b"\n")
    os.close(fd)


def _before_fork() -> None:
    global _forks
    _forks += 1


def _in_child() -> None:
    global _role, _forks, _count
    _role = "s" if _role == "n" else f"{_role}.{_forks}"
    _forks = _count = 0
    if _role == "s":
        _read_plan()


def _read_plan() -> None:
    global _plan, _count
    _plan = {}  # what follows is no step
    with open(_plan_file) as file:
        plan = json.load(file)
    _plan, _count = plan, 0


def nursery(plan: str, marks: str) -> None:
    """A nursery as ever, but for the plan."""
    global _plan_file, _marks_file
    _plan_file, _marks_file = plan, marks
    import outlast.supervise.supervisor  # noqa: F401 # now: to import is no step
    from outlast.supervise import nursery as real

    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    _read_plan()
    sys.setprofile(_at_each_call)
    real.main()


def hosts(home: str, side: str) -> None:
    """Start one task in each of many hosts, each in a new state directory and killed one step later. Prints what came."""
    global _role, _marks_file
    from outlast import process

    process.become_subreaper()  # whatever a host leaves behind is ours, and its end can be waited for
    _role, _marks_file = "host", os.path.join(side, "marks")
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
    global _plan, _count
    from outlast.shell import Shell

    _plan, _count = {"host": step}, 0
    sys.setprofile(_at_each_call)
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
    with Shell.open(home=home) as shell:
        found = []
        for task in shell.list():
            with open(task.output_file) as file:
                how = {"reason": task.reason, "exit_code": task.exit_code, "closed": task.closed}
                found.append({"task_id": task.task_id, "output": file.read(), **how})
        return found


_AFTERWARDS = "(while kill -0 $$ 2>&-; do sleep 0.002; done; echo late)"
_KINDS = {
    "plain": "{tell}; seq 1 {number}; exit {code}",
    "with a child that prints later": "{tell}; " + _AFTERWARDS + " & seq 1 {number}; exit {code}",
    "with a silent child": "{tell}; " + _AFTERWARDS + " > /dev/null 2>&1 & seq 1 {number}; exit {code}",
    "that reaches its limit": "{tell}; seq 1 {number}; sleep 100",
}


def command(side: str, number: int, kind: str = "plain") -> str:
    """A command that tells of each time it ran, prints as many lines as its number, and has an exit code of its own."""
    return _KINDS[kind].format(tell=f"echo {number} >> {side}/ran", number=number, code=code(number))


def code(number: int) -> int:
    return 1 + number % 120
