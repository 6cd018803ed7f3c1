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
    global _plan
    with open(_plan_file) as file:
        _plan = json.load(file)


def nursery(plan: str, marks: str) -> None:
    """A nursery as ever, but for the plan."""
    global _plan_file, _marks_file
    _plan_file, _marks_file = plan, marks
    from outlast.supervise import nursery as real

    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    _read_plan()
    sys.setprofile(_at_each_call)
    real.main()


def hosts(home: str, side: str) -> None:
    """Start one task in each of many hosts; each is killed one step later. Prints what each of them said."""
    global _role, _marks_file
    import outlast.aio
    import outlast.executors.local
    import outlast.shell

    _role, _marks_file = "host", os.path.join(side, "marks")
    step = 0
    passed = False
    while not passed:
        step += 1
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            _one_host(home, side, step, writer)
        os.close(writer)
        with open(reader) as file:
            said = file.read()
        passed = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print(json.dumps({"step": step, "task_id": said or None}), flush=True)


def _one_host(home: str, side: str, step: int, writer: int) -> None:
    global _plan, _count
    from outlast.shell import Shell

    _plan, _count = {"host": step}, 0
    sys.setprofile(_at_each_call)
    shell = Shell.open(home=home)
    task = shell.start(command(side, step), description=str(step))
    os.write(writer, task.task_id.encode())
    shell.close()
    sys.setprofile(None)
    os._exit(0)


def command(side: str, number: int) -> str:
    """A command that tells of each time it ran, prints as many lines as its number, and exits with a code of its own."""
    return f"echo {number} >> {side}/ran; seq 1 {number}; exit {code(number)}"


def code(number: int) -> int:
    return 1 + number % 120

