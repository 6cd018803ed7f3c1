"""Cancelling a call ends the foreground command that it started; nothing else that befalls a client ends anything."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from outlast import Shell
from outlast.types import Task
from tests.conftest import eventually
from tests.mcp_server import LEGACY, MODERN, PATIENCE_S, Raw, connected, lines, play, server, server_pid, shell
from tests.mcp_server import eventually as eventually_async
from tests.mcp_server.test_http import TOKEN, listening

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
NEW = {"MCP-Protocol-Version": MODERN}
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def only_task(place: str, command: str = "") -> Task:
    """The task that runs that command, or the one that there is, once it is there."""

    def look() -> list[Task]:
        with Shell.open(home=place, operator=True) as opened:
            return [task for task in opened.list() if command in (task.command, "")]

    found: list[Task] = eventually(look, what="a task is there")
    [task] = found
    return task


def running(place: str, command: str = "") -> bool:
    return only_task(place, command).status == "running"


def killed(place: str, command: str = "") -> Task:
    """The task, once it was killed with everything that it started."""

    def look() -> Task | None:
        task = only_task(place, command)
        return task if task.status == "killed" and not task.children else None

    found: Task = eventually(look, what="the task is killed")
    return found


async def begun(place: str) -> Task:
    async def look() -> Task | None:
        with Shell.open(home=place, operator=True) as opened:
            return next(iter(opened.list()), None)

    task: Task = await eventually_async(look, "a task is there")
    return task


async def cancelled(client: Any, place: str, name: str, given: dict[str, Any]) -> None:
    """Call, and cancel when there is a task; then see that the server has heard of it."""
    call = asyncio.create_task(client.call_tool(name, given))
    await begun(place)
    call.cancel()
    await asyncio.wait({call})
    await client.list_tools()


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_cancelled_call_ends_its_foreground_command(place: str, mode: str) -> None:
    async def scene() -> None:
        async with connected(place, mode=mode) as client:
            await cancelled(client, place, *shell("sleep 301 & sleep 302"))
            task = await asyncio.to_thread(killed, place)
            assert task.ended_by == "cancelled by the client"
            ran = await client.call_tool(*shell("echo and on"))
            assert "and on" in lines(ran)

    play(scene())


@pytest.mark.parametrize(
    "how", [{"background": True, "ready": "never"}, {"ready": "never"}, {"stdin_open": True, "wait": 30}]
)
def test_a_background_start_is_left_alone(place: str, how: dict[str, Any]) -> None:
    async def scene() -> None:
        async with connected(place) as client:
            await cancelled(client, place, *shell("sleep 303", **how))

    play(scene())
    assert running(place)


def test_a_call_that_waits_for_a_task_is_left_alone(place: str) -> None:
    async def scene() -> None:
        async with connected(place) as client:
            await client.call_tool(*shell("sleep 304", background=True))
            task = await begun(place)
            await cancelled(client, place, "bash_output", {"task_id": task.task_id, "wait": 30})

    play(scene())
    assert running(place)


def test_a_client_whose_time_ran_out_has_not_cancelled(place: str) -> None:
    async def scene() -> None:
        async with connected(place) as client:
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool(*shell("sleep 305"), read_timeout_seconds=1)
            assert (await begun(place)).status == "running"
            await client.list_tools()

    play(scene())
    assert running(place)


def test_it_can_be_switched_off(place: str) -> None:
    async def scene() -> None:
        async with connected(place, OUTLAST_CANCEL_ENDS_FOREGROUND="no") as client:
            await cancelled(client, place, *shell("sleep 306"))

    play(scene())
    assert running(place)


def test_the_end_of_the_connection_ends_nothing(place: str) -> None:
    raw = _calling(place, "sleep 307")
    assert only_task(place).status == "running"
    assert raw.close() == 0
    assert running(place)


def test_kill_9_of_the_server_ends_nothing(place: str) -> None:
    raw = _calling(place, "sleep 308")
    assert only_task(place).status == "running"
    os.kill(server_pid(), signal.SIGKILL)
    assert raw.close() == -signal.SIGKILL
    assert running(place)


def test_kill_9_of_the_client_ends_nothing(place: str, tmp_path: Path) -> None:
    """The client is a process that starts the server, calls, and waits."""
    how = server(place)
    lines = "".join(json.dumps(line) + "\n" for line in _lines("sleep 309"))
    code = (
        "import subprocess, sys, time\n"
        f"running = subprocess.Popen({[how.command, *how.args]!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"running.stdin.write({lines.encode()!r}); running.stdin.flush()\n"
        "print(running.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=how.env, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        server_of_it = int(client.stdout.readline())
        assert only_task(place).status == "running"
        client.kill()
    eventually(lambda: not os.path.exists(f"/proc/{server_of_it}"), what="the server leaves")
    assert running(place)


def test_a_question_that_is_cancelled_runs_nothing(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_POLICY", "ask")
    raw = Raw(place)
    raw.ask("initialize", **{**INITIALIZE, "capabilities": {"elicitation": {}}})
    raw.tell("notifications/initialized")
    raw.send(7, "tools/call", name="bash", arguments={"command": "touch one"})
    assert raw.heard("elicitation/create")["params"]["message"].startswith("Run this command")
    raw.tell("notifications/cancelled", requestId=7, reason="AbortError: the user pressed Esc")
    raw.heard("notifications/cancelled")  # the question is withdrawn
    raw.ask("ping")
    assert raw.close() == 0
    assert not os.listdir(tmp_path)
    with Shell.open(home=place, operator=True) as opened:
        assert not opened.list()


# --- over HTTP ---------------------------------------------------------------------------


def test_to_close_a_request_over_http_is_to_cancel_it(place: str) -> None:
    with listening(place) as (address, _):
        _close_one(address, place, "sleep 310")


def test_kill_9_of_a_client_over_http_ends_nothing(place: str) -> None:
    """Its connection closes as well, but nobody is left who could have cancelled."""
    command = "sleep 311"
    headers = {**_usual("tools/call"), **NEW}
    with listening(place) as (address, _):
        code = (
            "import http.client\n"
            f"line = http.client.HTTPConnection({address!r}, timeout=300)\n"
            f"line.request('POST', '/mcp', {json.dumps(_call(command, _meta=ENVELOPE))!r}, {headers!r})\n"
            "line.getresponse()\n"
        )
        with subprocess.Popen([sys.executable, "-c", code]) as client:
            assert running(place, command)
            client.kill()
        _close_one(address, place, "sleep 312")  # settled after the first, which is over thereby
        assert running(place, command)


def test_over_http_of_the_handshake_era_only_a_notification_cancels(place: str) -> None:
    command = "sleep 313"
    with listening(place) as (address, _):
        first = _posted(address, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
        session = {"Mcp-Session-Id": str(first.getresponse().getheader("mcp-session-id"))}
        _posted(address, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session).getresponse()
        line = _posted(address, _call(command), session)
        assert running(place, command)
        line.close()
        _close_one(address, place, "sleep 314")
        assert running(place, command)
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        _posted(address, told, session).getresponse()
        assert killed(place, command).ended_by == "cancelled by the client"


def _close_one(address: str, place: str, command: str) -> None:
    """A request of the newest era whose connection its client closes, and what comes of it."""
    line = _posted(address, _call(command, _meta=ENVELOPE), NEW)
    assert running(place, command)
    line.close()
    assert killed(place, command).ended_by == "cancelled by the client"


def _calling(place: str, command: str) -> Raw:
    raw = Raw(place)
    raw.ask("initialize", **INITIALIZE)
    raw.tell("notifications/initialized")
    raw.send(7, "tools/call", name="bash", arguments={"command": command})
    return raw


def _call(command: str, **more: Any) -> dict[str, Any]:
    params = {"name": "bash", "arguments": {"command": command}, **more}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def _lines(command: str) -> list[dict[str, Any]]:
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _call(command),
    ]


def _usual(method: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Mcp-Method": method,
        **({"Mcp-Name": "bash"} if method == "tools/call" else {}),
    }


def _posted(address: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> http.client.HTTPConnection:
    line = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    line.request("POST", "/mcp", json.dumps(body), {**_usual(body["method"]), **(headers or {})})
    return line
