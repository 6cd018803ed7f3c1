"""Agents over MCP: the tool `Task` of the profile mycode."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from outlast import Shell
from tests.agent_tasks import settings
from tests.conftest import eventually as until
from tests.mcp_server import Holding, ended, play, server_pid, text
from tests.mcp_server.test_tasks import final, holding


def test_an_agent_outlives_the_server_and_is_not_started_twice(place: str) -> None:
    """A client that holds the call gets its answer from the next server."""
    settings(place, slow="bash -c 'echo begun; sleep 4; cat'")
    holds = Holding()
    seen: dict[str, Any] = {}
    asked = {"description": "slow", "prompt": "the prompt", "subagent_type": "slow"}

    async def before() -> None:
        async with holding(place, holds, "--profile", "mycode", apart=True, OUTLAST_MCP_WAIT_S="1") as client:
            await client.call_tool("Task", asked)
            seen["pid"] = server_pid()
            os.kill(seen["pid"], signal.SIGKILL)

    async def after() -> None:
        async with holding(place, holds, "--profile", "mycode", apart=True) as client:
            [held] = holds.held
            said = json.loads(text(final(await ended(client, held.task_id))))
            assert (said["status"], said["output"]) == ("completed", "begun\nthe prompt")
            assert said["metadata"] == {"subagentType": "slow", "prompt": "the prompt"}

    play(before())
    until(lambda: not os.path.exists(f"/proc/{seen['pid']}"), what="the server is gone")
    play(after())
    with Shell.open(home=place, operator=True) as shell:
        assert len(shell.list(kind="agent")) == 1


def test_what_an_agent_starts_over_mcp_is_ended_with_it(place: str, tmp_path: Path) -> None:
    """Also if it starts the server without its own variables, as some do."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "bash", "arguments": {"command": "sleep 306", "background": True}}
    (tmp_path / "said").write_text(
        "".join(
            json.dumps({"jsonrpc": "2.0", **one}) + "\n"
            for one in (
                {"id": 1, "method": "initialize", "params": hello},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/call", "params": call},
            )
        )
    )
    server = f"env -u OUTLAST_TASK_ID {sys.executable} -m outlast mcp --session default --yolo"
    settings(place, user=f"bash -c '(cat {tmp_path}/said; sleep 300) | {server}'")
    with Shell.open(home=place) as shell:
        task = shell.agent.start("user", "go")
        [own] = until(lambda: shell.list(kind="bash"), what="the agent has started something")
        assert own.parent == task.task_id
        shell.kill(task.task_id)
        assert shell.wait(own.task_id, timeout=30).ended_by == f"ended with {task.task_id}, which started it"
