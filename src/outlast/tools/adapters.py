"""Tools as others want them: the dictionaries of APIs, and the objects of frameworks.

A framework is imported when it is asked for. `parse_call` goes the other way: from the call that a model made to the
answer in the form that its API takes.
"""

from __future__ import annotations

import json

from outlast.tools import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, Protocol

    from outlast.tools.model import Profile, Reply, Tool

    class OfferedTools(Protocol):
        """What a framework's tools call: a `Toolbox`."""

        @property
        def tools(self) -> tuple[Tool, ...]: ...
        def describe(self, tool: Tool) -> str: ...
        def call(self, name: str, given: object) -> Reply: ...
        async def acall(self, name: str, given: object) -> Reply: ...


FORMATS = ("anthropic", "openai", "mcp")


def list_offered(profile: Profile, write: bool = True) -> tuple[Tool, ...]:
    """Return the tools of a profile that a host is offered, always in the same order."""
    return tuple(tool for tool in profile.tools if tool.listed and is_offered(tool, write))


def is_offered(tool: Tool, write: bool) -> bool:
    """Return whether a host that may (or may not) write is offered a tool."""
    return write or not (tool.acts or tool.needs_write)


def describe(tool: Tool, by: object) -> str:
    """Return a tool's description, with what the policy `by` denies."""
    return " ".join(tool.description.format(denied=policy.describe(by)).split())


def as_dictionaries(form: str, tools: Sequence[Tool], by: object) -> list[dict[str, Any]]:
    """Return tools for the API of that name."""
    make: Callable[[Tool, str], dict[str, Any]] = {"anthropic": _anthropic, "openai": _openai, "mcp": _mcp}[form]
    return [make(tool, describe(tool, by)) for tool in tools]


def _anthropic(tool: Tool, description: str) -> dict[str, Any]:
    return {"name": tool.name, "description": description, "input_schema": tool.schema}


def _openai(tool: Tool, description: str) -> dict[str, Any]:
    function = {"name": tool.name, "description": description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _mcp(tool: Tool, description: str) -> dict[str, Any]:
    hints = {"readOnlyHint": not tool.acts, "destructiveHint": tool.acts}
    if not tool.acts:
        hints["openWorldHint"] = False  # True is the default
    if tool.kind in ("kill", "list"):
        hints["idempotentHint"] = True
    return {
        "name": tool.name,
        "title": title_of(tool.name),
        "description": description,
        "inputSchema": tool.schema,
        "annotations": hints,
    }


def title_of(name: str) -> str:
    """Return a tool's name as people read it: `bash_output` and `BashOutput` are both "Bash output"."""
    spaced = "".join(f" {char}" if char.isupper() else char for char in name.replace("_", " "))
    return spaced.strip().capitalize()


# --- a model's call and its answer -------------------------------------------------------


def parse_call(call: Any) -> tuple[str, object, Callable[[Reply], dict[str, Any]]]:
    """Return the name and the arguments of a model's call, and a function that puts the reply into its API's form.

    A call is Anthropic's `tool_use` or OpenAI's `tool_call` or `function_call`, as a dictionary or as the object of the
    vendor's own library.
    """
    if _get(call, "type") == "tool_use":

        def anthropic_result(reply: Reply) -> dict[str, Any]:
            failed = reply.error or reply.failed
            return {
                "type": "tool_result",
                "tool_use_id": _get(call, "id"),
                "content": reply.text,
                "is_error": failed,
            }

        return _get(call, "name"), _get(call, "input"), anthropic_result

    function = _get(call, "function")
    if function is not None:  # OpenAI's Chat Completions

        def chat_message(reply: Reply) -> dict[str, Any]:
            return {"role": "tool", "tool_call_id": _get(call, "id"), "content": reply.text}

        return _get(function, "name"), _load(_get(function, "arguments")), chat_message

    def response_output(reply: Reply) -> dict[str, Any]:  # OpenAI's Responses
        return {"type": "function_call_output", "call_id": _get(call, "call_id"), "output": reply.text}

    return _get(call, "name"), _load(_get(call, "arguments")), response_output


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def _load(arguments: str) -> object:
    """Parse what OpenAI's models write as text. If it is no JSON, the reply will say that it must be an object."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


# --- frameworks --------------------------------------------------------------------------


def _caller(box: OfferedTools, tool: Tool) -> Callable[..., Coroutine[Any, Any, str]]:
    async def call(**given: Any) -> str:
        return (await box.acall(tool.name, given)).text

    return call


def as_langchain(box: OfferedTools) -> list[Any]:
    """Return `StructuredTool`s."""
    from langchain_core.tools import StructuredTool

    def make(tool: Tool) -> StructuredTool:
        return StructuredTool(
            name=tool.name,
            description=box.describe(tool),
            args_schema=dict(tool.schema),
            func=lambda **given: box.call(tool.name, given).text,
            coroutine=_caller(box, tool),
        )

    return [make(tool) for tool in box.tools]


def as_pydantic_ai(box: OfferedTools) -> list[Any]:
    """Return `Tool`s for a pydantic-ai `Agent`."""
    from pydantic_ai import Tool as PydanticTool

    return [
        PydanticTool.from_schema(_caller(box, tool), tool.name, box.describe(tool), dict(tool.schema))
        for tool in box.tools
    ]


def as_openai_agents(box: OfferedTools) -> list[Any]:
    """Return `FunctionTool`s for an `Agent` of openai-agents."""
    from agents import FunctionTool

    def make(tool: Tool) -> FunctionTool:
        async def call(context: object, arguments: str) -> str:
            return (await box.acall(tool.name, _load(arguments))).text

        return FunctionTool(
            name=tool.name,
            description=box.describe(tool),
            params_json_schema=dict(tool.schema),
            on_invoke_tool=call,
            strict_json_schema=False,  # it would make every parameter required
        )

    return [make(tool) for tool in box.tools]
