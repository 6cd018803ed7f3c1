"""`outlast check`, `run --policy`, and what a person at a terminal is asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import listed
from tests.cli.test_terminal import Terminal
from tests.conftest import Cli, eventually

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


# --- check -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "policy", "code"), [("rm -rf build", "guarded", 0), ("rm -rf /", "guarded", 1), ("ls", "ask", 3)]
)
def test_the_exit_code_is_the_verdict(cli: Cli, line: str, policy: str, code: int) -> None:
    cli("check", line, "--policy", policy, check=code)
    assert listed(cli) == []


def test_a_command_can_be_one_word_several_or_come_from_standard_input(cli: Cli) -> None:
    cli("check", "--policy", "guarded", "--", "rm", "-rf", "/", check=1)
    cli("check", "-", "--policy", "guarded", stdin="rm -rf /", check=1)


def test_the_table_is_aligned_and_names_rule_and_reason(cli: Cli) -> None:
    shown = cli("check", "--policy", "banned", "echo hello && curl x | cat").stdout
    assert shown.splitlines() == [
        "deny under the policy banned",
        "VERDICT  COMMAND     RULE    WHY",
        "allow    echo hello          no rule forbids it",
        "deny     curl x      curl *  denied by curl *",
        "allow    cat                 no rule forbids it",
    ]
    assert "\033" not in shown


def test_json_has_every_part(cli: Cli) -> None:
    found = cli.json("check", "--policy", "banned", "ls; echo $(curl x)")
    assert (found["verdict"], found["policy"]) == ("deny", "banned")
    parts = {part["command"]: part for part in found["reasons"]}
    assert (parts["curl x"]["verdict"], parts["curl x"]["rule"], parts["curl x"]["depth"]) == ("deny", "curl *", 1)
    assert all({"command", "verdict", "rule", "why", "depth"} <= part.keys() for part in found["reasons"])


def test_explain_shows_the_tree(cli: Cli) -> None:
    shown = cli("check", "--explain", "--policy", "banned", "ls; echo $(sudo curl x)").stdout.splitlines()
    assert shown[0] == "deny under the policy banned"
    deny = next(line for line in shown if "deny  " in line)
    assert deny.startswith("      ")
    assert "in sudo: curl x" in deny
    assert "rule curl *" in shown[shown.index(deny) + 1]


def test_the_session_counts(cli: Cli) -> None:
    cli("check", "--session", "s", "--policy", "allowlist", "ls", check=0)
    cli("run", "--session", "s", "ls() { echo mine; }", check=0)
    assert "function ls" in cli("check", "--session", "s", "--policy", "allowlist", "ls", check=3).stdout
    cli("check", "--policy", "allowlist", "ls", check=0)


@pytest.mark.parametrize(
    "words",
    [[], ["ls", "--policy", "no-such"], ["ls", "--policy", "no/such"], ["rm", "-rf", "x"], [""], ["--hook", "ls"]],
)
def test_wrong_usage_is_one_sentence(cli: Cli, words: list[str]) -> None:
    said = cli("check", *words, check=2).stderr
    assert said.startswith("outlast: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(("line", "decision"), [("rm -rf /", "deny"), ("$x -rf /", "ask")])
def test_a_hook_of_another_agent_gets_its_answer(cli: Cli, tmp_path: Path, line: str, decision: str) -> None:
    call = {"tool_name": "Bash", "tool_input": {"command": line}, "cwd": str(tmp_path)}
    ran = cli("check", "--hook", "--policy", "guarded", stdin=json.dumps(call), check=0)
    answer = json.loads(ran.stdout)["hookSpecificOutput"]
    assert (answer["hookEventName"], answer["permissionDecision"]) == ("PreToolUse", decision)
    assert "guarded" in answer["permissionDecisionReason"]


def test_a_hook_has_nothing_to_say_about_other_tools_and_what_it_does_not_object_to(cli: Cli) -> None:
    assert cli("check", "--hook", stdin='{"tool_name": "Read", "tool_input": {"file_path": "x"}}', check=0).stdout == ""
    for policy in ("guarded", "yolo"):  # an allow would skip the question of the agent's own user
        assert cli("check", "--hook", "--policy", policy, stdin=CALL, check=0).stdout == ""


def test_a_hook_asks_where_the_policy_has_a_sandbox_and_the_tool_has_none(cli: Cli) -> None:
    answer = json.loads(cli("check", "--hook", "--policy", "workspace", stdin=CALL, check=0).stdout)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "ask"


CALL = json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls"}})
_WITH_A_BUG = """
import sys
from outlast.cli import check
from outlast.cli.main import main
def broken(*_): raise {error}
check.open_shell = broken
sys.exit(main(["check", "--hook", "--policy", "guarded"]))
"""


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("not json", ()),
        ("", ()),
        ("[]", ()),
        ("[" * 200_000, ()),
        ('{"tool_input":' * 100_000, ()),
        (CALL, ("--policy", "no-such")),
        (CALL, ("--no-such-option",)),
        (CALL, ("--session", "no/such")),
        (CALL, ("ls",)),
    ],
)
def test_whatever_goes_wrong_in_a_hook_blocks(cli: Cli, stdin: str, words: tuple[str, ...]) -> None:
    ran = cli("check", "--hook", *words, stdin=stdin, check=2)
    assert ran.stdout == ""
    assert ran.stderr.startswith("outlast: ")
    assert ran.stderr.count("\n") == 1


def test_a_state_directory_that_cannot_be_used_blocks(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cli.env["OUTLAST_HOME"] = str(tmp_path / "file" / "state")
    assert cli("check", "--hook", "--policy", "guarded", stdin=CALL, check=2).stdout == ""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "config.toml").write_text("policy = [")
    cli.env["OUTLAST_HOME"] = str(tmp_path / "state")
    assert cli("check", "--hook", "--policy", "guarded", stdin=CALL, check=2).stdout == ""


@pytest.mark.parametrize(
    "error", ["AssertionError()", "RecursionError()", "KeyboardInterrupt()", "MemoryError()", "OSError()"]
)
def test_a_bug_in_a_hook_blocks(cli: Cli, error: str) -> None:
    program = [cli.command[0], "-c", _WITH_A_BUG.format(error=error)]
    ran = subprocess.run(program, env=cli.env, input=CALL, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_a_project_counts_for_check_and_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "outlast.policy.toml").write_text('deny = ["touch *"]\n')
    for words in (["check", "touch x"], ["run", "touch x"]):
        ran = subprocess.run(
            [*cli.command, *words], env=cli.env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == (1 if words[0] == "check" else 125), ran
    assert not (tmp_path / "x").exists()


# --- run ---------------------------------------------------------------------------------


def test_run_refuses_with_one_sentence_that_says_what_would_allow_it(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "ran"
    ran = cli("run", "--policy", "ask", f"touch {target}", check=125)
    assert ran.stderr.startswith("outlast: ")
    assert f'allow = ["touch {target}"]' in ran.stderr
    assert cli("run", "--policy", "guarded", "rm -rf /", check=125).stderr.startswith(
        "outlast: The policy guarded denies"
    )
    assert json.loads(cli("run", "--json", "--policy", "ask", "ls", check=125).stdout)["error"] == "needs-approval"
    assert json.loads(cli("run", "--json", "--policy", "banned", "curl x", check=125).stdout)["error"] == "refused"
    assert not target.exists()
    assert listed(cli) == []


def test_run_and_start_what_is_allowed(cli: Cli) -> None:
    assert cli("run", "--policy", "guarded", "echo hi", check=0).stdout == "hi\n"
    task_id = cli("run", "--bg", "--policy", "allowlist", "echo hi", check=0).stdout.strip()
    cli("wait", task_id, check=0)


def test_the_setting_holds_for_every_run(cli: Cli, home: str) -> None:
    cli.env["OUTLAST_POLICY"] = "banned"
    cli("run", "curl x", check=125)
    cli("run", "--policy", "yolo", "curl x", check=125)
    del cli.env["OUTLAST_POLICY"]
    cli("ps", check=0)
    Path(home, "config.toml").write_text('policy = "banned"\n')
    cli("run", "curl x", check=125)


def test_doctor_names_the_policy_and_what_is_wrong_with_it(cli: Cli, tmp_path: Path) -> None:
    found = {one["what"]: one for one in json.loads(cli("doctor", "--json").stdout)}
    assert (found["policy"]["verdict"], found["policy"]["detail"]) == ("ok", "yolo")
    (tmp_path / "p.toml").write_text("allow = [")
    cli.env["OUTLAST_POLICY"] = str(tmp_path / "p.toml")
    found = {one["what"]: one for one in json.loads(cli("doctor", "--json").stdout)}
    assert found["policy"]["verdict"] == "FAIL"
    assert "not valid TOML" in found["policy"]["detail"]


def test_yolo_loads_nothing_that_judges(cli: Cli) -> None:
    from tests.cli.test_imports import called

    loaded = called(cli, "run", "true")
    assert "outlast.policy" in loaded
    assert (
        not {"outlast.shell.gate", "outlast.policy.rules", "outlast.policy.loader", "tomllib", "tree_sitter"} & loaded
    )


# --- a person at a terminal ----------------------------------------------------------------


@pytest.fixture
def typing(cli: Cli) -> Iterator[Terminal]:
    place = tempfile.mkdtemp(prefix="tm-")
    made = Terminal(cli, place)
    yield made
    made.close()
    shutil.rmtree(place, ignore_errors=True)


def asked(terminal: Terminal) -> None:
    eventually(lambda: "[y = yes, n = no" in terminal.screen(), what="a question")


@needs_tmux
def test_yes_runs_and_no_does_not(typing: Terminal, cli: Cli) -> None:
    typing.type("outlast run --policy ask 'echo ran; id -u'; echo code=$?")
    asked(typing)
    screen = typing.screen()
    assert "    echo ran; id -u" in screen
    assert "  > id -u" in screen
    assert listed(cli) == []
    typing.type("y")
    typing.shows("code=0")
    assert str(os.getuid()) in typing.screen().splitlines()
    typing.type("clear; outlast run --policy ask 'echo not this'; echo code=$?")
    asked(typing)
    typing.type("what?")
    typing.type("n")
    typing.shows("code=125")
    assert "not this" not in typing.screen().splitlines()
    assert len(listed(cli)) == 1


@needs_tmux
def test_always_is_remembered_and_ctrl_c_is_a_no(typing: Terminal, cli: Cli, home: str) -> None:
    typing.type("outlast run --policy ask 'echo one'; echo code=$?")
    asked(typing)
    typing.type("a")
    typing.shows("code=0")
    assert 'allow = "echo one"' in Path(home, "policy.toml").read_text()
    assert cli("run", "--policy", "ask", "echo one", check=0).stdout == "one\n"
    typing.type("clear")
    eventually(lambda: "code=0" not in typing.screen())  # what was asked before is not to be seen any more
    typing.type("outlast run --policy ask 'echo two'; echo code=$?")
    asked(typing)
    typing.press("C-c")
    typing.shows("code=125")
    assert "Traceback" not in typing.screen()
    assert [task["command"] for task in listed(cli)] == ["echo one", "echo one"]


@needs_tmux
def test_what_a_line_hides_is_seen(typing: Terminal, tmp_path: Path) -> None:
    (tmp_path / "line").write_text("echo a\recho b\033[8m; id\n")
    typing.type(f'outlast run --policy ask "$(cat {tmp_path / "line"})"; echo code=$?')
    asked(typing)
    assert "echo a\\recho b\\x1b[8m; id" in typing.screen()
    typing.type("n")
    typing.shows("code=125")


@needs_tmux
def test_killing_can_need_a_yes(typing: Terminal, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('otherwise = "allow"\nask_always = ["kill"]\n')
    task_id = cli("run", "--bg", "exec sleep 100").stdout.strip()
    cli.env["OUTLAST_POLICY"] = str(tmp_path / "p.toml")
    assert "no user can be asked" in cli("kill", task_id, check=125).stderr
    del cli.env["OUTLAST_POLICY"]
    typing.type(f"OUTLAST_POLICY={tmp_path / 'p.toml'} outlast kill {task_id}; echo code=$?")
    asked(typing)
    typing.type("y")
    typing.shows("code=0")
    assert cli.json("show", task_id)["status"] == "killed"


@needs_tmux
def test_the_verdict_is_coloured_on_a_terminal(typing: Terminal) -> None:
    typing.type("outlast check --policy guarded 'rm -rf /'; echo code=$?")
    typing.shows("code=1")
    assert "\033[31mdeny" in typing._tmux("capture-pane", "-p", "-J", "-e")
