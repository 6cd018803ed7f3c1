"""Forking without exec, safely: a child never returns into its parent's code."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TROUBLE = "trouble.log"
_CRASHED = 70


def fork_into(life: Callable[[], object]) -> int:
    """Fork a child that lives `life` and nothing else; its pid. A crash leaves its story in the task's directory."""
    pid = os.fork()
    if pid:
        return pid
    try:
        life()
    except BaseException:
        _tell()
    finally:
        os._exit(_CRASHED)


def _tell() -> None:
    import traceback

    if not os.path.exists("launch.json"):
        return  # not in a task's directory yet: the caller is told that it could not be started
    try:
        fd = os.open(TROUBLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.write(fd, traceback.format_exc().encode()[:65536])
    except OSError:
        pass  # a full disk is often the trouble
