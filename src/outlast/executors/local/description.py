"""From a launch to the description that `outlast-guard` reads: docs/guard.md says what each key means."""

from __future__ import annotations

import os
import resource
import sys

from outlast.executors.local import shell_argv
from outlast.guard.protocol import encode_launch
from outlast.linux.files import find_program, open_regular
from outlast.storage import output, sessions
from outlast.types import AGENT, BRIDGE, BUBBLEWRAP, LANDLOCK, NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.guard.protocol import Item
    from outlast.types import Launch, Surroundings, Terms

_ENDLESS_S = 1e9  # longer than any clock counts
_CLEAR_AND_GO_ON = 'rm -rf -- "$1"; [ -z "$(ls -A "$2")" ] || { shift 2; exec "$@"; }'
_ON_END = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_end.py")


class Description:
    """One launch description, and the descriptors that belong to it. Close it when the guard has been started."""

    def __init__(self, directory: str, published: str, around: Surroundings) -> None:
        self.inherited: list[int] = []
        self._own: list[int] = []
        self._items: list[Item] = [("directory", directory)]
        if directory != published:
            self._items.append(("publish", published))
        self._directory, self._published, self._around = directory, published, around

    def __enter__(self) -> Description:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._own:
            os.close(fd)

    def encode(self) -> bytes:
        return encode_launch(self._items)

    def add(self, key: str, value: str | bytes | float) -> None:
        self._items.append((key, value))

    def keep(self, fd: int) -> int:
        """Let the guard inherit a descriptor that is closed here afterwards; returns it."""
        self._own.append(fd)
        self.inherited.append(fd)
        return fd

    def hold(self, fd: int) -> None:
        """Let the guard hold a lock of the caller's while the command runs."""
        self.add("hold", fd)
        self.inherited.append(fd)

    def take_lock(self, fd: int) -> None:
        """Give the guard the lock of a task that was pending."""
        self.add("lock", fd)
        self.inherited.append(fd)

    def add_shell(self, command: str | None) -> None:
        """The program to run. Without a `command` it must be a bash, which waits for it."""
        around = self._around
        if around.sandbox is not None:
            from outlast.executors.local import confinement  # most commands run without

            add = confinement.add_landlock if around.sandbox.kind == LANDLOCK else confinement.add_bubblewrap
            add(self, self._directory, self._published, around)
            return
        if os.path.basename(around.shell) == "bash":
            self.add_words(around.shell, shell_argv.build_bash(self._published, around.state))
            self.add("program-waits", 1)
            self.add_fds()
            return
        assert command is not None
        if around.shell in (AGENT, BRIDGE):
            words = shell_argv.build_runner(around.shell, self._published)
        elif around.shell == NO_SHELL:
            words = _split(command)
            self.add_words(_find_program(words[0], around), words)
            return
        else:
            words = shell_argv.build_other_shell(around.shell, self._published)
        self.add_words(words[0], words)

    def add_words(self, program: str, words: list[str]) -> None:
        self.add("program", program)
        for word in words:
            self.add("arg", word)

    def add_fds(self) -> None:
        for number, source in ((0, "stdin"), (1, "stdout"), (2, "stderr"), (shell_argv.GO_FD, "go")):
            self.add("fd", f"{number} {source}")
        self.add_state_fds()

    def add_state_fds(self) -> None:
        """What the shell restores its session from; its directory has another name when the task is published."""
        if self._around.state:
            self._add_file(sessions.BEFORE, os.O_RDONLY, shell_argv.BEFORE_FD)
            self._add_file(sessions.START, os.O_RDWR, shell_argv.START_FD)

    def _add_file(self, name: str, flags: int, number: int) -> None:
        fd = self.keep(open_regular(f"{self._directory}/{name}", flags))
        self.add("fd", f"{number} inherit {fd}")

    def add_surroundings(self) -> None:
        """Variables, directory, input, limits: all that is known before the command is."""
        around = self._around
        task_id = os.path.basename(self._published)
        env = {**around.env, "OUTLAST_TASK_ID": task_id, "PWD": around.cwd}
        if around.sandbox is not None and around.sandbox.kind == BUBBLEWRAP:
            env = {}  # one of them (LD_PRELOAD) could make bubblewrap itself run a program of the command's choice
        for name, value in env.items():
            self.add("env", f"{name}={value}")
        self.add("mark", f"OUTLAST_TASK_ID={task_id}")
        self.add("cwd", around.cwd)
        self.add("umask", f"{around.umask:o}")
        self.add("split", int(around.split))
        for item in _input(around):
            self.add(*item)
        if around.nice is not None:
            self.add("nice", around.nice)
        for name, (soft, hard) in around.rlimits.items():
            if (which := getattr(resource, name, None)) is not None:
                self.add("rlimit", f"{which} {_unsigned(soft)} {_unsigned(hard)}")
        home = os.path.dirname(os.path.dirname(self._published))
        self.add("bells", f"{home}/outbox")
        self._add_on_end(home)

    def _add_on_end(self, home: str) -> None:
        """What the guard executes at the end: advance the queue; remove a sandbox's temporary directory before."""
        entries = f"{home}/queue/entries"
        words = [sys.executable, "-I", "-S", _ON_END, home]
        is_agent = self._around.shell in (AGENT, BRIDGE)
        if is_agent:
            words.append(self._published)  # if its time limit ends it, so do the tasks that it started
        temporary = ""
        if self._around.sandbox is not None:
            from outlast.executors.local.confinement import temporary_directory

            temporary = temporary_directory(self._around)
        if temporary:
            words = ["/bin/sh", "-c", _CLEAR_AND_GO_ON, "sh", temporary, "/" if is_agent else entries, *words]
        elif not is_agent:
            self.add("on-end-if", entries)
        for word in words:
            self.add("on-end", word)


def terms_items(terms: Terms, around: Surroundings) -> Iterator[Item]:
    """What is decided at the last moment: how long it may run, how much of its output is kept."""
    if around.sandbox is not None:
        yield "go", shell_argv.go_line(terms.keeps)  # a sandbox does not see whether there is a file to dump into
    bound = output.bound_of(terms.output_limit, around.split)
    yield from (("head", bound.head), ("segment", bound.segment), ("floor", terms.free_floor), ("grace", terms.grace))
    if terms.limit is not None and terms.limit < _ENDLESS_S:
        yield "limit", terms.limit


def describe(directory: str, published: str, launch: Launch, around: Surroundings, terms: Terms) -> Description:
    """A task whose command is known; it begins at once."""
    if around.sandbox is not None:
        from outlast.executors.local.confinement import furnish

        around = furnish(directory, published, around)
    made = Description(directory, published, around)
    try:
        made.add_shell(launch.command)
        made.add_surroundings()
        if around.groups:
            from outlast.executors.local.confinement import add_groups

            add_groups(made, published, around)
        for item in terms_items(terms, around):
            made.add(*item)
    except BaseException:
        made.__exit__()
        raise
    return made


def describe_prepared(directory: str, published: str, around: Surroundings) -> Description:
    """A bash that restores its session's state and then waits for its command."""
    if around.sandbox is not None:
        from outlast.executors.local.confinement import furnish, make_room

        make_room(directory)
        around = furnish(directory, published, around)
    made = Description(directory, published, around)
    try:
        made.add_shell(None)
        made.add_surroundings()
        made.add("prepare", 1)
    except BaseException:
        made.__exit__()
        raise
    return made


def _input(around: Surroundings) -> Iterator[Item]:
    stdin = around.stdin
    if stdin.text is not None:
        yield from (("stdin", "text"), ("stdin-text", stdin.text))
    elif stdin.open:
        yield "stdin", "open"
    elif stdin.file is not None:
        yield "stdin", f"file {os.path.join(around.cwd, stdin.file)}"


def _split(command: str) -> list[str]:
    from shlex import split

    return split(command)


def _find_program(name: str, around: Surroundings) -> str:
    """The absolute path of a program; if there is none, one that cannot be executed, so that the guard says why."""
    found = find_program(name, around.env.get("PATH"), around.cwd)
    return os.path.join(around.cwd, found or name) if "/" in name or found else os.path.join("/", name)


def _unsigned(limit: int) -> int:
    return limit if limit >= 0 else 2**64 - 1  # RLIM_INFINITY is -1 in Python
