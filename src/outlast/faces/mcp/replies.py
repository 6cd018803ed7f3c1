"""A tool's reply as MCP has it: text for the model, and the same for programs. Pure."""

from __future__ import annotations

import mcp_types as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.faces.tools.model import Reply
    from outlast.settings import Settings

FOR_PEOPLE = "outlast/forPeople"
_ENDED_BADLY = ("failed", "killed")
# They give a model the structured content *instead of* the text, which is what was written for it.
_SHOW_NO_TEXT_BESIDE = ("claude-code", "codex-mcp-client")


def takes_both(client: str, settings: Settings) -> bool:
    """Whether a client of that name is well served with structured content beside the text."""
    return settings.mcp_structured and client not in _SHOW_NO_TEXT_BESIDE


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


def structured(reply: Reply) -> dict[str, Any]:
    """What a reply says, for programs; each text once."""
    twice = {"output"} if reply.data.get("stdout") is not None else set()
    return {name: value for name, value in reply.data.items() if value is not None and name not in twice}
