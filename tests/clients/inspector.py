"""The MCP inspector's command line: over stdio, and over HTTP with the token that it was given."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.clients.doorman import server
from tests.clients.figures import Figures
from tests.clients.place import Place, binary, place

_PATIENCE_S = 60.0


def by_hand() -> Figures:
    began = time.time()
    with place() as here:
        figures = Figures("MCP inspector", version(), "{turns} requests")
        command, args, env = here.server()
        variables = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        started = [*variables, "--cwd", str(here.work), command, *args]
        with server(here) as (address, token), ThreadPoolExecutor(1) as aside:
            reached = [f"http://{address}/mcp", "--header", f"Authorization: Bearer {token}"]
            other = aside.submit(_visit, figures, here, started)
            _look(figures, here, reached, _visit(figures, here, reached))
            other.result()
    figures.seconds = time.time() - began
    return figures


def version() -> str:
    package = Path(binary("inspector")).parent.parent / "@modelcontextprotocol" / "inspector" / "package.json"
    return str(json.loads(package.read_text())["version"])


def _visit(figures: Figures, here: Place, target: list[str]) -> str:
    """List (a schema that other clients could not take is an error) and run; the task's id."""
    tools = _answer(figures, here, target, "tools/list", "--strict")["tools"]
    figures.tools = len(tools)
    figures.tool_bytes = len(json.dumps(tools).encode())
    command = "command=echo hello; exit 3"
    ran = _answer(figures, here, target, "tools/call", "--tool-name", "bash", "--tool-arg", command)
    structured = ran["structuredContent"]
    figures.heard.append(json.dumps([ran["isError"], ran["content"][0]["text"], structured["exit_code"]]))
    task_id: str = structured["task_id"]
    return task_id


def _look(figures: Figures, here: Place, target: list[str], task_id: str) -> None:
    """The output as a resource."""
    resources = _answer(figures, here, target, "resources/list")["resources"]
    [uri] = [one["uri"] for one in resources if task_id in one["uri"]]
    read = _answer(figures, here, target, "resources/read", "--uri", uri)
    figures.heard.append(json.dumps(read["contents"][0]["text"]))


def _answer(figures: Figures, here: Place, target: list[str], method: str, *words: str) -> Any:
    figures.turns += 1
    return json.loads(_asked(here, *target, "--method", method, *words))


def _asked(here: Place, *words: str) -> str:
    ran = subprocess.run(
        [binary("inspector"), "--cli", *words], env=here.env, capture_output=True, text=True, timeout=_PATIENCE_S
    )
    # 5: the tool said that something went wrong.
    assert ran.returncode in (0, 5), ran.stdout + ran.stderr
    return ran.stdout
