"""Starting a command's shell, in the supervisor, before there is a task.

The shell is told only its surroundings, gets itself ready and waits for its command on a
descriptor. One that cannot be told to wait is a fork of ours until its command comes.
"""

from __future__ import annotations

import errno
import os
import resource
from fcntl import F_DUPFD_CLOEXEC, fcntl

from outlast.errors import OutlastError
from outlast.model import LANDLOCK, NeverStarted
from outlast.store import session_files, status
from outlast.store.staging import GO_WORD
from outlast.supervise import confine, invoke, signals
from outlast.supervise.forks import fork_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

    from outlast.model import Surroundings
    from outlast.supervise.post import Post

    Given = list[tuple[int, int]]

_HIGH = 6  # above every descriptor that a command is given
_HIGHER = 12  # and above those of what a sandbox is made with
# What whatever we start begins with, in the form in which we are asked for others.
_LIMITS: Mapping[str, Sequence[int]] = {
    name: [*resource.getrlimit(getattr(resource, name))] for name in dir(resource) if name.startswith("RLIMIT_")
}


def start_command(post: Post, ready: int, let_go: Callable[[], None]) -> None:
    """Start the shell of a task, which waits on `ready`.

    `let_go` is called in a fork: what says that a guard lives must not live on in there.
    """
    pairs = given(post, ready)
    if post.around.sandbox:
        post.watch_command(*_confined(post, pairs, let_go))
    else:
        pid = spawn(post, pairs)
        if pid is not None:
            _limit(pid, post.around)  # it waits
        post.watch_command(pid or _fork_command(post, pairs, let_go))
    # Also the command's input: one that closes it must be seen to.
    for fd in (ready, post.stdin.reader, *(ours for ours, _ in pairs)):
        os.close(fd)


def _confined(post: Post, given: Given, let_go: Callable[[], None]) -> tuple[int, int]:
    """Start the shell in its sandbox: its pid, and that of what it is wrapped in. It waits for its command."""
    around, env = post.around, _environment(post)
    if around.sandbox and around.sandbox.kind == LANDLOCK:
        pid, wrapper = confine.with_landlock(post, given, env, let_go), 0
    else:
        pid, wrapper = confine.with_bubblewrap(post, given, env)
    _limit(pid, around)
    return pid, wrapper


def _fork_command(post: Post, given: Given, let_go: Callable[[], None]) -> int:
    """For a shell that cannot be told to wait, or cannot be started, which is told of once there is a task."""
    apart, joined = os.pipe()

    def life() -> NoReturn:
        let_go()
        _become_command(post, given, joined)

    pid = fork_into(life)
    os.close(joined)
    os.read(apart, 1)  # its end: from now on a signal to the command's group finds it
    os.close(apart)
    return pid


def given(post: Post, ready: int) -> Given:
    """What the command gets: a descriptor of ours, and as which of its own. Called in the task's directory."""
    outs = [pipe.writer for pipe in post.pipes]
    pairs = [(post.stdin.reader, 0), (outs[0], 1), (outs[-1], 2), (ready, invoke.READY)]
    # Above all of theirs, so that none is overwritten before its turn comes.
    least = _HIGHER if post.around.sandbox else _HIGH
    found = [(_high(fd, least), number) for fd, number in pairs]
    if post.around.state:
        for name, how, number in (
            (session_files.BEFORE, os.O_RDONLY, invoke.BEFORE),
            (session_files.START, os.O_RDWR, invoke.START),
        ):
            fd = os.open(name, how | os.O_NOFOLLOW | os.O_CLOEXEC)
            found.append((_high(fd, least), number))
            os.close(fd)
    return found


def _high(fd: int, least: int) -> int:
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, least)
    except OSError as error:
        if error.errno == errno.EINVAL:  # there are not even so many numbers
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None
        raise


def spawn(post: Post, given: Given) -> int | None:
    """Start a bash that gets itself ready and then waits for its command; its pid, None if it cannot be done."""
    around = post.around
    if around.shell.rpartition("/")[2] != "bash":
        return None
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mask = os.umask(around.umask)
    try:
        os.chdir(around.cwd)
        # Not a fork: that would copy our page tables only to throw them away.
        return os.posix_spawn(
            around.shell,
            invoke.waiting(post.published, around.state),
            _environment(post),
            file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in given],
            setsid=True,
            setsigmask=(),
            setsigdef=signals.WITH_A_DISPOSITION,
        )
    except OSError:
        return None
    finally:
        os.umask(mask)
        os.fchdir(here)
        os.close(here)


def _environment(post: Post) -> dict[str, str]:
    return {**post.around.env, "OUTLAST_TASK_ID": post.task_id, "PWD": post.around.cwd}


def _become_command(post: Post, given: Given, joined: int) -> NoReturn:
    """In the child: wait until the task is published, then turn into the command."""
    around = post.around
    # Before waiting: whoever kills the tree must find the command apart from its guards, and not deaf.
    os.setsid()
    signals.as_a_shell_expects()
    os.close(joined)
    ready = next(ours for ours, theirs in given if theirs == invoke.READY)
    try:
        # First of all: until there is a task, nobody could be told what goes wrong.
        if os.read(ready, len(GO_WORD)) != GO_WORD:
            raise OSError(0, "its guards died before it began")
        for ours, theirs in given:
            if ours != ready:
                os.dup2(ours, theirs)
        os.chdir(around.cwd)
        os.umask(around.umask)
        _limit(0, around)
        invoke.execute(around.shell, post.published, around.state, _environment(post))
    except (OSError, ValueError) as error:
        error = error if isinstance(error, OSError) else OSError(0, str(error))
        _tell_why_not(post, f"{error.strerror}: {error.filename or around.shell}")
    os._exit(127)


def _limit(pid: int, around: Surroundings) -> None:
    """Give a process the limits and the niceness of who asked for the task: whoever started it may have others."""
    for name, (soft, hard) in around.rlimits.items() if around.rlimits != _LIMITS else ():
        which = getattr(resource, name, None)
        if which is None or resource.prlimit(pid, which) == (soft, hard):
            continue
        try:
            resource.prlimit(pid, which, (soft, hard))
        except (OSError, ValueError):
            _limit_softly(pid, which, soft)  # only root raises a hard limit
    try:
        if around.nice is not None and around.nice != os.getpriority(os.PRIO_PROCESS, pid):
            os.setpriority(os.PRIO_PROCESS, pid, around.nice)
    except OSError:
        pass  # only root is nicer to itself


def _limit_softly(pid: int, which: int, soft: int) -> None:
    hard = resource.prlimit(pid, which)[1]
    unlimited = resource.RLIM_INFINITY
    least = hard if soft == unlimited else soft if hard == unlimited else min(soft, hard)
    try:
        resource.prlimit(pid, which, (least, hard))
    except (OSError, ValueError):
        pass


def _tell_why_not(post: Post, why: str) -> None:
    # Whatever is scarce, a descriptor is not: an exit code of ours must not pass for the command's.
    os.closerange(0, 64)
    try:
        # Of a pending task somebody else may by now have forked the command that counts.
        if status.guards_of(post.published).command.pid == os.getpid():
            status.write_code(NeverStarted(why), directory=post.published)
    except (OSError, OutlastError, KeyError):
        pass  # there is no task: nobody published it, or it is still pending
