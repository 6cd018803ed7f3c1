"""What a nursery goes through itself before its forks do: the life of both guards, up to where they wait.

CPython adapts its code to what it meets, and remembers where it found each name. What it does
of that before a fork is there for all forks; what it does after it, each guard writes into
pages of its own. So a nursery that is wanted more than once practises a few times, in a
directory that is nobody's, with itself as the command.
"""

from __future__ import annotations

import gc
import os

from outlast import process
from outlast.errors import OutlastError
from outlast.lean import signal, socket
from outlast.model import Stdin, Surroundings, Terms
from outlast.store import bell, staging
from outlast.store.home import Home
from outlast.supervise import asleep, beginning, request
from outlast.supervise.forks import close_all_but
from outlast.supervise.pair import KEPT, Pair
from outlast.supervise.post import AWAKE, NOTED, QUIET, hands
from outlast.supervise.spawning import given, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.supervise.post import Post

_NO_SHELL = "/practice/bash"  # there is none, and so none is started
_TERMS = Terms(limit=1000.0, grace=1.0, output_limit=1 << 20, free_floor=0, keeps=False, stages=False)


def practise() -> bool:
    """Once; leaves nothing. Whether it could be done."""
    place = os.path.join("/tmp", f"outlast-practice-{staging.token()}")
    try:
        for name in ("", "/tasks", "/staging", "/outbox"):
            os.mkdir(place + name, 0o700)
        _practise(place)
        return True
    except (OSError, OutlastError, ValueError):
        return False
    finally:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        _reap()
        process.become_subreaper(False)
        os.chdir("/")
        close_all_but()
        _remove(place)
        process.rename_self("outlast-nursery", "outlast nursery")


def _practise(place: str) -> None:
    bell.hang(os.path.join(place, "outbox"))
    around = Surroundings(_NO_SHELL, "/", {}, 0o077, Stdin(), False, {}, 0)
    staged, published = staging.stage(Home(place), "bash", around)
    caller, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    hand, theirs = hands()
    me = os.getpid()
    pair = Pair(hand, process.identity(me))
    sleeper = asleep.Sleeper(theirs, os.pidfd_open(me))
    process.become_subreaper()
    asked, *others = request.wanted(staged, published, around, warm=True)
    _, _, around, beside, warm = request.understood(asked, *others)
    os.chdir(staged)
    theirs.sendall(KEPT)  # it will hear of the task, but we cannot wait for that
    supervisor = beginning.prepare(published, around, beside, asked, pair, caller, warm, _as_if_started)
    sleeper.hear()
    supervisor.rehearse()
    supervisor.take_up(request.Word(_TERMS, -1, None))
    supervisor.begin(staged, caller)
    beginning.answer(caller, {"pid": me, "started": 0.0})
    supervisor.practise()
    for word in (QUIET, AWAKE, NOTED):
        hand.sendall(word)
        sleeper.hear()
    for end in (line, hand, theirs):
        end.close()


def _as_if_started(post: Post, ready: int, _let_go: Callable[[], None]) -> None:
    pairs = given(post, ready)
    assert spawn(post, pairs) is None
    for ours, _ in pairs:
        os.close(ours)
    post.watch_command(os.getpid())
    os.dup2(ready, ready + 20)  # somebody has to be there for the word to begin
    os.close(ready)
    os.close(post.stdin.reader)


def _reap() -> None:
    """Of forks that ended meanwhile: at other times the kernel does it."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _remove(place: str) -> None:
    try:
        for name in os.listdir(place):
            inner = os.path.join(place, name)
            for left in os.listdir(inner):
                if name != "outbox":
                    staging.remove(os.path.join(inner, left))
            staging.remove(inner)
        os.rmdir(place)
    except OSError:
        pass


_BLOCKS = range(48, 513, 16)  # the sizes that CPython has pools for, but for the two smallest
_POOL_BYTES = 16384
_MOST_BLOCKS = 3000
_LARGE = range(4096, 512, -16)  # what is larger than those, of the C library
_MOST_LARGE = 30
_held: list[bytes] = []


def make_room() -> None:
    """Fill the holes in pages that all forks share: what a fork makes then comes to lie in new ones, side by side."""
    gc.collect()  # also forgets the objects that CPython keeps for the next of their kind, wherever they are
    for size in _BLOCKS:
        for _ in range(_MOST_BLOCKS):
            if _hold(size) % _POOL_BYTES < size + 48:
                break  # the first of a new pool
    top = 0
    for size in _LARGE:
        for _ in range(_MOST_LARGE):
            if (place := _hold(size)) > top:
                top = place
                break  # at the end of all


def _hold(size: int) -> int:
    """Take so much for ever; where it is."""
    _held.append(filling := bytes(size - 33))
    return id(filling)
