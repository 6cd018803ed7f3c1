"""The MCP server as clients meet it: real processes, the SDK's own client, and one that knows only JSON."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import mcp_types as wire
from mcp.client.client import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.stdio import StdioServerParameters, stdio_client
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from outlast import Shell
from outlast.cli.mcp import mcp_parser
from outlast.linux import process
from outlast.mcp.options import Options, chosen_session
from outlast.mcp.server import build
from outlast.mcp.tasks import EXTENSION, TaskParams, TaskState, UpdateParams

LEGACY, MODERN = "legacy", "2026-07-28"
PATIENCE_S = 60.0
PROGRAM = {"OUTLAST_MCP_STRUCTURED": "yes"}  # a test is a program, and no model reads what it gets


def server(home: str, *words: str, **variables: str) -> StdioServerParameters:
    """How to start one, in the directory that we are in."""
    env = {**os.environ, "OUTLAST_HOME": home, **PROGRAM, **variables}
    env.pop("OUTLAST_SESSION", None)
    return StdioServerParameters(
        command=sys.executable, args=["-m", "outlast", "mcp", *words], env=env, cwd=os.getcwd()
    )


@asynccontextmanager
async def connected(
    home: str, *words: str, mode: str = LEGACY, how: Any = None, **variables: str
) -> AsyncIterator[Client]:
    """A client of a server of its own, a process. `how` is as for `Client`."""
    transport = stdio_client(server(home, *words, **variables))
    async with Client(transport, mode=mode, **(how or {})) as client:
        yield client


@asynccontextmanager
async def inside(
    home: str, *words: str, mode: str = LEGACY, how: Any = None, **variables: str
) -> AsyncIterator[Client]:
    """As `connected`, with the server in this process: a second faster, where only what it says matters."""
    asked = mcp_parser().parse(words)
    with mock.patch.dict(os.environ, {"OUTLAST_HOME": home, **PROGRAM, **variables}):
        session = chosen_session(asked.session, home)
        options = Options(home, asked.profile, session, asked.read_only, asked.yolo, asked.policy or "")
        built = build(options, shared=False)
        async with Client(built, mode=mode, **(how or {})) as client:
            yield client


def play(scene: Coroutine[Any, Any, Any]) -> Any:
    """Run it to its end, with a bound."""
    return asyncio.run(asyncio.wait_for(scene, PATIENCE_S))


async def eventually(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Wait for a condition, with a bound; what it gave when it came true."""
    for _ in range(600):
        if found := await look():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"did not come true: {what}")


def text(result: Any) -> str:
    """What the model reads."""
    [block] = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


def lines(result: Any) -> list[str]:
    """The lines of what the model reads. What a command printed is among them, however a profile sets it off."""
    return [line.strip() for line in text(result).splitlines()]


def session_of(home: str, result: Any) -> str:
    """The session of the task that a result is about."""
    with Shell.open(home=home, operator=True) as opened:
        return opened.show(result.structured_content["task_id"]).session


def server_pid() -> int:
    """The one server that this process has started and that is still there."""
    mine = [pid for pid, stat in process.Table().by_pid.items() if stat.parent == os.getpid() and not stat.dead]
    [found] = [pid for pid in mine if b"\0mcp\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def shell(command: str, **how: Any) -> tuple[str, dict[str, Any]]:
    """A call of the default profile's `bash`."""
    return "bash", {"command": command, **how}


# --- a client that holds tasks -----------------------------------------------------------


class Held(wire.Result):
    """A task in the place of a result."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    result_type: Literal["task"]
    task_id: str
    status: str


class Get(wire.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class Cancel(wire.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class Update(wire.Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams


class Holding(ClientExtension):
    """Says that the client can hold tasks, keeps each, and answers a call with its first state."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.held: list[Held] = []

    def claims(self) -> list[ResultClaim[Held]]:
        return [ResultClaim(result_type="task", model=Held, resolve=self._resolve)]

    async def _resolve(self, held: Held, context: Any) -> wire.CallToolResult:
        self.held.append(held)
        return wire.CallToolResult(content=[wire.TextContent(type="text", text="held")])


async def state_of(client: Client, token: str) -> TaskState:
    return await client.session.send_request(Get(params=TaskParams(task_id=token)), TaskState)


async def ended(client: Client, token: str) -> TaskState:
    """Its state, once it is not working any more."""

    async def look() -> TaskState | None:
        state = await state_of(client, token)
        return None if state.status == "working" else state

    found: TaskState = await eventually(look, "the MCP task ends")
    return found


# --- a client that knows only JSON -------------------------------------------------------


class Raw:
    """Writes lines, reads lines."""

    def __init__(self, home: str, *words: str) -> None:
        how = server(home, *words)
        self.process = subprocess.Popen(
            [how.command, *how.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=how.env, text=True
        )
        self.notices: list[dict[str, Any]] = []
        self._id = 0

    def tell(self, method: str, **params: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, number: int, method: str, **params: Any) -> None:
        """A request that nobody waits for."""
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        self.send(self._id, method, **params)
        for said in self._lines():
            if said.get("id") == self._id and "method" not in said:
                return said
            self.notices.append(said)
        raise AssertionError("the server hung up")

    def heard(self, method: str) -> dict[str, Any]:
        """What the server asks or tells next under that name."""
        for said in self._lines():
            if said.get("method") == method:
                return said
        raise AssertionError("the server hung up")

    def _lines(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        return map(json.loads, self.process.stdout)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def close(self) -> int:
        """Hang up; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)
