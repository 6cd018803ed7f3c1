"""A keeper while its first supervisor lives: it holds what that one gave it, and waits for its end.

It is the supervisor's parent, so whatever that one leaves behind comes to it. It is a fork of
the nursery as the supervisor is, and each page that a fork writes to is its own from then on;
Python writes to every object that it looks at. So it looks at nothing: a task is a message
whose descriptors are kept unread. All it ever does is in this module, and most of it is one
`poll`; what is needed when the supervisor dies (`keeper`) costs only those whose supervisor does.
"""

from __future__ import annotations

import os
import select
import time

# By their names: each module that is looked into is a page or two more.
from os import close, fchdir, getpid, pidfd_open, setsid

from outlast.errors import OutlastError
from outlast.lean import socket
from outlast.lean.signal import SIG_DFL, SIGCHLD, SIGKILL, pidfd_send_signal, signal
from outlast.process import become_subreaper, rename_self
from outlast.supervise.forks import fork_into
from outlast.supervise.pair import KEPT, taken_over
from outlast.supervise.post import ALONE_S, AWAKE, DONE, INPUT, NOTED, PLACE, QUIET, TASK, hands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from outlast.supervise.keeper import Succeed

MOST_DESCRIPTORS = 12  # that go with one task
_MOST_SAID = 256
_REST_S = 600.0  # then it looks whether there are orphans to be reaped
_RISES_S = 2.0  # what a supervisor takes to get up, on a machine that is busy
WAKE = b"\n"  # to a supervisor at rest


def keep(life: Callable[[socket.socket, int], NoReturn], theirs: Sequence[int]) -> Sleeper:
    """Fork a supervisor. It lives `life`, with its side of what the two talk through and our pid.

    What is `theirs` we hold as well, and close.
    """
    setsid()
    signal(SIGCHLD, SIG_DFL)  # of the nursery's children nobody reaps any
    hand, other = hands()
    me = getpid()

    def supervise() -> NoReturn:
        hand.close()
        life(other, me)

    supervisor = pidfd_open(fork_into(supervise))
    # Before it can have a child that becomes an orphan: its command begins only when we have its task.
    become_subreaper()
    other.close()
    for fd in theirs:
        close(fd)
    return Sleeper(hand, supervisor)


class Sleeper:
    """The descriptors of a task, in the order in which they came."""

    def __init__(self, hand: socket.socket, supervisor: int) -> None:
        self._hand, self._supervisor = hand, supervisor
        self._kept: list[int] = []
        self._lent: list[int] = []  # only until the command is over
        self._place = self._command = -1
        self._patience_ms: float | None = None
        self._quiet: list[int] = []  # what we watch while the supervisor is at rest
        self._poll = select.poll()
        self._poll.register(hand, select.POLLIN)
        self._poll.register(supervisor, select.POLLIN)

    def sleep(self) -> None:
        """Until the supervisor is gone."""
        hand = self._hand.fileno()
        while True:
            ready = [fd for fd, _ in self._poll.poll(self._patience_ms)]
            if self._supervisor in ready:
                return
            if hand in ready:
                self.hear()
            elif self._quiet:
                self._rouse()
            elif ready:  # the command is over, and the supervisor sees to it
                self._turn_from_command()
                self._patience_ms = ALONE_S * 1000
            else:  # it does not: somebody may have stopped it
                self._patience_ms = None
                self._note_end()

    def wake(self, succeed: Succeed) -> NoReturn:
        """It is gone: see what it said last, and take its task over."""
        while self.hear(socket.MSG_DONTWAIT):
            pass
        close(self._supervisor)
        if not self._kept:
            os._exit(1)  # there was no task
        post = taken_over(self._kept, self._lent, self._place)
        if post.go >= 0 and post.never_was():
            os._exit(1)  # nor is there now; the command sees the end of its pipe
        from outlast.supervise.keeper import Keeper

        Keeper(post, self._hand, None, succeed).keep()

    def hear(self, flags: int = 0) -> bool:
        """One word of the supervisor; whether there may be more."""
        try:
            said, fds = socket.recv_fds(self._hand, _MOST_SAID, MOST_DESCRIPTORS, flags)
        except ConnectionResetError:
            return True  # it died before it heard us; what it said before comes next
        except OSError:
            return False
        if said[:1] == TASK:
            self._take(said[1:], fds)
        elif said == PLACE:
            self._place = fds[0]
        elif said:
            self._obey(said)
        elif flags == 0:
            self._poll.unregister(self._hand)  # at its end it is always ready
        return bool(said)

    def _obey(self, word: bytes) -> None:
        if word == NOTED:
            self._turn_from_command()
            _close(self._lent)
        elif word == INPUT:
            close(self._lent.pop())
        elif word[:1] == QUIET:
            self._watch(word[1:])
        elif word == AWAKE:
            self._watch_no_more()
        elif word == DONE:
            os._exit(0)

    def _take(self, task_id: bytes, fds: list[int]) -> None:
        """Another task: to its directory, and nothing of the one before is ours any more."""
        self._turn_from_command()
        fchdir(fds[0])
        _close([fds[0], *self._kept, *self._lent, *([self._place] if self._place >= 0 else [])])
        self._place, self._command = -1, fds[3]
        streams = (len(fds) - 5) // 2  # the last may be that of the input
        self._kept, self._lent = fds[1 : 4 + streams], fds[4 + streams :]
        self._poll.register(self._command, select.POLLIN)
        rename_self("outlast-keeper", f"outlast keeper of {task_id.decode()}")
        self._hand.sendall(KEPT)

    def _watch(self, until: bytes) -> None:
        """The supervisor is at rest."""
        self._quiet = self._kept[3:]
        for fd in self._quiet:
            self._poll.register(fd, select.POLLIN)
        left = float(until) - time.monotonic() if until else _REST_S
        if self._command < 0:
            left = 0.0  # the command ended while it lay down
        self._patience_ms = min(max(0.0, left), _REST_S) * 1000

    def _rouse(self) -> None:
        """Something came, or it is time."""
        over = self._is_over()
        self._watch_no_more()
        if over:
            self._turn_from_command()
            if self._note_end():
                # How it ended is recorded, whoever dies now. We are quicker than it would be: a fork of ours goes on.
                pidfd_send_signal(self._supervisor, SIGKILL)
                return
            self._patience_ms = _RISES_S * 1000
        try:
            self._hand.sendall(WAKE)
        except OSError:
            pass  # it has just died

    def _note_end(self) -> bool:
        """Record how the command ended; whether that is known now."""
        try:
            return taken_over(self._kept, self._lent, self._place).note_end() is not None
        except (OSError, OutlastError):
            return False

    def _is_over(self) -> bool:
        return bool(select.select([self._kept[2]], [], [], 0)[0])

    def _watch_no_more(self) -> None:
        self._patience_ms = None
        for fd in self._quiet:
            self._poll.unregister(fd)
        self._quiet = []

    def _turn_from_command(self) -> None:
        self._patience_ms = None
        if self._command >= 0:
            self._poll.unregister(self._command)
            self._command = -1


def _close(fds: list[int]) -> None:
    for fd in fds:
        close(fd)
    fds.clear()
