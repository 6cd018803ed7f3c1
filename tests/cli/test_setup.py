"""`outlast setup`: what it writes for each client, what it refuses to touch, and that `--undo` restores every byte."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from outlast import __version__
from tests.cli.test_terminal import Terminal
from tests.clients import configured
from tests.clients.place import ROOT, missing
from tests.conftest import Cli, eventually

FILES = {
    "claude": (".claude.json", ".mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
}
SERVERS = {"codex": "mcp_servers", "vscode": "servers"}
DENIALS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": (".claude/settings.json", {"permissions": {"deny": ["Bash"]}}),
    "codex": (".codex/config.toml", {"features": {"shell_tool": False}}),
    "gemini": (".gemini/settings.json", {"tools": {"exclude": ["run_shell_command"]}}),
}
PROGRAM = os.path.join(os.path.dirname(sys.executable), "outlast")
LOCATIONS = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")


@pytest.fixture
def user(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory; calls are made in a project beside it."""
    for name in LOCATIONS:
        cli.env.pop(name, None)
    home = tmp_path / "user"
    home.mkdir()
    cli.env["HOME"] = str(home)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return home


def data(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    return found


def everything(root: Path) -> dict[str, bytes]:
    """Each file and directory below a directory."""
    return {str(one): one.read_bytes() if one.is_file() else b"" for one in sorted(root.rglob("*"))}


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", FILES)
def test_there_and_back(cli: Cli, user: Path, client: str, scope: str) -> None:
    file = user / FILES[client][0] if scope == "user" else Path(FILES[client][1])
    shown = cli("setup", client, "--scope", scope, "--yes", check=0).stdout
    assert f"+++ {file.absolute()}\n" in shown
    entry = data(file)[SERVERS.get(client, "mcpServers")]["outlast"]
    assert (entry["command"], entry["args"]) == (PROGRAM, ["mcp"])
    assert stat.S_IMODE(file.stat().st_mode) == (0o600 if scope == "user" else 0o644)
    before = file.read_bytes()
    again = cli("setup", client, "--scope", scope, "--yes", check=0).stdout
    assert again.startswith("Nothing to change: ")
    assert file.read_bytes() == before
    cli("setup", client, "--scope", scope, "--undo", "--yes", check=0)
    assert everything(user) == {}
    assert everything(Path()) == {}
    assert "Nothing to take back" in cli("setup", client, "--scope", scope, "--undo", check=0).stdout


@pytest.mark.parametrize("client", DENIALS)
def test_the_own_shell_tool_is_switched_off(cli: Cli, user: Path, client: str) -> None:
    cli("setup", client, "--yes", "--deny-shell", check=0)
    file, wanted = DENIALS[client]
    assert wanted.items() <= data(user / file).items()
    assert cli("setup", client, "--yes", "--deny-shell", check=0).stdout.count("Nothing to change: ") == 2
    cli("setup", client, "--undo", "--yes", check=0)
    assert everything(user) == {}


@pytest.mark.parametrize("client", ["cursor", "vscode"])
def test_where_nothing_can_switch_it_off_it_says_so(cli: Cli, user: Path, client: str) -> None:
    said = cli("setup", client, "--yes", "--deny-shell", check=0)
    assert said.stderr.count("\n") == 1
    assert " has no " in said.stderr


def test_what_was_denied_before_stays_denied(cli: Cli, user: Path) -> None:
    settings = user / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"deny": ["Bash"]}}')
    before = everything(user)
    cli("setup", "claude", "--yes", "--deny-shell", check=0)
    cli("setup", "claude", "--undo", "--yes", check=0)
    assert everything(user) == before


def test_everything_else_in_a_file_stays(cli: Cli, user: Path) -> None:
    file = user / ".codex" / "config.toml"
    file.parent.mkdir()
    before = "# mine\nmodel = 'x' # fast\n\n[features]\n# a comment\nshell_tool = true # on\n\n[z]\na = [\n  1,\n]"
    file.write_text(before)
    cli("setup", "codex", "--yes", "--deny-shell", check=0)
    changed = file.read_text()
    assert changed.startswith(before.replace("shell_tool = true", "shell_tool = false"))
    file.write_text(changed.replace("# fast", "# slow"))  # the user goes on
    cli("setup", "codex", "--undo", "--yes", check=0)
    assert file.read_text() == before.replace("# fast", "# slow")


def test_links_modes_and_owners_stay(cli: Cli, user: Path) -> None:
    real = user / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    (user / ".cursor").mkdir()
    (user / ".cursor" / "mcp.json").symlink_to(real)
    cli("setup", "cursor", "--yes", check=0)
    assert (user / ".cursor" / "mcp.json").is_symlink()
    assert "outlast" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(real.parent) == ["mcp.json"]  # nothing is left of the writing
    cli("setup", "cursor", "--undo", "--yes", check=0)
    assert real.read_text() == "{}"


def test_variables_say_where_a_client_keeps_its_files(cli: Cli, user: Path) -> None:
    cli.env |= {name: str(user / name) for name in LOCATIONS}
    for client in FILES:
        cli("setup", client, "--yes", check=0)
    found = {str(one.relative_to(user)) for one in user.rglob("*") if one.is_file()}
    assert found == {
        "CLAUDE_CONFIG_DIR/.claude.json",
        "CODEX_HOME/config.toml",
        "GEMINI_CLI_HOME/.gemini/settings.json",
        "XDG_CONFIG_HOME/Code/User/mcp.json",
        ".cursor/mcp.json",
    }


@pytest.mark.parametrize("text", ["{", '{"mcpServers": []}', "\udcff\udcfe"])
def test_a_file_that_cannot_be_read_is_not_touched(cli: Cli, user: Path, text: str) -> None:
    file = user / ".claude.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    before = file.read_bytes()
    said = cli("setup", "claude", "--yes", "--force")
    assert said.returncode == 125
    assert str(file) in said.stderr
    assert said.stderr.count("\n") == 1
    assert file.read_bytes() == before


def test_the_entry_of_somebody_else_is_kept(cli: Cli, user: Path) -> None:
    file = user / ".claude.json"
    before = '{"mcpServers": {"outlast": {"command": "other", "args": ["x"]}}}'
    file.write_text(before)
    said = cli("setup", "claude", "--yes", check=125).stderr
    assert '"command": "other"' in said
    assert "--force" in said
    assert "--force" in cli("setup", "claude", "--undo", "--yes", check=0).stderr
    assert file.read_text() == before
    cli("setup", "claude", "--yes", "--force", check=0)
    assert data(file)["mcpServers"]["outlast"]["command"] == PROGRAM
    cli("setup", "claude", "--undo", "--yes", check=0)
    assert file.read_text() == before
    cli("setup", "claude", "--undo", "--yes", "--force", check=0)
    assert data(file) == {"mcpServers": {}}


def test_an_entry_that_was_changed_since_is_kept(cli: Cli, user: Path) -> None:
    cli("setup", "claude", "--yes", check=0)
    file = user / ".claude.json"
    file.write_text(file.read_text().replace(PROGRAM, "/else/where"))
    before = file.read_bytes()
    assert "/else/where" in cli("setup", "claude", "--yes", check=125).stderr
    said = cli("setup", "claude", "--undo", "--yes", check=0)
    assert file.read_bytes() == before
    assert "--force" in said.stderr
    cli("setup", "claude", "--undo", "--yes", "--force", check=0)
    assert not file.exists()  # nothing else was in it


def test_an_entry_of_ours_that_is_out_of_date_is_updated(cli: Cli, user: Path) -> None:
    for client in ("claude", "codex"):
        cli("setup", client, "--yes", check=0)
        cli("setup", client, "--yes", "--policy", "guarded", check=0)
        entry = data(user / FILES[client][0])[SERVERS.get(client, "mcpServers")]["outlast"]
        assert entry["env"] == {"OUTLAST_POLICY": "guarded"}
        assert cli("setup", client, "--yes", check=0).stdout.startswith("Nothing to change")
        cli("setup", client, "--undo", "--yes", check=0)
    assert everything(user) == {}


def test_a_policy_that_does_not_exist(cli: Cli, user: Path) -> None:
    assert cli("setup", "claude", "--yes", "--policy", "nonsense").returncode == 2
    assert everything(user) == {}


def test_without_a_terminal_it_only_shows(cli: Cli, user: Path) -> None:
    said = cli("setup", "codex", "--deny-shell", check=1)
    assert "+[mcp_servers.outlast]\n" in said.stdout
    assert "+shell_tool = false\n" in said.stdout
    assert "--yes" in said.stderr
    tried = cli("setup", "codex", "--deny-shell", "--dry-run", check=0)
    assert (tried.stdout, tried.stderr) == (said.stdout, "")
    assert everything(user) == {}


def test_secrets_nearby_are_not_shown(cli: Cli, user: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    (user / ".claude.json").write_text(json.dumps({"mcpServers": {"x": {"env": {"T": token}}}}, indent=2))
    said = cli("setup", "claude", "--dry-run", check=0).stdout
    assert '+    "outlast": {' in said
    assert token not in said


def test_a_directory_that_cannot_be_made(cli: Cli, user: Path) -> None:
    (user / ".cursor").write_text("a file")
    said = cli("setup", "cursor", "--yes", check=125)
    assert str(user / ".cursor") in said.stderr
    assert (user / ".cursor").read_text() == "a file"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["emacs"], "claude, codex, gemini, cursor, vscode"),
        (["claude", "--scope", "world"], "user or project"),
        (["claude", "--undo", "--deny-shell"], "leave out"),
        ([], "required"),
    ],
)
def test_wrong_words(cli: Cli, user: Path, words: list[str], said: str) -> None:
    assert said in cli("setup", *words, check=2).stderr


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_file_that_changes_while_a_person_is_asked_is_not_written(cli: Cli, user: Path) -> None:
    (user / ".claude.json").write_text("{}")
    place = user.parent / "t"
    place.mkdir()
    terminal = Terminal(cli, str(place))
    try:
        terminal.type("outlast setup claude --policy guarded; echo code $?")
        eventually(lambda: "[y/N]" in terminal.screen())
        (user / ".claude.json").write_text('{"by": "the client"}')
        terminal.type("y")
        terminal.shows("code 125")
        assert "was changed by another program" in terminal.screen()
        assert data(user / ".claude.json") == {"by": "the client"}
    finally:
        terminal.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_person_is_asked(cli: Cli, user: Path) -> None:
    place = user.parent / "t"
    place.mkdir()
    terminal = Terminal(cli, str(place))
    try:
        terminal.type("outlast setup claude")
        eventually(lambda: "Use the policy workspace? [Y/n]" in terminal.screen())
        terminal.type("n")
        eventually(lambda: f"Change {user}/.claude.json? [y/N]" in terminal.screen())
        assert "OUTLAST_POLICY" not in terminal.screen()
        terminal.press("Enter")
        terminal.shows("Nothing was changed.")
        assert not (user / ".claude.json").exists()
        terminal.type("clear")
        eventually(lambda: "workspace" not in terminal.screen())
        terminal.type("outlast setup claude; echo code $?")
        eventually(lambda: "Use the policy workspace? [Y/n]" in terminal.screen())
        terminal.press("Enter")
        eventually(lambda: "Change" in terminal.screen())
        assert '"OUTLAST_POLICY": "workspace"' in terminal.screen()
        terminal.type("y")
        eventually(lambda: "Switch Claude Code's own tool Bash off? [y/N]" in terminal.screen())
        assert (user / ".claude.json").exists()
        assert '+      "Bash"' in terminal.screen()
        terminal.type("y")
        terminal.shows("code 0")
        assert data(user / ".claude" / "settings.json") == DENIALS["claude"][1]
    finally:
        terminal.close()


# --- the real clients ----------------------------------------------------------------------


def played(scene: str, client: str) -> dict[str, Any]:
    if lacking := missing(client):
        pytest.skip(lacking)
    return configured.played(scene)


@pytest.mark.clients
def test_claude_code_as_it_is_set_up() -> None:
    found = played("claude", "claude")
    assert f"outlast: {PROGRAM} mcp - ✔ Connected" in found["listed"]
    assert "mcp__outlast__bash" in found["offered"]
    assert not {"Bash", "Monitor"} & set(found["offered"])  # both run commands
    assert "Exit code 0" in found["heard"][1]
    assert "No MCP servers configured" in found["again"]
    assert (found["left"], found["settings"]) == (None, False)


@pytest.mark.clients
def test_codex_as_it_is_set_up() -> None:
    found = played("codex", "codex")
    [server] = found["listed"]
    assert (server["name"], server["enabled"], server["transport"]["command"]) == ("outlast", True, PROGRAM)
    assert "mcp__outlast" in found["offered"]
    assert not {"shell", "local_shell", "shell_command", "exec_command", "write_stdin"} & set(found["offered"])
    assert "Exit code 0" in found["heard"][1]
    assert (found["again"], found["kept"]) == ([], True)


@pytest.mark.clients
def test_the_plugin_of_claude_code() -> None:
    found = played("plugin", "claude")
    assert "Validation passed" in found["validated"]
    told = '(\\"the build\\") failed: exit code 7'
    started, answered, second, third, resumed = found["heard"]
    assert told not in started + answered
    assert second.count(told) == third.count(told) == 1
    assert "UserPromptSubmit hook success" in second
    assert "Ended since the last brief (1)" in resumed
    assert found["session"].startswith("claude-")


def test_the_plugins_have_our_version() -> None:
    for file in ("claude/.claude-plugin/plugin.json", "gemini/gemini-extension.json"):
        assert json.loads((ROOT / "plugins" / file).read_text())["version"] == __version__
