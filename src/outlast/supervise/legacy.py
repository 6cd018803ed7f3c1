"""What a command leaves to its session, and what the session's next one begins with."""

from __future__ import annotations

import os

from outlast.frozen import replaced
from outlast.store import sessionfile
from outlast.supervise import request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.model import Surroundings
    from outlast.store.snapshot import Snapshot
    from outlast.supervise.post import Post

_SESSIONS = os.path.join("..", "..", "sessions")  # as seen from a task's directory


class Legacy:
    """That of one command, in its supervisor."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._ground: sessionfile.Ground | None = None
        self._settling: sessionfile.Settling | None = None
        self._found: Snapshot | None = None  # what its session has after it

    def rehearse(self) -> None:
        """Nobody waits yet: look at what the command begins with."""
        if self._post.around.state:
            self._ground = sessionfile.Ground()
            self._ground.rehearse()

    def hold(self) -> None:
        """Before the end is known: whoever learns of it and goes on in the session waits for its state."""
        if not self._post.terms.keeps:
            return
        try:
            self._settling = sessionfile.Settling(self._post.around.state, _SESSIONS)
        except OSError:
            pass  # the session was removed

    def forget(self) -> None:
        """In a fork, which would hold the session for ever."""
        if self._settling is not None:
            self._settling.forget()

    def settle(self) -> None:
        """The shell is gone: its session gets the state."""
        if not self._post.around.state:
            return
        try:
            if self._settling is not None:
                self._found = self._settling.settle(self._post.around, self._post.task_id, self._ground)
        except (OSError, ValueError, KeyError, MemoryError):
            pass  # a full disk: the state stays as it was, the task's end is recorded
        sessionfile.tidy()

    def is_known(self, again: str) -> bool:
        """Whether it can be foreseen what the next one begins with: where, and the variables that no snapshot holds."""
        if not self._post.around.state:
            return True
        return self._found is not None and (again == request.HERE or os.access(self._found.directory, os.X_OK))

    def next_surroundings(self, again: str) -> Surroundings:
        """What the next one begins with."""
        around = self._post.around
        if self._found is None:
            return around
        cwd = around.cwd if again == request.HERE else self._found.directory
        return replaced(around, snapshot=self._found.mark, cwd=cwd)
