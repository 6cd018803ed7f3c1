"""`outlast tasks`: the dashboard, once and live."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.cli import ran
from tests.cli.test_terminal import WIDTH, Terminal, terminal
from tests.conftest import Cli, eventually

__all__ = ["terminal"]  # a fixture
HEAD = ["STATUS", "ID", "DESCRIPTION", "TIME", "TYPE"]  # and ACTIVITY, if a task runs


@pytest.fixture
def ids(cli: Cli) -> dict[str, str]:
    """One task of each status."""
    made = {"completed": ran(cli, "true")["task_id"], "error": ran(cli, "exit 3")["task_id"]}
    made["killed"] = ran(cli, "--limit", "0.1", "exec sleep 1000")["task_id"]
    made["running"] = cli("run", "--bg", "exec sleep 1000", check=0).stdout.strip()
    return made


def shown(cli: Cli, *words: str) -> list[str]:
    """The ids in the table."""
    head, *rows = cli("tasks", *words, check=0).stdout.splitlines()
    assert head.split()[: len(HEAD)] == HEAD
    return [row.split()[2] for row in rows]


def test_filters(cli: Cli, ids: dict[str, str]) -> None:
    assert shown(cli) == shown(cli, "all") == [ids[name] for name in ("running", "killed", "error", "completed")]
    for name in ("running", "completed", "error"):
        assert shown(cli, name) == [ids[name]]
    listed = cli("tasks", "error", "--json", check=0).stdout.splitlines()
    assert [json.loads(line)["task_id"] for line in listed] == [ids["error"]]


def test_words_and_no_escapes_where_there_is_no_terminal(cli: Cli, ids: dict[str, str]) -> None:
    text = cli("tasks", check=0).stdout
    assert [line[:9].strip() for line in text.splitlines()[1:]] == ["● Running", "⊘ Stopped", "✖ Failed", "✔ Done"]
    assert "\033" not in text


def test_a_server_is_seen_after_many_short_commands(cli: Cli, tmp_path: Path) -> None:
    cli.env["OUTLAST_MAX_RUNNING"] = "1"
    built = cli("run", "--bg", "exit 3", check=0).stdout.strip()
    cli("wait", built)
    left = ran(cli, "--wait", "0.01", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done")["task_id"]
    (tmp_path / "go").touch()
    cli("wait", left, check=0)
    server = cli("run", "--bg", "exec sleep 1000", check=0).stdout.strip()
    waits = cli("run", "--bg", "true", check=0).stdout.strip()
    short = [ran(cli, f": {number}")["task_id"] for number in range(12)]
    wanted = [server, waits, left, built, *reversed(short)]
    _, *rows, more = cli("tasks", check=0).stdout.splitlines()
    assert [row.split()[2] for row in rows] == wanted[:10]
    assert more == "... and 6 more tasks"
    listed = cli("tasks", "--json", check=0).stdout.splitlines()
    assert [json.loads(line)["task_id"] for line in listed] == wanted
    assert server in cli("ps", check=0).stdout
    assert waits in cli("ps", check=0).stdout


def test_every_running_task_has_a_row(cli: Cli) -> None:
    cli.env["OUTLAST_MAX_RUNNING"] = "2"
    ids = [cli("run", "--bg", "exec sleep 1000", check=0).stdout.strip() for _ in range(13)]
    ran(cli, "true")
    _, *rows, more = cli("tasks", check=0).stdout.splitlines()
    assert sorted(row.split()[2] for row in rows) == sorted(ids)
    assert [row.split()[1] for row in rows] == ["Running"] * 2 + ["Pending"] * 11
    assert more == "... and 1 more tasks"


def test_the_type_is_found_from_the_command(cli: Cli) -> None:
    for command in ("npm test || true", "make --version", "echo npm test"):
        ran(cli, command)
    types = [line.split()[-1] for line in cli("tasks", check=0).stdout.splitlines()[1:]]
    listed = [json.loads(line)["category"] for line in cli("ps", "--json", check=0).stdout.splitlines()]
    assert types == listed == ["bash", "build", "test"]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}])
def test_a_line_as_wide_as_the_terminal_is_whole(cli: Cli, env: dict[str, str]) -> None:
    cli.env.pop("NO_COLOR", None)
    cli.env |= env
    ran(cli, "--description", "word " * 90, "true")
    with_terminal = tempfile.mkdtemp(prefix="tm-")
    terminal = Terminal(cli, with_terminal)
    try:
        terminal.type("outlast tasks --watch")
        [row] = eventually(lambda: [line for line in terminal.screen().splitlines() if "✔ Done" in line])
        head = next(line for line in terminal.screen().splitlines() if "STATUS" in line)
        assert row.endswith("  bash")
        assert head.endswith("  TYPE")
        assert len(row) == WIDTH
        terminal.press("q")
        eventually(lambda: "Done" not in terminal.screen(), what="the screen is back")
        terminal.type("echo over")
        terminal.shows("over")
    finally:
        terminal.close()
        shutil.rmtree(with_terminal, ignore_errors=True)


def test_no_tasks(cli: Cli) -> None:
    assert cli("tasks", check=0).stdout == "No tasks found\n"
    assert cli("tasks", "--json", check=0).stdout == ""


def test_watching_into_a_file_prints_a_table_for_each_change(cli: Cli, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        watching = cli.start("tasks", "--watch", stdout=out)
    printed = (tmp_path / "out").read_text
    eventually(lambda: printed() == "No tasks found\n")
    cli("run", "--bg", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done", check=0)
    eventually(lambda: "● Running" in printed())
    (tmp_path / "go").touch()
    eventually(lambda: "✔ Done" in printed())
    assert [block.count("\n") for block in printed().split("\n\n")] == [0, 1, 2]
    watching.send_signal(signal.SIGINT)
    assert watching.wait(timeout=30) == 130


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_watching_on_a_terminal(cli: Cli, terminal: Terminal, tmp_path: Path) -> None:
    terminal.type("outlast tasks --watch")
    terminal.shows("No tasks found")
    cli("run", "--bg", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done", check=0)
    eventually(lambda: "● Running" in terminal.screen())
    assert "--watch" not in terminal.screen()  # a screen of its own
    (tmp_path / "go").touch()
    eventually(lambda: "✔ Done" in terminal.screen())
    terminal.press("q")
    eventually(lambda: "--watch" in terminal.screen() and "Done" not in terminal.screen(), what="the screen is back")
    terminal.type(f"stty -a > {tmp_path}/modes; echo over")  # what is typed is seen again
    terminal.shows("over")
    modes = eventually(lambda: (tmp_path / "modes").exists() and (tmp_path / "modes").read_text().split())
    assert {"icanon", "echo"} <= {mode.rstrip(";") for mode in modes}


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_terminal_is_given_back_at_an_interrupt(cli: Cli, terminal: Terminal) -> None:
    terminal.type("outlast tasks --watch")
    terminal.shows("No tasks found")
    terminal.press("C-c")
    eventually(lambda: "--watch" in terminal.screen(), what="the screen is back")
    terminal.type("echo code $?")
    terminal.shows("code 130")


def test_colours_only_if_they_are_wanted(cli: Cli) -> None:
    import pty

    ran(cli, "true")
    for env, coloured in ({}, True), ({"NO_COLOR": "1"}, False):
        cli.env.pop("NO_COLOR", None)
        cli.env |= env
        mine, theirs = pty.openpty()
        call = cli.start("tasks", stdout=theirs)
        assert call.wait(timeout=30) == 0
        os.close(theirs)
        assert (b"\033[32m" in os.read(mine, 65536)) is coloured
        os.close(mine)
