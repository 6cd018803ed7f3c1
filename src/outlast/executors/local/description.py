"""From a launch to the description that `outlast-guard` reads: docs/guard.md says what each key means."""

from __future__ import annotations

import os
import resource
import sys

from outlast.executors.local import shell_argv
from outlast.executors.local.description_items import Description
from outlast.guard.client import limit_items
from outlast.linux.files import find_program
from outlast.types import AGENT, BRIDGE, BUBBLEWRAP, LANDLOCK, NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.guard.client import Item, Refused
    from outlast.types import Launch

_CLEAR_AND_GO_ON = 'rm -rf -- "$1"; [ -z "$(ls -A "$2")" ] || { shift 2; exec "$@"; }'
_ON_END = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_end.py")


def describe(directory: str, published: str, launch: Launch, prepare: bool = False) -> Description:
    """Describe a task that begins at once or, to `prepare` it, a bash that waits until it is told its command."""
    if launch.sandbox is not None:
        from outlast.executors.local.confinement import furnish, make_room

        if prepare:
            make_room(directory)
        launch = furnish(directory, published, launch)
    made = Description(directory, published, launch)
    try:
        _add_shell(made, directory, published, launch)
        _add_context(made, published, launch)
        if launch.groups:
            from outlast.executors.local.confinement import add_groups

            add_groups(made, published, launch)
        made.extend([("prepare", 1)] if prepare else begin_items(launch))
    except BaseException:
        made.__exit__()
        raise
    return made


def _add_shell(made: Description, directory: str, published: str, launch: Launch) -> None:
    """Add the program to run. A bash waits for its command, so it can be started before there is one."""
    if launch.sandbox is not None:
        from outlast.executors.local import confinement  # most commands run without

        add = confinement.add_landlock if launch.sandbox.kind == LANDLOCK else confinement.add_bubblewrap
        add(made, directory, published, launch)
    elif os.path.basename(launch.shell) == "bash":
        made.add_words(launch.shell, shell_argv.build_bash(published, launch.state))
        made.add("program-waits", 1)
        made.add_fds()
    elif launch.shell == NO_SHELL:
        from shlex import split

        words = split(launch.command)
        made.add_words(_find_program(words[0], launch), words)
    else:
        is_runner = launch.shell in (AGENT, BRIDGE)
        build = shell_argv.build_runner if is_runner else shell_argv.build_other_shell
        words = build(launch.shell, published)
        made.add_words(words[0], words)


def _add_context(made: Description, published: str, launch: Launch) -> None:
    """Add variables, directory, input, limits: all that is known before the command is."""
    task_id = os.path.basename(published)
    env = {**launch.env, "OUTLAST_TASK_ID": task_id, "PWD": launch.cwd}
    if launch.sandbox is not None and launch.sandbox.kind == BUBBLEWRAP:
        env = {}  # one of them (LD_PRELOAD) could make bubblewrap itself run a program of the command's choice
    made.extend(("env", f"{name}={value}") for name, value in env.items())
    made.add("mark", f"OUTLAST_TASK_ID={task_id}")
    made.add("cwd", launch.cwd)
    made.add("umask", f"{launch.umask:o}")
    made.add("split", int(launch.split))
    if launch.tty is not None:
        made.add("tty", "{}x{}".format(*launch.tty))
    if launch.stdin.text is not None:
        made.extend([("stdin", "text"), ("stdin-text", launch.stdin.text)])
    elif launch.stdin.open:
        made.add("stdin", "open")
    elif launch.stdin.file is not None:
        made.add("stdin", f"file {os.path.join(launch.cwd, launch.stdin.file)}")
    if launch.nice is not None:
        made.add("nice", launch.nice)
    for name, (soft, hard) in launch.rlimits.items():
        if (which := getattr(resource, name, None)) is not None:
            # RLIM_INFINITY is -1 in Python, and unsigned in the kernel.
            made.add("rlimit", f"{which} {soft % 2**64} {hard % 2**64}")
    home = os.path.dirname(os.path.dirname(published))
    made.add("bells", f"{home}/outbox")
    _add_on_end(made, published, launch, home)


def _add_on_end(made: Description, published: str, launch: Launch, home: str) -> None:
    """What the guard executes at the end: advance the queue; remove a sandbox's temporary directory before."""
    entries = f"{home}/queue/entries"
    words = [sys.executable, "-I", "-S", _ON_END, home]
    is_agent = launch.shell in (AGENT, BRIDGE)
    if is_agent:
        words.append(published)  # if its time limit ends it, so do the tasks that it started
    temporary = ""
    if launch.sandbox is not None:
        from outlast.executors.local.confinement import temporary_directory

        temporary = temporary_directory(launch)
    if temporary:
        words = ["/bin/sh", "-c", _CLEAR_AND_GO_ON, "sh", temporary, "/" if is_agent else entries, *words]
    elif not is_agent:
        made.add("on-end-if", entries)
    made.extend(("on-end", word) for word in words)


def begin_items(launch: Launch) -> Iterator[Item]:
    """Yield what a shell is told with its command."""
    if launch.sandbox is not None:
        yield "go", shell_argv.go_line(launch.keeps)  # a sandbox does not show whether there is a file to dump into
    yield from limit_items(launch)


def explain_refusal(launch: Launch, refused: Refused) -> str:
    """Return why the guard could not start a task, for an error message."""
    return f"the sandbox cannot be made: {refused.reason}" if launch.sandbox else refused.reason


def _find_program(name: str, launch: Launch) -> str:
    """The absolute path of a program; if there is none, one that cannot be executed, so that the guard says why."""
    found = find_program(name, launch.env.get("PATH"), launch.cwd)
    return os.path.join(launch.cwd, found or name) if "/" in name or found else os.path.join("/", name)
