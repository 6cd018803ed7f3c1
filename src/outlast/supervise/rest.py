"""A supervisor at rest: while nothing happens, a small shell holds its place.

A task that runs for hours and says nothing needs two processes that can go on with it, not
two interpreters that have written to a megabyte of their own. So after some time in which
nothing came, a supervisor lets its keeper watch, and becomes a `sh` that waits: the same process,
so the command stays its child, and with the same descriptors, so lock and pipes stay held. What
wakes it is a word of the keeper (there is output, the command is over, its limit is reached), or the
keeper's death; it then becomes an interpreter again and goes on as a successor does, from what is
on disk.

A shell reaps children that it has not started, and the command's exit code would be gone. dash does
so only after a SIGCHLD, so that one is blocked; others unblock it, and with those nobody rests.
Orphans of the command are not reaped meanwhile, so who has seen one does not rest.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # The directory that holds the package: there is no `site`, as in a nursery.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from outlast.lean import json, signal, socket
from outlast.store import status
from outlast.supervise import signals
from outlast.supervise.forks import live
from outlast.supervise.pair import Pair, belongings, taken_over
from outlast.supervise.post import QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from outlast.supervise.post import Post

QUIET_S = 5.0  # the first time; each time it was woken, twice as long
_SHELL = "/bin/sh"
_PATIENT = "dash"  # known not to reap what it has not started
_WAIT = 'trap : CHLD USR1; printf outlast-sup >/proc/$$/comm; read x; exec "$@"'
_KNOWN: dict[str, bool] = {}


def is_possible() -> bool:
    """Whether there is a shell for it."""
    if _SHELL not in _KNOWN:
        _KNOWN[_SHELL] = os.path.basename(os.path.realpath(_SHELL)) == _PATIENT
    return _KNOWN[_SHELL]


def lie_down(post: Post, pair: Pair, strike_at: float | None, rests: int) -> None:
    """Become the shell. Comes back only if that is not possible."""
    kept, lent = belongings(post)
    state = json.dumps([kept, lent, post.place, rests + 1])
    script = [sys.executable, "-I", "-S", os.path.abspath(__file__), state]
    _inherit((*kept, *lent, post.place), True)
    # From here on it watches. If we cannot lie down after all, it wakes somebody who is awake.
    pair.hand.sendall(QUIET + (b"" if strike_at is None else b"%f" % strike_at))
    os.dup2(pair.hand.fileno(), 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        os.execve(_SHELL, [f"outlast supervisor of {post.task_id}", "-c", _WAIT, "sh", *script], dict(os.environ))
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(2, 0)
        _inherit((*kept, *lent, post.place), False)


def _inherit(fds: Iterable[int], yes: bool) -> None:
    for fd in fds:
        if fd >= 0:
            os.set_inheritable(fd, yes)


def rise(state: str) -> NoReturn:
    """Awake again: in a new interpreter, in the task's directory."""
    from outlast.supervise.supervisor import resume

    kept, lent, place, rests = json.loads(state)
    hand = socket.socket(fileno=os.dup(0))
    os.dup2(2, 0)
    _inherit((*kept, *lent, place), False)
    signals.ignore_the_usual()
    guards = status.guards_of(".")
    post = taken_over(kept, lent, place)
    post.recoveries = guards.recoveries
    post.share_clock()
    # The keeper may be dead: that is then seen, and another one forked.
    resume(post, Pair(hand, guards.keeper or guards.supervisor), rests)


if __name__ == "__main__":
    live(lambda: rise(sys.argv[1]))
