"""How a task comes to have guards: prepared, begun, and watched by this process from then on.

The keeper comes first, detaches, forks the supervisor and sleeps. A supervisor's life: take the
lock, start the shell, tell the keeper, wait until what is to run is written down, publish the
task, let the command go; then it is watched (`supervisor`). They are forked from the nursery,
never from a caller.
"""

from __future__ import annotations

import errno
import os
import select

from outlast import process
from outlast.errors import OutlastError
from outlast.lean import json, socket
from outlast.model import Stdin, surroundings, terms
from outlast.store import bell, launchfile, record, session_files, staging, status
from outlast.store.queue import Queue
from outlast.supervise import EXISTS, READY, asleep, confine, request
from outlast.supervise.forks import fork_afresh
from outlast.supervise.pair import Pair
from outlast.supervise.post import DONE, REST_S, Pipe, Post
from outlast.supervise.post import Stdin as HeldStdin
from outlast.supervise.spawning import start_command
from outlast.supervise.supervisor import Supervisor, home_of, succeed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from outlast.model import Surroundings
    from outlast.store.queue import Turn

    Start = Callable[[Post, int, Callable[[], None]], None]

_BEGIN_PATIENCE_S = 5.0  # a disk that is stuck must not keep us from our own task
_WARM_S = 600.0  # guards that nobody wanted for so long leave; the next task begins cold


def start(*fds: int) -> NoReturn:
    """In a fork of the nursery: become the keeper of a supervisor that prepares a task and stays with it.

    The first descriptor leads to the caller, the others say what to prepare.
    """
    try:
        sleeper = asleep.keep(lambda hand, keeper: _supervise(hand, keeper, *fds), fds)
    except OSError as error:
        answer(socket.socket(fileno=fds[0]), {"error": _why(error)})
        os._exit(1)
    sleeper.sleep()
    sleeper.wake(succeed)


def _supervise(hand: socket.socket, above: int, line: int, what: int, *beside: int) -> NoReturn:
    """Prepare a task, wait until somebody wants it, and stay with it.

    The task is prepared as far as it can be without knowing its command, so that preparing it
    and writing down what it is to run go on side by side, or long before (a warm task). When
    the line closes first, nothing has happened.
    """
    caller = socket.socket(fileno=line)
    try:
        staged, published, around, given, warm = request.understood(what, *beside)
        pair = Pair(hand, process.identity(above))
    except (OSError, MemoryError) as error:
        answer(caller, {"error": _why(error)})
        os._exit(1)
    process.become_subreaper()  # before anything that the command starts can become an orphan
    _begun(caller, staged, published, around, given, what, pair, warm).run()


def _begun(
    caller: socket.socket,
    staged: str,
    published: str,
    around: Surroundings,
    given: dict[str, int],
    asked: int,
    pair: Pair,
    warm: bool,
) -> Supervisor:
    """A supervisor whose command runs. A warm one may wait for its command for a while."""
    pending = request.LOCK in given  # then it is published already, and its lock is ours
    try:
        os.chdir(staged)
        supervisor = prepare(published, around, given, asked, pair, caller, warm)
        if supervisor.post.staged:
            supervisor.sign_on()  # in advance: from here on the caller may publish it too
            _say(caller, READY)
        if not select.select([caller], [], [], REST_S)[0]:
            supervisor.rehearse()
        wanted = _wanted(caller, supervisor.post)
        if wanted is None:
            confine.clear_away(supervisor.post.around, supervisor.post.task_id)
            _abandon(pending, pair)
        supervisor.take_up(wanted)
        ours = supervisor.begin(None if pending else staged, caller)
    except (OSError, OutlastError, MemoryError) as error:
        if pending:
            _give_up(published, error)
        if warm:
            staging.remove(staged)  # the caller may not ask for a long time
        answer(caller, {"error": _why(error)})
        os._exit(1)
    if ours:
        answer(caller, {"pid": supervisor.post.command.pid, "started": supervisor.post.started})
    bell.ring_house()
    return supervisor


def _wanted(caller: socket.socket, post: Post) -> request.Word | None:
    """The word to begin; None if nobody wants it."""
    # Who gives it lets the command go itself, and that must not have to wait for us.
    process.stand_back(True)
    wanted = select.select([caller], [], [], _WARM_S)[0]
    process.stand_back(False)
    return request.await_begin(caller) if wanted or not post.never_was() else None


def _abandon(pending: bool, pair: Pair) -> NoReturn:
    """The caller is gone, or wants something else. The command sees the end of its pipe, and never was."""
    pair.hand.sendall(DONE)
    if not pending:
        staging.remove_here()
    os._exit(0)


def _why(error: OSError | OutlastError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OutlastError):
        return error.message.removesuffix(".")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return EXISTS
    return f"{error.strerror}{': ' + str(error.filename) if error.filename else ''}"


def answer(caller: socket.socket, value: object) -> None:
    """Tell who asked."""
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


def prepare(
    published: str,
    around: Surroundings,
    given: dict[str, int],
    asked: int,
    pair: Pair,
    caller: socket.socket,
    warm: bool,
    start: Start = start_command,
) -> Supervisor:
    """In a staged directory: all that a task needs but its command. `start` starts its shell."""
    if around.sandbox:
        around = confine.furnished(around, os.path.basename(published))
        os.close(asked)
        asked = request.written(around)
    post = Post(published, around, _open_pipes(around), _open_stdin(around, given.get(request.TEXT, -1)))
    post.asked = asked
    post.take_lock(given.get(request.LOCK, -1))
    if warm and around.state and not around.sandbox:
        post.staged = os.getcwd()
    ready, post.go = _named_pipe(session_files.GO) if post.staged else os.pipe()

    def let_go() -> None:
        caller.close()
        pair.close()
        os.close(post.go)
        post.drop_lock()

    # Early: while the shell gets itself ready, we do the rest.
    start(post, ready, let_go)
    pair.hand_over(post)
    process.rename_self("outlast-sup", f"outlast supervisor of {post.task_id}")
    if request.LOCK not in given:  # otherwise all this is there already
        record.reserve()
        bell.hang()
        launchfile.make_room()
    supervisor = Supervisor(post, pair)
    supervisor.open_pumps()
    pair.await_keeper()
    return supervisor


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
        said = request.begin(ours, terms(launch), turn.place)
    except TimeoutError:
        said = {}  # slow, not dead
    turn.close()
    ours.close()
    return said is not None and "error" not in said


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
    if not os.access(name, os.F_OK):  # of a pending task another may have died while it began it
        os.mkfifo(name, 0o600)
    reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    writer = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    os.set_blocking(reader, True)
    return reader, writer
