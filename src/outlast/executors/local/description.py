"""From a launch to the description that `outlast-guard` reads: docs/guard.md says what each key means."""

from __future__ import annotations

import os
import resource
import sys

from outlast.executors.local import shell_argv
from outlast.guard.client import encode_launch, limit_items
from outlast.linux.files import find_program, open_regular
from outlast.storage import sessions
from outlast.types import AGENT, BRIDGE, BUBBLEWRAP, LANDLOCK, NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outlast.guard.client import Item, Refused, Value
    from outlast.types import Launch

_CLEAR_AND_GO_ON = 'rm -rf -- "$1"; [ -z "$(ls -A "$2")" ] || { shift 2; exec "$@"; }'
_ON_END = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_end.py")


class Description:
    """One launch description, and the descriptors that belong to it. Close it when the guard has been started."""

    def __init__(self, directory: str, published: str, launch: Launch) -> None:
        self.inherited: list[int] = []
        self._own: list[int] = []
        self._items: list[Item] = [("directory", directory)]
        if directory != published:
            self.add("publish", published)
        self._directory, self._published, self._launch = directory, published, launch

    def __enter__(self) -> Description:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._own:
            os.close(fd)

    def encode(self) -> bytes:
        return encode_launch(self._items)

    def add(self, key: str, value: Value) -> None:
        self._items.append((key, value))

    def extend(self, items: Iterable[Item]) -> None:
        self._items.extend(items)

    def keep(self, fd: int) -> int:
        """Let the guard inherit a descriptor that is closed here afterwards; returns it."""
        self._own.append(fd)
        self.inherited.append(fd)
        return fd

    def give(self, key: str, fd: int) -> None:
        """Give the guard a descriptor of the caller's."""
        self.add(key, fd)
        self.inherited.append(fd)

    def hold(self, slot: int) -> None:
        """Let the guard hold a slot of the queue while the command runs; -1: it needs none."""
        if slot >= 0:
            self.give("hold", slot)

    def add_shell(self) -> None:
        """Add the program to run. A bash waits for its command, so it can be started before there is one."""
        launch = self._launch
        if launch.sandbox is not None:
            from outlast.executors.local import confinement  # most commands run without

            add = confinement.add_landlock if launch.sandbox.kind == LANDLOCK else confinement.add_bubblewrap
            add(self, self._directory, self._published, launch)
        elif os.path.basename(launch.shell) == "bash":
            self.add_words(launch.shell, shell_argv.build_bash(self._published, launch.state))
            self.add("program-waits", 1)
            self.add_fds()
        elif launch.shell == NO_SHELL:
            from shlex import split

            words = split(launch.command)
            self.add_words(_find_program(words[0], launch), words)
        else:
            is_runner = launch.shell in (AGENT, BRIDGE)
            build = shell_argv.build_runner if is_runner else shell_argv.build_other_shell
            words = build(launch.shell, self._published)
            self.add_words(words[0], words)

    def add_words(self, program: str, words: list[str]) -> None:
        self.add("program", program)
        self.extend(("arg", word) for word in words)

    def add_fds(self) -> None:
        for number, source in ((0, "stdin"), (1, "stdout"), (2, "stderr"), (shell_argv.GO_FD, "go")):
            self.add("fd", f"{number} {source}")
        self.add_state_fds()

    def add_state_fds(self) -> None:
        """What the shell restores its session from; its directory has another name when the task is published."""
        if not self._launch.state:
            return
        before, start = (sessions.BEFORE, os.O_RDONLY), (sessions.START, os.O_RDWR)
        for (name, flags), number in ((before, shell_argv.BEFORE_FD), (start, shell_argv.START_FD)):
            fd = self.keep(open_regular(f"{self._directory}/{name}", flags))
            self.add("fd", f"{number} inherit {fd}")

    def add_context(self) -> None:
        """Add variables, directory, input, limits: all that is known before the command is."""
        launch, task_id = self._launch, os.path.basename(self._published)
        env = {**launch.env, "OUTLAST_TASK_ID": task_id, "PWD": launch.cwd}
        if launch.sandbox is not None and launch.sandbox.kind == BUBBLEWRAP:
            env = {}  # one of them (LD_PRELOAD) could make bubblewrap itself run a program of the command's choice
        self.extend(("env", f"{name}={value}") for name, value in env.items())
        self.add("mark", f"OUTLAST_TASK_ID={task_id}")
        self.add("cwd", launch.cwd)
        self.add("umask", f"{launch.umask:o}")
        self.add("split", int(launch.split))
        if launch.tty is not None:
            self.add("tty", "{}x{}".format(*launch.tty))
        if launch.stdin.text is not None:
            self.extend([("stdin", "text"), ("stdin-text", launch.stdin.text)])
        elif launch.stdin.open:
            self.add("stdin", "open")
        elif launch.stdin.file is not None:
            self.add("stdin", f"file {os.path.join(launch.cwd, launch.stdin.file)}")
        if launch.nice is not None:
            self.add("nice", launch.nice)
        for name, (soft, hard) in launch.rlimits.items():
            if (which := getattr(resource, name, None)) is not None:
                # RLIM_INFINITY is -1 in Python, and unsigned in the kernel.
                self.add("rlimit", f"{which} {soft % 2**64} {hard % 2**64}")
        home = os.path.dirname(os.path.dirname(self._published))
        self.add("bells", f"{home}/outbox")
        self._add_on_end(home)

    def _add_on_end(self, home: str) -> None:
        """What the guard executes at the end: advance the queue; remove a sandbox's temporary directory before."""
        entries = f"{home}/queue/entries"
        words = [sys.executable, "-I", "-S", _ON_END, home]
        is_agent = self._launch.shell in (AGENT, BRIDGE)
        if is_agent:
            words.append(self._published)  # if its time limit ends it, so do the tasks that it started
        temporary = ""
        if self._launch.sandbox is not None:
            from outlast.executors.local.confinement import temporary_directory

            temporary = temporary_directory(self._launch)
        if temporary:
            words = ["/bin/sh", "-c", _CLEAR_AND_GO_ON, "sh", temporary, "/" if is_agent else entries, *words]
        elif not is_agent:
            self.add("on-end-if", entries)
        self.extend(("on-end", word) for word in words)


def describe(directory: str, published: str, launch: Launch, prepare: bool = False) -> Description:
    """Describe a task that begins at once or, to `prepare` it, a bash that waits until it is told its command."""
    if launch.sandbox is not None:
        from outlast.executors.local.confinement import furnish, make_room

        if prepare:
            make_room(directory)
        launch = furnish(directory, published, launch)
    made = Description(directory, published, launch)
    try:
        made.add_shell()
        made.add_context()
        if launch.groups:
            from outlast.executors.local.confinement import add_groups

            add_groups(made, published, launch)
        made.extend([("prepare", 1)] if prepare else begin_items(launch))
    except BaseException:
        made.__exit__()
        raise
    return made


def begin_items(launch: Launch) -> Iterator[Item]:
    """Yield what a shell is told with its command."""
    if launch.sandbox is not None:
        yield "go", shell_argv.go_line(launch.keeps)  # a sandbox does not show whether there is a file to dump into
    yield from limit_items(launch)


def explain_refusal(launch: Launch, refused: Refused) -> str:
    return f"the sandbox cannot be made: {refused.reason}" if launch.sandbox else refused.reason


def _find_program(name: str, launch: Launch) -> str:
    """The absolute path of a program; if there is none, one that cannot be executed, so that the guard says why."""
    found = find_program(name, launch.env.get("PATH"), launch.cwd)
    return os.path.join(launch.cwd, found or name) if "/" in name or found else os.path.join("/", name)
