"""What a guard on another machine is told: the launch, how its shell restores a session, whose task it is."""

from __future__ import annotations

import hashlib
import os
import resource

from outlast.environment import TASK_ID
from outlast.executors.local import shell_argv
from outlast.guard.client import limit_items
from outlast.linux.files import read_file
from outlast.types import NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.guard.client import Item
    from outlast.storage.registry import Registry
    from outlast.types import Launch

# The numbers of the descriptors from which a shell there restores its session: see far.c.
_BEFORE_FD, _START_FD = 100, 101


def name_home(registry: Registry) -> str:
    """Return a name for the state directory here that no other one has, of any machine and user."""
    try:
        machine = read_file("/etc/machine-id", 64).decode().strip()
    except OSError:
        machine = os.uname().nodename
    return hashlib.sha256(f"{machine}:{os.getuid()}:{registry.home.path}".encode()).hexdigest()[:16]


def read_session_script() -> tuple[str, bytes]:
    """Return what a shell restores its session with, and the name that it gets there: another version has another."""
    with open(shell_argv.SESSION_SCRIPT, "rb") as file:
        script = file.read()
    return f"session-{hashlib.sha256(script).hexdigest()[:16]}.bash", script


def describe(task_id: str, launch: Launch, published: str, session_script: str) -> list[Item]:
    """Describe a launch for a guard elsewhere, but for the directory that it begins in: see docs/guard.md."""
    items: list[Item] = [("publish", published), *_describe_program(launch, published, session_script)]
    env = {**launch.env, TASK_ID: task_id, "PWD": launch.cwd}
    items += [("env", f"{name}={value}") for name, value in env.items()]
    items += [("mark", f"{TASK_ID}={task_id}"), ("cwd", launch.cwd), ("umask", f"{launch.umask:o}")]
    items.append(("split", int(launch.split)))
    if launch.stdin.text is not None:
        items += [("stdin", "text"), ("stdin-text", launch.stdin.text)]
    elif launch.stdin.open:
        items.append(("stdin", "open"))
    if launch.tty is not None:
        items.append(("tty", "{}x{}".format(*launch.tty)))
    for name, (soft, hard) in launch.rlimits.items():
        items.append(("rlimit", f"{getattr(resource, name)} {soft} {hard}"))
    return [*items, *limit_items(launch)]


def _describe_program(launch: Launch, published: str, session_script: str) -> Iterator[Item]:
    if os.path.basename(launch.shell) == "bash":
        built = shell_argv.build_bash(published, launch.state)
        words = [session_script if word == shell_argv.SESSION_SCRIPT else word for word in built]
        yield from (("program", launch.shell), ("program-waits", 1))
        for number, source in ((0, "stdin"), (1, "stdout"), (2, "stderr"), (shell_argv.GO_FD, "go")):
            yield "fd", f"{number} {source}"
        if launch.state:
            yield "fd", f"{shell_argv.BEFORE_FD} inherit {_BEFORE_FD}"
            yield "fd", f"{shell_argv.START_FD} inherit {_START_FD}"
    elif launch.shell == NO_SHELL:
        from shlex import split

        words = ["sh", "-c", 'exec "$@"', "sh", *split(launch.command)]
        yield "program", "/bin/sh"
    else:
        words = shell_argv.build_other_shell(launch.shell, published)
        yield "program", launch.shell
    yield from (("arg", word) for word in words)
