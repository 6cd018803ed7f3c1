"""How a server is started. Does not import the SDK, which may not be installed."""

from __future__ import annotations

import os

from outlast.light import frozen
from outlast.settings import Settings, load
from outlast.shell.validation import session_name


@frozen
class Options:
    """How a server is started."""

    home: str
    profile: str = "default"
    session: str = ""
    read_only: bool = False
    yolo: bool = False
    """Ask nothing; what is denied stays denied."""
    policy: str = ""
    """A name or a file instead of the profile's own policy. The user's policy applies as well."""


def chosen_session(asked: str | None, home: str) -> str:
    """Return the session that the host names; empty if it leaves that to us."""
    if asked is not None:
        return session_name(asked)
    setting = load(home, os.environ).session
    return "" if setting == Settings().session else session_name(setting)
