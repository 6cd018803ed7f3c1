"""How long a command may run, and the child that ends it then."""

from __future__ import annotations

import os
import time

from outlast import process
from outlast.model import AGENT, BRIDGE
from outlast.store import status
from outlast.supervise.ending import end_trees
from outlast.supervise.forks import fork_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.model import Identity
    from outlast.supervise.post import Post

_TRY_AGAIN_S = 1.0  # when there is no process or descriptor to be had


class Limit:
    """That of one command; none unless its terms have one."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self.at: float | None = None
        self.ender: Identity | None = None
        self._struck = False

    def set(self, struck: bool = False) -> None:
        """The command begins, or began long ago and was perhaps struck by the one before us."""
        limit = self._post.terms.limit
        self.at = None if limit is None else self._post.started_monotonic + limit
        self._struck = struck

    def left(self) -> float | None:
        """How long it may still run; None if nobody is to end it."""
        # An ender that was killed may have ended the command and not what the command started.
        if self.at is None or self.ender or (self._post.command_is_over() and not self._struck):
            return None
        return self.at - time.monotonic()

    def is_reached(self, is_left: Callable[[], bool]) -> bool:
        """Whether it has to be ended now: the command, or what of it `is_left`."""
        if self.ender and not process.is_alive(self.ender):
            self.ender = None  # somebody ended it, or something survived it: strike again
        left = self.left()
        return left is not None and left <= 0 and (not self._post.command_is_over() or is_left())

    def strike(self, forget: Callable[[], None], sign_on: Callable[[], None], *, tell: bool) -> None:
        """Have it ended. `forget` is for a fork, `sign_on` records who there is; it is told why unless it is over."""
        self._struck = True
        if tell:
            status.write_ending("limit", f"limit of {self._post.terms.limit:g} s", time.time())
        try:
            self._fork_ender(forget, sign_on)
        except OSError:
            self.at = time.monotonic() + _TRY_AGAIN_S

    def _fork_ender(self, forget: Callable[[], None], sign_on: Callable[[], None]) -> None:
        """Let a child do the ending: it waits for processes to go, and the pump must not stand still for that."""
        go, ready = os.pipe()

        def life() -> None:
            os.close(ready)
            forget()
            self._post.drop_lock()
            process.rename_self("outlast-ender", f"outlast ender of {self._post.task_id}")
            os.read(go, 1)
            self._end()

        try:
            self.ender = process.identity(fork_into(life))
            sign_on()
        finally:
            os.close(go)
            os.close(ready)

    def _end(self) -> None:
        post, grace = self._post, self._post.terms.grace
        if post.around.shell not in (AGENT, BRIDGE):
            end_trees([lambda: status.guards_of(".")], grace)
            return
        from outlast.supervise import offspring  # most tasks are no agents

        offspring.end_pending(post.published, "limit")
        end_trees([lambda: status.guards_of(".")], grace)
        offspring.end_all(post.published, grace, "limit")
