"""`outlast doctor`: what this machine can do, and what is wrong with the state directory."""

from __future__ import annotations

import json
import os
import shutil
import sys
from fcntl import ioctl

from outlast import __version__
from outlast.cli.arguments import Asked, Parser
from outlast.cli.check import policy_in_force
from outlast.cli.common import open_shell, write
from outlast.errors import OutlastError
from outlast.light import fields, frozen
from outlast.settings import default_home
from outlast.types import BUBBLEWRAP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outlast.shell.shell import Shell

GOOD, MINOR, BAD = "ok", "note", "FAIL"
_PIDFD_INFO_BYTES = 80
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO_BYTES << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 8


@frozen
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: str
    detail: str


def doctor_parser() -> Parser:
    """Return the options of `outlast doctor`."""
    made = Parser(
        "doctor",
        "Check what this machine can do. Exits with 1 if something that Outlast needs is missing.",
        "  outlast doctor\n  outlast doctor --json",
    )
    return made.takes_json()


def doctor(asked: Asked) -> int:
    """Do what `outlast doctor` asks; returns the exit code."""
    findings = list(examine())
    if asked.json:
        write(json.dumps([fields(finding) for finding in findings]) + "\n")
    else:
        write("".join(f"{found.verdict:<5} {found.what:<16} {found.detail}\n" for found in findings))
    return 1 if any(found.verdict == BAD for found in findings) else 0


def examine() -> Iterator[Finding]:
    """Everything that is worth knowing, a finding each."""
    yield Finding("outlast", GOOD, f"{__version__} on Python {sys.version.split()[0]}, {os.uname().sysname}")
    for what, look in _CHECKS.items():
        try:
            verdict, detail = look()
        except (OSError, OutlastError) as error:
            verdict, detail = BAD, str(error)
        yield Finding(what, verdict, detail)
    try:
        with open_shell() as shell:
            yield from _state(shell)
    except OutlastError as error:
        yield Finding("state", BAD, error.message)


def _bash() -> tuple[str, str]:
    found = shutil.which("bash")
    return (GOOD, found) if found else (MINOR, "not installed; commands run with /bin/sh")


def _pidfd() -> tuple[str, str]:
    os.close(os.pidfd_open(os.getpid()))
    return GOOD, "processes are signalled by descriptor, never by number alone"


def _exit_codes() -> tuple[str, str]:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
    fd = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    known = has_exit_info(fd)
    os.close(fd)
    if known:
        return GOOD, "known even after both guards of a task were replaced"
    return MINOR, "known if either guard of a task dies; after both died in turn it is lost (Linux 6.15 can tell)"


def _splice() -> tuple[str, str]:
    if not hasattr(os, "splice"):
        return BAD, "this system has no splice; output cannot be moved safely"
    return GOOD, "output moves inside the kernel; a killed supervisor loses none"


def _filters() -> tuple[str, str]:
    try:
        import re2
    except ImportError:
        return BAD, "google-re2 is not installed, so --filter and --exclude do not work; pip install google-re2"
    return GOOD, f"RE2 from {os.path.dirname(re2.__file__)}"


def _processes() -> tuple[str, str]:
    import resource

    with open("/proc/sys/kernel/pid_max") as file:
        most = int(file.read())
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    allowed = most if soft == resource.RLIM_INFINITY else min(most, soft)
    # Each task is a supervisor, a keeper, a shell and what it runs.
    return (GOOD if allowed > 400 else MINOR), f"{allowed} allowed, enough for about {allowed // 4} tasks at once"


def _sandbox() -> tuple[str, str]:
    from outlast.sandbox.choice import KINDS, able

    found = {kind: able(kind) for kind in KINDS}
    said = [f"{kind}: {'' if one.works else 'does not work: '}{one.detail}" for kind, one in found.items()]
    # --sandbox is refused where neither works; nothing else needs it. Landlock alone keeps less.
    return (GOOD if found[BUBBLEWRAP].works else MINOR), "; ".join(said)


def _limits() -> tuple[str, str]:
    from outlast.sandbox import cgroup

    if cgroup.plan_groups({"memory": 1, "processes": 1}):
        return GOOD, "--memory and --processes hold for all of a task together, by control groups"
    return MINOR, "--memory holds for each process alone: no control group can be made here"


_CHECKS: dict[str, Callable[[], tuple[str, str]]] = {
    "shell": _bash,
    "signals": _pidfd,
    "exit codes": _exit_codes,
    "output": _splice,
    "filters": _filters,
    "processes": _processes,
    "sandbox": _sandbox,
    "resources": _limits,
}


def _state(shell: Shell) -> Iterator[Finding]:
    home = default_home(os.environ)
    disk = os.statvfs(home)
    free, floor = disk.f_bavail * disk.f_frsize, shell.settings.free_floor_bytes
    enough = free > min(floor, disk.f_blocks * disk.f_frsize // 20)
    yield Finding("state", GOOD, home)
    consequence = "" if enough else "; output is dropped until there is more"
    yield Finding("free space", GOOD if enough else BAD, f"{free / 1e9:.1f} GB{consequence}")
    yield _policy(shell)
    tasks = shell.list()
    running = sum(task.status == "running" for task in tasks)
    pending = sum(task.status == "pending" for task in tasks)
    waiting = f", {pending} pending" if pending else ""
    yield Finding("tasks", GOOD, f"{len(tasks)} kept, {running} running{waiting}")
    lost = [task.task_id for task in tasks if task.reason == "lost"]
    if lost:
        yield Finding(
            "lost",
            MINOR,
            f"{len(lost)} tasks whose guards were killed, so how they ended is unknown: {', '.join(lost[:5])}",
        )
    for name, offers, problem in shell.executor.examine():
        yield Finding(f"executor {name}", BAD if problem else GOOD, problem.message if problem else offers)
    damaged = list(shell.executor.registry.list_damaged()) if shell.context.operator else []
    if damaged:
        yield Finding("damaged", BAD, f"{', '.join(damaged[:5])}; `outlast clean` removes them")


def _policy(shell: Shell) -> Finding:
    """What is in force for a command that is run here and says nothing about it."""
    name, broken = policy_in_force(shell)
    if broken:
        return Finding("policy", BAD, f"{name}; everything is asked about: {'; '.join(broken)}")
    return Finding("policy", GOOD, name)


def has_exit_info(pidfd: int) -> bool:
    """Return whether this descriptor still tells how its process ended, after its parent reaped it (Linux 6.15)."""
    info = bytearray(_PIDFD_INFO_BYTES)
    info[0] = _PIDFD_INFO_EXIT
    try:
        ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return False
    return bool(info[0] & _PIDFD_INFO_EXIT)
