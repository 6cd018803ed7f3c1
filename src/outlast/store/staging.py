"""Where a task is prepared: a directory that is not a task yet, under an id that nobody has."""

from __future__ import annotations

import os

from outlast.errors import StartFailed
from outlast.store.session_files import GO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.model import Surroundings
    from outlast.store.home import Home

GO_WORD = b"g\n"  # to the command: the task is published, begin
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
                    from outlast.store.sessionfile import Sessions  # only callers stage tasks

                    Sessions(home.sessions).link(around.state, staged, around.snapshot)
            except BaseException:
                remove(staged)
                raise
            return staged, home.task(task_id)
    raise StartFailed("No free task id was found; `outlast clean` removes finished tasks.")


def publish(staged: str, published: str) -> bool:
    """In a guard, whose directory it is: make it a task. False if its caller has.

    Of a warm task both may: renaming it is what decides, and whoever has done that lets its shell go.
    """
    try:
        os.rename(staged, published)
    except FileNotFoundError:
        if is_here(published):
            return False
        raise
    return True


def is_here(published: str) -> bool:
    """In a guard: whether its directory is published."""
    try:
        return os.path.samestat(os.stat("."), os.stat(published))
    except FileNotFoundError:
        return False


def put_aside(staged: str, published: str) -> bool:
    """In a guard: nobody can publish it any more. False if somebody has."""
    try:
        os.rename(staged, f"{staged}.gone")
    except OSError:
        pass  # it was published, or put aside by somebody else
    return not is_here(published)


def let_go(directory: str) -> None:
    """Let the shell of a warm task that is published run its command. Its supervisor does the same."""
    try:
        fd = os.open(f"{directory}/{GO}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # it runs already
    try:
        os.write(fd, GO_WORD)
    except OSError:
        pass
    finally:
        os.close(fd)


def remove_here() -> None:
    """In a guard: its directory, by the name that it has now; the caller may have put it aside."""
    try:
        remove(os.getcwd())
    except FileNotFoundError:
        pass  # it is gone


def discard(staged: str) -> None:
    """In a caller: take back a directory that its supervisor may be about to publish, or to remove."""
    aside = f"{staged}.gone"
    try:
        os.rename(staged, aside)
    except OSError:
        return  # removed
    remove(aside)


def remove(staged: str) -> None:
    """Take back a directory that did not become a task; whoever else does so meanwhile is welcome."""
    try:
        for name in os.listdir(staged):
            os.unlink(f"{staged}/{name}")
        os.rmdir(staged)
    except OSError:
        pass
