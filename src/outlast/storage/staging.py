"""Where a task is prepared: a directory that is not a task yet, under an id that nobody has."""

from __future__ import annotations

import os

from outlast.errors import StartFailed
from outlast.storage.sessions import Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.home import Home
    from outlast.types import Surroundings

_ID_TRIES = 5


def token() -> str:
    """The part of an id that nobody else has."""
    return os.urandom(4).hex()


def stage(home: Home, kind: str, around: Surroundings) -> tuple[str, str]:
    """Make a directory for a task under a new id: where it is now, and where it will be published.

    In a session it also has what its shell begins with.
    """
    for _ in range(_ID_TRIES):
        task_id = f"{kind}-{token()}"
        if not os.access(home.task(task_id), os.F_OK):
            staged = f"{home.staging}/{task_id}.{token()}"
            os.mkdir(staged, 0o700)
            try:
                if around.state:
                    Sessions(home.sessions).link(around.state, staged, around.snapshot)
            except BaseException:
                remove(staged)
                raise
            return staged, home.task(task_id)
    raise StartFailed("No free task id was found; `outlast clean` removes finished tasks.")


def remove(staged: str) -> None:
    """Take back a directory that did not become a task; whoever else does so meanwhile is welcome."""
    try:
        for name in os.listdir(staged):
            os.unlink(f"{staged}/{name}")
        os.rmdir(staged)
    except OSError:
        pass
