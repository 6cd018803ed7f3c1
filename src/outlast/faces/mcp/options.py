"""What somebody who starts a server decides. Knows nothing of the SDK, which may not be there."""

from __future__ import annotations

import os

from outlast.light import frozen
from outlast.settings import Settings, load
from outlast.shell.validation import session_name


@frozen
class Options:
    """What somebody who starts a server decides."""

    home: str
    profile: str = "default"
    session: str = ""
    read_only: bool = False
    yolo: bool = False
    """Whether nothing is asked; what is denied stays so."""
    policy: str = ""
    """Instead of the profile's own: a name or a file. What the user has set holds besides."""


def chosen_session(asked: str | None, home: str) -> str:
    """The session that the host names; empty if it leaves that to us."""
    if asked is not None:
        return session_name(asked)
    setting = load(home, os.environ).session
    return "" if setting == Settings().session else session_name(setting)
