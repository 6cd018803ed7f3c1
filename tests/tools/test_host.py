"""What a host relies on besides the replies: its directory, hints, removal of one task, ids that have expired."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import StillRunning, UnknownTask
from outlast.tools import PROFILES, Toolbox
from tests.conftest import Cli, end_all

RUN = {"default": "bash", "neovate": "bash", "registry": "run_command", "mycode": "Bash", "spec": "Bash"}
STATEFUL = ("default", "spec")


@pytest.mark.parametrize("profile", RUN)
def test_commands_run_in_the_directory_that_the_host_gives(home: str, tmp_path: Path, profile: str) -> None:
    with Toolbox.open(home=home, session="s", profile=profile, consent=True, cwd=tmp_path) as box:
        assert str(tmp_path) in box.call(RUN[profile], {"command": "pwd"}).text
        (tmp_path / "sub").mkdir()
        box.call(RUN[profile], {"command": "cd sub"})
        again = box.call(RUN[profile], {"command": "pwd; cd sub"})
        assert ("sub" in again.data["output"]) == (profile in STATEFUL)


def test_a_relative_directory_of_a_call_starts_there(home: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with Toolbox.open(home=home, profile="registry", consent=True, cwd=tmp_path) as box:
        assert f"{tmp_path}/sub" in box.call("run_command", {"command": "pwd", "cwd": "sub"}).text
        assert "does not exist" in box.call("run_command", {"command": "pwd", "cwd": "none"}).text


def test_an_unknown_keyword_is_refused(home: str) -> None:
    with pytest.raises(TypeError, match="directory"):
        Toolbox.open(home=home, directory="/usr")


@pytest.mark.parametrize("profile", PROFILES)
def test_tools_that_only_read_say_so_over_mcp(home: str, profile: str) -> None:
    with Toolbox.open(home=home, profile=profile, consent=True) as box:
        for tool in box.as_mcp():
            reads = "output" in tool["name"].lower() or "list" in tool["name"]
            assert tool["annotations"]["readOnlyHint"] == reads, tool["name"]
            assert tool["annotations"]["destructiveHint"] == (not reads), tool["name"]


def test_an_expired_id_is_unknown_in_a_host_that_lives_on(home: str) -> None:
    with Toolbox.open(home=home, session="s", profile="spec", consent=True) as box:
        task_id = box.call("Bash", {"command": "seq 3"}).data["task_id"]
        shutil.rmtree(Path(home, "tasks", task_id))
        for tool in ("BashOutput", "KillBash"):
            reply = box.call(tool, {"bash_id": task_id})
            assert reply.error
            assert reply.text.startswith(f"[outlast: error: There is no task '{task_id}'"), reply.text


# --- removing one task -------------------------------------------------------------------


def test_one_finished_task_is_removed(shell: Shell) -> None:
    first, second = shell.run("echo one"), shell.run("echo two")
    removed = shell.remove(first)
    assert (removed.task_id, removed.exit_code) == (first.task_id, 0)
    with pytest.raises(UnknownTask):
        shell.show(first.task_id)
    assert shell.read(second.task_id).output == "two\n"
    with pytest.raises(UnknownTask):
        shell.remove(first.task_id)


def test_what_runs_is_not_removed(shell: Shell) -> None:
    running = shell.start("sleep 60")
    with pytest.raises(StillRunning, match="is running"):
        shell.remove(running)
    left = shell.run("sleep 60 & echo started")
    with pytest.raises(StillRunning, match="still run"):
        shell.remove(left)
    end_all(shell)
    assert shell.remove(left.task_id[-6:]).task_id == left.task_id


def test_clean_takes_ids(cli: Cli) -> None:
    ids = [json.loads(cli("run", "--json", f"echo {number}", check=0).stdout)["task_id"] for number in range(3)]
    running = cli("run", "--bg", "sleep 60", check=0).stdout.strip()
    assert cli("clean", ids[0], "nosuch", check=1).stderr.startswith("outlast: There is no task 'nosuch'")
    cli("show", ids[0], check=0)  # a wrong id removes nothing
    assert cli("clean", ids[0], ids[1][-6:], check=0).stdout == "Removed 2 finished tasks.\n"
    cli("show", ids[1], check=1)
    cli("show", ids[2], check=0)
    assert f"{running} is running" in cli("clean", running, check=1).stderr
    assert cli("clean", ids[2], "--all-finished", check=2).stderr.startswith("outlast: Ids say which tasks")
    assert json.loads(cli("clean", "--json", ids[2], check=0).stdout) == {"removed": 1}
