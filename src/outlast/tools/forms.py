"""Tools as others want them: the dictionaries of APIs, and the objects of frameworks.

A few lines each; a framework is imported when it is asked for. `understood` goes the other
way: the call that a model made, and the answer in the form that its API takes.
"""

from __future__ import annotations

import json

from outlast.tools import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from outlast.tools.model import Profile, Reply, Tool
    from outlast.tools.toolbox import Toolbox

NAMES = ("anthropic", "openai", "mcp")


def offered(profile: Profile, write: bool = True) -> tuple[Tool, ...]:
    """The tools of a profile that a host is offered, always in the same order."""
    return tuple(tool for tool in profile.tools if tool.listed and is_offered(tool, write))


def is_offered(tool: Tool, write: bool) -> bool:
    """Whether a host that may (or may not) write is offered a tool."""
    return write or not (tool.acts or tool.needs_write)


def described(tool: Tool, by: object) -> str:
    """A tool's description, with what the policy denies."""
    return " ".join(tool.description.format(denied=policy.denied(by)).split())


def as_dictionaries(form: str, tools: Sequence[Tool], by: object) -> list[dict[str, Any]]:
    """For the API of that name."""
    make: Callable[[Tool, str], dict[str, Any]] = {"anthropic": _anthropic, "openai": _openai, "mcp": _mcp}[form]
    return [make(tool, described(tool, by)) for tool in tools]


def _anthropic(tool: Tool, description: str) -> dict[str, Any]:
    return {"name": tool.name, "description": description, "input_schema": tool.schema}


def _openai(tool: Tool, description: str) -> dict[str, Any]:
    function = {"name": tool.name, "description": description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _mcp(tool: Tool, description: str) -> dict[str, Any]:
    hints = {"readOnlyHint": not tool.acts, "destructiveHint": tool.acts}
    if not tool.acts:
        hints["openWorldHint"] = False  # True is the default
    if is_idempotent(tool.name):
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


def is_idempotent(name: str) -> bool:
    """Return whether repeating a call changes nothing more: it ends a task or lists tasks, in every profile."""
    return any(verb in name.lower() for verb in ("kill", "list"))


# --- a model's call and its answer -------------------------------------------------------


def understood(call: Any) -> tuple[str, object, Callable[[Reply], dict[str, Any]]]:
    """The name and the arguments in a model's call, and how to put the answer.

    Of Anthropic's `tool_use`, OpenAI's `tool_call` or `function_call`; as a dictionary or as the object of the vendor's
    own library.
    """
    if _of(call, "type") == "tool_use":
        return _of(call, "name"), _of(call, "input"), lambda reply: _anthropic_result(_of(call, "id"), reply)
    function = _of(call, "function")
    if function is None:  # OpenAI's Responses
        given = _loaded(_of(call, "arguments"))
        return _of(call, "name"), given, lambda reply: _response_output(_of(call, "call_id"), reply)
    given = _loaded(_of(function, "arguments"))
    return _of(function, "name"), given, lambda reply: _chat_message(_of(call, "id"), reply)


def _of(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def _anthropic_result(tool_use_id: str, reply: Reply) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": tool_use_id,
        "content": reply.text,
        "is_error": reply.error or reply.failed,
    }


def _response_output(call_id: str, reply: Reply) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": reply.text}


def _chat_message(tool_call_id: str, reply: Reply) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": tool_call_id, "content": reply.text}


def _loaded(arguments: str) -> object:
    """What OpenAI's models write as text. If it is no JSON, the reply will say that it must be an object."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


# --- frameworks --------------------------------------------------------------------------


def as_langchain(box: Toolbox) -> list[Any]:
    """`StructuredTool`s."""
    from langchain_core.tools import StructuredTool

    def made(tool: Tool) -> StructuredTool:
        def call(**given: Any) -> str:
            return box.call(tool.name, given).text

        async def acall(**given: Any) -> str:
            return (await box.acall(tool.name, given)).text

        return StructuredTool(
            name=tool.name,
            description=box.described(tool),
            args_schema=dict(tool.schema),
            func=call,
            coroutine=acall,
        )

    return [made(tool) for tool in box.tools]


def as_pydantic_ai(box: Toolbox) -> list[Any]:
    """`Tool`s for a pydantic-ai `Agent`."""
    from pydantic_ai import Tool as PydanticTool

    def made(tool: Tool) -> PydanticTool[Any]:
        async def call(**given: Any) -> str:
            return (await box.acall(tool.name, given)).text

        return PydanticTool.from_schema(call, tool.name, box.described(tool), dict(tool.schema))

    return [made(tool) for tool in box.tools]


def as_openai_agents(box: Toolbox) -> list[Any]:
    """`FunctionTool`s for an `Agent` of openai-agents."""
    from agents import FunctionTool

    def made(tool: Tool) -> FunctionTool:
        async def call(context: object, arguments: str) -> str:
            return (await box.acall(tool.name, _loaded(arguments))).text

        return FunctionTool(
            name=tool.name,
            description=box.described(tool),
            params_json_schema=dict(tool.schema),
            on_invoke_tool=call,
            strict_json_schema=False,  # it would make every parameter required
        )

    return [made(tool) for tool in box.tools]
