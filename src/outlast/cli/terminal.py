"""`outlast screen` and `resize`: the terminal of a task."""

from __future__ import annotations

import json

from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import open_shell, write
from outlast.shell.validation import terminal_size


def screen_parser() -> Parser:
    """Return the options of `outlast screen`."""
    made = Parser(
        "screen",
        "Print the screen of a task that was started with --tty, as a person would see it.",
        "  outlast screen 1a2b\n  outlast screen 1a2b --json | jq '.cursor, .title'\n\n"
        "--json also says where the cursor is (row and column, from 0; null if it is hidden), the title, and\n"
        "whether it is the alternate screen, which full-screen programs use. `outlast logs` prints what the\n"
        "program printed, in the order it came.",
    )
    return made.takes_id().takes_session().takes_json()


def screen(asked: Asked) -> int:
    """Do what `outlast screen` asks; returns the exit code."""
    with open_shell(asked.session) as shell:
        found = shell.screen(asked.id)
    if asked.json:
        write(json.dumps(found.to_dict()) + "\n")
    else:
        write("".join(f"{row}\n" for row in found.rows))
    return 0


def resize_parser() -> Parser:
    """Return the options of `outlast resize`."""
    made = Parser(
        "resize",
        "Change the size of a running task's terminal. Its program is told by a signal (SIGWINCH).",
        "  outlast resize 1a2b 120x40",
    )
    made.takes_id()
    made.add("size", metavar="CxR", help="columns and rows")
    return made.takes_session()


def resize(asked: Asked) -> int:
    """Do what `outlast resize` asks; returns the exit code."""
    columns, rows = terminal_size(asked.size)
    with open_shell(asked.session) as shell:
        shell.resize(asked.id, columns, rows)
    return 0
