"""`outlast tools` and `outlast call`, as a script meets them."""

from __future__ import annotations

import json
import os

import pytest

from outlast.tools import PROFILES, policy
from tests.cli import agreed
from tests.cli.test_imports import HEAVY, called, strangers
from tests.conftest import Cli


@pytest.mark.parametrize("profile", PROFILES)
def test_the_tools_as_json(cli: Cli, home: str, profile: str) -> None:
    text = cli("tools", "--profile", profile, check=0).stdout
    for sentence in filter(None, policy._DESCRIPTIONS.values()):
        text = text.replace(f" {sentence}", "")  # tested on its own: which policies there are is no matter of tools
    assert text == agreed(f"tools/{profile}.json", text)
    assert not os.path.exists(home)  # looking needs no state directory


def test_the_forms(cli: Cli) -> None:
    anthropic = json.loads(cli("tools", "--read-only", check=0).stdout)
    openai = json.loads(cli("tools", "--read-only", "--format", "openai", check=0).stdout)
    mcp = json.loads(cli("tools", "--read-only", "--format", "mcp", check=0).stdout)
    assert [set(tool) for tool in anthropic] == [{"name", "description", "input_schema"}] * 2
    assert [tool["function"]["parameters"] for tool in openai] == [tool["input_schema"] for tool in anthropic]
    assert [tool["inputSchema"] for tool in mcp] == [tool["input_schema"] for tool in anthropic]
    assert [tool["annotations"]["readOnlyHint"] for tool in mcp] == [True, True]


def test_a_call(cli: Cli) -> None:
    assert cli("call", "Bash", '{"command": "echo hi"}', "--profile", "spec", check=0).stdout == "hi\n"
    assert cli("call", "Bash", "-", "--profile", "spec", stdin='{"command": "echo hi"}', check=0).stdout == "hi\n"
    failed = cli("call", "Bash", '{"command": "exit 3"}', "--profile", "spec", check=0)
    assert failed.stdout == "[outlast: failed: exit code 3]\n"
    assert cli("call", "bash", "{}", check=1).stdout == "Error: bash needs 'command'; give it.\n"


def test_a_session_lasts_from_call_to_call(cli: Cli) -> None:
    how = ("--profile", "spec", "--session", "chat")
    cli("call", "Bash", '{"command": "cd /usr; A=1"}', *how, check=0)
    assert cli("call", "Bash", '{"command": "pwd; echo $A"}', *how, check=0).stdout == "/usr\n1\n"
    assert cli("call", "Bash", '{"command": "echo $A"}', "--profile", "spec", check=0).stdout == "\n"
    started = cli("call", "Bash", '{"command": "sleep 60", "run_in_background": true}', *how, check=0)
    task_id = json.loads(started.stdout)["bash_id"]
    cli("call", "KillBash", json.dumps({"bash_id": task_id}), "--profile", "spec", check=1)  # of another session
    cli("call", "KillBash", json.dumps({"bash_id": task_id}), *how, check=0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tools", "--format", "xml"), "There is no format 'xml'; use one of anthropic, openai, mcp."),
        (("tools", "--profile", "x"), "There is no profile 'x'; known are default, neovate, jido,"),
        (("call", "bash", "{"), "The arguments are not JSON (Expecting property name"),
        (("call", "bash"), "The following arguments are required: JSON; `outlast call --help` explains."),
        (("call", "bash", "{}", "--session", "a b"), "'a b' is no name for a session;"),
    ],
)
def test_wrong_uses(cli: Cli, home: str, words: tuple[str, ...], said: str) -> None:
    assert cli(*words, check=2).stderr.startswith(f"outlast: {said}")
    assert not os.path.exists(home)


def test_what_a_call_loads(cli: Cli) -> None:
    assert not (HEAVY - {"typing"}) & called(cli, "tools")
    loaded = strangers(called(cli, "call", "bash", '{"command": "true"}'))
    assert {name.partition(".")[0] for name in loaded} <= {"tree_sitter", "tree_sitter_bash"}  # what a policy needs
