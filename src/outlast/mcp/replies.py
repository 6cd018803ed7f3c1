"""A tool's reply as an MCP result: text for the model and, where a program asked for it, a few facts. Pure."""

from __future__ import annotations

import mcp_types as wire

from outlast.display.render import ending
from outlast.notices.words import quote_text
from outlast.output.duration import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.settings import Settings
    from outlast.tools.model import Reply
    from outlast.types import Task

FOR_PEOPLE = "outlast/forPeople"
ENDED_BADLY = ("failed", "killed")

# Clients that put structured content before their model, by the name they give. The model reads it *instead of* the
# text in Claude Code (2.1.325), Codex (0.166.0), VS Code (mcpLanguageModelToolContribution.ts) and opencode (pull
# request 32074); Gemini CLI (0.61.0) adds it to the text of every result that is an error. pydantic-ai (2.66) also
# takes it instead of the text. It uses the name that the Python SDK gives to every client ("mcp"), and so do ordinary
# programs: the name cannot tell them apart, which is why `mcp_structured` is off by default.
_SHOW_IT_TO_MODELS = ("claude-code", "codex-mcp-client", "visual-studio-code", "opencode", "gemini-cli")

# Claude Code (2.1.325) shows an MCP task whose result is an error as "Task failed: " and the result's text, in which
# control characters, newlines among them, are spaces.
_SHOW_FAILURES_AS_A_LINE = ("claude-code",)

_FACTS = ("task_id", "status", "exit_code", "cursor", "output_file", "removed")
_LISTED_FACTS = ("task_id", "status")
_REFUSED_FACTS = ("error", "code")


def takes_both(client: str, settings: Settings) -> bool:
    """Return whether a client of that name gets structured content beside the text."""
    # VS Code has called itself both "Visual Studio Code" and "Visual-Studio-Code".
    return settings.mcp_structured and not client.lower().replace(" ", "-").startswith(_SHOW_IT_TO_MODELS)


def result_of(reply: Reply, both: bool = True) -> wire.CallToolResult:
    """The answer to a call; `both`: text and structured content."""
    return wire.CallToolResult(
        content=[wire.TextContent(type="text", text=reply.text)],
        structured_content=structure_reply(reply) if both else None,
        is_error=reply.error or reply.failed,
        _meta={FOR_PEOPLE: reply.user} if reply.user else None,
    )


def final_result_of(reply: Reply) -> dict[str, Any]:
    """The result of a call that went on as an MCP task: a command that failed is an error, whatever the tool says."""
    result = result_of(reply)
    result.is_error = result.is_error or reply.data.get("status") in ENDED_BADLY
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def shown_to(client: str, result: Mapping[str, Any], message: str, settings: Settings) -> dict[str, Any]:
    """Return the result of an MCP task as a client of that name shows it well; `message` is its status message."""
    shown = dict(result)
    if not takes_both(client, settings):
        shown.pop("structuredContent", None)
    if shown.get("isError") and client.startswith(_SHOW_FAILURES_AS_A_LINE):
        shown["content"] = [{"type": "text", "text": message}]
    return shown


def structure_reply(reply: Reply) -> dict[str, Any] | None:
    """Return what a program needs to go on: which task, its status, where its output is. The text has the output."""
    if reply.error and "code" in reply.data:
        return _only((*_REFUSED_FACTS, *_FACTS), reply.data)
    if "tasks" in reply.data:
        return {"tasks": [_only(_LISTED_FACTS, task) for task in reply.data["tasks"]]}
    return _only(_FACTS, reply.data) or None


def _only(names: tuple[str, ...], facts: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: facts[name] for name in names if facts.get(name) is not None}
    return {name: value if isinstance(value, int) else str(value) for name, value in found.items()}


# --- a failure in one line ---------------------------------------------------------------

LAST_LINES = 10
"""How many lines of output the line about a failure repeats."""
_LINE_CHARS = 300  # of each of them: Claude Code (2.1.325) cuts the whole line after 10,000 characters


def failure_line(task: Task, last_lines: Sequence[str], reads: str) -> str:
    """Return how a task failed and its last lines of output, in one line. `reads` is the call that reads all of it.

    Clients show a failure as a status message, without its newlines. The output is quoted line by line, so that the
    lines stay apart and no output can be mistaken for Outlast's own words.
    """
    said = f"{task.task_id} {task.status}: {ending(task)}, after {duration(task.elapsed_ms)}."
    shown = ", ".join(quote_text(line, _LINE_CHARS) for line in last_lines if line.strip())
    output = f"The last lines of its output: {shown}." if shown else "It printed nothing."
    return one_line(f"{said} {output} {reads} shows all of it.")


def one_line(text: str) -> str:
    """Return a text with every run of whitespace as one space."""
    return " ".join(text.split())
