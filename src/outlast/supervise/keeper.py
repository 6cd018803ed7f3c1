"""The keeper, once it has something to do: the supervisor's understudy.

It shares the supervisor's hold on the task. It records how the command ended, reaps what the
command left behind, and forks another supervisor if its own dies. It never touches the
output: the bytes wait in the pipe. Until its first supervisor dies it is `asleep`.
"""

from __future__ import annotations

import os
import select
import time

from outlast import process
from outlast.lean import socket
from outlast.store import launchfile, staging
from outlast.supervise import signals
from outlast.supervise.forks import fork_into
from outlast.supervise.post import ALONE_S, DONE, NOTED, PLACE, hands, heard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from outlast.model import Identity
    from outlast.supervise.post import Post

    Succeed = Callable[[Post, socket.socket, Identity], NoReturn]

# Keeper to supervisor:
CHILDLESS = b"c"  # nothing of the command is left below me
LEFT = b"l"  # the command is over and has left something running

_TELL_AGAIN_S = 0.1
_SHORT_LIFE_S = 1.0
_SHORT_LIVES = 20  # so many in a row are bad luck (or a test); more are a fault that stays


class Keeper:
    """One keeper's life; without a supervisor, the one that it had is dead."""

    def __init__(self, post: Post, hand: socket.socket, supervisor: Identity | None, succeed: Succeed) -> None:
        self._post, self._hand = post, hand
        # Told, not asked for: if it is dead already, our parent is somebody else.
        self._supervisor = supervisor
        self._succeed = succeed
        self._me = process.identity(os.getpid())
        self._wake = signals.Wake()
        self._short_lives = 0
        self._replaced_at = 0.0
        self._said: set[bytes] = set()
        self._noted = False
        self._look_at: float | None = None  # the command is over: when to look at it ourselves

    def guard(self) -> NoReturn:
        """Replaces a keeper that died: the command is the supervisor's child then, not ours."""
        process.become_subreaper()
        self.show()
        self._look()
        self.keep()

    def show(self) -> None:
        """Let it be seen who we are."""
        process.rename_self("outlast-keeper", f"outlast keeper of {self._post.task_id}")

    def keep(self) -> NoReturn:
        """To the end of the task."""
        while True:
            supervisor = process.open_pidfd(self._supervisor) if self._supervisor else None
            if supervisor is not None:
                self._watch(supervisor)
            else:
                self._hear()  # it may have said before that it leaves because all is done
            self._look()
            if self._post.go >= 0:
                self._let_it_begin()
            self._replace_supervisor()

    def _let_it_begin(self) -> None:
        """The supervisor died, and perhaps before the command began."""
        if self._post.never_was():
            os._exit(1)  # there is no task; the command sees the end of its pipe
        launchfile.erase_secrets()
        self._post.let_command_begin()

    def _watch(self, supervisor: int) -> None:
        """Look after the children until the supervisor is gone."""
        poll, hand, wake = select.poll(), self._hand.fileno(), self._wake
        for fd in (wake.fd, hand, self._post.command_fd, supervisor):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(self._patience_ms())}
            wake.clear()
            if self._post.command_fd in ready:
                self._look_at = time.monotonic() + ALONE_S
                poll.unregister(self._post.command_fd)
            if ready & {hand, supervisor} and not self._hear() and hand in ready:
                poll.unregister(hand)  # at its end it is always ready
            if self._look_at is None or self._noted or time.monotonic() >= self._look_at:
                self._look()
            if supervisor in ready:
                os.close(supervisor)
                return

    def _patience_ms(self) -> float | None:
        if self._look_at is None or self._noted or self._said:
            return None
        return max(0.0, self._look_at - time.monotonic()) * 1000

    def _hear(self) -> bool:
        """What the supervisor has said by now; whether it may say more."""
        while True:
            try:
                said, fds = socket.recv_fds(self._hand, 16, 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if said == DONE:
                os._exit(0)
            if said == PLACE:
                self._post.place = fds[0]
            self._noted |= said == NOTED
            if not said:
                return False

    def _look(self) -> None:
        children = self._post.reap()
        self._post.end_input_if_asked()
        if self._post.command_is_over():
            self._post.note_end()
            self._post.let_go()
            self._say_childless(children)

    def _say_childless(self, children: bool) -> None:
        left = children and self._post.has_other_children(self._supervisor.pid if self._supervisor else 0)
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
            self._wake.close()
            heard(theirs)  # until it is recorded who we are, or our keeper is dead too
            self._succeed(self._post, theirs, self._me)

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
