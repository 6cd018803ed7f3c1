"""Tasks with a terminal through the library, the command line and the tools."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from outlast import BadInput, Shell
from outlast.errors import AlreadyEnded, InputRefused
from outlast.tools import Toolbox
from outlast.types import Stdin
from tests.conftest import Cli, end_all, eventually
from tests.terminals import shows, text_of

PRINT_ENV = 'for n in TERM PAGER GIT_PAGER EDITOR NO_COLOR COLUMNS LINES; do echo "$n=${!n-unset}"; done'
ON_TERMINAL = (
    "TERM=xterm-256color\nPAGER=unset\nGIT_PAGER=unset\nEDITOR=unset\nNO_COLOR=unset\nCOLUMNS=unset\nLINES=unset\n"
)


@pytest.fixture
def plain_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGER", "GIT_PAGER", "EDITOR", "NO_COLOR", "COLUMNS", "LINES", "CLICOLOR", "GIT_EDITOR"):
        monkeypatch.delenv(name, raising=False)


# --- start -------------------------------------------------------------------------------


def test_a_terminal_of_the_usual_size(shell: Shell) -> None:
    result = shell.run("stty size; tty >/dev/null && echo yes", tty=True)
    assert (result.output, result.tty, result.exit_code) == ("24 80\nyes\n", "80x24", 0)


def test_a_terminal_of_another_size(shell: Shell) -> None:
    for size in ((120, 40), "120x40"):
        result = shell.run("stty size", tty=size)
        assert (result.output, result.tty) == ("40 120\n", "120x40")


def test_without_one_there_is_none(shell: Shell) -> None:
    result = shell.run("tty; test -t 1 || echo no", tty=False)
    assert (result.output, result.tty) == ("not a tty\nno\n", None)
    assert result.to_dict()["tty"] is None


@pytest.mark.parametrize(
    "size", [(0, 24), (80, 0), (80, 100000), (80,), "80", "80x", "x24", "80x24x1", "a", 5, (80.0, 24)]
)
def test_a_bad_size_is_refused(shell: Shell, size: object) -> None:
    with pytest.raises(BadInput, match=r"not the size of a terminal; write COLUMNSxROWS, such as 80x24"):
        shell.start("true", tty=size)  # type: ignore[arg-type]
    assert shell.list() == []


def test_what_contradicts_a_terminal_is_refused(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="A terminal has one stream"):
        shell.start("true", tty=True, split=True)
    for stdin in ("text", Stdin(file=str(tmp_path))):
        with pytest.raises(BadInput, match="reads from that; write `COMMAND < FILE`"):
            shell.start("true", tty=True, stdin=stdin)
    assert shell.run("cat", tty=True, stdin=Stdin(open=True), wait=0.1).status == "running"


@pytest.mark.usefixtures("plain_environ")
def test_the_environment_is_that_of_a_terminal(home: str) -> None:
    with Shell.open(home=home) as shell:
        assert shell.run(PRINT_ENV, tty=True).output == ON_TERMINAL
        assert shell.run("echo $TERM", tty=True, env={"TERM": "vt100"}).output == "vt100\n"


@pytest.mark.usefixtures("plain_environ")
def test_the_environment_of_a_session_stays_as_it_is(home: str) -> None:
    with Shell.open(home=home, session="s") as shell:
        before = shell.run(PRINT_ENV).output
        assert "TERM=dumb\nPAGER=cat\n" in before
        shell.run("x=1; cd /", tty=True)
        assert shell.run(PRINT_ENV, tty=True).output == ON_TERMINAL
        assert shell.run(PRINT_ENV).output == before
        shell.run("export PAGER=less")
        assert "PAGER=less\n" in shell.run(PRINT_ENV, tty=True).output
        assert shell.run("echo $PAGER $x $PWD").output == "less 1 /\n"


def test_a_foreground_command_keeps_what_it_changes(home: str) -> None:
    with Shell.open(home=home, session="s") as shell:
        shell.run("declare -a list=(1 2); f() { echo called; }; cd /tmp", tty=True)
        assert shell.run("f; echo ${list[1]}; pwd", tty=True).output == "called\n2\n/tmp\n"
        task = shell.start("y=2; cd /", tty=True)
        shell.wait(task)
        assert shell.run("echo ${y-unset}; pwd").output == "unset\n/tmp\n"


def test_a_pending_task_gets_its_terminal_later(shell: Shell) -> None:
    first = shell.start("read -r line", stdin=Stdin(open=True))
    second = shell.start("stty size", tty=(90, 30), after=[first])
    assert second.status == "pending"
    with pytest.raises(InputRefused, match="pending"):
        shell.resize(second, 80, 24)
    shell.send(first, "\n")
    shell.wait(second, timeout=30)
    assert shell.read(second).output == "30 90\n"


@pytest.mark.parametrize("words", ["python3 -c 'import os; print(os.isatty(0), os.get_terminal_size())'"])
def test_a_program_without_a_shell(shell: Shell, words: str) -> None:
    assert shell.run(words, shell="none", tty=True).output == "True os.terminal_size(columns=80, lines=24)\n"
    assert shell.run("stty size", shell="/bin/sh", tty=True).output == "24 80\n"


# --- input, size, screen -----------------------------------------------------------------


def test_the_end_of_input_is_a_key(shell: Shell) -> None:
    task = shell.start("cat; echo over", tty=True)
    shell.send(task, "a line\n")
    shows(shell, task, "a line\na line")
    shell.send(task, eof=True)
    assert shell.wait(task, timeout=30).exit_code == 0
    assert text_of(shell, task).endswith("over")
    task = shell.start("cat; echo over", tty=True)
    shell.send(task, "half a line", eof=True)  # the first key only ends the line
    assert shell.wait(task, timeout=30).exit_code == 0
    assert text_of(shell, task) == "half a linehalf a lineover"


def test_a_new_size(shell: Shell) -> None:
    task = shell.start("trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done", tty=True)
    shows(shell, task, "ready")
    shell.resize(task, 132, 50)
    shows(shell, task, "50 132")
    assert shell.show(task).tty == "132x50"
    screen = shell.screen(task)
    assert (screen.columns, len(screen.rows)) == (132, 50)
    with pytest.raises(BadInput, match="not the size"):
        shell.resize(task, 0, 50)
    shell.kill(task, grace=0.5)
    with pytest.raises(AlreadyEnded, match="its screen stays as it is"):
        shell.resize(task, 80, 24)
    assert shell.show(task).tty == "132x50"
    assert text_of(shell, task).startswith("ready\n50 132")


def test_a_task_without_a_terminal_has_no_screen(shell: Shell) -> None:
    task = shell.start("sleep 60")
    with pytest.raises(InputRefused, match=r"has no terminal, so it has no screen; start it with `tty=True`\."):
        shell.screen(task)
    with pytest.raises(InputRefused, match="has no terminal, so it has no size"):
        shell.resize(task, 80, 24)


def test_secrets_on_the_screen_are_masked(home: str) -> None:
    with Shell.open(home=home) as shell:
        task = shell.start(
            'printf "%60s" ""; echo "$API_TOKEN"; sleep 60', tty=True, env={"API_TOKEN": "swordfish-4711"}
        )
        eventually(lambda: "*" in text_of(shell, task), what="the token")
        assert "sword" not in text_of(shell, task)
        assert "4711" not in text_of(shell, task)
        end_all(shell)


# --- the end -----------------------------------------------------------------------------


def test_a_kill_hangs_up(shell: Shell, tmp_path: Path) -> None:
    script = "trap 'echo hup >hup; exit 3' HUP; trap '' TERM; echo ready; while :; do sleep 0.02; done"
    task = shell.start(script, tty=True, cwd=tmp_path)
    shows(shell, task, "ready")
    receipt = shell.kill(task)
    assert (receipt.status, receipt.survivors) == ("killed", ())
    assert (tmp_path / "hup").read_text() == "hup\n"


def test_an_interactive_shell_ends_at_once(shell: Shell) -> None:
    """It ignores TERM, and would be killed after the grace."""
    task = shell.start("PS1='> ' bash --norc --noprofile -i", tty=True)
    shows(shell, task, ">")
    shell.send(task, "sleep 1000 &\n")
    shows(shell, task, "[1]")
    receipt = shell.kill(task, grace=60)
    assert receipt.survivors == ()


# --- in a sandbox ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_in_a_sandbox(home: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    monkeypatch.setenv("OUTLAST_SANDBOX_KIND", kind)
    with Shell.open(home=home, session="s", cwd=tmp_path) as shell:
        script = "stty size; : >/dev/tty && echo controlled; read -rsp 'Word: ' word </dev/tty; echo; echo $word >file"
        task = shell.start(script, tty=(70, 20), sandbox=True)
        if task.sandbox is None or not task.sandbox.startswith(kind):
            end_all(shell)
            pytest.skip(f"{kind} does not work here")
        shows(shell, task, "Word:")
        shell.send(task, "xyzzy\n")
        assert shell.wait(task, timeout=30).exit_code == 0
        assert text_of(shell, task) == "20 70\ncontrolled\nWord:"
        assert (tmp_path / "file").read_text() == "xyzzy\n"
        shell.run("v=kept", tty=True, sandbox=True)
        assert shell.run("echo $v").output == "kept\n"
        task = shell.start(
            "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.02; done", tty=True, sandbox=True
        )
        shows(shell, task, "ready")
        shell.send(task, "\x03")
        assert shell.wait(task, timeout=30).exit_code == 4
        task = shell.start("PS1='> ' bash --norc --noprofile -i", tty=True, sandbox=True)
        shows(shell, task, ">")
        assert shell.kill(task, grace=60).survivors == ()


# --- the command line --------------------------------------------------------------------


def test_the_verbs(cli: Cli) -> None:
    assert cli("run", "--tty", "--size", "100x30", "stty size", check=0).stdout == "30 100\r\n"
    task_id = cli(
        "run", "--bg", "--tty", "printf '\\033]2;the title\\007'; read -r line; echo \"<$line>\"; sleep 60"
    ).stdout.strip()
    eventually(lambda: cli.json("screen", task_id)["title"] == "the title", what="the title")
    cli("send", task_id, "hello", check=0)
    eventually(lambda: "<hello>" in cli("screen", task_id).stdout, what="the answer")
    cli("resize", task_id, "60x10", check=0)
    eventually(lambda: len(cli.json("screen", task_id)["rows"]) == 10, what="the new size")
    found = cli.json("screen", task_id)
    assert found["rows"][:3] == ["hello", "<hello>", ""]
    assert {name: found[name] for name in ("columns", "cursor", "alternate", "exact")} == {
        "columns": 60,
        "cursor": [2, 0],
        "alternate": False,
        "exact": True,
    }
    assert cli.json("show", task_id)["tty"] == "60x10"
    assert "terminal     60x10\n" in cli("show", task_id).stdout
    assert cli("logs", task_id).stdout == "hello\n<hello>\n"
    assert cli("screen", task_id).stdout.splitlines() == found["rows"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--size", "80x24", "true"], "--size is the size of a terminal; add --tty."),
        (["run", "--tty", "--size", "80", "true"], "'80' is not the size of a terminal; write COLUMNSxROWS"),
        (["run", "--tty", "--split", "true"], "A terminal has one stream of output; leave out split (--split) or tty"),
        (["resize", "x", "big"], "'big' is not the size of a terminal"),
    ],
)
def test_bad_input(cli: Cli, words: list[str], said: str) -> None:
    done = cli(*words, check=2)
    assert said in done.stderr
    assert done.stdout == ""


def test_a_size_is_that_of_the_own_terminal(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", "91", "rows", "33"], stdin=theirs, check=True)
    process = cli.start("run", "--tty", "stty size", stdout=theirs, stderr=theirs)
    process.wait(60)
    assert select.select([ours], [], [], 10)[0]
    assert b"33 91" in os.read(ours, 1000)
    os.close(ours)
    os.close(theirs)
    assert process.stdout is None


# --- the tools ---------------------------------------------------------------------------


def test_the_default_profile_shows_the_screen(home: str) -> None:
    with Toolbox.open(home=home, session="s", policy="yolo") as box:
        reply = box.call("bash", {"command": "PS1='$ ' bash --norc --noprofile -i", "tty": True, "size": "40x5"})
        assert re.search(r"Screen \(40x5, cursor at row 1, column 3\):\n```\n\$\n```\n$", reply.text), reply.text
        task_id = reply.data["task_id"]
        reply = box.call("bash_input", {"task_id": task_id, "text": "printf 'a\\rb\\n'; stty size"})
        assert "```\n$ printf 'a\\rb\\n'; stty size\nb\n5 40\n$\n```" in reply.text
        assert reply.data["screen"]["rows"][1] == "b"
        reply = box.call("bash_output", {"task_id": task_id})
        assert "Screen (40x5, cursor at row 4, column 3):" in reply.text
        reply = box.call("bash_output", {"task_id": task_id, "filter": "stty"})
        assert "Screen" not in reply.text
        reply = box.call("bash_input", {"task_id": task_id, "text": "exit 3"})
        assert "exit code 3" in reply.text
        reply = box.call("bash", {"command": "true", "size": "1"})
        assert "not the size of a terminal" in reply.text
        json.dumps(reply.data)
