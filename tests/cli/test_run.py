"""`outlast run`: the command's output as it comes, its own exit code, and what runs around it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import IO

import pytest

from tests.cli import listed, ran, the_running
from tests.conftest import Cli, eventually

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

NAMES = {
    *("task_id", "kind", "status", "reason", "exit_code", "signal", "command", "description", "session", "cwd"),
    *("pid", "pgid", "started_at", "ended_at", "elapsed_ms", "children", "output_file"),
}


@pytest.fixture(autouse=True)
def _as_usual(cli: Cli) -> None:
    """What is not flushed is not seen, unless the environment says otherwise."""
    cli.env.pop("PYTHONUNBUFFERED", None)


def read_line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def wait_for(path: Path) -> str:
    """A piece of shell that goes on when the test has made a file, and prints nothing."""
    return f"until [ -e {shlex.quote(str(path))} ]; do sleep 0.02; done"


# --- exit codes --------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3, 124, 125, 255])
def test_the_exit_code_is_the_commands_own(cli: Cli, code: int) -> None:
    cli("run", f"exit {code}", check=code)


@pytest.mark.parametrize("name", ["INT", "KILL", "TERM", "SEGV"])
def test_after_a_signal_the_exit_code_says_which(cli: Cli, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    did = cli("run", f"ulimit -c 0; kill -{name} $$", check=128 + number)
    assert did.stderr.endswith(f"failed: ended by SIG{name}\n")
    task = listed(cli)[0]
    assert (task["status"], task["reason"], task["signal"], task["exit_code"]) == ("failed", "signal", number, None)


def test_a_command_that_is_not_there_says_so_as_in_a_shell(cli: Cli) -> None:
    did = cli("run", "nosuchprogram --now", check=127)
    assert did.stdout == "bash: line 1: nosuchprogram: command not found\n"


def test_after_the_limit_it_is_124_and_the_output_so_far_is_shown(cli: Cli) -> None:
    did = cli("run", "--limit", "0.3", "echo begun; sleep 1000", check=124)
    assert did.stdout == "begun\n"
    assert "killed: limit of 0.3 s" in did.stderr
    task = listed(cli)[0]
    assert (task["status"], task["reason"], task["ended_by"]) == ("killed", "timeout", "limit of 0.3 s")


def test_a_limit_holds_in_the_background_too(cli: Cli) -> None:
    task_id = cli("run", "--bg", "--limit", "0.2s", "sleep 1000").stdout.strip()
    cli("wait", task_id, check=124)
    assert cli.json("show", task_id)["reason"] == "timeout"


def test_the_default_limit_ends_a_foreground_command(cli: Cli) -> None:
    cli.env["OUTLAST_FOREGROUND_LIMIT_S"] = "0.3"
    did = cli("run", "trap 'echo leaving; exit 0' TERM; echo begun; while :; do sleep 0.02; done", check=124)
    assert did.stdout.startswith("begun\n")
    assert did.stdout.endswith("leaving\n"), "what is printed while it ends is shown too"
    assert "default limit of 0.3 s in the foreground" in did.stderr


def test_the_default_limit_is_two_minutes() -> None:
    from outlast.settings import Settings

    assert Settings().foreground_limit_s == 120


def test_a_limit_that_was_asked_for_replaces_the_default_one(cli: Cli) -> None:
    cli.env["OUTLAST_FOREGROUND_LIMIT_S"] = "0.1"
    cli("run", "--limit", "inf", "sleep 0.4; exit 4", check=4)
    cli("run", "--limit", "1m", "sleep 0.4; exit 5", check=5)


def test_what_outlast_cannot_start_is_125(cli: Cli, tmp_path: Path) -> None:
    cli.env["OUTLAST_HOME"] = "/proc/outlast"
    did = cli("run", "true", check=125)
    assert did.stderr.startswith("outlast: The state directory /proc/outlast cannot be used")


def test_the_commands_failure_does_not_look_like_ours(cli: Cli) -> None:
    assert cli("run", "exit 125", check=125).stderr == ""


# --- what runs ---------------------------------------------------------------------------


def test_several_words_are_joined_as_they_are(cli: Cli) -> None:
    did = cli("run", "printf", "%s|", "a b", "$HOME", "it's", "*", "", ";", check=0)
    assert did.stdout == "a b|$HOME|it's|*||;|"


def test_one_word_is_a_whole_shell_command(cli: Cli) -> None:
    assert cli("run", "A='x y'; echo \"$A\" | tr x z && echo done", check=0).stdout == "z y\ndone\n"


def test_the_command_comes_from_standard_input(cli: Cli) -> None:
    script = "echo one\ncat <<END\n$((1+1))\nEND\n# a comment\nexit 3"
    did = cli("run", "-", stdin=script, check=3)
    assert did.stdout == "one\n2\n"


def test_what_follows_the_command_belongs_to_it(cli: Cli) -> None:
    assert cli("run", "echo", "--bg", "--json", "-x", "--", "--help", check=0).stdout == "--bg --json -x -- --help\n"


def test_two_dashes_end_the_options(cli: Cli) -> None:
    assert cli("run", "--", "echo", "--bg", check=0).stdout == "--bg\n"
    assert cli("run", "--split", "--", "echo x", check=0).stdout == "x\n"
    assert cli("run", "--", "echo", "--", "x", check=0).stdout == "-- x\n"


def test_errors_show_the_users_text_and_its_line(cli: Cli) -> None:
    did = cli("run", "true\nif then", check=2)
    assert did.stdout.startswith("bash: ")
    assert "line 2: syntax error near unexpected token `then'" in did.stdout
    assert "`if then'" in did.stdout
    assert "outlast" not in did.stdout.lower()


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("echo a &", "a\n"),
        ("echo a # and no more", "a\n"),
        ("cat <<END\nx\nEND", "x\n"),
        ("echo $0 $#", "bash 0\n"),
    ],
)
def test_the_end_of_the_text_survives(cli: Cli, command: str, printed: str) -> None:
    did = cli("run", f"{command}\nwait" if command.endswith("&") else command, check=0)
    assert did.stdout == printed


def test_another_shell_runs_it(cli: Cli) -> None:
    did = cli("run", "--shell", "sh", "echo $#; exit 3", check=3)
    assert did.stdout == "0\n"
    assert os.path.basename(listed(cli)[0]["shell"]) == "sh"


def test_it_runs_where_it_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    assert cli("run", "--cwd", str(tmp_path / "a b"), "pwd", check=0).stdout == f"{tmp_path}/a b\n"
    assert listed(cli)[0]["cwd"] == f"{tmp_path}/a b"


def test_it_runs_in_our_own_directory_otherwise(cli: Cli) -> None:
    assert cli("run", "pwd", check=0).stdout == f"{os.getcwd()}\n"


def test_a_description_and_a_session_are_kept(cli: Cli) -> None:
    cli("run", "--description", "the nightly build", "--session", "night", "true", check=0)
    (task,) = listed(cli, "--session", "night")
    assert (task["description"], task["session"]) == ("the nightly build", "night")
    assert not listed(cli)


# --- the environment ---------------------------------------------------------------------


def environment(cli: Cli, *options: str) -> dict[str, str]:
    printed = cli("run", *options, "env -0", check=0).stdout
    return dict(item.split("=", 1) for item in printed.split("\0") if item)


def test_a_machine_gets_no_pager_no_editor_and_no_colour(cli: Cli) -> None:
    cli.env |= {"PAGER": "less", "EDITOR": "vi", "FORCE_COLOR": "3", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"}
    env = environment(cli)
    assert {env[name] for name in ("PAGER", "GIT_PAGER", "MANPAGER")} == {"cat"}
    assert {env[name] for name in ("EDITOR", "VISUAL", "GIT_EDITOR")} == {"true"}
    assert (env["NO_COLOR"], env["TERM"], env["GIT_TERMINAL_PROMPT"]) == ("1", "dumb", "0")
    assert not {"FORCE_COLOR", "CLICOLOR_FORCE"} & env.keys()


def test_a_command_knows_its_task_and_its_session(cli: Cli) -> None:
    env = environment(cli)
    assert env["OUTLAST_TASK_ID"] == listed(cli)[0]["task_id"]
    assert env["OUTLAST_SESSION"] == "default"
    assert not [name for name in env if name.startswith("__outlast")]


def test_variables_that_are_set_by_hand_win(cli: Cli) -> None:
    env = environment(cli, "--env", "FORCE_COLOR=1", "--env", "PAGER=more", "--env", "A=b=c", "--env", "EMPTY=")
    assert (env["FORCE_COLOR"], env["PAGER"], env["A"], env["EMPTY"]) == ("1", "more", "b=c", "")
    assert "NO_COLOR" not in env


def test_ours_are_passed_on(cli: Cli) -> None:
    cli.env["SOMETHING"] = "of mine"
    assert environment(cli)["SOMETHING"] == "of mine"


# --- input -------------------------------------------------------------------------------


def test_there_is_no_input_unless_it_is_given(cli: Cli) -> None:
    assert cli("run", "cat; echo end", stdin="not for you", check=0).stdout == "end\n"


def test_input_comes_from_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from a file\n")
    assert cli("run", "--stdin", str(tmp_path / "in"), "cat", check=0).stdout == "from a file\n"


def test_input_comes_from_our_own(cli: Cli) -> None:
    text = "line\n" * 100_000  # more than a pipe holds
    assert cli("run", "--stdin", "-", "wc -l", stdin=text, check=0).stdout.strip() == "100000"


def test_input_comes_from_a_pipe_that_only_we_can_open(cli: Cli) -> None:
    line = f"{shlex.join([*cli.command, 'run', '--stdin'])} <(echo from a pipe) cat"
    did = subprocess.run(["bash", "-c", line], env=cli.env, capture_output=True, text=True, timeout=60)
    assert (did.stdout, did.returncode) == ("from a pipe\n", 0), did.stderr


def test_input_is_kept_open_and_fed_later(cli: Cli) -> None:
    task_id = cli("run", "--bg", "--stdin", "open", "cat", check=0).stdout.strip()
    cli("send", task_id, "one", check=0)
    cli("send", task_id, "two", "--eof", check=0)
    cli("wait", task_id, check=0)
    assert cli("logs", task_id).stdout == "one\ntwo\n"


# --- background --------------------------------------------------------------------------


def test_in_the_background_the_id_alone_is_printed(cli: Cli) -> None:
    did = cli("run", "--bg", "exec sleep 1000", check=0)
    (task,) = listed(cli)
    assert (did.stdout, did.stderr) == (f"{task['task_id']}\n", "")
    assert task["status"] == "running"
    os.kill(task["pid"], 0)


def test_the_reply_does_not_wait_for_children_and_lists_them(cli: Cli, tmp_path: Path) -> None:
    result = ran(cli, f"({wait_for(tmp_path / 'go')}; echo late) & echo early")
    assert (result["status"], result["output"]) == ("completed", "early\n")
    assert result["children"], result
    assert any(os.path.exists(f"/proc/{pid}") for pid in result["children"])
    (tmp_path / "go").touch()
    eventually(lambda: cli("logs", result["task_id"]).stdout == "early\nlate\n")
    assert eventually(lambda: not cli.json("show", result["task_id"])["children"])


def test_a_wait_leaves_it_running_and_tells_how_to_find_it(cli: Cli) -> None:
    begun = time.monotonic()
    did = cli("run", "--wait", "0.2", "echo begun; sleep 1000", check=0)
    assert time.monotonic() - begun < 60
    (task,) = listed(cli)
    assert task["status"] == "running"
    assert did.stdout == "begun\n"
    assert f"{task['task_id']} is still running" in did.stderr
    for verb in ("logs -f", "wait", "kill"):
        assert f"outlast {verb} {task['task_id']}" in did.stderr


def test_a_wait_that_runs_out_is_a_success_that_says_running(cli: Cli) -> None:
    result = ran(cli, "--wait", "0.2", "echo begun; exec sleep 1000")
    assert (result["status"], result["output"], result["exit_code"]) == ("running", "begun\n", None)


def test_a_wait_drops_the_default_limit_but_not_one_that_was_asked_for(cli: Cli) -> None:
    cli.env["OUTLAST_FOREGROUND_LIMIT_S"] = "0.5"
    free = ran(cli, "--wait", "0.1", "exec sleep 1000")["task_id"]
    bound = ran(cli, "--wait", "0.1", "--limit", "0.6", "exec sleep 1000")["task_id"]
    cli("wait", bound, check=124)
    assert cli.json("show", bound)["reason"] == "timeout"
    assert cli.json("show", free)["status"] == "running"


# --- JSON --------------------------------------------------------------------------------


def test_json_has_every_name_that_others_rely_on(cli: Cli, home: str) -> None:
    result = ran(cli, "--description", "d", "echo hi; exit 3")
    assert result.keys() >= NAMES
    assert {"output", "truncated", "cursor", "pipe_status"} <= result.keys()
    assert (result["status"], result["reason"], result["exit_code"], result["signal"]) == ("failed", "exit", 3, None)
    assert (result["output"], result["truncated"], result["cursor"]) == ("hi\n", False, "3")
    assert (result["kind"], result["session"], result["cwd"]) == ("bash", "default", os.getcwd())
    assert result["output_file"] == f"{home}/tasks/{result['task_id']}/output"
    assert result["ended_at"] >= result["started_at"]
    assert 0 <= result["elapsed_ms"] < 60_000
    assert Path(result["output_file"]).read_text() == "hi\n"


def test_json_of_the_background_has_them_too(cli: Cli) -> None:
    task = ran(cli, "--bg", "exec sleep 1000")
    assert task.keys() >= NAMES
    assert (task["status"], task["exit_code"], task["ended_at"]) == ("running", None, None)
    assert task["pid"] == task["pgid"]


def test_json_has_the_commands_exit_code_and_prints_nothing_else(cli: Cli) -> None:
    did = cli("run", "--json", "echo out; echo err >&2; exit 3", check=3)
    assert did.stderr == ""
    assert did.stdout.count("\n") == 1
    assert json.loads(did.stdout)["output"] == "out\nerr\n"


def test_split_json_has_stdout_and_stderr_apart(cli: Cli) -> None:
    result = ran(cli, "--split", "echo out; echo err >&2")
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")


@pytest.mark.parametrize(
    ("command", "code", "stages"),
    [
        ("true", 0, [0]),
        ("false | true", 0, [1, 0]),
        ("exit 2 | exit 3 | exit 4", 4, [2, 3, 4]),
        ("set -o pipefail; exit 2 | true", 2, [2, 0]),
        ("false | true; true", 0, [0]),
        ("yes | head -1 >/dev/null", 0, [141, 0]),
        ("false | true; exit 7", 7, [7]),
        ("true | sh -c 'kill -9 $$'", 137, [0, 137]),
    ],
)
def test_every_stage_of_the_last_pipeline_is_told(cli: Cli, command: str, code: int, stages: list[int]) -> None:
    result = ran(cli, command)
    assert (result["exit_code"], result["pipe_status"]) == (code, stages)


# --- output ------------------------------------------------------------------------------


def test_split_sends_each_stream_where_it_belongs(cli: Cli) -> None:
    did = cli("run", "--split", "echo out; echo err >&2", check=0)
    assert (did.stdout, did.stderr) == ("out\n", "err\n")


def test_otherwise_both_come_in_the_order_printed(cli: Cli) -> None:
    did = cli("run", "for i in 1 2 3; do echo out$i; echo err$i >&2; done", check=0)
    assert did.stdout == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert did.stderr == ""


@pytest.mark.parametrize("options", [[], ["--split"]])
def test_output_is_streamed_while_the_command_runs(cli: Cli, tmp_path: Path, options: list[str]) -> None:
    """What the command waits for is made only after its first line was seen."""
    running = cli.start("run", *options, f"echo first; {wait_for(tmp_path / 'go')}; echo second")
    assert read_line(running.stdout) == b"first\n"
    assert running.poll() is None
    (tmp_path / "go").touch()
    out, _ = running.communicate(timeout=60)
    assert (out, running.returncode) == (b"second\n", 0)


def test_a_piece_of_a_line_is_streamed_too(cli: Cli, tmp_path: Path) -> None:
    running = cli.start("run", f"printf 'working...'; {wait_for(tmp_path / 'go')}; echo ' done'")
    assert running.stdout is not None
    assert running.stdout.read(10) == b"working..."
    (tmp_path / "go").touch()
    assert running.communicate(timeout=60)[0] == b" done\n"


def test_stderr_is_streamed_to_ours(cli: Cli, tmp_path: Path) -> None:
    running = cli.start("run", "--split", f"echo trouble >&2; {wait_for(tmp_path / 'go')}")
    assert read_line(running.stderr) == b"trouble\n"
    (tmp_path / "go").touch()
    assert running.communicate(timeout=60) == (b"", b"")


def test_bytes_come_as_they_were_printed(cli: Cli, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000 + b"\xff\xfe\x00 no line end"
    (tmp_path / "data").write_bytes(data)
    did = subprocess.run([*cli.command, "run", f"cat {tmp_path}/data"], env=cli.env, capture_output=True, timeout=60)
    assert did.stdout == data


def test_a_closed_pipe_inside_the_command_is_no_error(cli: Cli) -> None:
    did = cli("run", "yes | head -1", check=0)
    assert (did.stdout, did.stderr) == ("y\n", "")


def test_whoever_reads_us_can_go_away_and_the_task_outlasts_them(cli: Cli, tmp_path: Path) -> None:
    line = shlex.join([*cli.command, "run", f"echo 1; {wait_for(tmp_path / 'go')}; echo 2; echo 3"])
    did = subprocess.Popen(
        ["bash", "-c", f"{line} | head -1; exit ${{PIPESTATUS[0]}}"],
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    task = the_running(cli)
    (tmp_path / "go").touch()
    out, err = did.communicate(timeout=60)
    assert (out, did.returncode) == ("1\n", 141)
    assert "Traceback" not in err
    cli("wait", task["task_id"], check=0)
    assert cli("logs", task["task_id"]).stdout == "1\n2\n3\n"


def test_a_reader_that_goes_away_early_is_told_what_goes_on(cli: Cli) -> None:
    line = shlex.join([*cli.command, "run", "while :; do echo more; sleep 0.02; done"])
    did = subprocess.run(
        ["bash", "-c", f"{line} | head -1; exit ${{PIPESTATUS[0]}}"],
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (did.stdout, did.returncode) == ("more\n", 141)
    assert f"outlast kill {the_running(cli)['task_id']}" in did.stderr


# --- who can be seen ---------------------------------------------------------------------


def command_lines() -> dict[int, bytes]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
    return found


@pytest.mark.parametrize("how", [["run"], ["run", "--bg"], ["run", "--split", "--json"]])
def test_the_commands_text_is_in_no_argument_list(cli: Cli, tmp_path: Path, how: list[str]) -> None:
    """A `pkill -f` with a piece of the command finds neither us nor the guards of its task."""
    marker = uuid.uuid4().hex
    command = f": {marker}; touch {tmp_path}/begun; {wait_for(tmp_path / 'go')}"
    running = cli.start(*how, command)
    eventually((tmp_path / "begun").exists)
    seen = {pid: line for pid, line in command_lines().items() if marker.encode() in line}
    (tmp_path / "go").touch()
    running.communicate(timeout=60)
    assert not seen


def test_a_command_can_look_for_itself_without_finding_us(cli: Cli) -> None:
    marker = f"marker{uuid.uuid4().hex}"
    did = cli("run", f"pgrep -f {marker}; echo {marker}")
    found = [line for line in did.stdout.splitlines() if line.isdigit()]
    assert not found, "pgrep leaves itself out, and nobody else has the text"


# --- interrupts --------------------------------------------------------------------------


def interrupted(cli: Cli, tmp_path: Path, command: str, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A command line whose command has begun, and the file that its command waits for."""
    running = cli.start("run", *options, f"{command}\ntouch {tmp_path}/begun; {wait_for(tmp_path / 'go')}; exit 7")
    eventually((tmp_path / "begun").exists)
    return running, tmp_path / "go"


def test_an_interrupt_reaches_the_command(cli: Cli, tmp_path: Path) -> None:
    # No short-lived children: bash forgets an interrupt that comes while one of them ends well.
    running = cli.start("run", f": >{tmp_path}/begun; sleep 1000; exit 7")
    eventually((tmp_path / "begun").exists)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"ended by SIGINT" in err
    assert b"Traceback" not in err
    assert listed(cli)[0]["signal"] == signal.SIGINT


def test_a_command_that_traps_an_interrupt_goes_on(cli: Cli, tmp_path: Path) -> None:
    running, go = interrupted(cli, tmp_path, "trap 'echo caught' INT")
    running.send_signal(signal.SIGINT)
    assert read_line(running.stdout) == b"caught\n"
    go.touch()
    running.communicate(timeout=60)
    assert running.returncode == 7


def test_a_second_interrupt_ends_the_whole_tree(cli: Cli, tmp_path: Path) -> None:
    running, _ = interrupted(cli, tmp_path, "trap 'echo caught' INT; (trap '' INT TERM; sleep 1000) &", "--json")
    task_id = the_running(cli)["task_id"]
    running.send_signal(signal.SIGINT)
    eventually(lambda: cli("logs", task_id).stdout == "caught\n")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    result = json.loads(out)
    assert (result["status"], result["reason"], result["children"]) == ("killed", "killed", [])


def test_an_interrupt_while_it_is_being_started_is_not_forgotten(cli: Cli) -> None:
    """The interrupt comes in the middle of `start`; the command is interrupted as soon as there is one."""
    script = (
        "import os, signal, sys\n"
        "from outlast.shell.starter import Starter\n"
        "start = Starter.launch\n"
        "def slow(*a, **k):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return start(*a, **k)\n"
        "Starter.launch = slow\n"
        "from outlast.cli.main import main\n"
        "sys.exit(main(['run', 'sleep 1000']))\n"
    )
    did = subprocess.run([sys.executable, "-c", script], env=cli.env, capture_output=True, text=True, timeout=60)
    assert did.returncode == 130, did.stderr
    assert "ended by SIGINT" in did.stderr


def test_in_the_background_nothing_but_the_task_is_left(cli: Cli, home: str) -> None:
    """Who was called with our environment is gone when the id is printed, and the guards have none of it."""
    task = ran(cli, "--bg", "exec sleep 1000")
    marker = f"OUTLAST_HOME={home}".encode()
    left = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if marker in environ(path)}
    assert left == {task["pid"]}


def environ(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []
