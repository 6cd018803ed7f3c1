"""Our MCP server beside an empty one on the same SDK, each driven by the same few lines of JSON."""

from __future__ import annotations

import os
import sys
import time

from bench.measure import Timing, in_turns, timed
from bench.peers import Ours, Raw
from bench.peers.mcp import Server
from bench.rows import PAUSE_S, Goal, Race, Row

_MORE_MS = 3.0  # what a command may cost beyond the SDK

_EMPTY = """
import asyncio
import mcp_types as wire
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

async def call(ctx, params):
    return wire.CallToolResult(content=[wire.TextContent(type="text", text="")])

async def listed(ctx, params):
    return wire.ListToolsResult(tools=[wire.Tool(name="bash", input_schema={"type": "object"})])

async def main():
    server = Server("empty", on_call_tool=call, on_list_tools=listed)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

asyncio.run(main())
"""


class _Python(Server):
    words: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.env |= {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OUTLAST_HOME": f"{self.place}/state",
        }

    @classmethod
    def missing(cls) -> str:
        return ""

    def _words(self) -> list[str]:
        return [sys.executable, *self.words]

    def foreground(self, command: str) -> None:
        self.tool("bash", command=command)

    def listed(self) -> None:
        self._ask("tools/list")


class _Ours(_Python):
    name = Ours.name
    words = ("-m", "outlast", "mcp")


class _Empty(_Python):
    name = Raw.name
    words = ("-c", _EMPTY)


def call(race: Race) -> Row:
    """One tool call that runs `true`, a moment after the last one, as a model makes them."""
    peers = [_Ours(), _Empty(), *(peer for peer in race.others if isinstance(peer, Server))]
    own = peers[:2]
    for peer in own:
        peer.open()

    def turn(peer: Server) -> float:
        peer.foreground("true")
        time.sleep(PAUSE_S)
        return timed(lambda: peer.foreground("true"))

    try:
        turns = {peer.name: lambda peer=peer: turn(peer) for peer in peers}
        timings = in_turns(turns, race.effort(), always=(Ours.name, Raw.name))
    finally:
        for peer in own:
            peer.remove()
    return Row("mcp", "MCP tool call `true`", "the SDK's empty call", timings, _goal(timings))


def _goal(timings: dict[str, Timing]) -> Goal | None:
    raw = timings[Raw.name]
    return Goal(round(raw.median * 1000 + _MORE_MS, 2), is_ratio=False) if raw.seconds else None


def start(race: Race) -> Row:
    """From nothing to a list of tools."""

    def turn(kind: type[_Python]) -> float:
        peer = kind()

        def begin() -> None:
            peer.open()
            peer.listed()

        try:
            return timed(begin)
        finally:
            peer.remove()

    turns = {_Ours.name: lambda: turn(_Ours), _Empty.name: lambda: turn(_Empty)}
    timings = in_turns(turns, race.effort(times=10), always=(Ours.name, Raw.name))
    return Row("mcp-start", "`outlast mcp` until its tools are listed", "the SDK's empty server", timings)
