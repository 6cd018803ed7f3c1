"""A tool's reply as an MCP result: text for the model and, where a program asked for it, a few facts. Pure."""

from __future__ import annotations

import mcp_types as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from outlast.faces.tools.model import Reply
    from outlast.settings import Settings

FOR_PEOPLE = "outlast/forPeople"
_ENDED_BADLY = ("failed", "killed")

# Clients that put structured content before their model, by the name they give. The model reads it *instead of* the
# text in Claude Code (2.1.325), Codex (0.166.0), VS Code (mcpLanguageModelToolContribution.ts) and opencode (pull
# request 32074); Gemini CLI (0.61.0) adds it to the text of every result that is an error. pydantic-ai (2.66) also
# takes it instead of the text, under the name that the Python SDK gives to all its clients ("mcp"), as does many a
# program: a name cannot tell these two apart, which is why `mcp_structured` is off by default.
_SHOW_IT_TO_MODELS = ("claude-code", "codex-mcp-client", "Visual Studio Code", "opencode", "gemini-cli")

# Claude Code (2.1.325) shows the result of an MCP task that is an error as a status line: control characters,
# newlines among them, become blanks, and the end is cut off. A result that is no error it shows as it is.
_FLATTEN_ERRORS = ("claude-code",)

_FACTS = ("task_id", "status", "exit_code", "cursor", "removed")
_ERROR_FACTS = ("error", "code")


def takes_both(client: str, settings: Settings) -> bool:
    """Whether a client of that name gets structured content beside the text."""
    return settings.mcp_structured and not client.startswith(_SHOW_IT_TO_MODELS)


def flattens_errors(client: str) -> bool:
    """Whether a client of that name makes one line of the result of a failed MCP task."""
    return client.startswith(_FLATTEN_ERRORS)


def result_of(reply: Reply, both: bool = True) -> wire.CallToolResult:
    """The answer to a call; `both`: text and structured content."""
    return wire.CallToolResult(
        content=[wire.TextContent(type="text", text=reply.text)],
        structured_content=structured(reply) if both else None,
        is_error=reply.error or reply.failed,
        _meta={FOR_PEOPLE: reply.user} if reply.user else None,
    )


def final_result_of(reply: Reply) -> dict[str, Any]:
    """The result of a call that went on as an MCP task: a command that failed is an error, whatever the tool says."""
    result = result_of(reply)
    result.is_error = result.is_error or reply.data.get("status") in _ENDED_BADLY
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def shown_to(client: str, result: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The result of an MCP task, as far as a client of that name can show it well."""
    shown = dict(result)
    if not takes_both(client, settings):
        shown.pop("structuredContent", None)
    if flattens_errors(client):
        shown["isError"] = False  # the text says that it failed, and how
    return shown


def structured(reply: Reply) -> dict[str, Any] | None:
    """What a program needs to go on: which task, how it stands, from where to read. Output is in the text only."""
    if reply.error and "error" in reply.data:
        return _only(_ERROR_FACTS, reply.data)
    if "tasks" in reply.data:
        return {"tasks": [_only(_FACTS, task) for task in reply.data["tasks"]]}
    return _only(_FACTS, reply.data) or None


def _only(names: tuple[str, ...], facts: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: facts[name] for name in names if facts.get(name) is not None}
    return {name: value if isinstance(value, int) else str(value) for name, value in found.items()}
