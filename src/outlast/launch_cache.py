"""The launches of one shell, one after the other.

Mostly a command differs from the one before in nothing but its text. To see that takes a
quarter of the time that it takes to make a launch.
"""

from __future__ import annotations

import os

from outlast import current_task, launch_builder
from outlast.frozen import replaced
from outlast.types import Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.launch_builder import Place
    from outlast.settings import Settings
    from outlast.types import Grant, Launch, Request

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
        """What exactly will run, as `launch_builder.prepare` has it."""
        request = grant.request
        decisive = _decisive(request, self._settings, environ, place) if place else None
        if decisive is not None and self._last is not None and self._last[0] == decisive:
            return replaced(self._last[1], command=request.command, description=request.description)
        made = launch_builder.prepare(grant, self._settings, environ, place, self._home, secret, self._base)
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
        launch_builder.nearest(found.directory, environ),
        launch_builder.shell_for(request.shell or settings.shell, environ),
        launch_builder.umask(),
        launch_builder.rlimits(),
        os.getpriority(os.PRIO_PROCESS, 0),
        current_task.task(environ),
    )
