"""`Shell`, with all of its verbs."""

from __future__ import annotations

from outlast.shell.noticing import Noticing


class Shell(Noticing):
    """Commands of one session in one state directory. Use `Shell.open`."""
