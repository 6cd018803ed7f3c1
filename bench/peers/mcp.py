"""Servers that speak MCP over their standard input: one request, one line of JSON."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import subprocess
import time
from typing import Any

from bench.peers.base import PATIENCE_S, PEERS, Peer, not_on_path


class Server(Peer):
    package = ""
    program = ""

    @classmethod
    def _script(cls) -> str:
        place = PEERS / "npm" / cls.package.rsplit("/", 1)[-1] / "node_modules" / cls.package
        return str(place / cls.program)

    @classmethod
    def missing(cls) -> str:
        return not_on_path("node") or ("" if os.path.exists(cls._script()) else cls.package)

    def _words(self) -> list[str]:
        return ["node", self._script()]

    def open(self) -> None:
        self._buffer, self._number = b"", 0
        self._server = subprocess.Popen(
            self._words(),
            env=self.env,
            cwd=self.place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        client = {"name": "bench", "version": "1"}
        self._ask("initialize", protocolVersion="2024-11-05", capabilities={}, clientInfo=client)
        self._send({"method": "notifications/initialized"})

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()  # this is how a client says goodbye
        try:
            self._server.wait(1)
        except subprocess.TimeoutExpired:
            self._server.kill()  # asked to leave, some take many seconds
            self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _line(self, deadline: float) -> dict[str, Any]:
        assert self._server.stdout is not None
        pieces = [self._buffer]
        while b"\n" not in pieces[-1]:
            if not select.select([self._server.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"not done in {PATIENCE_S:g} s")
            pieces.append(os.read(self._server.stdout.fileno(), 65536))
            if not pieces[-1]:
                raise ConnectionError("connection lost")
        line, self._buffer = b"".join(pieces).split(b"\n", 1)
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            return {}  # some print other things in between
        return message

    def _ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        # Coming up may take its time even where nothing else may.
        deadline = time.monotonic() + (max(PATIENCE_S, 30.0) if method == "initialize" else PATIENCE_S)
        while (answer := self._line(deadline)).get("id") != self._number or "method" in answer:
            if "method" in answer and "id" in answer:
                refusal = {"code": -32601, "message": "this client has no such thing"}
                self._send({"id": answer["id"], "error": refusal})
        if "error" in answer:
            raise RuntimeError(answer["error"].get("message", "refused"))
        return answer["result"]

    def tool(self, name: str, **arguments: Any) -> str:
        """A tool's text; its refusal is an exception."""
        result = self._ask("tools/call", name=name, arguments=arguments)
        text = "\n".join(piece.get("text", "") for piece in result["content"])
        if result.get("isError"):
            raise RuntimeError(text[:160] or "refused")
        return text


class Commands(Server):
    name = "mcp-server-commands"
    package = "mcp-server-commands"
    program = "build/index.js"

    def foreground(self, command: str) -> None:
        self.tool("run_command", command=command)

    def start_and_wait(self, command: str) -> None:
        self.foreground(f"exec bash -c {shlex.quote(command)}")


class Mako(Server):
    name = "mcp-shell-server"
    package = "@mako10k/mcp-shell-server"
    program = "dist/index.js"

    def open(self) -> None:
        self.env |= {
            "MCP_SHELL_SECURITY_MODE": "permissive",
            "MCP_SHELL_ENHANCED_MODE": "false",
            "MCP_SHELL_LLM_EVALUATION": "false",  # else a model judges each command first
            "MCP_SHELL_DEFAULT_WORKDIR": self.place,
        }
        super().open()

    def _execute(self, command: str, mode: str) -> dict[str, Any]:
        text = self.tool("shell_execute", command=command, execution_mode=mode, timeout_seconds=60)
        found: dict[str, Any] = json.loads(text)
        return found

    def foreground(self, command: str) -> None:
        self._execute(command, "foreground")

    def start(self, command: str) -> str:
        return str(self._execute(command, "background")["execution_id"])

    def start_and_wait(self, command: str) -> None:
        self.foreground(command)


class DesktopCommander(Server):
    name = "DesktopCommander"
    package = "@wonderwhy-er/desktop-commander"
    program = "dist/index.js"

    def open(self) -> None:
        super().open()
        self.tool("set_config_value", key="telemetryEnabled", value=False)

    def foreground(self, command: str) -> None:
        self.tool("start_process", command=command, timeout_ms=60_000)

    def start(self, command: str) -> int:
        # The shortest wait: it answers when the time is over or the command has ended.
        text = self.tool("start_process", command=command, timeout_ms=1)
        found = re.search(r"PID (\d+)", text)
        if not found:
            raise RuntimeError(text[:160])
        return int(found[1])

    def wait(self, ticket: int) -> None:
        self.tool("read_process_output", pid=ticket)

    def kill(self, ticket: int) -> None:
        self.tool("force_terminate", pid=ticket)
