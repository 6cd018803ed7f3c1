"""Programs for people, driven as a model drives them: one call is one step, and its reply shows what came of it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.tools import Toolbox
from tests.cli import agreed
from tests.conftest import end_all, eventually

MENU = """
import curses
def main(window):
    curses.curs_set(0)
    names, at = ["tea", "coffee", "water"], 0
    while True:
        window.erase()
        window.addstr(0, 0, "What do you drink?")
        for row, name in enumerate(names):
            window.addstr(row + 2, 2, name, curses.A_REVERSE if row == at else 0)
        key = window.getch()
        if key == ord("\\n"):
            return names[at]
        at = (at + {curses.KEY_DOWN: 1, curses.KEY_UP: -1}.get(key, 0)) % len(names)
print("It is", curses.wrapper(main))
"""


class Model:
    """Calls tools, and looks only at the text of their replies."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self.task_id = ""

    def start(self, command: str, **how: object) -> str:
        reply = self._box.call("bash", {"command": command, "tty": True, **how})
        assert not reply.error, reply.text
        self.task_id = reply.data["task_id"]
        return reply.text

    def keys(self, keys: str) -> str:
        return self._send(keys=keys)

    def line(self, text: str) -> str:
        return self._send(text=text)

    def _send(self, **what: str) -> str:
        reply = self._box.call("bash_input", {"task_id": self.task_id, "wait": 30, **what})
        assert not reply.error, reply.text
        return reply.text

    def sees(self, text: str) -> str:
        """Look again until the screen shows it: a program that draws in two parts pauses in between."""
        return str(eventually(lambda: text in (seen := self.look()) and seen, what=text))

    def look(self) -> str:
        return self._box.call("bash_output", {"task_id": self.task_id}).text


@pytest.fixture
def model(home: str, tmp_path: Path) -> Iterator[Model]:
    with Toolbox.open(home=home, session="model", policy="yolo", cwd=tmp_path) as box:
        yield Model(box)
        end_all(box.shell)


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def screen_in(text: str) -> str:
    """The block with the screen, with the line about it: what stands before has times and pids."""
    return text[text.index("Screen (") :]


def test_a_python_repl(model: Model) -> None:
    assert ">>>" in model.start(f"{shlex.quote(sys.executable)} -q")
    assert "42" in model.line("6 * 7")
    assert "waiting for input: pid" in model.look()
    assert "KeyboardInterrupt" in model.keys("import time; time.slee<C-c>")
    assert "exit code 0" in model.keys("<C-d>").lower()


def test_a_question(model: Model) -> None:
    text = model.start(f"{shlex.quote(sys.executable)} -c \"print('Hello', input('Your name? '))\"")
    assert "Your name?" in text
    assert "waiting for input" in text
    text = model.line("Ada")
    assert "Hello Ada" in text
    assert "exit code 0" in text.lower()


def test_a_password_is_not_shown(model: Model) -> None:
    text = model.start("read -rsp 'Password: ' it; echo; echo ${#it} characters")
    assert "Password:" in text
    assert "waiting for input" in text
    text = model.line("hunter2")
    assert "7 characters" in text
    assert "hunter2" not in text


def test_a_pager(model: Model, tmp_path: Path) -> None:
    needs("less")
    (tmp_path / "numbers").write_text("".join(f"line {number}\n" for number in range(1, 201)))
    assert "line 1\n" in model.start("LESS= less numbers")
    assert "line 24" in model.keys("<Space>")
    assert "line 200\n" in model.keys("G")
    assert "line 150\n" in model.keys("?line 150<Enter>")
    assert screen_in(model.look()) == agreed("input_replies/less.txt", screen_in(model.look()))
    assert "exit code 0" in model.keys("q").lower()


def test_an_editor(model: Model, tmp_path: Path) -> None:
    needs("vim")
    (tmp_path / "poem").write_text("Roses are red\nViolets are blue\n")
    model.start("vim -u NONE -i NONE --noplugin poem")
    model.sees("Roses are red")
    model.keys("jA and so are you<Esc>")
    seen = screen_in(model.sees("Violets are blue and so are you"))
    assert seen == agreed("input_replies/vim.txt", seen)
    assert "exit code 0" in model.keys(":wq<Enter>").lower()
    assert (tmp_path / "poem").read_text() == "Roses are red\nViolets are blue and so are you\n"


def test_htop(model: Model) -> None:
    needs("htop")
    model.start("htop")
    model.sees("F10")
    assert "Search:" in model.keys("<F3>")
    model.keys("<Esc>")
    model.keys("q")
    eventually(lambda: "exit code 0" in model.look().lower())


def test_top(model: Model) -> None:
    needs("top")
    model.start("top")
    model.sees("load average")
    model.keys("q")
    eventually(lambda: "exit code 0" in model.look().lower())


def test_npm_init(model: Model, tmp_path: Path) -> None:
    needs("npm")
    model.start("npm init", cwd=str(tmp_path), wait=20, ready="package name:")
    model.sees("package name:")
    assert "version:" in model.line("thing")
    for _ in range(7):
        model.keys("<Enter>")
    model.sees("license:")
    model.line("MIT")
    if "type:" in model.look():  # newer versions ask for that, too
        model.keys("<Enter>")
    model.sees("Is this OK?")
    model.line("yes")
    eventually((tmp_path / "package.json").exists)
    assert '"name": "thing"' in (tmp_path / "package.json").read_text()


def test_gdb(model: Model) -> None:
    needs("gdb")
    assert "(gdb)" in model.start("gdb -q -nx")
    assert "$1 = 42" in model.line("print 6 * 7")
    assert "exit code 0" in model.line("quit").lower()


def test_git_add_patch(model: Model, tmp_path: Path) -> None:
    needs("git")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    (tmp_path / "file").write_text("one\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    (tmp_path / "file").write_text("one\ntwo\n")
    text = model.start("git --no-pager -c color.ui=false add -p", cwd=str(tmp_path))
    assert "Stage this hunk" in text
    assert "waiting for input" in text
    assert "exit code 0" in model.line("y").lower()
    staged = subprocess.run([*git, "diff", "--cached"], check=True, capture_output=True, text=True, timeout=60)
    assert "+two" in staged.stdout


def test_a_menu(model: Model, tmp_path: Path) -> None:
    (tmp_path / "menu.py").write_text(MENU)
    model.start(f"{shlex.quote(sys.executable)} menu.py", cwd=str(tmp_path))
    seen = screen_in(model.sees("water"))
    assert seen == agreed("input_replies/menu.txt", seen)
    model.keys("<Down><Down>")  # in the mode that curses asked for: else these would be three keys each
    assert "It is water" in model.keys("<Enter>")


def test_a_line_without_a_terminal_and_its_answer(model: Model) -> None:
    task = model._box.call("bash", {"command": "read a; echo got $a; exec sleep 1000", "stdin_open": True}).data
    model.task_id = task["task_id"]
    assert "got it" in model.keys("it<Enter>")
    refused = model._box.call("bash_input", {"task_id": model.task_id, "keys": "<Up>"})
    assert refused.error
    assert "has no terminal" in refused.text
    assert "SIGINT" in model.keys("<C-c>")
