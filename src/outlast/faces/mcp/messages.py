"""The one line that MCP clients show about a command that failed. Pure."""

from __future__ import annotations

from outlast.display.render import duration, ending
from outlast.notices.words import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.types import Task

LAST_LINES = 10
"""How many lines of output the line about a failure repeats."""
_LINE_CHARS = 300  # of each of them: Claude Code (2.1.325) cuts the whole line after 10,000 characters


def failure_line(task: Task, last_lines: Sequence[str], reads: str) -> str:
    """Return how a task failed and its last lines of output, in one line. `reads` is the call that reads all of it.

    Clients show a failure as a status message, without its newlines. The output is quoted line by line, so that the
    lines stay apart and no output can be mistaken for Outlast's own words.
    """
    said = f"{task.task_id} {task.status}: {ending(task)}, after {duration(task.elapsed_ms)}."
    shown = ", ".join(quoted(line, _LINE_CHARS) for line in last_lines if line.strip())
    output = f"The last lines of its output: {shown}." if shown else "It printed nothing."
    return one_line(f"{said} {output} {reads} shows all of it.")


def one_line(text: str) -> str:
    """Return a text with every run of whitespace as one space."""
    return " ".join(text.split())
