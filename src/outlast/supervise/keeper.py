"""The keeper: the command's parent, and the supervisor's understudy.

It is a fork of the supervisor and shares its hold on the task. It records how the
command ended, reaps what the command left behind, and forks another supervisor if its
own dies. It never touches the output: the bytes wait in the pipe.
"""

from __future__ import annotations

import errno
import os
import select
import time
from fcntl import F_DUPFD_CLOEXEC, fcntl

from outlast import process
from outlast.errors import OutlastError
from outlast.lean import socket
from outlast.model import LANDLOCK, NeverStarted
from outlast.store import launchfile, sessionfile, staging, status
from outlast.supervise import confine, invoke, signals
from outlast.supervise.forks import fork_into
from outlast.supervise.pair import MOST_DESCRIPTORS, taken_over
from outlast.supervise.post import AGAIN, DONE, NOTED, PLACE, REST_S, hands, heard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from outlast.model import Identity, Surroundings
    from outlast.supervise.post import Post

    Given = list[tuple[int, int]]

# Keeper to supervisor:
CHILDLESS = b"c"  # nothing of the command is left below me
LEFT = b"l"  # the command is over and has left something running
REFUSED = b"!"  # the command cannot be started, and why

_TELL_AGAIN_S = 0.1
_ALONE_S = 0.05  # after so long without a word of the supervisor we look by ourselves how the command ended
_MOST_SAID = 1000
_HIGH = 6  # above every descriptor that a command is given
_HIGHER = 12  # and above those of what a sandbox is made with
_SHORT_LIFE_S = 1.0
_SHORT_LIVES = 20  # so many in a row are bad luck (or a test); more are a fault that stays


class Keeper:
    """One keeper's life."""

    def __init__(
        self,
        post: Post,
        hand: socket.socket,
        supervisor: Identity,
        resume: Callable[[Post, socket.socket, Identity], NoReturn],
    ) -> None:
        self._post, self._hand = post, hand
        # Told, not asked for: if it is dead already, our parent is somebody else.
        self._supervisor = supervisor
        self._resume = resume
        self._me = process.identity(os.getpid())
        self._wake: signals.Wake | None = None
        self._short_lives = 0
        self._replaced_at = 0.0
        self._forget()

    def _forget(self) -> None:
        """A task begins."""
        self._said: set[bytes] = set()
        self._noted = False
        self._look_at: float | None = None  # the command is over: when to look at it ourselves

    def run(self, ready: int, warm: bool) -> NoReturn:
        """From the fork of the first supervisor to the end of its last task. The command waits on `ready`."""
        self._begin(ready)
        if warm and not select.select([self._hand], [], [], REST_S)[0]:
            self._post.rehearse()
        self._keep()

    def _begin(self, ready: int, there: str = ".") -> None:
        try:
            os.chdir(there)
            self._start_command(ready)
        except OSError as error:
            self._tell(b"-%d" % (error.errno or 0))  # there will be no task, and the caller is told why
            os._exit(1)
        except OutlastError as error:
            self._tell(REFUSED + error.message.encode(errors="replace")[:_MOST_SAID])
            os._exit(1)
        process.become_subreaper()  # before anything that the command starts can become an orphan
        wrapper = self._post.wrapper
        self._tell(b"%d %d" % (self._post.command.pid, wrapper.pid if wrapper else 0))
        self._settle()

    def guard(self) -> NoReturn:
        """Replaces a keeper that died: the command is the supervisor's child then, not ours."""
        process.become_subreaper()
        self._settle()
        self._look()
        self._keep()

    def _settle(self) -> None:
        if self._wake is None:
            self._wake = signals.Wake()
        process.rename_self("outlast-keeper", f"outlast keeper of {self._post.task_id}")

    def _start_command(self, ready: int) -> None:
        given = _given(self._post, ready)
        if self._post.around.sandbox:
            self._post.watch_command(*self._confined(given))
        else:
            pid = _spawn(self._post, given)
            if pid is not None:
                _limit(pid, self._post.around)  # it waits
            self._post.watch_command(pid or self._fork_command(given))
        # Also the command's input: one that closes it must be seen to.
        for fd in (ready, self._post.stdin.reader, *(ours for ours, _ in given)):
            os.close(fd)

    def _confined(self, given: Given) -> tuple[int, int]:
        """Start the shell in its sandbox: its pid, and that of what it is wrapped in. It waits for its command."""
        around, env = self._post.around, _environment(self._post)
        if around.sandbox and around.sandbox.kind == LANDLOCK:
            pid, wrapper = confine.with_landlock(self._post, given, env, self._let_go), 0
        else:
            pid, wrapper = confine.with_bubblewrap(self._post, given, env)
        _limit(pid, around)
        return pid, wrapper

    def _let_go(self) -> None:
        """In a fork: what says that a guard lives must not live on in us."""
        self._hand.close()
        os.close(self._post.go)
        self._post.drop_lock()

    def _fork_command(self, given: Given) -> int:
        """For a shell that cannot be told to wait, or cannot be started, which is told of once there is a task."""
        apart, joined = os.pipe()

        def life() -> NoReturn:
            self._let_go()
            _become_command(self._post, given, joined)

        pid = fork_into(life)
        os.close(joined)
        os.read(apart, 1)  # its end: from now on a signal to the command's group finds it
        os.close(apart)
        return pid

    def _keep(self) -> NoReturn:
        assert self._wake is not None
        while True:
            supervisor = process.open_pidfd(self._supervisor)
            # One that is gone may have said before that it leaves because all is done.
            another = self._watch(self._wake, supervisor) if supervisor is not None else self._hear()[0]
            if another is not None:
                self._post, ready, there = taken_over(another, self._hand, self._wake)
                self._forget()
                self._begin(ready, there)
                continue
            self._look()
            if self._post.go >= 0:
                self._let_it_begin()
            self._replace_supervisor()

    def _let_it_begin(self) -> None:
        """The supervisor died, and perhaps before the command began."""
        if self._post.never_was():
            if self._post.staged:
                staging.remove(os.getcwd())
            os._exit(1)  # there is no task; the command sees the end of its pipe
        launchfile.erase_secrets()
        self._post.let_command_begin()

    def _watch(self, wake: signals.Wake, supervisor: int) -> list[int] | None:
        """Look after the children until the supervisor is gone; or until there is another task, and what it brings."""
        poll, hand = select.poll(), self._hand.fileno()
        for fd in (wake.fd, hand, self._post.command_fd, supervisor):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(self._patience_ms())}
            wake.clear()
            if self._post.command_fd in ready:
                self._look_at = time.monotonic() + _ALONE_S
                poll.unregister(self._post.command_fd)
            another, more = self._hear() if ready & {hand, supervisor} else (None, True)
            if another is not None:
                return another
            if not more and hand in ready:
                poll.unregister(hand)  # at its end it is always ready
            if self._look_at is None or self._noted or time.monotonic() >= self._look_at:
                self._look()
            if supervisor in ready:
                os.close(supervisor)
                return None

    def _patience_ms(self) -> float | None:
        if self._look_at is None or self._noted or self._said:
            return None
        return max(0.0, self._look_at - time.monotonic()) * 1000

    def _hear(self) -> tuple[list[int] | None, bool]:
        """What the supervisor has said by now: what another task brings, and whether it may say more."""
        while True:
            try:
                said, fds = socket.recv_fds(self._hand, 16, MOST_DESCRIPTORS, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None, True
            except OSError:
                return None, False
            if said == AGAIN:
                return fds, True
            if said == DONE:
                os._exit(0)
            if said == PLACE:
                self._post.place = fds[0]
            self._noted |= said == NOTED
            if not said:
                return None, False

    def _look(self) -> None:
        children = self._post.reap()
        self._post.end_input_if_asked()
        if self._post.command_is_over():
            self._post.note_end()
            self._post.let_go()
            self._say_childless(children)

    def _say_childless(self, children: bool) -> None:
        left = children and self._post.has_other_children(self._supervisor.pid)
        word = LEFT if left else CHILDLESS
        if word not in self._said:
            self._said.add(word)
            self._tell(word)

    def _tell(self, word: bytes) -> None:
        while True:
            try:
                self._hand.sendall(word)
                return
            except (BrokenPipeError, ConnectionResetError):
                return  # the supervisor just died; its successor will be told
            except OSError:
                select.select([], [], [], _TELL_AGAIN_S)  # no memory to send a byte with; nobody else would tell

    def _replace_supervisor(self) -> None:
        self._hand.close()
        self._hand, theirs = hands()
        self._said = set()
        self._post.recoveries += 1
        self._post.share_clock()
        self._breathe()

        def life() -> NoReturn:
            self._hand.close()
            if self._wake is not None:
                self._wake.close()
            heard(theirs)  # until it is recorded who we are, or our keeper is dead too
            self._resume(self._post, theirs, self._me)

        self._supervisor = process.identity(_fork_at_last(life))
        theirs.close()
        self._post.write_guards(self._supervisor, self._me)
        self._tell(staging.GO_WORD)

    def _breathe(self) -> None:
        """A supervisor that dies at once, again and again (a disk that fails), must not take a whole core."""
        now = time.monotonic()
        self._short_lives = self._short_lives + 1 if now - self._replaced_at < _SHORT_LIFE_S else 0
        self._replaced_at = now
        if self._short_lives > _SHORT_LIVES:
            select.select([], [], [], _SHORT_LIFE_S)


def _fork_at_last(life: Callable[[], NoReturn]) -> int:
    """Fork, and if there is no process left to be had, try until there is: nobody else can."""
    while True:
        try:
            return fork_into(life)
        except OSError:
            select.select([], [], [], _SHORT_LIFE_S)


def _given(post: Post, ready: int) -> Given:
    """What the command gets: a descriptor of ours, and as which of its own. Called in the task's directory."""
    outs = [pipe.writer for pipe in post.pipes]
    pairs = [(post.stdin.reader, 0), (outs[0], 1), (outs[-1], 2), (ready, invoke.READY)]
    # Above all of theirs, so that none is overwritten before its turn comes.
    least = _HIGHER if post.around.sandbox else _HIGH
    given = [(_high(fd, least), number) for fd, number in pairs]
    if post.around.state:
        for name, how, number in (
            (sessionfile.BEFORE, os.O_RDONLY, invoke.BEFORE),
            (sessionfile.START, os.O_RDWR, invoke.START),
        ):
            fd = os.open(name, how | os.O_NOFOLLOW | os.O_CLOEXEC)
            given.append((_high(fd, least), number))
            os.close(fd)
    return given


def _high(fd: int, least: int) -> int:
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, least)
    except OSError as error:
        if error.errno == errno.EINVAL:  # there are not even so many numbers
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None
        raise


def _spawn(post: Post, given: Given) -> int | None:
    """Start a bash that gets itself ready and then waits for its command; its pid, None if it cannot be done."""
    around = post.around
    if os.path.basename(around.shell) != "bash":
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
        if os.read(ready, len(staging.GO_WORD)) != staging.GO_WORD:
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
    import resource

    for name, (soft, hard) in around.rlimits.items():
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
    import resource

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
