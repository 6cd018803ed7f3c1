"""Real programs, what is typed at them, and what they have to show: the same through every interface."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MENU = Path(__file__).parent / "menu.py"
ENTER, ESCAPE, CTRL_C, CTRL_D, DELETE = "\r", "\x1b", "\x03", "\x04", "\x7f"
APPLICATION_DOWN = "\x1bOB"  # what a terminal sends after the program asked for application keys


@dataclass
class Scene:
    """A program, what is typed, and what has to be on the screen after each of it (first: before anything is typed)."""

    command: str
    steps: list[tuple[str, str]]
    needs: str = ""
    size: tuple[int, int] = (60, 12)
    prepare: Callable[[Path], None] = lambda place: None
    normalise: Callable[[str], str] = lambda text: text
    env: dict[str, str] = field(default_factory=dict)


def write_lines(place: Path) -> None:
    (place / "lines.txt").write_text("".join(f"line {number} of the file\n" for number in range(1, 101)))


def make_repository(place: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=place, check=True, capture_output=True)

    git("init", "-q")
    (place / "file").write_text("one\ntwo\nthree\n")
    git("add", "file")
    git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "first")
    (place / "file").write_text("one\n2\nthree\n")


def hide_choices(text: str) -> str:
    return re.sub(r"\[[a-z,/?]+\]\?", "[...]?", text)


def only_frame(text: str) -> str:
    """What stays the same on every machine: the names of the columns, and the keys."""
    kept = [line for line in text.splitlines() if re.search(r"PID\b.*USER|F1Help|^%Cpu|^Tasks:|^MiB", line)]
    return "\n".join(" ".join(re.sub(r" *[0-9][0-9.,:]*", " N", line).split()) for line in kept)


SCENES = {
    "python": Scene(
        f"{sys.executable} -q",
        [
            ("", ">>>"),
            ("6 * 7" + ENTER, "42"),
            ("print('größer', '寿司')" + ENTER, "größer 寿司\n>>>"),
            ("exit()" + ENTER, ""),
        ],
        env={"PYTHON_BASIC_REPL": "1", "PYTHONSTARTUP": ""},
    ),
    "input": Scene('python3 -c \'print("got", input("Name? "))\'', [("", "Name?"), ("Ada\x7fa" + ENTER, "got Ada")]),
    "password": Scene(
        "read -rsp 'Password: ' word; echo; echo \"${#word} characters\"",
        [("", "Password:"), ("secret" + ENTER, "6 characters")],
    ),
    "less": Scene(
        "less lines.txt",
        [("", "lines.txt"), (" ", "line 20 "), ("/line 77" + ENTER, "line 77 of"), ("q", "")],
        "less",
        prepare=write_lines,
        env={"LESS": "", "LESSHISTFILE": "-"},
    ),
    "vim": Scene(
        "vim -N -u NONE -i NONE --cmd 'set ttimeout ttimeoutlen=20' lines.txt",
        [
            ("", "line 1 of"),
            ("ggOA new line" + ESCAPE, "A new line"),
            (":set number" + ENTER, "1 A new line"),
            ("Gzz", "101 line 100"),
            (":wq" + ENTER, ""),
        ],
        "vim",
        prepare=write_lines,
    ),
    "htop": Scene("htop", [("", "F1Help"), ("q", "")], "htop", size=(100, 24), normalise=only_frame),
    "top": Scene("top -d 60", [("", "PID USER"), ("q", "")], "top", size=(80, 24), normalise=only_frame),
    "gdb": Scene(
        "gdb -q -nx",
        [("", "(gdb)"), ("print 6*7" + ENTER, "$1 = 42"), ("show editing" + ENTER, "is on"), (CTRL_D, "quit")],
        "gdb",
        env={"DEBUGINFOD_URLS": ""},
    ),
    "git_add_p": Scene(
        "git -c color.ui=never add -p; git diff --cached --stat",
        [("", "Stage this hunk"), ("y" + ENTER, "1 file changed")],
        "git",
        prepare=make_repository,
        normalise=hide_choices,
    ),
    "curses": Scene(
        f"{sys.executable} {MENU}",
        [("", "寿司"), (APPLICATION_DOWN, "Knödel"), (APPLICATION_DOWN, "寿司"), (ENTER, "ordered: 寿司")],
        size=(40, 8),
    ),
    "ssh": Scene(
        "ssh",  # with the options of the server that the test starts
        [
            ("", "remote>"),
            ("stty size; tty | cut -d/ -f3" + ENTER, "12 60\npts"),
            ("read -rsp 'Word: ' word" + ENTER, "\nWord:"),
            (CTRL_C, "Word:\nremote>"),
            ("echo $?" + ENTER, "130"),
            (CTRL_D, "exit"),
        ],
        "ssh",
    ),
    "npm_init": Scene(
        "mkdir project && cd project && npm init 2>/dev/null; echo ended",
        [
            ("", "package name"),
            ("thing" + ENTER, "version"),
            ("2.0.0" + ENTER, "description"),
            *[(ENTER, name) for name in ("entry point", "test command", "git repository", "keywords", "author")],
            (CTRL_C, "ended"),
        ],
        "npm",
        size=(70, 50),
        env={"NO_UPDATE_NOTIFIER": "1", "npm_config_offline": "true", "NO_COLOR": "1"},
    ),
}
