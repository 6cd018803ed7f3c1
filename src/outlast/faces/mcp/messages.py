"""Sentences for MCP clients: error messages that name tools, and the one line about a command that failed. Pure."""

from __future__ import annotations

import re

from outlast.faces.render import duration, ending
from outlast.frozen import replaced
from outlast.notices.words import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.faces.tools.model import Reply
    from outlast.model import Task

LAST_LINES = 10
"""How many lines of output the line about a failure repeats."""
_LINE_CHARS = 300  # of each of them: Claude Code (2.1.325) cuts the whole line after 10,000 characters

# Errors name verbs of the command line, which an MCP client does not have.
_LISTS_THEM = re.compile(r"; `outlast [^`]*` lists them")
_CLAUSE = re.compile(r"; `outlast [^`]*` [^.;]*")
_WITH = re.compile(r" with `outlast [^`]*`")


def for_client(message: str, lists: str) -> str:
    """Return an error message without the command line. `lists` says how a client of this profile lists its tasks."""
    message = _LISTS_THEM.sub(lambda _: f"; {lists}" if lists else "", message)
    return _WITH.sub("", _CLAUSE.sub("", message))


def with_client_message(reply: Reply, lists: str) -> Reply:
    """Return a refused call's reply with `for_client` applied to its message; other replies as they are."""
    message = reply.data.get("error")
    if not (reply.error and "code" in reply.data and isinstance(message, str)):
        return reply
    data = {**reply.data, "error": for_client(message, lists)}
    return replaced(reply, text=for_client(reply.text, lists), data=data)


def failure_line(task: Task, last_lines: Sequence[str], reads: str) -> str:
    """Return how a task failed and its last lines of output, in one line. `reads` is the tool that reads all of it.

    Clients show a failure as a status message, without its newlines. The output is quoted line by line, so that the
    lines stay apart and no output can be mistaken for Outlast's own words.
    """
    said = f"{task.task_id} {task.status}: {ending(task)}, after {duration(task.elapsed_ms)}."
    shown = ", ".join(quoted(line, _LINE_CHARS) for line in last_lines if line.strip())
    output = f"The last lines of its output: {shown}." if shown else "It printed nothing."
    return one_line(f"{said} {output} {reads} with task_id {task.task_id} shows all of it.")


def one_line(text: str) -> str:
    """Return a text with every run of whitespace as one space."""
    return " ".join(text.split())
