"""The clients that `outlast setup` knows: where each keeps its configuration and what an entry looks like."""

from __future__ import annotations

import os

from outlast.cli.setup_edits import Edit
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

SERVER = "outlast"
SCOPES = ("user", "project")


@frozen
class Places:
    """What paths start from: the scope, the home directory, the directory of the project, the environment."""

    scope: str
    home: str
    project: str
    env: Mapping[str, str]


@frozen
class File:
    """A file of a client: for a user, in a directory that a variable can name; and in a project."""

    variable: str
    directory: str  # below the home directory, if the variable is not set
    user: str
    project: str

    def path(self, places: Places) -> str:
        """Return the path for the scope."""
        if places.scope == "project":
            return os.path.join(places.project, self.project)
        return os.path.join(places.env.get(self.variable) or os.path.join(places.home, self.directory), self.user)


@frozen
class Denial:
    """How a client's own shell tool is switched off."""

    tool: str
    what: Literal["item", "value"]
    path: tuple[str, ...]
    value: Any
    file: File


@frozen
class Client:
    """One client: its name for people, its file, the key of the servers in it."""

    title: str
    format: Literal["json", "toml"]
    servers: str
    file: File
    type: Literal["stdio", ""]  # what an entry has to say of how it is spoken to
    denial: Denial | None = None
    remark: str = ""  # what a user has to know of the scope `project`
    no_denial: str = ""  # why there is no denial, in one sentence

    def entry(self, places: Places, command: list[str], env: Mapping[str, str]) -> Edit:
        """Return the edit that makes the client start that command as an MCP server."""
        value = {"type": self.type, "command": command[0], "args": command[1:], "env": dict(env)}
        shown = {name: one for name, one in value.items() if one or name == "args"}
        return Edit("server", self.file.path(places), self.format, (self.servers, SERVER), shown)

    def deny(self, places: Places) -> Edit | None:
        """Return the edit that switches the client's own shell tool off."""
        if self.denial is None:
            return None
        denial = self.denial
        return Edit(denial.what, denial.file.path(places), self.format, denial.path, denial.value)


_CODEX = File("CODEX_HOME", ".codex", "config.toml", ".codex/config.toml")
_GEMINI = File("GEMINI_CLI_HOME", "", ".gemini/settings.json", ".gemini/settings.json")
_CLAUDE_SETTINGS = File("CLAUDE_CONFIG_DIR", ".claude", "settings.json", ".claude/settings.json")
CLIENTS: dict[str, Client] = {
    "claude": Client(
        title="Claude Code",
        format="json",
        servers="mcpServers",
        file=File("CLAUDE_CONFIG_DIR", "", ".claude.json", ".mcp.json"),
        type="stdio",
        denial=Denial("Bash", "item", ("permissions", "deny"), "Bash", _CLAUDE_SETTINGS),
        remark="Claude Code asks once whether it may use the servers of a project.",
    ),
    "codex": Client(
        title="Codex",
        format="toml",
        servers="mcp_servers",
        file=_CODEX,
        type="",
        denial=Denial("shell", "value", ("features", "shell_tool"), False, _CODEX),
        remark="Codex reads this file only in a project that it was told to trust.",
    ),
    "gemini": Client(
        title="Gemini CLI",
        format="json",
        servers="mcpServers",
        file=_GEMINI,
        type="",
        denial=Denial("run_shell_command", "item", ("tools", "exclude"), "run_shell_command", _GEMINI),
        remark="Gemini CLI reads this file only in a folder that it was told to trust.",
    ),
    "cursor": Client(
        title="Cursor",
        format="json",
        servers="mcpServers",
        file=File("", "", ".cursor/mcp.json", ".cursor/mcp.json"),
        type="stdio",
        no_denial="The Cursor editor has no setting for it in a file; tell its agent in a rule to use Outlast's tools.",
    ),
    "vscode": Client(
        title="VS Code",
        format="json",
        servers="servers",
        file=File("XDG_CONFIG_HOME", ".config", "Code/User/mcp.json", ".vscode/mcp.json"),
        type="stdio",
        no_denial="VS Code has no setting for it; untick the terminal tools under Configure Tools in the Chat view.",
    ),
}
