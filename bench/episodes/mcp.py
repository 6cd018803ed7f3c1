"""Contestants that are MCP servers: each runs in the world's directory and gets a client's requests over its stdio."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.episodes.catalogue import Episode
from bench.episodes.places import PEERS, node
from bench.episodes.play import MOST_CALLS, THINKING_S, Call, Reply, Strategy, Transcript, step
from bench.episodes.strategies import commands, desktop_commander, mako, outlast
from bench.episodes.world import World

_START_S = 60.0  # how long a server may take to come up
_LEAVE_S = 2.0


class Connection:
    """One server process, and the requests to it."""

    def __init__(self, words: list[str], env: dict[str, str], world: World) -> None:
        self._buffer, self._number, self._cut_s = b"", 0, world.cut_s
        self._server = subprocess.Popen(
            words,
            env=env,
            cwd=world.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        client = {"name": "episodes", "version": "1"}
        answer = self._ask("initialize", _START_S, protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.instructions: str = answer.get("instructions") or ""
        self._send({"method": "notifications/initialized"})

    def list_tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = self._ask("tools/list", _START_S)["tools"]
        return tools

    def call(self, call: Call) -> Reply:
        """Return the reply as a model gets it, also if it is an error or does not come in time."""
        try:
            result = self._ask("tools/call", self._cut_s, name=call.tool, arguments=call.arguments)
        except TimeoutError:
            self._send({"method": "notifications/cancelled", "params": {"requestId": self._number}})
            return Reply(f"MCP error -32001: Request timed out after {self._cut_s:g} s")
        except (RuntimeError, ConnectionError) as error:
            return Reply(f"MCP error: {error}")
        text = "\n".join(piece.get("text", "") for piece in result.get("content", ()))
        structured = result.get("structuredContent")
        return Reply(text, json.dumps(structured, ensure_ascii=False) if structured is not None else "")

    def kill(self) -> None:
        self._server.kill()
        self._forget()

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            self._server.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
        self._forget()

    def _forget(self) -> None:
        self._server.wait()
        for pipe in (self._server.stdin, self._server.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        except BrokenPipeError as error:
            raise ConnectionError("the server has ended") from error

    def _read_message(self, deadline: float) -> dict[str, Any]:
        assert self._server.stdout is not None
        while b"\n" not in self._buffer:
            if not select.select([self._server.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            piece = os.read(self._server.stdout.fileno(), 1 << 20)
            if not piece:
                raise ConnectionError("the server has ended")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError:
            return {}  # some servers print other things in between
        return message if isinstance(message, dict) else {}

    def _ask(self, method: str, patience: float, **params: Any) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        deadline = time.monotonic() + patience
        while (answer := self._read_message(deadline)).get("id") != self._number or "method" in answer:
            if "method" in answer and "id" in answer:
                self._send({"id": answer["id"], "error": {"code": -32601, "message": "not supported"}})
        if "error" in answer:
            raise RuntimeError(answer["error"].get("message", "refused"))
        return answer["result"]


class Server:
    """A contestant; a fresh process and an empty home for each episode."""

    name = ""
    strategies: ModuleType
    instructions = ""
    """What the server tells the model about itself, beside the descriptions of its tools."""

    def missing(self) -> str:
        raise NotImplementedError

    def version(self) -> str:
        raise NotImplementedError

    def words(self) -> list[str]:
        raise NotImplementedError

    def variables(self, world: World) -> dict[str, str]:
        return {}

    def prepare(self, connection: Connection) -> None:
        """What a user sets once, before any conversation."""

    def connect(self, world: World) -> Connection:
        connection = Connection(self.words(), {**world.env, **self.variables(world)}, world)
        self.instructions = connection.instructions
        self.prepare(connection)
        return connection

    def tools(self) -> list[dict[str, Any]]:
        """The tools as the server lists them."""
        world = World(scale=1.0)
        try:
            connection = self.connect(world)
            try:
                return connection.list_tools()
            finally:
                connection.close()
        finally:
            world.remove()

    def play(self, episode: Episode, world: World) -> tuple[Transcript, str]:
        """Play it to its end; return the calls and replies, and what is wrong then (nothing if it is solved)."""
        counted, connection = Transcript(), self.connect(world)
        try:
            for part in episode.all_parts:
                transcript = Transcript() if part == episode.uncounted else counted
                self._play_part(getattr(self.strategies, part)(world), connection, transcript, episode, world)
                if part == episode.kill_after:
                    connection.kill()
                    connection = self.connect(world)
            return counted, episode.check(world, counted.read)
        finally:
            connection.close()

    def _play_part(
        self, strategy: Strategy, connection: Connection, transcript: Transcript, episode: Episode, world: World
    ) -> None:
        call = step(strategy, None)
        while call is not None and len(transcript.calls) < MOST_CALLS:
            transcript.calls.append(call)
            reply = connection.call(call)
            transcript.replies.append(reply)
            if episode.observer:
                episode.observer(world, reply.text)
            time.sleep(world.seconds(THINKING_S))
            call = step(strategy, reply.text)


class Outlast(Server):
    name = "Outlast"
    strategies = outlast

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        from outlast import __version__

        return __version__

    def words(self) -> list[str]:
        return [sys.executable, "-m", "outlast", "mcp"]

    def variables(self, world: World) -> dict[str, str]:
        return {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OUTLAST_HOME": str(world.root / "state"),
            "OUTLAST_MCP_WAIT_S": f"{world.seconds(50):g}",  # the default at real time
        }


class _NodeServer(Server):
    package = ""
    program = ""

    @property
    def _place(self) -> Path:
        return PEERS / "npm" / self.package.rsplit("/", 1)[-1] / "node_modules" / self.package

    def missing(self) -> str:
        if not node():
            return "node is not installed"
        return (
            "" if (self._place / self.program).exists() else f"{self.package} is not installed (scripts/setup episodes)"
        )

    def version(self) -> str:
        return str(json.loads((self._place / "package.json").read_text())["version"])

    def words(self) -> list[str]:
        return [node(), str(self._place / self.program)]


class DesktopCommander(_NodeServer):
    name = "Desktop Commander"
    strategies = desktop_commander
    package = "@wonderwhy-er/desktop-commander"
    program = "dist/index.js"

    def prepare(self, connection: Connection) -> None:
        connection.call(Call("set_config_value", {"key": "telemetryEnabled", "value": False}))


class Commands(_NodeServer):
    name = "mcp-server-commands"
    strategies = commands
    package = "mcp-server-commands"
    program = "build/index.js"


class Mako(_NodeServer):
    name = "mcp-shell-server"
    strategies = mako
    package = "@mako10k/mcp-shell-server"
    program = "dist/index.js"

    def variables(self, world: World) -> dict[str, str]:
        return {
            "MCP_SHELL_SECURITY_MODE": "permissive",
            "MCP_SHELL_ENHANCED_MODE": "false",
            "MCP_SHELL_LLM_EVALUATION": "false",  # a model would judge each command first
            "MCP_SHELL_DEFAULT_WORKDIR": str(world.work),
        }


SERVERS: tuple[Server, ...] = (Outlast(), DesktopCommander(), Commands(), Mako())
