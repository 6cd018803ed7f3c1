"""A person at a terminal: Ctrl-C, a closed window, output as it comes. The terminal is tmux's."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import listed, the_running
from tests.conftest import Cli, eventually

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

WIDTH, HEIGHT = 320, 50  # wider than any line that is typed: one that just fills a row is shown differently


class Terminal:
    """A window with a bash in it, and somebody who types and reads."""

    def __init__(self, cli: Cli, place: str, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
        self._server = ["tmux", "-L", f"outlast-{uuid.uuid4().hex[:8]}", "-f", os.devnull]
        # tmux starts a window through the user's own shell, which for some users is /usr/sbin/nologin.
        own = {"TMUX_TMPDIR": place, "TERM": "xterm", "PS1": "$ ", "HISTFILE": "", "SHELL": "/bin/sh"}
        self._env = {**cli.env, **own}
        self._env.pop("TMUX", None)
        self._outlast = shlex.join(cli.command)
        shell = ["env", f"PS1={self._env['PS1']}", "bash", "--norc", "--noprofile", "-i"]
        self._tmux("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), shlex.join(shell))
        eventually(lambda: "$" in self.screen(), what="a prompt")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run([*self._server, *words], env=self._env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, line: str) -> None:
        """Type a line, in which the word `outlast` is ours; a path may contain the same letters."""
        words = [self._outlast if word == "outlast" else word for word in line.split(" ")]
        self._tmux("send-keys", "-l", " ".join(words))
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def screen(self) -> str:
        """What is to be seen, without the ^C that a terminal itself shows."""
        return self._tmux("capture-pane", "-p", "-J").replace("^C", "")

    def shows(self, text: str) -> None:
        """Wait until a line of the screen is `text`."""
        eventually(lambda: text in self.screen().splitlines(), what=f"{text!r} on the screen")

    def close(self) -> None:
        """Close the window, as a person does who goes home."""
        subprocess.run([*self._server, "kill-server"], env=self._env, capture_output=True, timeout=60)


@pytest.fixture
def terminal(cli: Cli) -> Iterator[Terminal]:
    place = tempfile.mkdtemp(prefix="tm-")  # short: a socket's path has at most about 100 bytes
    made = Terminal(cli, place)
    yield made
    made.close()
    shutil.rmtree(place, ignore_errors=True)


def waits_for(task_id: str) -> bool:
    """Whether there is a process that was told to wait for this task and holds a descriptor of its command."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"wait\0{task_id}".encode() in (process / "cmdline").read_bytes():
                return any("pidfd" in os.readlink(fd) for fd in (process / "fd").iterdir())
        except OSError:
            continue
    return False


def until(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.02; done"


def test_ctrl_c_interrupts_the_command_as_on_a_terminal(terminal: Terminal, cli: Cli, tmp_path: Path) -> None:
    terminal.type("outlast run 'echo begun; sleep 1000; echo not this'; echo code=$?")
    terminal.shows("begun")
    terminal.press("C-c")
    terminal.shows("code=130")
    (task,) = listed(cli)
    assert (task["status"], task["reason"], task["signal"]) == ("failed", "signal", 2)
    assert "not this" not in terminal.screen().splitlines()
    assert "Traceback" not in terminal.screen()


def test_a_command_that_traps_ctrl_c_goes_on(terminal: Terminal, cli: Cli, tmp_path: Path) -> None:
    terminal.type(
        f"outlast run 'trap \"echo caught\" INT; echo begun; {until(tmp_path / 'go')}; echo done'; echo code=$?"
    )
    terminal.shows("begun")
    terminal.press("C-c")
    terminal.shows("caught")
    (tmp_path / "go").touch()
    terminal.shows("done")
    terminal.shows("code=0")
    assert listed(cli)[0]["status"] == "completed"


def test_ctrl_c_twice_ends_the_whole_tree(terminal: Terminal, cli: Cli, tmp_path: Path) -> None:
    command = f'trap "echo caught" INT; setsid sleep 1000 & echo begun; {until(tmp_path / "go")}'
    terminal.type(f"outlast run '{command}'; echo code=$?")
    terminal.shows("begun")
    terminal.press("C-c")
    terminal.shows("caught")
    terminal.press("C-c")
    terminal.shows("code=143")
    (task,) = listed(cli)
    assert (task["status"], task["reason"], task["children"]) == ("killed", "killed", [])
    assert f"outlast: {task['task_id']} killed: {task['ended_by']}" in terminal.screen().splitlines()


def test_a_closed_window_leaves_the_task_running(terminal: Terminal, cli: Cli, tmp_path: Path) -> None:
    terminal.type(f"outlast run 'echo begun; {until(tmp_path / 'go')}; echo afterwards; exit 5'")
    terminal.shows("begun")
    task = the_running(cli)
    terminal.close()
    assert cli.json("show", task["task_id"])["status"] == "running"
    os.kill(task["pid"], 0)
    (tmp_path / "go").touch()
    cli("wait", task["task_id"], check=5)
    assert cli("logs", task["task_id"]).stdout == "begun\nafterwards\n"


def test_what_was_left_by_wait_can_be_followed(terminal: Terminal, cli: Cli, tmp_path: Path) -> None:
    """Each line is asked for only after the one before was seen."""
    terminal.type(
        f"outlast run --wait 0.1 'echo begun; {until(tmp_path / 'go')}; echo more; {until(tmp_path / 'end')}'"
    )
    task_id = the_running(cli)["task_id"]
    terminal.shows(f"  read on:  outlast logs -f {task_id}")
    terminal.type("clear")
    terminal.type(f"outlast logs -f {task_id}; echo code=$?")
    terminal.shows("begun")
    (tmp_path / "go").touch()
    terminal.shows("more")
    assert "code=0" not in terminal.screen().splitlines()
    (tmp_path / "end").touch()
    terminal.shows("code=0")


def test_ctrl_c_while_following_ends_only_the_following(terminal: Terminal, cli: Cli) -> None:
    task_id = cli("run", "--bg", "echo begun; exec sleep 1000").stdout.strip()
    terminal.type(f"outlast logs -f {task_id}; echo code=$?")
    terminal.shows("begun")
    terminal.press("C-c")
    terminal.shows("code=130")
    assert "Traceback" not in terminal.screen()
    assert the_running(cli)["task_id"] == task_id


def test_ctrl_c_while_waiting_ends_only_the_waiting(terminal: Terminal, cli: Cli) -> None:
    task_id = cli("run", "--bg", "exec sleep 1000").stdout.strip()
    terminal.type(f"outlast wait {task_id}; echo code=$?")
    eventually(lambda: waits_for(task_id), what="it waits, and does not just start")
    terminal.press("C-c")
    terminal.shows("code=130")
    assert the_running(cli)["task_id"] == task_id


def test_the_table_fits_the_window(terminal: Terminal, cli: Cli) -> None:
    cli("run", "echo " + "long " * 100, check=0)
    terminal.type("clear; outlast ps; echo end")
    terminal.shows("end")
    lines = [line for line in terminal.screen().splitlines() if line.startswith(("STATUS", "completed"))]
    assert len(lines) == 2
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[1].endswith("…")
