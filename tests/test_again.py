"""The same again: `Shell.start(like=task)`, `Shell.run(like=task)`, `outlast run --like ID`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outlast import Limits, Notify, Policy, Shell, Stdin
from outlast.errors import BadInput, Refused, UnknownTask
from tests.conftest import Cli

pytestmark = pytest.mark.plain_user


def test_command_directory_variables_and_options_are_the_same(shell: Shell, tmp_path: Path) -> None:
    how = {
        "cwd": tmp_path,
        "env": {"GREETING": "hello"},
        "limit": 50.0,
        "description": "greets",
        "name": "greeter",
        "split": True,
        "limits": Limits(file_size=1 << 20),
        "notify": Notify(("hello",), 30.0),
    }
    first = shell.start("echo $GREETING from $PWD; ulimit -f", **how)  # type: ignore[arg-type]
    shell.wait(first, timeout=30)
    again = shell.run(like=first, env={"GREETING": "hello"})
    assert again.task_id != first.task_id
    assert (again.like, first.like) == (first.task_id, None)
    assert again.output.startswith(f"hello from {tmp_path}\n1024\n")
    for name in ("command", "cwd", "limit", "description", "name", "split", "resources"):
        assert getattr(again, name) == getattr(first, name), name
    launches = [shell.executor.registry.launch_of(task.task_id) for task in (first, again)]
    assert [launch.notify["patterns"] for launch in launches] == [["hello"], ["hello"]]
    assert launches[0].given == launches[1].given == {"env": ["GREETING"]}


def test_what_is_given_now_counts_first(shell: Shell, tmp_path: Path) -> None:
    first = shell.run("echo $A $B; pwd", env={"A": "1", "B": "2"}, description="before")
    again = shell.run(like=first.task_id[-6:], env={"A": "1", "B": "3"}, cwd=tmp_path, description="after")
    assert again.output == f"1 3\n{tmp_path}\n"
    assert again.description == "after"
    other = shell.run("echo another, $A", like=again, env={"A": "1", "B": ""})
    assert (other.output, other.like) == ("another, 1\n", again.task_id)


def test_a_task_again_on_a_terminal(shell: Shell) -> None:
    first = shell.start("tty; stty size", tty="100x30")
    shell.wait(first, timeout=30)
    again = shell.start(like=first)
    shell.wait(again, timeout=30)
    assert again.tty == "100x30"
    assert shell.read(again).output.splitlines()[1] == "30 100"


def test_input_again(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from a file\n")
    first = shell.run("cat", stdin=Stdin(file="in"), cwd=tmp_path)
    assert shell.run(like=first).output == "from a file\n"
    opened = shell.start("cat", stdin=Stdin(open=True))
    shell.send(opened, eof=True)
    again = shell.start(like=opened)
    shell.send(again, "sent\n", eof=True)
    shell.wait(again, timeout=30)
    assert shell.read(again).output == "sent\n"
    text = shell.run("cat", stdin="not kept")
    with pytest.raises(BadInput, match="given as text, which is not kept; give it again"):
        shell.run(like=text)
    assert shell.run(like=text, stdin="given again").output == "given again"


def test_a_value_is_not_kept_and_has_to_be_given_again(shell: Shell, home: str, monkeypatch) -> None:
    first = shell.run("echo ${#API_TOKEN} $PLAIN", env={"API_TOKEN": "canary-canary-1", "PLAIN": "x"})
    everything = b"".join(path.read_bytes() for path in Path(home).rglob("*") if path.is_file())
    assert b"canary-canary-1" not in everything
    with pytest.raises(BadInput, match="API_TOKEN, PLAIN as a variable, and values are not kept; give"):
        shell.run(like=first)
    assert shell.run(like=first, env={"API_TOKEN": "1234567890", "PLAIN": "x"}).output == "10 x\n"
    monkeypatch.setenv("DEPLOY_TOKEN", "canary-canary-2")
    passed = shell.run("echo ${#DEPLOY_TOKEN}", pass_secrets=["DEPLOY_TOKEN"])
    assert shell.run(like=passed).output == passed.output == "15\n"


def test_the_policy_judges_it_again(home: str) -> None:
    with Shell.open(home=home, session="s", policy="yolo") as shell:
        first = shell.run("rm -rf ./nothing-there; echo done")
    deny = Policy.from_text('deny = ["rm"]\nallow = ["*"]\n') if hasattr(Policy, "from_text") else "allowlist"
    with Shell.open(home=home, session="s", policy=deny) as shell, pytest.raises(Refused):
        shell.run(like=first)


def test_what_cannot_be_run_again(shell: Shell) -> None:
    with pytest.raises(UnknownTask):
        shell.start(like="bash-00000000")
    with pytest.raises(BadInput, match="The command is empty"):
        shell.start()


def test_another_session_cannot_repeat_it(home: str) -> None:
    with Shell.open(home=home, session="one") as one, Shell.open(home=home, session="two") as two:
        task = one.run("echo mine")
        with pytest.raises(UnknownTask):
            two.run(like=task.task_id)


def test_the_command_line_repeats_and_links(cli: Cli, tmp_path: Path) -> None:
    first = json.loads(
        cli("run", "--json", "--cwd", str(tmp_path), "--env", "A=1", "--description", "d", "echo $A; pwd").stdout
    )
    assert first["like"] is None
    assert cli("run", "--like", first["task_id"], "--env", "A=1", check=0).stdout == f"1\n{tmp_path}\n"
    again = json.loads(cli("run", "--like", first["task_id"], "--json", "--env", "A=2").stdout)
    assert (again["like"], again["output"], again["description"]) == (first["task_id"], f"2\n{tmp_path}\n", "d")
    assert f"again        as {first['task_id']}\n" in cli("show", again["task_id"]).stdout
    background = cli("run", "--bg", "--like", again["task_id"], "--env", "A=2", check=0).stdout.strip()
    cli("wait", background, check=0)
    assert cli("logs", background).stdout == f"2\n{tmp_path}\n"
    limited = cli("run", "--limit", "0.2", "sleep 60", check=124).stderr.split()[1]
    assert cli("run", "--like", limited, check=124).stderr
    assert os.environ.get("A") is None
    assert "No command was given" in cli("run", check=2).stderr
