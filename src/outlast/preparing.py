"""The launches of one shell, one after the other.

Mostly a command differs from the one before in nothing but its text. To see that takes a
quarter of the time that it takes to make a launch.
"""

from __future__ import annotations

import os

from outlast import sessions, within
from outlast.frozen import replaced
from outlast.model import Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.model import Grant, Launch, Request
    from outlast.sessions import Place
    from outlast.settings import Settings

_TEXT = {"command": "", "description": ""}  # what two requests may differ in
_NO_STDIN = Stdin()


class Preparing:
    """What runs for each grant."""

    def __init__(self, settings: Settings, home: str, base: str = "") -> None:
        self._settings, self._home, self._base = settings, home, base
        self._bytes: Any = None
        self._environ: dict[str, str] = {}
        self._last: tuple[tuple[object, ...], Launch] | None = None

    def environ(self) -> Mapping[str, str]:
        """This process' variables as they are now."""
        # The bytes behind them: a copy of the mapping itself decodes each variable.
        now = getattr(os.environ, "_data", None)
        if now is None or now != self._bytes:
            self._bytes, self._environ = now and dict(now), dict(os.environ)
        return self._environ

    def launch(
        self, grant: Grant, environ: Mapping[str, str], place: Place | None, secret: Sequence[str] | None
    ) -> Launch:
        """What exactly will run, as `sessions.prepare` has it."""
        request = grant.request
        decisive = _decisive(request, self._settings, environ, place) if place else None
        if decisive is not None and self._last is not None and self._last[0] == decisive:
            return replaced(self._last[1], command=request.command, description=request.description)
        made = sessions.prepare(grant, self._settings, environ, place, self._home, secret, self._base)
        self._last = None if decisive is None or made.groups else (decisive, made)
        return made


def _decisive(
    request: Request, settings: Settings, environ: Mapping[str, str], place: Place
) -> tuple[object, ...] | None:
    """All that a launch depends on but its text; None if that has to be looked at each time."""
    if request.cwd or request.sandbox or request.stdin != _NO_STDIN:
        return None
    try:
        found = place.sessions.read(place.name)
    except (OSError, ValueError):
        return None  # it has no state yet, or a damaged one
    return (
        {**request.__dict__, **_TEXT},
        environ,
        place.name,
        place.keeps,
        found,
        sessions.nearest(found.directory, environ),
        sessions.shell_for(request.shell or settings.shell, environ),
        sessions.umask(),
        sessions.rlimits(),
        os.getpriority(os.PRIO_PROCESS, 0),
        within.task(environ),
    )
