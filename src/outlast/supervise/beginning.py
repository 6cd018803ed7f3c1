"""How a task comes to have guards: prepared, begun, and watched by this process from then on.

A supervisor's life: detach, take the lock, fork the keeper (which starts the shell), wait
until what is to run is written down, publish the task, let the command go; then it is
watched (`supervisor`). When that is over and another task like it is wanted, the same two
processes take that one up. The first is forked from the nursery, never from a caller.
"""

from __future__ import annotations

import errno
import os
import select

from outlast import process
from outlast.errors import OutlastError
from outlast.lean import json, signal, socket
from outlast.model import Stdin, surroundings, terms
from outlast.store import bell, launchfile, output, record, sessionfile, staging, status
from outlast.store.home import Home
from outlast.store.queue import Queue
from outlast.supervise import EXISTS, READY, confine, request
from outlast.supervise.forks import fork_afresh, fork_into
from outlast.supervise.keeper import REFUSED, Keeper
from outlast.supervise.pair import Pair
from outlast.supervise.post import REST_S, Pipe, Post, hands, heard
from outlast.supervise.post import Stdin as HeldStdin
from outlast.supervise.supervisor import Supervisor, home_of, resume

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from outlast.model import Surroundings
    from outlast.store.queue import Turn

_BEGIN_PATIENCE_S = 5.0  # a disk that is stuck must not keep us from our own task
_WARM_S = 600.0  # guards that nobody wanted for so long leave; the next task begins cold


def start(line: int, what: int, *beside: int) -> NoReturn:
    """In a fork of the nursery: prepare a task, wait until somebody wants it, and stay with it.

    `line` leads to the caller. The task is prepared as far as it can be without knowing its
    command, so that preparing it and writing down what it is to run go on side by side, or
    long before (a warm task). When the line closes first, nothing has happened.
    """
    caller = socket.socket(fileno=line)
    try:
        staged, published, around, given = request.understood(what, *beside)
    except (OSError, MemoryError) as error:
        _answer(caller, {"error": _why(error)})
        os._exit(1)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisor = _begun(caller, staged, published, around, given)
    while True:
        supervisor.run()  # comes back only for another one
        home = home_of(supervisor.post.published)
        around = supervisor.next_surroundings()
        supervisor = _begun(caller, home, "", around, {}, supervisor.let_go())


def _begun(
    caller: socket.socket,
    staged: str,
    published: str,
    around: Surroundings,
    given: dict[str, int],
    pair: Pair | None = None,
) -> Supervisor:
    """A supervisor whose command runs. Without a place to publish it, it is warm: staged below the home `staged`."""
    pending = request.LOCK in given  # then it is published already, and its lock is ours
    warm = not published
    try:
        if warm:
            staged, published = staging.stage(Home(staged), request.WARM_KIND, around)
            _answer(caller, [staged, published, around.snapshot, around.cwd])
        os.chdir(staged)
        supervisor = _prepare(published, around, given, pair or _Alone(caller, warm), warm)
        if supervisor.post.staged:
            supervisor.sign_on()  # in advance: from here on the caller may publish it too
            _say(caller, READY)
        if not select.select([caller], [], [], REST_S)[0]:
            supervisor.rehearse()
        wanted = _wanted(caller, supervisor.post)
        if wanted is None:
            confine.clear_away(supervisor.post.around, supervisor.post.task_id)
            _abandon(pending)
        supervisor.take_up(wanted)
        ours = supervisor.begin(None if pending else staged, caller)
    except (OSError, OutlastError, MemoryError) as error:
        if pending:
            _give_up(published, error)
        if warm and published:
            staging.remove(staged)
        _answer(caller, {"error": _why(error)})
        os._exit(1)
    if ours:
        _answer(caller, {"pid": supervisor.post.command.pid, "started": supervisor.post.started})
    bell.ring_house()
    return supervisor


def _wanted(caller: socket.socket, post: Post) -> request.Word | None:
    """The word to begin; None if nobody wants it."""
    if not select.select([caller], [], [], _WARM_S)[0] and post.never_was():
        return None
    return request.await_begin(caller)


def _abandon(pending: bool) -> NoReturn:
    """The caller is gone, or wants something else. The command sees the end of its pipe, and never was."""
    if not pending:
        staging.remove(os.getcwd())  # by the name that it has now: the caller may have put it aside
    os._exit(0)


def _why(error: OSError | OutlastError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OutlastError):
        return error.message.removesuffix(".")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return EXISTS
    return f"{error.strerror}{': ' + str(error.filename) if error.filename else ''}"


def _answer(caller: socket.socket, value: object) -> None:
    _say(caller, json.dumps(value).encode())


def _say(caller: socket.socket, word: bytes) -> None:
    try:
        caller.sendall(word)
    except OSError:
        pass  # the caller is gone; the task is not


def _give_up(published: str, error: OSError | OutlastError | MemoryError) -> None:
    """A pending task that can never begin ends unrun; where something is only scarce, it stays pending."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and not status.is_damage(error)):
        return
    try:
        Queue(home_of(published)).end_unrun(published, _why(error))
        bell.ring_once(published)
    except (OSError, OutlastError):
        pass  # it stays pending


class _Alone:
    """A supervisor that has no keeper yet."""

    def __init__(self, caller: socket.socket, warm: bool) -> None:
        self._caller, self._warm = caller, warm

    def with_a_keeper(self, post: Post, ready: int) -> Pair:
        """Fork one, which starts the shell."""
        hand, theirs = hands()
        me = process.identity(os.getpid())

        def life() -> NoReturn:
            hand.close()
            self._caller.close()
            Keeper(post, theirs, me, resume).run(ready, self._warm)

        keeper = process.identity(fork_into(life))
        theirs.close()
        process.become_subreaper()
        return Pair(hand, keeper)


def _prepare(
    published: str, around: Surroundings, given: dict[str, int], guards: Pair | _Alone, warm: bool
) -> Supervisor:
    """In a staged directory: all that a task needs but its command."""
    if around.sandbox:
        around = confine.furnished(around, os.path.basename(published))
    post = Post(published, around, _open_pipes(around), _open_stdin(around, given.get(request.TEXT, -1)))
    post.take_lock(given.get(request.LOCK, -1))
    if warm and around.state and not around.sandbox:
        post.staged = os.getcwd()
    ready, post.go = _named_pipe(sessionfile.GO) if post.staged else os.pipe()
    # Early: while the keeper starts the shell, we do the rest.
    pair = guards.with_a_keeper(post, ready)
    os.close(ready)
    process.rename_self("outlast-sup", f"outlast supervisor of {post.task_id}")
    if request.LOCK not in given:  # otherwise all this is there already
        record.reserve()
        bell.hang()
        launchfile.make_room()
    output.make(pipe.stream for pipe in post.pipes)
    supervisor = Supervisor(post, pair)
    supervisor.open_pumps()
    _await_command(post, pair.hand)
    return supervisor


def _await_command(post: Post, hand: socket.socket) -> None:
    """The command is there and waits."""
    said = heard(hand)
    if not said:
        raise OSError(0, "the keeper could not fork the command: no more processes, or no memory")
    if said.startswith(REFUSED):
        raise OutlastError(said.removeprefix(REFUSED).decode(errors="replace"))
    pid, *wrapper = map(int, said.split())
    if pid <= 0:
        raise OSError(-pid, os.strerror(-pid))
    post.watch_command(pid, *wrapper)
    os.close(post.stdin.reader)


def begin_another(turn: Turn) -> bool:
    """In a supervisor whose command is over: fork another, for a pending task; whether that has begun."""
    try:
        launch = launchfile.read_all(turn.directory)
        around = surroundings(launch)
        asked = request.wanted(turn.directory, turn.directory, around, turn.lock)
    except (OSError, OutlastError, ValueError) as error:
        _give_up(turn.directory, OutlastError(str(error)) if isinstance(error, ValueError) else error)
        turn.close()
        return False
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # As a number: the child leaves our frames, and what closes itself there must not be what it needs.
    fds = [theirs.detach(), *asked]

    def life() -> NoReturn:
        start(*fds)

    fork_afresh(life, *fds)
    for fd in fds:
        if fd != turn.lock:
            os.close(fd)
    ours.settimeout(_BEGIN_PATIENCE_S)
    try:
        answer = request.begin(ours, terms(launch), turn.place)
    except TimeoutError:
        answer = {}  # slow, not dead
    turn.close()
    ours.close()
    return answer is not None and "error" not in answer


def _open_pipes(around: Surroundings) -> tuple[Pipe, ...]:
    return tuple(Pipe(stream, *os.pipe()) for stream in ("stdout", "stderr")[: 1 + around.split])


def _open_stdin(around: Surroundings, text: int) -> HeldStdin:
    if text >= 0:
        return HeldStdin(text)
    match around.stdin:
        case Stdin(open=True):
            return HeldStdin(*_named_pipe(status.STDIN))
        case Stdin(file=str(path)):
            return HeldStdin(os.open(os.path.join(around.cwd, path), os.O_RDONLY | os.O_CLOEXEC))
    return HeldStdin(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _named_pipe(name: str) -> tuple[int, int]:
    """Both ends of one that others can write to."""
    if not os.path.lexists(name):  # of a pending task another may have died while it began it
        os.mkfifo(name, 0o600)
    reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    writer = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    os.set_blocking(reader, True)
    return reader, writer
