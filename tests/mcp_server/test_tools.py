"""Tools over stdio: listed, called, bounded, with progress, cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mcp_types as wire
import pytest
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from outlast import Shell, __version__
from outlast.errors import LIST_TASKS, Hint, OutlastError, SessionBusy, StartFailed, UnknownTask
from outlast.tools import PROFILES, Toolbox, adapters
from outlast.tools.profiles import profile_named
from tests.agent_tasks import settings
from tests.cli import GOLDEN
from tests.mcp_server import (
    LEGACY,
    MODERN,
    PATIENCE_S,
    PROGRAM,
    Raw,
    connected,
    eventually,
    inside,
    lines,
    play,
    server,
    shell,
    text,
)
from tests.tools import test_profiles
from tests.tools.scenarios import SCENARIOS, TELLER

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_day_with_the_tools(place: str, mode: str) -> None:
    async def scene() -> None:
        async with connected(place, mode=mode) as client:
            listed = (await client.list_tools()).tools
            profile = profile_named("default")
            assert [tool.name for tool in listed] == [tool.name for tool in adapters.list_offered(profile)]
            hints = {tool.name: tool.annotations for tool in listed}
            for name, acts in (("bash_list", False), ("bash", True)):
                found = hints[name]
                assert found is not None
                assert (found.read_only_hint, found.destructive_hint) == (not acts, acts)

            ran = await client.call_tool(*shell("echo hello; export SEEN=1"))
            assert not ran.is_error
            assert ran.structured_content["status"] == "completed"
            assert ran.structured_content.keys() == {"task_id", "status", "exit_code", "cursor", "output_file"}
            assert Path(ran.structured_content["output_file"]).read_text() == "hello\n"
            assert "hello" in lines(ran)

            failed = await client.call_tool(*shell("echo $SEEN; exit 3"))
            assert failed.is_error
            assert failed.structured_content["exit_code"] == 3
            assert "1" in lines(failed)

            began = await client.call_tool(*shell("echo up; read name; echo $name", ready="up", stdin_open=True))
            task_id = began.structured_content["task_id"]
            assert began.structured_content["status"] == "running"
            waited = await client.call_tool("bash_input", {"task_id": task_id, "text": "you", "wait": 20})
            assert "you" in text(waited)
            assert waited.structured_content["status"] == "completed"

            other = await client.call_tool(*shell("sleep 60", background=True))
            killed = await client.call_tool("bash_kill", {"task_id": other.structured_content["task_id"]})
            assert killed.structured_content["status"] == "killed"
            ended = await client.call_tool("bash_list", {"status": "killed"})
            assert other.structured_content["task_id"] in text(ended)
            assert ended.structured_content == {
                "tasks": [{"task_id": other.structured_content["task_id"], "status": "killed"}]
            }

            wrong = await client.call_tool("bash", {"comand": "ls"})
            assert wrong.is_error
            assert "'comand'" in text(wrong)
            assert wrong.structured_content["code"] == "bad-input"

    play(scene())


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_answers_as_everywhere(place: str, profile: str) -> None:
    """The agreed texts, through MCP. What is no object cannot be sent; whether it is an error MCP says otherwise."""
    settings(place, teller=TELLER)
    raw = Raw(place, "--profile", profile, "--session", "default", "--yolo")
    raw.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"})
    raw.tell("notifications/initialized")

    def call(tool: str, given: Any) -> tuple[str, bool]:
        if not isinstance(given, dict):
            return UNSENT, False
        result = raw.ask("tools/call", name=tool, arguments=given)["result"]
        [block] = result["content"]
        return block["text"], False

    text = test_profiles.HEAD.format(profile) + test_profiles.played(place, SCENARIOS[profile], call)
    assert raw.close() == 0
    agreed = (GOLDEN / "tools" / f"{profile}.txt").read_text().replace("   (error)", "")
    for said, expected in zip(text.split("\n> "), agreed.split("\n> "), strict=True):
        assert said == expected or UNSENT in said


UNSENT = "(cannot be sent)"


def test_no_call_waits_longer_than_it_may(place: str) -> None:
    async def scene() -> None:
        async with inside(place, OUTLAST_MCP_WAIT_S="0.5") as client:
            result = await client.call_tool(*shell("true"))
            for name, given in (
                shell("echo begun; sleep 60"),
                shell("sleep 61", timeout=60),
                shell("sleep 62", ready="never"),
            ):
                began = time.monotonic()
                result = await client.call_tool(name, given)
                assert time.monotonic() - began < 10
                assert result.structured_content["status"] == "running"
            task_id = result.structured_content["task_id"]
            began = time.monotonic()
            result = await client.call_tool("bash_output", {"task_id": task_id, "wait": 60})
            assert time.monotonic() - began < 10
            assert result.structured_content["status"] == "running"

    play(scene())


def test_progress_while_waiting(place: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async def scene() -> None:
        async with inside(place) as client:
            name, given = shell("echo half way; sleep 2.5")
            await client.call_tool(name, given, progress_callback=progress)
            await client.call_tool(*shell("true"))

    play(scene())
    assert len(told) >= 2
    assert told[0][0] < told[1][0]
    assert told[1][1] == "half way"


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_call_that_is_cancelled_can_leave_its_task_alone(place: str, mode: str) -> None:
    async def scene() -> None:
        async with inside(place, mode=mode, OUTLAST_CANCEL_ENDS_FOREGROUND="no") as client:
            await client.call_tool(*shell("true"))
            call = asyncio.create_task(client.call_tool(*shell("sleep 2; export LATE=1; echo done")))

            async def running() -> Any:
                return (await client.call_tool("bash_list", {"status": "running"})).structured_content["tasks"]

            [task] = await eventually(running, "it runs")
            call.cancel()
            await asyncio.wait({call})
            again = await client.call_tool("bash_output", {"task_id": task["task_id"], "wait": 20})
            assert again.structured_content["status"] == "completed"
            assert "done" in lines(again)
            # Nobody waited for it any more: as a background task it changes nothing in its session.
            assert "[]" in lines(await client.call_tool(*shell("echo [$LATE]")))

    play(scene())


def test_without_write_permission_there_is_nothing_that_acts(place: str) -> None:
    async def scene() -> None:
        async with inside(place, "--read-only") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["bash_output", "bash_list"]
            assert (await client.call_tool(*shell("true"))).is_error

    play(scene())
    with Shell.open(home=place, operator=True) as opened:
        assert not opened.list()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18"])
def test_an_old_client_that_knows_only_json(place: str, version: str) -> None:
    raw = Raw(place)
    said = raw.ask("initialize", protocolVersion=version, capabilities={}, clientInfo={"name": "old", "version": "1"})
    assert said["result"]["protocolVersion"] == version
    assert said["result"]["serverInfo"]["name"] == "outlast"
    assert said["result"]["capabilities"].keys() == {"tools", "resources"}
    raw.tell("notifications/initialized")
    assert raw.ask("ping")["result"] == {}
    assert [tool["name"] for tool in raw.ask("tools/list")["result"]["tools"]][:2] == ["bash", "bash_output"]
    ran = raw.ask("tools/call", name="bash", arguments={"command": "echo hi >&2; exit 2"})["result"]
    assert ran["isError"] is True
    assert "hi" in ran["content"][0]["text"]
    assert raw.ask("tasks/get", taskId="0" * 48)["error"]["code"] == -32601
    assert raw.ask("nonsense")["error"]["code"] == -32601
    assert raw.ask("tools/call", arguments={})["error"]["code"] == -32602
    raw.process.stdin.write("this is no JSON\n")  # type: ignore[union-attr]
    assert raw.ask("ping")["result"] == {}
    assert raw.close() == 0


def test_what_is_asked_while_a_call_waits_is_answered(place: str) -> None:
    async def scene() -> None:
        async with inside(place) as client:
            await client.call_tool(*shell("true"))
            calls = [asyncio.create_task(client.call_tool(*shell(f"sleep 60 # {n}", wait=20))) for n in range(20)]
            began = time.monotonic()
            await client.list_tools()
            assert not any(call.done() for call in calls)
            assert time.monotonic() - began < 10
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)

    play(scene())


def test_wrong_usage_is_one_sentence(place: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from outlast.cli.main import main

    monkeypatch.setenv("OUTLAST_HTTP_TOKEN", "short")
    for words, said in (
        (["--http", "nowhere"], "'nowhere' is no address"),
        (["--http", "0.0.0.0:80"], "listen everywhere"),
        (["--http", "127.0.0.1:0"], "16 or more"),
        (["--profile", "nope"], "no profile 'nope'"),
        (["--session", "a/b"], "no name for a session"),
    ):
        assert main(["mcp", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_without_the_sdk_one_sentence_says_what_to_install(place: str) -> None:
    code = "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None; import outlast.__main__ as it; it.main()"
    ran = subprocess.run([sys.executable, "-c", code, "mcp"], capture_output=True, text=True, timeout=60)
    assert "pip install 'outlast[mcp]'" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == ""


def test_the_tools_are_those_of_the_form(place: str, cli: Any) -> None:
    """What `outlast tools --format mcp` prints is what the server lists."""
    printed = json.loads(cli("tools", "--format", "mcp", check=0).stdout)

    async def scene() -> Any:
        async with inside(place, mode=MODERN) as client:
            with pytest.raises(MCPError):
                await client.read_resource("outlast://nothing")
            return (await client.list_tools()).model_dump(by_alias=True, mode="json", exclude_none=True)["tools"]

    assert play(scene()) == printed


def test_the_description_for_registries_is_of_this_version() -> None:
    described = json.loads((ROOT / "server.json").read_text())
    assert described["version"] == described["packages"][0]["version"] == __version__
    assert len(described["description"]) <= 100  # registries refuse more
    text = (ROOT / "pyproject.toml").read_text()
    assert f'name = "{described["packages"][0]["identifier"]}"' in text


def test_a_person_at_a_terminal_is_told_and_can_leave(place: str) -> None:
    how = server(place)
    terminal, side = pty.openpty()
    running = subprocess.Popen([how.command, *how.args], env=how.env, stdin=side, stdout=side, stderr=side)
    os.close(side)
    said = b""
    while b"Ctrl-C" not in said:
        assert select.select([terminal], [], [], PATIENCE_S)[0]
        said += os.read(terminal, 1000)
    assert b"is awaited on standard input" in said
    running.send_signal(signal.SIGINT)
    assert running.wait(PATIENCE_S) in (-signal.SIGINT, 130)
    os.close(terminal)


@pytest.mark.parametrize(
    ("client", "both"),
    [
        ("claude-code", False),
        ("codex-mcp-client", False),
        ("gemini-cli-mcp-client-outlast", False),
        ("Visual Studio Code", False),
        ("mine", True),
    ],
)
def test_a_client_that_shows_models_only_what_is_structured_gets_the_text(place: str, client: str, both: bool) -> None:
    async def scene() -> None:
        who = {"client_info": wire.Implementation(name=client, version="1")}
        async with inside(place, how=who) as opened:
            ran = await opened.call_tool(*shell("echo hi"))
            assert "hi" in lines(ran)
            assert (ran.structured_content is not None) == both

    play(scene())


def test_only_a_program_that_asks_for_it_gets_structured_content(place: str) -> None:
    how = server(place)
    env = {name: value for name, value in (how.env or {}).items() if name not in PROGRAM}

    async def scene() -> None:
        async with Client(stdio_client(how.model_copy(update={"env": env})), mode=LEGACY) as client:
            assert (await client.call_tool(*shell("echo hi"))).structured_content is None

    play(scene())


def test_a_list_has_titles_and_hints_and_one_page(place: str) -> None:
    raw = Raw(place)
    raw.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"})
    raw.tell("notifications/initialized")
    tools = raw.ask("tools/list")["result"]["tools"]
    assert all(tool["title"] for tool in tools)
    assert len({tool["title"] for tool in tools}) == len(tools)
    assert [tool["name"] for tool in tools if tool["annotations"].get("idempotentHint")] == ["bash_kill", "bash_list"]
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        refused = raw.ask(method, cursor="nowhere")["error"]
        assert refused["code"] == wire.INVALID_PARAMS, method
        assert "cursor" in refused["message"]
    assert raw.close() == 0


@pytest.mark.parametrize(
    "error",
    [
        UnknownTask("There is no task 'bash-0' (any more).", LIST_TASKS),
        UnknownTask("agent-0 is no agent.", Hint("`outlast agent list` lists them")),
        SessionBusy("Session 's' has tasks that run.", Hint("end them with `outlast kill`", "end them", "end them")),
        StartFailed("There is no sandbox here."),
    ],
)
def test_messages_name_tools_and_no_verbs_of_the_command_line(error: OutlastError) -> None:
    said = profile_named("default").message_of(error)
    assert "`outlast" not in said + str(error)
    assert said.startswith(error.message[:12])
    assert said.endswith(".")
    assert ("bash_list lists them" in said) == (error.hint is LIST_TASKS)
    assert ("; end them." in said) == isinstance(error, SessionBusy)


def test_no_error_that_a_model_can_cause_names_a_verb_of_the_command_line(place: str) -> None:
    with Toolbox.open(home=place, session="s") as box:
        task_id = box.shell.run("true").task_id
        for tool, given in (
            ("bash_output", {"task_id": "nothing"}),
            ("bash_kill", {"task_id": " "}),
            ("bash_kill", {"task_id": task_id}),
            ("bash_input", {"task_id": task_id, "text": "x"}),
        ):
            reply = box.call(tool, given)
            assert reply.error
            assert "`outlast" not in reply.text


def test_a_start_does_without_the_parts_of_the_sdk_that_a_server_does_not_need(place: str) -> None:
    """They are there for whoever asks for them later."""
    code = (
        "import sys\n"
        "from outlast.cli.mcp import _load\n"
        "_load()\n"
        "assert 'mcp.server.lowlevel.server' in sys.modules\n"
        "assert not {'mcp.client.client', 'mcp.server.mcpserver'} & sys.modules.keys()\n"
        "import mcp\n"
        "assert not hasattr(mcp, '__nothing__') and 'mcp.client.client' not in sys.modules\n"
        "from mcp.server import MCPServer\n"
        "assert mcp.Client.__module__ == 'mcp.client.client'\n"
        "assert not hasattr(mcp, 'nothing')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
