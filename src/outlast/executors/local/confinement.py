"""What a launch description says about a sandbox and control groups: all of it is prepared by the caller.

bubblewrap is simply the program that the guard starts, with the command's shell among its arguments. Landlock and
seccomp are applied by the guard's child before it executes the shell: from a ruleset and a filter made here.
"""

from __future__ import annotations

import os
import stat

from outlast.errors import OutlastError, StartFailed
from outlast.executors.local import shell_argv
from outlast.guard.client import open_in_memory
from outlast.light import replace
from outlast.linux.files import open_regular
from outlast.sandbox import bubblewrap, cgroup, landlock, seccomp
from outlast.storage import agentfile, sessions, snapshot
from outlast.storage.layout import LAUNCH
from outlast.storage.record import PIPES
from outlast.types import AGENT, LANDLOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.executors.local.description_items import Description
    from outlast.types import Launch, Sandbox

_FIRST_LINE_BYTES = 1000
_TEMPORARY = "tmp"  # of a command under Landlock, in its task's directory


def make_room(staged: str) -> None:
    """Create the file of a pipeline that is not known yet: a sandbox shows files, and is made before there is one."""
    os.close(open_regular(os.path.join(staged, PIPES), os.O_WRONLY | os.O_CREAT))


def furnish(staged: str, published: str, around: Launch) -> Launch:
    """Put files in place that the shell in a sandbox needs, and give it a directory for temporary files."""
    assert around.sandbox is not None
    if around.shell == AGENT:
        agentfile.make_room(staged)
    own = "/tmp"
    if around.sandbox.kind == LANDLOCK:
        # Landlock can hide the machine's own /tmp, but not put another in its place.
        own = f"{published}/{_TEMPORARY}"
        os.makedirs(f"{staged}/{_TEMPORARY}", 0o700, exist_ok=True)
    return replace(around, env={**around.env, _temporary(around): own})


def temporary_directory(around: Launch) -> str:
    """The directory to remove at the end; empty if there is none."""
    return around.env[_temporary(around)] if around.sandbox and around.sandbox.kind == LANDLOCK else ""


def _temporary(around: Launch) -> str:
    return (snapshot.OVERLAY if around.state else "") + "TMPDIR"


def shell_in_sandbox(published: str, around: Launch) -> tuple[list[str], bool]:
    """The words of its shell, its path first, and whether it waits for its command by itself."""
    if around.shell == AGENT:
        return shell_argv.build_runner(around.shell, published), False
    _check_interpreter(around.shell)
    if os.path.basename(around.shell) == "bash":
        return [around.shell, *shell_argv.build_bash(published, around.state)[1:]], True
    return shell_argv.build_other_shell(around.shell, published), False


def _check_interpreter(shell: str) -> None:
    """Inside of a sandbox a script without its interpreter cannot be told from a command that fails."""
    with open(shell, "rb") as file:
        words = file.readline(_FIRST_LINE_BYTES).split()
    if words and words[0].startswith(b"#!"):
        path = words[0][2:] or (words[1] if len(words) > 1 else b"")
        if not os.access(path, os.X_OK):
            why = f"{shell} needs {os.fsdecode(path)}, which cannot be run"
            raise StartFailed(f"The command could not be started: {why}.")


def _needed_by_runner(around: Launch) -> list[str]:
    """What the runner of an agent needs and is in a place that is hidden, such as /tmp."""
    needed = shell_argv.list_runner_paths() if around.shell == AGENT else []
    return [path for path in needed if bubblewrap.is_within(path, bubblewrap.OWN) and path not in bubblewrap.OWN]


def _home(published: str) -> str:
    return os.path.dirname(os.path.dirname(published))


# --- bubblewrap --------------------------------------------------------------------------


def add_bubblewrap(description: Description, staged: str, published: str, around: Launch) -> None:
    """Add bubblewrap with its arguments, which starts the shell in a sandbox."""
    assert around.sandbox is not None
    words, waits = shell_in_sandbox(published, around)
    env = {**around.env, "OUTLAST_TASK_ID": os.path.basename(published), "PWD": around.cwd}
    options = bubblewrap.options(around.sandbox, around.cwd, _home(published), _files(staged, published, around))
    description.add_words(
        around.sandbox.program, bubblewrap.arguments(around.sandbox.program, words, waits, tty=bool(around.tty))
    )
    description.add("program-waits", 1)
    null = description.keep(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    filters = description.keep(open_in_memory(_filter(around.sandbox))) if seccomp.known_here() else None
    arguments = description.keep(open_in_memory(bubblewrap.for_args(options, env, filters is not None)))
    for number, source in (
        *((0, f"inherit {null}"), (1, f"inherit {null}"), (2, "errors"), (shell_argv.GO_FD, "go")),
        *((bubblewrap.STDIN, "stdin"), (bubblewrap.STDOUT, "stdout"), (bubblewrap.STDERR, "stderr")),
        *((bubblewrap.TOLD, "ready"), (bubblewrap.ARGUMENTS, f"inherit {arguments}")),
        *(((bubblewrap.FILTER, f"inherit {filters}"),) if filters is not None else ()),
    ):
        description.add("fd", f"{number} {source}")
    if landlock.abi() >= landlock.SCOPES_ABI and not _is_set_user_id(around.sandbox.program):
        # Where the network is shared, abstract sockets are too.
        description.add("landlock", description.keep(landlock.make_scopes()))
    description.add_state_fds()


def _is_set_user_id(program: str) -> bool:
    """Whether bubblewrap needs privileges that it would lose under Landlock."""
    return os.path.exists(program) and bool(os.stat(program).st_mode & stat.S_ISUID)


def _filter(sandbox: Sandbox) -> bytes:
    return seccomp.program(os.uname().machine, namespaces=sandbox.kind != LANDLOCK, network=sandbox.network)


def _files(staged: str, published: str, around: Launch) -> Iterator[tuple[str, str, str]]:
    """What the shell reads and writes of the state directory, which has another name until it is published."""
    names = {"command": "--ro-bind"}
    if os.path.exists(os.path.join(staged, PIPES)):
        names[PIPES] = "--bind"
    if around.state:
        names[sessions.STATE] = "--bind"
    if around.shell == AGENT:
        names |= {LAUNCH: "--ro-bind", agentfile.NAME: "--bind"}
    for name, how in names.items():
        yield how, os.path.join(staged, name), os.path.join(published, name)
    for path in _needed_by_runner(around):
        yield "--ro-bind", path, path
    if around.state:
        yield "--ro-bind", shell_argv.SESSION_SCRIPT, shell_argv.SESSION_SCRIPT


# --- Landlock ----------------------------------------------------------------------------


def add_landlock(description: Description, staged: str, published: str, around: Launch) -> None:
    """Add the shell with a Landlock ruleset and a seccomp filter, which the guard applies to it."""
    sandbox = around.sandbox
    assert sandbox is not None
    words, waits = shell_in_sandbox(published, around)
    description.add_words(words[0], words)
    if waits:
        description.add("program-waits", 1)
        description.add_fds()
    places = landlock.list_allowed(sandbox, _home(published), _rights(staged, around))
    ruleset = description.keep(landlock.make_ruleset(places, sandbox.network))
    description.add("landlock", ruleset)
    description.add("drop-capabilities", 1)
    if seccomp.known_here():
        description.add("seccomp", _filter(sandbox))


def _rights(staged: str, around: Launch) -> Iterator[tuple[str, int]]:
    """As `_files`. Landlock knows files, not names: they stay the same when the directory is renamed."""
    both = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE
    files = {"command": landlock.READ_FILE, PIPES: both}
    if around.shell == AGENT:
        files |= {LAUNCH: landlock.READ_FILE, agentfile.NAME: both}
    if around.state:
        files |= {sessions.STATE: both, sessions.START: both, sessions.BEFORE: landlock.READ_FILE}
    for name, rights in files.items():
        yield os.path.join(staged, name), rights
    yield os.path.join(staged, _TEMPORARY), landlock.WRITE
    for path in _needed_by_runner(around):
        yield path, landlock.READ
    if around.state:
        yield shell_argv.SESSION_SCRIPT, landlock.READ_FILE


# --- control groups ----------------------------------------------------------------------


def add_groups(description: Description, published: str, around: Launch) -> None:
    """Make the control groups of a task; the guard removes them."""
    try:
        for path in cgroup.make(around.groups, os.path.basename(published)):
            description.add("cgroup", path)
    except OutlastError as error:
        raise StartFailed(f"The command could not be started: {error.message}.") from None
