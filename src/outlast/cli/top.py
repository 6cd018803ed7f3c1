"""`outlast top`: the full-screen view."""

from __future__ import annotations

import sys

from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import open_shell
from outlast.errors import BadInput, Unsupported

_SESSION = "only this session's tasks (default: $OUTLAST_SESSION, else every session's)"


def top_parser() -> Parser:
    """Return the options of `outlast top`."""
    made = Parser(
        "top",
        "All tasks on one full-screen page: the list, what the selected task prints, its screen; kill, send\n"
        "input, attach, run again. Press ? for the keys.",
        "  outlast top                    every session's tasks\n  outlast top --session work     one session's",
    )
    made.add("--session", metavar="S", help=_SESSION)
    return made


def top(asked: Asked) -> int:
    """Do what `outlast top` asks; returns the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("`outlast top` needs a terminal; `outlast tasks` prints a table anywhere.")
    try:
        from outlast.tui.app import Top
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"The full-screen view needs more packages ({error.name} is missing); run: pip install 'outlast[top]'."
        ) from None
    from outlast.shell.async_shell import AsyncShell

    with open_shell(asked.session) as shell:
        Top(AsyncShell(shell)).run()
    return 0
