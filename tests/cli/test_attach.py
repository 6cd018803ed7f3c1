"""`outlast attach`, typed at tmux: the screen of the task, keys, sizes, leaving, and the terminal afterwards."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlast.cli.attach import detach_key
from outlast.cli.cells import paint, sgr
from outlast.errors import BadInput
from outlast.output.screen import Screen
from tests.cli import listed, the_running
from tests.cli.test_terminal import HEIGHT, WIDTH, Terminal, terminal  # noqa: F401 - a fixture
from tests.conftest import Cli, eventually

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

SIZE = (
    "import os, signal\nsignal.signal(28, lambda *_: print('size', *os.get_terminal_size()))\nwhile 1: signal.pause()"
)
READ = r"""
import os, sys, tty
tty.setraw(0)
os.write(1, b"ready\r\n")
while (data := os.read(0, 100)) != b"q":
    os.write(1, b"got " + (data if data.isalpha() else data.hex().encode()) + b"\r\n")
sys.exit(7)
"""
ECHO = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(READ)}"


def start(cli: Cli, command: str, *how: str) -> str:
    return cli("run", "--bg", *how, command, check=0).stdout.strip()


def shows(terminal: Terminal, text: str) -> None:  # noqa: F811
    """Wait until a line of the screen is `text`, whatever blanks were drawn behind it."""
    seen = lambda: [line.rstrip() for line in terminal.screen().splitlines()]  # noqa: E731
    eventually(lambda: text in seen(), what=f"{text!r} on the screen")


def attached(terminal: Terminal, task_id: str, *how: str) -> None:  # noqa: F811
    terminal.type(f"clear; outlast attach {task_id} {' '.join(how)}; echo code=$?")
    eventually(lambda: f"{task_id}: Ctrl-]" in terminal.screen(), what="the key that detaches")


def is_as_before(terminal: Terminal) -> None:  # noqa: F811
    """The modes of the terminal are those of an ordinary one again."""
    terminal.type("clear; stty -a | tr ';' '\\n' | grep -o 'icanon\\|-icanon\\|eol = [^ ]*' | tr '\\n' ' '; echo")
    eventually(lambda: "eol = <undef> icanon" in terminal.screen(), what="icanon, and no eol")


def test_keys_go_to_the_task_and_its_output_comes_here(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty")
    attached(terminal, task_id)
    shows(terminal, "ready")  # the screen as it was
    terminal.press("a")
    shows(terminal, "got a")
    terminal.press("C-c")
    shows(terminal, "got 03")  # no signal to us
    terminal.press("Up")
    shows(terminal, "got 1b5b41")
    terminal.press("q")
    shows(terminal, "code=7")
    assert f"outlast: {task_id} failed: exit code 7" in terminal.screen()
    is_as_before(terminal)


def test_detaching_leaves_the_task_and_the_terminal_as_they_were(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty")
    terminal.type("echo what was before")
    attached(terminal, task_id)
    terminal.press("C-]")
    shows(terminal, "code=0")
    assert f"outlast: detached from {task_id}, which goes on" in terminal.screen()
    assert the_running(cli)["task_id"] == task_id
    is_as_before(terminal)
    attached(terminal, task_id)  # and again
    shows(terminal, "ready")
    terminal.press("q")
    shows(terminal, "code=7")


def test_an_editor_in_its_own_screen(terminal: Terminal, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    if shutil.which("vim") is None:
        pytest.skip("vim is not installed")
    (tmp_path / "note").write_text("first\n")
    task_id = start(cli, "vim -u NONE -i NONE note", "--tty", "--cwd", str(tmp_path))
    attached(terminal, task_id)
    shows(terminal, "first")
    for key in ("o", "second", "Escape"):
        terminal.press(key)
    shows(terminal, "second")
    terminal.press("C-]")
    shows(terminal, "code=0")
    assert "first" not in terminal.screen().splitlines()  # its screen is left
    attached(terminal, task_id)
    shows(terminal, "second")
    for key in (":wq", "Enter"):
        terminal.press(key)
    shows(terminal, "code=0")
    assert (tmp_path / "note").read_text() == "first\nsecond\n"


def test_the_size_follows_the_window(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, f"{shlex.quote(sys.executable)} -u -c {shlex.quote(SIZE)}", "--tty")
    assert cli.json("show", task_id)["tty"] == "80x24"
    attached(terminal, task_id)
    eventually(lambda: cli.json("show", task_id)["tty"] == f"{WIDTH}x{HEIGHT}")
    terminal._tmux("resize-window", "-x", "100", "-y", "30")
    shows(terminal, "size 100 30")
    assert cli.json("show", task_id)["tty"] == "100x30"
    cli("resize", task_id, "90x20", check=0)  # another person
    shows(terminal, "size 90 20")
    terminal.press("x")  # who types has the size
    eventually(lambda: cli.json("show", task_id)["tty"] == "100x30")


def test_who_watches_sends_nothing_and_changes_no_size(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty", "--size", "60x10")
    attached(terminal, task_id, "--watch")
    shows(terminal, "ready")
    terminal.press("q")
    cli("send", task_id, "--keys", "b", check=0)
    shows(terminal, "got b")
    assert "got q" not in terminal.screen()
    assert cli.json("show", task_id)["tty"] == "60x10"
    terminal.press("C-c")
    shows(terminal, "code=0")
    assert the_running(cli)["task_id"] == task_id
    is_as_before(terminal)


def test_two_people_see_the_same(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty")
    attached(terminal, task_id)
    other = [*terminal._server, "new-window", f"{shlex.join(cli.command)} attach {task_id}"]
    subprocess.run(other, env=terminal._env, check=True, capture_output=True, timeout=60)
    eventually(lambda: "ready" in terminal._tmux("capture-pane", "-p", "-t", ":1"))
    terminal._tmux("send-keys", "-t", ":1", "z")
    eventually(lambda: "got z" in terminal._tmux("capture-pane", "-p", "-t", ":1"))
    eventually(lambda: "got z" in terminal._tmux("capture-pane", "-p", "-t", ":0"))


PAGE = r"""
import curses
def main(window):
    curses.curs_set(0)
    while True:
        window.erase()
        rows, columns = window.getmaxyx()
        for row in range(rows):
            window.insstr(row, 0, f"row {row} of {columns}x{rows} ".ljust(columns, "."))
        window.refresh()
        if window.getch() == ord("q"):
            return
curses.wrapper(main)
"""


def test_each_of_several_windows_shows_what_fits(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(PAGE)
    task_id = start(cli, f"exec {shlex.quote(sys.executable)} {tmp_path / 'page.py'}", "--tty")
    sizes = (100, 30), (40, 10)
    large, small = windows = [Terminal(cli, str(tmp_path), size) for size in sizes]

    def both_show(columns: int, rows: int) -> None:
        page = [f"row {row} of {columns}x{rows} ".ljust(columns, ".") for row in range(rows)]
        for window, size in zip(windows, sizes, strict=True):
            wanted = [line[: size[0]] for line in page[: size[1]]]
            seen = lambda: window._tmux("capture-pane", "-p").rstrip("\n").split("\n")  # noqa: B023, E731
            eventually(lambda: seen() == wanted, what=f"a page of {columns}x{rows} in {size}")  # noqa: B023

    try:
        for window in windows:
            window.type(f"clear; outlast attach {task_id}; echo code=$?")
            eventually(lambda: "row 1 of" in window.screen(), what="the page")  # noqa: B023
        both_show(40, 10)  # that of the one who came last; in the larger window the rest is empty
        for _ in range(2):
            large.press("x")
            both_show(100, 30)
            small.press("x")
            both_show(40, 10)
        cli("resize", task_id, "60x20", check=0)
        both_show(60, 20)
        small.press("q")
        for window in windows:
            shows(window, "code=0")
            is_as_before(window)
    finally:
        for window in windows:
            window.close()


@pytest.mark.parametrize("how", [(), ("--watch",)])
def test_a_flood_does_not_hold_up_the_person(terminal: Terminal, cli: Cli, how: tuple[str, ...]) -> None:  # noqa: F811
    """The window is slower than the program, and most of all if its screen has to be drawn for it."""
    task_id = start(cli, "trap 'echo caught; exit 3' INT; yes 'a line of ordinary length'", "--tty")
    terminal.type(f"clear; outlast attach {task_id} {' '.join(how)}; echo code=$?")
    eventually(lambda: "a line of ordinary length" in terminal.screen(), what="the flood")
    eventually(lambda: int(cli.json("logs", task_id, "--tail", "1")["cursor"]) > 40_000_000, what="40 MB")
    if how:
        cli("send", task_id, "--keys", "<C-c>", check=0)
    else:
        terminal.press("C-c")
    eventually(lambda: "code=3" in terminal.screen(), what="its end")
    assert "caught" in terminal.screen()
    is_as_before(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(terminal: Terminal, cli: Cli, number: int) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty")
    attached(terminal, task_id)
    os.kill(person(task_id), number)
    shows(terminal, f"code={128 + number}")
    is_as_before(terminal)
    assert the_running(cli)["task_id"] == task_id


def test_a_stop_gives_the_terminal_back_and_a_continuation_takes_it(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty")
    terminal.type("clear")
    attached(terminal, task_id)
    os.kill(person(task_id), signal.SIGTSTP)
    eventually(lambda: "Stopped" in terminal.screen(), what="the shell's own word for it")
    is_as_before(terminal)
    terminal.type("fg")
    shows(terminal, "ready")
    terminal.press("q")
    shows(terminal, f"outlast: {task_id} failed: exit code 7")
    is_as_before(terminal)


def test_a_killed_task_ends_it(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, ECHO, "--tty")
    attached(terminal, task_id)
    cli("kill", task_id, check=0)
    shows(terminal, "code=143") if cli.json("show", task_id)["signal"] == 15 else shows(terminal, "code=129")
    assert f"outlast: {task_id} killed: " in terminal.screen()
    is_as_before(terminal)


def test_lines_without_a_terminal(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    loop = 'echo begun; while read -r line; do echo "got $line"; done; echo the end; exit 3'
    task_id = start(cli, loop, "--stdin", "open")
    terminal.type(f"clear; outlast attach {task_id}; echo code=$?")
    shows(terminal, "begun")
    terminal.type("a line")
    shows(terminal, "got a line")
    terminal.press("C-d")
    shows(terminal, "the end")
    shows(terminal, "code=3")
    is_as_before(terminal)
    task_id = start(cli, loop, "--stdin", "open")
    terminal.type(f"clear; outlast attach {task_id}; echo code=$?")
    shows(terminal, "begun")
    terminal.press("C-]")
    shows(terminal, "code=0")
    is_as_before(terminal)
    terminal.type(f"clear; outlast attach {task_id}; echo code=$?")
    shows(terminal, "begun")
    terminal.press("C-c")
    shows(terminal, "code=130")
    assert listed(cli)[0]["signal"] == 2


def test_a_task_without_input_is_only_looked_at(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    task_id = start(cli, "echo begun; exec sleep 1000")
    terminal.type(f"clear; outlast attach {task_id}; echo code=$?")
    shows(terminal, "begun")
    terminal.press("C-c")
    shows(terminal, "code=0")
    assert the_running(cli)["task_id"] == task_id


# --- a command with a terminal in the foreground --------------------------------------------


def test_a_command_in_the_foreground_is_typed_at(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    terminal.type("clear; echo what was before")
    terminal.type("outlast run --tty 'read -p \"name? \" n; echo hello $n; exit 3'; echo code=$?")
    shows(terminal, "name?")
    terminal.type("Ada")
    shows(terminal, "hello Ada")
    shows(terminal, "code=3")
    assert "what was before" in terminal.screen().splitlines()  # it prints below
    is_as_before(terminal)


def test_it_ends_with_ctrl_c_by_its_own_choice(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    terminal.type(f"clear; outlast run --tty {shlex.quote(ECHO)}; echo code=$?")
    shows(terminal, "ready")
    terminal.press("C-c")
    shows(terminal, "got 03")
    terminal.press("q")
    shows(terminal, "code=7")
    is_as_before(terminal)


def test_it_goes_on_after_a_detach(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    terminal.type(f"clear; outlast run --tty {shlex.quote(ECHO)}; echo code=$?")
    shows(terminal, "ready")
    terminal.press("C-]")
    shows(terminal, "code=0")
    task = the_running(cli)
    assert f"  read on:  outlast attach {task['task_id']}" in terminal.screen()
    is_as_before(terminal)
    attached(terminal, task["task_id"])
    shows(terminal, "ready")
    terminal.press("q")
    shows(terminal, "code=7")


def test_what_was_on_the_screen_comes_back_behind_a_full_screen_program(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    page = "printf '\\033[?1049h\\033[2J\\033[Hfull\\033[2;5r\\033[1;31m'; read n"
    for key in ("Enter", "C-]"):
        terminal.type(f"clear; echo what was before; outlast run --tty {shlex.quote(page)}; echo code=$?")
        shows(terminal, "full")
        assert "what was before" not in terminal.screen()
        terminal.press(key)
        shows(terminal, "code=0")
        assert terminal.screen().splitlines()[0] == "what was before"
        is_as_before(terminal)


def test_the_default_limit_does_not_end_what_is_typed_at(terminal: Terminal, cli: Cli) -> None:  # noqa: F811
    limited = "env OUTLAST_FOREGROUND_LIMIT_S=0.3 outlast run --tty"
    terminal.type(f"clear; {limited} 'echo begun; sleep 1; echo there; read n'; echo code=$?")
    shows(terminal, "there")
    terminal.press("Enter")
    shows(terminal, "code=0")
    terminal.type("clear; outlast run --tty --limit 1 'echo begun; sleep 1000'; echo code=$?")
    shows(terminal, "code=124")
    is_as_before(terminal)


# --- without a person ----------------------------------------------------------------------


def test_of_an_ended_task_its_end_is_told(cli: Cli) -> None:
    task_id = json.loads(cli("run", "--tty", "--json", "exit 4").stdout)["task_id"]
    assert f"{task_id} failed: exit code 4" in cli("attach", task_id, check=4).stderr
    assert cli("attach", "nothing", check=1).stderr.startswith("outlast: There is no task")


def test_the_key_that_detaches_is_a_setting(cli: Cli) -> None:
    assert detach_key("<C-]>") == ("Ctrl-]", b"\x1d")
    assert detach_key("<C-a>") == ("Ctrl-A", b"\x01")
    for wrong in ("x", "<Up>", "<C-a><C-b>", "<C-c>", "<Esc>", "", "<C-m>"):
        with pytest.raises(BadInput):
            detach_key(wrong)
    cli.env["OUTLAST_DETACH_KEY"] = "x"
    assert "The setting detach_key is 'x'" in cli("attach", "nothing", check=2).stderr


def test_a_screen_is_cut_to_what_fits() -> None:
    cells: Any = (((("bold", {"bold": True}), (" and more", {}))), (("日本語", {"fg": "ansi-9", "bg": "#ff0080"}),), ())
    screen = Screen(20, ("bold and more", "日本語", ""), (1, 2), "", False, False, True, cells)
    drawn = paint(screen, 5, 2).decode()
    assert "\x1b[H\x1b[0m\x1b[K\x1b[0;1mbold\x1b[0m \x1b[0m\r\n" in drawn
    assert "日本\x1b[0m" in drawn
    assert drawn.endswith("\x1b[2;3H\x1b[?25h")
    assert sgr({"fg": "ansi-9", "bg": "#ff0080", "inverse": True}) == "0;7;91;48;2;255;0;128"
    assert "日本語" not in paint(screen, 20, 1).decode().replace("日本語", "", 1)


def person(task_id: str) -> int:
    """The process of the person who is attached."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"attach\0{task_id}".encode() in (process / "cmdline").read_bytes():
                return int(process.name)
        except OSError:
            continue
    pytest.fail(f"no process is attached to {task_id}")


def test_the_json_of_a_task_has_its_activity(cli: Cli) -> None:
    task_id = start(cli, "cat", "--tty")
    found = eventually(lambda: (now := cli.json("show", task_id))["activity"] == "waiting for input" and now)
    assert found["activity_evidence"].endswith("(cat) reads its terminal")
    listed_now = [json.loads(line) for line in cli("ps", "--json").stdout.splitlines()]
    assert listed_now[0]["activity"] == "waiting for input"
    assert "running (needs input)" in cli("ps").stdout
    assert "needs input" in cli("tasks").stdout
