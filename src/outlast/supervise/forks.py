"""Forking without exec, safely: a child never returns into its parent's code."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

TROUBLE = "trouble.log"
_CRASHED = 70
_depth = 0  # how many forks, each inside the life of the one before, lead to this process


class _Reborn(BaseException):
    """Unwinds a fork that has another life than its parent."""

    def __init__(self, life: Callable[[], object]) -> None:
        self.life = life


def fork_into(life: Callable[[], object]) -> int:
    """Fork a child that lives `life` and nothing else; its pid. A crash leaves its story in the task's directory."""
    pid = os.fork()
    if not pid:
        live(life)
    return pid


def live(life: Callable[[], object]) -> NoReturn:
    """In a process of its own: live `life`, or whatever it is reborn into."""
    global _depth  # noqa: PLW0603 # of this process alone
    _depth += 1
    while True:
        try:
            life()
            os._exit(_CRASHED)
        except _Reborn as another:
            if _depth > 1:
                _depth -= 1
                raise  # to the first fork of all
            life = another.life
        except BaseException:
            _tell()
            os._exit(_CRASHED)


def fork_afresh(life: Callable[[], object], *keep: int) -> int:
    """Fork a child that takes nothing over but the descriptors `keep`, not even the frames of its parent's calls.

    A supervisor forks the next one, and that one another: what piled up would one day be too much.
    """
    pid = os.fork()
    if pid:
        return pid

    def alone() -> None:
        import gc

        from outlast.lean import signal

        signal.set_wakeup_fd(-1)
        gc.collect()  # now: what closes a descriptor later would close somebody else's
        close_all_but(*keep)
        life()

    raise _Reborn(alone)


def close_all_but(*keep: int) -> None:
    """Close every descriptor but the standard ones and these."""
    last = 2
    for fd in sorted(keep):
        os.closerange(last + 1, fd)
        last = fd
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))


def _tell() -> None:
    import traceback

    if not os.path.exists("launch.json"):
        return  # not in a task's directory yet: the caller is told that it could not be started
    try:
        fd = os.open(TROUBLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.write(fd, traceback.format_exc().encode()[:65536])
    except OSError:
        pass  # a full disk is often the trouble
