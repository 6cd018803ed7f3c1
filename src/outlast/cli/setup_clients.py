"""The clients that `outlast setup` knows: where each keeps its configuration and what an entry looks like."""

from __future__ import annotations

import os

from outlast.cli.setup_edits import Edit
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    Scope = Literal["user", "project"]

SERVER = "outlast"
SCOPES = ("user", "project")


@frozen
class Places:
    """From where paths are made: the home directory, the directory of the project, the environment."""

    home: str
    project: str
    env: Mapping[str, str]

    def below(self, variable: str, *usual: str) -> str:
        """A directory that a variable can name."""
        return self.env.get(variable) or os.path.join(self.home, *usual)


@frozen
class Denial:
    """How a client's own shell tool is switched off."""

    tool: str
    what: Literal["item", "value"]
    path: tuple[str, ...]
    value: Any
    user: Callable[[Places], str]
    project: str


@frozen
class Client:
    """One client: its name for people, its files, the path of a server in them."""

    title: str
    format: Literal["json", "toml"]
    servers: str
    user: Callable[[Places], str]
    project: str
    more: Mapping[str, Any]  # what an entry has besides the program
    denial: Denial | None
    remark: str = ""  # what a user has to know of the scope `project`
    no_denial: str = ""  # why there is no denial, in one sentence

    def file(self, places: Places, scope: str) -> str:
        return self.user(places) if scope == "user" else os.path.join(places.project, self.project)

    def entry(self, places: Places, scope: str, command: list[str], env: Mapping[str, str]) -> Edit:
        """The edit that makes the client start that command as an MCP server."""
        value = {**self.more, "command": command[0], "args": command[1:], **({"env": dict(env)} if env else {})}
        return Edit("server", self.file(places, scope), self.format, (self.servers, SERVER), value)

    def deny(self, places: Places, scope: str) -> Edit | None:
        """The edit that switches the client's own shell tool off."""
        one = self.denial
        if one is None:
            return None
        file = one.user(places) if scope == "user" else os.path.join(places.project, one.project)
        return Edit(one.what, file, self.format, one.path, one.value)


def _claude_json(places: Places) -> str:
    if directory := places.env.get("CLAUDE_CONFIG_DIR"):
        return os.path.join(directory, ".claude.json")
    return os.path.join(places.home, ".claude.json")


def _claude_settings(places: Places) -> str:
    return os.path.join(places.below("CLAUDE_CONFIG_DIR", ".claude"), "settings.json")


def _codex(places: Places) -> str:
    return os.path.join(places.below("CODEX_HOME", ".codex"), "config.toml")


def _gemini(places: Places) -> str:
    return os.path.join(places.below("GEMINI_CLI_HOME"), ".gemini", "settings.json")


def _cursor(places: Places) -> str:
    return os.path.join(places.home, ".cursor", "mcp.json")


def _vscode(places: Places) -> str:
    return os.path.join(places.below("XDG_CONFIG_HOME", ".config"), "Code", "User", "mcp.json")


CLIENTS: dict[str, Client] = {
    "claude": Client(
        title="Claude Code",
        format="json",
        servers="mcpServers",
        user=_claude_json,
        project=".mcp.json",
        more={"type": "stdio"},
        denial=Denial(
            tool="Bash",
            what="item",
            path=("permissions", "deny"),
            value="Bash",
            user=_claude_settings,
            project=".claude/settings.json",
        ),
        remark="Claude Code asks once whether it may use the servers of a project.",
    ),
    "codex": Client(
        title="Codex",
        format="toml",
        servers="mcp_servers",
        user=_codex,
        project=".codex/config.toml",
        more={},
        denial=Denial(
            tool="shell",
            what="value",
            path=("features", "shell_tool"),
            value=False,
            user=_codex,
            project=".codex/config.toml",
        ),
        remark="Codex reads this file only in a project that it was told to trust.",
    ),
    "gemini": Client(
        title="Gemini CLI",
        format="json",
        servers="mcpServers",
        user=_gemini,
        project=".gemini/settings.json",
        more={},
        denial=Denial(
            tool="run_shell_command",
            what="item",
            path=("tools", "exclude"),
            value="run_shell_command",
            user=_gemini,
            project=".gemini/settings.json",
        ),
        remark="Gemini CLI reads this file only in a folder that it was told to trust.",
    ),
    "cursor": Client(
        title="Cursor",
        format="json",
        servers="mcpServers",
        user=_cursor,
        project=".cursor/mcp.json",
        more={"type": "stdio"},
        denial=None,
        no_denial="The Cursor editor has no setting for it in a file; tell its agent in a rule to use Outlast's tools.",
    ),
    "vscode": Client(
        title="VS Code",
        format="json",
        servers="servers",
        user=_vscode,
        project=".vscode/mcp.json",
        more={"type": "stdio"},
        denial=None,
        no_denial="VS Code has no setting for it; untick the terminal tools under Configure Tools in the Chat view.",
    ),
}
