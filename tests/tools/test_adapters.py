"""The same tools as others want them: APIs' dictionaries, and the real frameworks, offline."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.tools import Toolbox
from tests.conftest import end_all

SERVER = "echo starting; sleep 0.3; echo ready on 8000; sleep 0.2; echo GET /; sleep 60"


@pytest.fixture
def box(home: str) -> Iterator[Toolbox]:
    with Toolbox.open(home=home, session="chat") as opened:
        yield opened
        end_all(opened.shell)


# --- APIs --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [dict, SimpleNamespace])
def test_a_tool_use_of_anthropic(box: Toolbox, wrap: Any) -> None:
    answer = box.answer(wrap(type="tool_use", id="toolu_1", name="bash", input={"command": "echo hi"}))
    assert (answer["type"], answer["tool_use_id"], answer["is_error"]) == ("tool_result", "toolu_1", False)
    assert "```\nhi\n```" in answer["content"]
    assert box.answer({"type": "tool_use", "id": "2", "name": "bash", "input": {"command": "exit 1"}})["is_error"]
    assert box.answer({"type": "tool_use", "id": "3", "name": "bash", "input": None})["is_error"]


@pytest.mark.parametrize("wrap", [dict, SimpleNamespace])
def test_a_tool_call_of_openai(box: Toolbox, wrap: Any) -> None:
    function = wrap(name="bash", arguments='{"command": "echo hi"}')
    answer = asyncio.run(box.aanswer(wrap(type="function", id="call_1", function=function)))
    assert (answer["role"], answer["tool_call_id"]) == ("tool", "call_1")
    assert "```\nhi\n```" in answer["content"]
    wrong = box.answer({"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": '}})
    assert "one JSON object" in wrong["content"]


def test_a_function_call_of_openais_responses(box: Toolbox) -> None:
    answer = box.answer({"type": "function_call", "call_id": "c1", "name": "bash_list", "arguments": ""})
    assert answer == {"type": "function_call_output", "call_id": "c1", "output": "No tasks.\n"}


def test_nothing_of_a_framework_is_imported_before_it_is_used(home: str) -> None:
    code = (
        "import sys; from outlast.tools import Toolbox\n"
        f"with Toolbox.open(home={home!r}) as box: box.as_anthropic(), box.call('bash', {{'command': 'true'}})\n"
        "print([m for m in ('pydantic_ai', 'langchain_core', 'agents', 'openai', 're2') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[]\n", ran.stderr


# --- frameworks --------------------------------------------------------------------------


def test_langchain(box: Toolbox) -> None:
    tools = {tool.name: tool for tool in box.as_langchain()}
    assert list(tools) == ["bash", "bash_output", "bash_input", "bash_kill", "bash_list"]
    assert "```\nhi\n```" in tools["bash"].invoke({"command": "echo hi"})
    assert "```\nhi\n```" in asyncio.run(tools["bash"].ainvoke({"command": "echo hi"}))
    call = {"type": "tool_call", "id": "1", "name": "bash", "args": {"command": "exit 3"}}
    assert "Failed: exit code 3" in tools["bash"].invoke(call).content
    assert tools["bash"].args["command"]["type"] == "string"


def test_openai_agents(box: Toolbox) -> None:
    from agents.tool_context import ToolContext

    tools = {tool.name: tool for tool in box.as_openai_agents()}
    assert tools["bash"].params_json_schema == box.tools[0].schema

    def called(name: str, arguments: str) -> str:
        context: Any = ToolContext(context=None, tool_name=name, tool_call_id="1", tool_arguments=arguments)
        said: str = asyncio.run(tools[name].on_invoke_tool(context, arguments))
        return said

    assert "```\nhi\n```" in called("bash", '{"command": "echo hi"}')
    assert called("bash", "nonsense").startswith("Error: The arguments of bash are one JSON object")


def test_an_agent_of_pydantic_ai_looks_after_a_server(box: Toolbox) -> None:
    """It starts a server in the background, waits until it is ready, reads what is new, and ends it."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    said: list[str] = []

    def model(messages: Any, info: AgentInfo) -> ModelResponse:
        if not said:
            assert [tool.name for tool in info.function_tools] == [tool.name for tool in box.tools]
        if messages[-1].parts[0].part_kind == "tool-return":
            said.append(str(messages[-1].parts[0].content))
        task_id = match[0] if said and (match := re.search(r"bash-[0-9a-f]{8}", said[0])) else ""
        steps: list[tuple[str, dict[str, Any]]] = [
            ("bash", {"command": SERVER, "background": True, "description": "the server"}),
            ("bash_output", {"task_id": task_id, "until": "ready on", "wait": 30}),
            ("bash_output", {"task_id": task_id, "until": "GET", "wait": 30}),
            ("bash_list", {"status": "running"}),
            ("bash_kill", {"task_id": task_id}),
        ]
        if len(said) == len(steps):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*steps[len(said)])])

    agent: Any = Agent(FunctionModel(model), tools=box.as_pydantic_ai())
    assert agent.run_sync("look after the server").output == "done"
    started, ready, more, listed, ended = said
    assert " is running (" in started
    assert "ready on 8000" in ready
    assert "ready on 8000" not in more.replace("GET", "")  # only what is new
    assert "the server" in listed
    assert " ended: " in ended
    assert [task.status for task in box.shell.list()] == ["killed"]


def test_arguments_that_a_framework_fills_with_null(box: Toolbox) -> None:
    given = dict.fromkeys(box.tools[0].schema["properties"])
    assert not box.call("bash", {**given, "command": "true"}).error
    assert json.loads(json.dumps(box.as_openai()))
