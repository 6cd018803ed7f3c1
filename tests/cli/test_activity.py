"""What a running task does is said wherever a reply is about it, with the process that shows it."""

from __future__ import annotations

import json
import shutil

import pytest

from outlast.linux.activity import INPUT
from outlast.tools import Toolbox
from tests.cli import listed
from tests.cli.test_terminal import Terminal, terminal  # noqa: F401 - a fixture
from tests.conftest import Cli, eventually

ASKS = "read -rsp 'Password: ' word"


@pytest.fixture
def asking(cli: Cli) -> str:
    """A task that waits for a password."""
    task_id = cli("run", "--bg", "--tty", ASKS, check=0).stdout.strip()
    eventually(lambda: cli.json("show", task_id)["activity"] == INPUT)
    return task_id


def test_the_command_line_says_it(cli: Cli, asking: str) -> None:
    evidence = f"pid {cli.json('show', asking)['pid']} (bash) reads its terminal"
    objects = [
        cli.json("show", asking),
        cli.json("wait", "--timeout", "0.1", asking),
        cli.json("logs", asking),
        json.loads(cli("ps", "--json").stdout),
        json.loads(cli("tasks", "--json").stdout),
    ]
    assert [(one["activity"], one["activity_evidence"]) for one in objects] == [(INPUT, evidence)] * len(objects)
    assert f"activity     waiting for input: {evidence}\n" in cli("show", asking).stdout
    assert "running (needs input)" in cli("ps").stdout
    assert "needs input" in cli("tasks").stdout
    assert cli("wait", "--timeout", "0.1", asking, check=124).stdout.endswith(f": waiting for input: {evidence}\n")
    told = cli("wait", "--timeout", "0.1", "--until", "never", asking, check=124).stdout
    assert told.endswith(f"and is not ready (waiting for input: {evidence})\n")
    assert ', waiting for input ("read' in cli("brief").stdout


def test_a_wait_that_leaves_it_running_says_it(cli: Cli) -> None:
    assert "s (sleeping).\n" in cli("run", "--wait", "0.5", "exec sleep 60", check=0).stderr
    assert json.loads(cli("run", "--wait", "0.5", "--json", "exec sleep 60", check=0).stdout)["activity"] == "sleeping"
    told = cli("run", "--bg", "--startup-wait", "0.5", "exec sleep 60", check=0).stderr
    assert told.endswith(": sleeping\n")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_live_dashboard_says_when_it_changes(cli: Cli, terminal: Terminal) -> None:  # noqa: F811
    terminal.type("outlast tasks --watch")
    task_id = cli("run", "--bg", "--stdin", "open", f"{ASKS}; exec sleep 60", check=0).stdout.strip()
    eventually(lambda: "needs input" in terminal.screen(), what="needs input")
    cli("send", task_id, "word", check=0)
    eventually(lambda: "sleeping" in terminal.screen(), what="sleeping")
    assert [task["task_id"] for task in listed(cli)] == [task_id]


def test_the_tools_say_it(cli: Cli, asking: str) -> None:
    evidence = f"pid {cli.json('show', asking)['pid']} (bash) reads its terminal"
    with Toolbox.open(home=cli.env["OUTLAST_HOME"], session="default", policy="yolo") as box:
        replies = [
            box.call("bash_output", {"task_id": asking}),
            box.call("bash_output", {"task_id": asking, "tail": 5}),
            box.call("bash_input", {"task_id": asking, "keys": "x"}),
        ]
        for reply in replies:
            assert f", waiting for input: {evidence}" in reply.text
            assert (reply.data["activity"], reply.data["activity_evidence"]) == (INPUT, evidence)
        assert f"{asking} running (waiting for input) " in box.call("bash_list", {}).text
        reply = box.call("bash", {"command": ASKS, "stdin_open": True, "wait": 0.5})
        assert ", waiting for input: pid " in reply.text
        reply = box.call("bash", {"command": "exec sleep 60", "wait": 0.5})
        assert ", sleeping" in reply.text
        assert reply.data["activity"] == "sleeping"
