"""Starting a command's shell inside of a sandbox, in the keeper, before there is a task.

The shell waits for its command as every other does. What keeps a sandbox from being made
is known before anything was published: there is no task then, and its reason is told.
"""

from __future__ import annotations

import os

from outlast import process
from outlast.errors import OutlastError
from outlast.frozen import replaced
from outlast.model import AGENT, LANDLOCK, NeverStarted
from outlast.store import agentfile, launchfile, record, session_files, snapshot, status
from outlast.store.staging import token
from outlast.supervise import invoke, signals
from outlast.supervise.forks import fork_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from outlast.model import Surroundings
    from outlast.supervise.post import Post

    Given = list[tuple[int, int]]

_MOST_SAID = 1000


def furnished(around: Surroundings, task_id: str) -> Surroundings:
    """In a staged directory: with every file that its shell will need, and a place for temporary ones."""
    assert around.sandbox is not None
    launchfile.make_room()
    if around.shell == AGENT:
        agentfile.make_room()
    os.close(os.open(invoke.PIPES, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    # Landlock can hide the machine's own /tmp, but not put another in its place.
    own = f"/tmp/outlast-{task_id}-{token()}" if around.sandbox.kind == LANDLOCK else "/tmp"
    return replaced(around, env={**around.env, _temporary(around): own})


def _temporary(around: Surroundings) -> str:
    return (snapshot.OVERLAY if around.state else "") + "TMPDIR"


def hold(post: Post) -> None:
    """Put a command that is about to begin into its control groups. Not earlier: nobody may ever want it."""
    if post.around.groups:
        from outlast.supervise import cgroup

        cgroup.make(post.around.groups, post.task_id, post.command.pid)


def what_the_kernel_did(around: Surroundings, task_id: str) -> dict[str, int]:
    """How many of its processes were ended for want of memory, for the record; nothing if none was."""
    if not around.groups:
        return {}
    from outlast.supervise import cgroup

    ended = cgroup.ended_for_memory(around.groups, task_id)
    return {"oom": ended} if ended else {}


def clear_away(around: Surroundings, task_id: str) -> None:
    """When nothing of the command is left: its groups, and its temporary files."""
    if around.groups:
        from outlast.supervise import cgroup

        cgroup.remove(around.groups, task_id)
    _clear_temporary(around)


def _clear_temporary(around: Surroundings) -> None:
    if around.sandbox is None or around.sandbox.kind != LANDLOCK:
        return
    try:
        os.rmdir(around.env[_temporary(around)])
    except OSError:
        from shutil import rmtree  # not for an empty one: it takes longer to load than to use

        rmtree(around.env[_temporary(around)], ignore_errors=True)


def _home(post: Post) -> str:
    return os.path.dirname(os.path.dirname(post.published))


def _shell(post: Post) -> tuple[list[str], bool]:
    """The argument list of its shell, its path first, and whether that waits for its command by itself."""
    around = post.around
    if around.shell == AGENT:
        return invoke.runner(around.shell, post.published), False
    _check_interpreter(around.shell)
    if os.path.basename(around.shell) == "bash":
        return [around.shell, *invoke.waiting(post.published, around.state, confined=True)[1:]], True
    return invoke.arguments(around.shell, post.published), False


def _of_runner(post: Post) -> list[str]:
    """What the runner of an agent needs to run at all and is in a place that is hidden, such as /tmp."""
    from outlast.supervise.bubblewrap import OWN, is_within

    needed = invoke.needed_by_runner() if post.around.shell == AGENT else []
    return [path for path in needed if is_within(path, OWN) and path not in OWN]


def _check_interpreter(shell: str) -> None:
    """Inside of a sandbox nobody could tell a script without its interpreter from a command that fails."""
    with open(shell, "rb") as file:
        words = file.readline(_MOST_SAID).split()
    if words and words[0].startswith(b"#!"):
        path = words[0][2:] or (words[1] if len(words) > 1 else b"")
        if not os.access(path, os.X_OK):
            raise OutlastError(f"{shell} needs {os.fsdecode(path)}, which cannot be run")


# --- bubblewrap --------------------------------------------------------------------------


def with_bubblewrap(post: Post, given: Given, env: Mapping[str, str]) -> tuple[int, int]:
    """The pid of the shell, and that of bubblewrap."""
    from outlast.supervise import bubblewrap
    from outlast.supervise.request import in_memory

    around = post.around
    assert around.sandbox is not None
    words = bubblewrap.options(around.sandbox, around.cwd, _home(post), _put_back(post))
    told, tell = os.pipe()
    said, null = in_memory(b""), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    status_fd = os.open(bubblewrap.STATUS_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    beside = [
        (null, 0),
        (null, 1),
        (said, 2),
        (tell, bubblewrap.TOLD),
        (status_fd, bubblewrap.STATUS),
        (in_memory(bubblewrap.for_args(words, env)), bubblewrap.ARGUMENTS),
    ]
    moved = {0: bubblewrap.STDIN, 1: bubblewrap.STDOUT, 2: bubblewrap.STDERR}
    theirs = [(ours, moved.get(number, number)) for ours, number in given]
    try:
        wrapper = _spawn(post, bubblewrap.arguments(around.sandbox.program, *_shell(post)), theirs + beside)
        os.close(tell)
        if os.read(told, 1) != b"r":
            raise OutlastError(f"the sandbox cannot be made: {_said(said)}")
        return _first_inside(bubblewrap.status().get("child-pid", 0)), wrapper
    finally:
        for fd in {told, said, null, *(fd for fd, _ in beside[4:])}:
            os.close(fd)


def _put_back(post: Post) -> list[tuple[str, str, str]]:
    """What its shell reads and writes of the state directory. Here it still has another name than it will have."""
    here, there = os.getcwd(), post.published
    names = {"command": "--ro-bind", invoke.PIPES: "--bind"}
    if post.around.state:
        names[session_files.STATE] = "--bind"
    if post.around.shell == AGENT:
        names |= {launchfile.NAME: "--ro-bind", agentfile.NAME: "--bind"}
    files = [(how, os.path.join(here, name), os.path.join(there, name)) for name, how in names.items()]
    files += [("--ro-bind", path, path) for path in _of_runner(post)]
    return [*files, ("--ro-bind", invoke.SESSION, invoke.SESSION)] if post.around.state else files


def _spawn(post: Post, words: list[str], fds: Given) -> int:
    # All above those that they become, or one would be overwritten before its turn comes.
    import fcntl

    from outlast.supervise.bubblewrap import HIGH

    high = [(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH), number) for fd, number in fds]
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mask = os.umask(post.around.umask)
    try:
        os.chdir(post.around.cwd)
        return os.posix_spawn(
            words[0],
            words,
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in high],
            setsid=True,
            setsigmask=(),
            setsigdef=signals.WITH_A_DISPOSITION,
        )
    except OSError as error:
        raise OutlastError(f"the sandbox cannot be made: {error.strerror}: {error.filename or words[0]}") from None
    finally:
        os.umask(mask)
        os.fchdir(here)
        for fd in [here, *(fd for fd, _ in high)]:
            os.close(fd)


def _said(fd: int) -> str:
    text = os.pread(fd, _MOST_SAID, 0).decode(errors="replace")
    return " ".join(text.split()) or "bubblewrap was ended"


def _first_inside(init: int) -> int:
    """The shell: the first child of the sandbox's own init."""
    children = process.children_of(init)
    if not children:
        raise OutlastError("the sandbox ended before its command began")
    return children[0]


# --- Landlock ----------------------------------------------------------------------------


def with_landlock(post: Post, given: Given, env: Mapping[str, str], let_go: Callable[[], None]) -> int:
    """The pid of the shell. One that cannot wait for its command becomes the shell only when there is one."""
    words, waits = _shell(post)
    told, tell = os.pipe()

    def life() -> NoReturn:
        let_go()
        os.setsid()  # first: whoever ends the tree must find the command apart from its guards
        signals.as_a_shell_expects()
        _become(post, given, (words, dict(env)), tell if waits else _tell_and_wait(given, tell))

    pid = fork_into(life)
    os.close(tell)
    why = os.read(told, _MOST_SAID)
    os.close(told)
    if why:
        os.waitpid(pid, 0)
        raise OutlastError(f"the sandbox cannot be made: {why.decode(errors='replace')}")
    return pid


def _tell_and_wait(given: Given, tell: int) -> int:
    os.close(tell)  # its end: all is well so far
    ready = next(fd for fd, number in given if number == invoke.READY)
    if not os.read(ready, 64):
        os._exit(1)  # there will be no task
    return -1


def _become(post: Post, given: Given, shell: tuple[list[str], dict[str, str]], tell: int) -> NoReturn:
    from outlast.supervise import landlock, seccomp

    around, (words, env) = post.around, shell
    assert around.sandbox is not None
    kept = os.open(record.NAME, os.O_RDWR | os.O_CLOEXEC) if tell < 0 else -1  # cannot be opened from inside
    own = around.env[_temporary(around)]
    try:
        os.mkdir(own, 0o700)
        places = list(landlock.allowed(around.sandbox, _home(post), _to_be_used(post)))
        os.umask(around.umask)
        for ours, number in given:
            if number != invoke.READY or tell >= 0:
                os.dup2(ours, number)
        os.chdir(around.cwd)
        landlock.confine(places, around.sandbox.network)
        if not around.sandbox.network and around.sandbox.program == seccomp.NAME:
            seccomp.close_network()
        os.execve(words[0], words, env)
    except OSError as error:
        why = f"{error.strerror}: {error.filename or around.shell}"
        _clear_temporary(around)
        if tell >= 0:
            os.write(tell, why.encode(errors="replace")[:_MOST_SAID])
        else:
            _tell_why_not(kept, why)
    os._exit(127)


def _to_be_used(post: Post) -> list[tuple[str, int]]:
    """As `_put_back`. Landlock knows files, not names: they stay the same when the directory gets its name."""
    from outlast.supervise.landlock import READ, READ_FILE, TRUNCATE, WRITE, WRITE_FILE

    both = READ_FILE | WRITE_FILE | TRUNCATE
    files = {"command": READ_FILE, invoke.PIPES: both, post.around.env[_temporary(post.around)]: WRITE}
    if post.around.shell == AGENT:
        files |= {launchfile.NAME: READ_FILE, agentfile.NAME: both}
    if post.around.state:
        files |= {session_files.STATE: both, session_files.START: both, session_files.BEFORE: READ_FILE}
    here = os.getcwd()
    found = [(os.path.join(here, name), rights) for name, rights in files.items()]
    found += [(path, READ) for path in _of_runner(post)]
    return [*found, (invoke.SESSION, READ_FILE)] if post.around.state else found


def _tell_why_not(kept: int, why: str) -> None:
    if record.parse(os.pread(kept, record.SIZE, 0)).get("guards", {}).get("command", [0])[0] == os.getpid():
        status.write_code(NeverStarted(why), fd=kept)
