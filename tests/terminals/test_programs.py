"""Real programs in a terminal, driven through their input; their screens are golden files, to be looked at.

After a change on purpose: `OUTLAST_GOLDEN=write pytest tests/terminals/test_programs.py`.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outlast import Shell
from tests.cli import agreed
from tests.conftest import eventually
from tests.terminals import shows

MENU = Path(__file__).parent / "menu.py"
ENTER, DOWN, ESCAPE, CTRL_C, CTRL_D = "\r", "\x1b[B", "\x1b", "\x03", "\x04"
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


@pytest.mark.parametrize("name", SCENES)
def test_the_screens_of(shell: Shell, tmp_path: Path, name: str) -> None:
    scene = SCENES[name]
    if scene.needs and not shutil.which(scene.needs):
        pytest.skip(f"{scene.needs} is not installed")
    scene.prepare(tmp_path)
    env = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", **scene.env}
    task = shell.start(scene.command, tty=scene.size, cwd=tmp_path, env=env)
    seen = []
    for number, (typed, wanted) in enumerate(scene.steps):
        if typed:
            shell.send(task, typed)
        shows(shell, task, wanted)
        if number == len(scene.steps) - 1:
            assert shell.wait(task, timeout=30).exit_code == 0
        else:
            shell.wait(task, timeout=20, quiet=0.2)
        where = "" if scene.normalise is only_frame else f", cursor {shell.screen(task).cursor}"
        seen.append(f"--- typed: {typed!r}{where}\n{scene.normalise(shows(shell, task, wanted))}\n")
    now = "".join(seen)
    assert now == agreed(f"screens/{name}.txt", now)


def test_the_styles_of_a_menu(shell: Shell) -> None:
    task = shell.start(f"{sys.executable} {MENU}", tty=(40, 8))
    shows(shell, task, "寿司")
    screen = shell.screen(task)
    assert screen.alternate
    assert screen.application_keys
    assert screen.cursor == (2, 4)
    assert screen.cells[2][1:2] == ((" Pancakes ", {"fg": "ansi-7", "bg": "ansi-4"}),)
    assert (" Menu ", {"bold": True}) in screen.cells[0]
    assert [sum(len(text) for text, _ in row) for row in screen.cells] == [
        40,
        40,
        40,
        40,
        38,
        40,
        40,
        40,
    ]  # 寿司 is wide
    shell.send(task, ENTER)
    shows(shell, task, "ordered: Pancakes")
    assert not shell.screen(task).alternate


# --- ssh ---------------------------------------------------------------------------------


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[list[str]]:
    """A server for this user alone; how to call the client."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or not shutil.which("ssh"):
        pytest.skip("sshd is not installed")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    (tmp_path / "authorized").write_bytes((tmp_path / "user.pub").read_bytes())
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = {"HostKey": tmp_path / "host", "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no"}
    options |= {
        "PidFile": "none",
        "UsePAM": "no",
        "PrintMotd": "no",
        "PrintLastLog": "no",
        "ListenAddress": "127.0.0.1",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    server = subprocess.Popen([program, "-D", "-e", "-f", "/dev/null", "-p", str(port), *words], stderr=subprocess.PIPE)

    def is_open() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(is_open, what="the server takes connections")
    known = ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={tmp_path / 'known'}", "-o", "LogLevel=ERROR"]
    yield [
        "ssh",
        "-F",
        "none",
        "-t",
        "-p",
        str(port),
        "-i",
        str(tmp_path / "user"),
        *known,
        f"{getpass.getuser()}@127.0.0.1",
    ]
    server.terminate()
    server.communicate(timeout=30)


def test_ssh_to_this_machine(shell: Shell, sshd: list[str]) -> None:
    remote = "PS1='remote> ' exec bash --norc --noprofile -i"
    task = shell.start(subprocess.list2cmdline(sshd) + f' "{remote}"', tty=(60, 12))
    shows(shell, task, "remote>")
    shell.send(task, "stty size; tty | cut -d/ -f3\r")
    shows(shell, task, "12 60\npts")
    shell.resize(task, 70, 15)
    shell.send(task, "stty size\r")
    shows(shell, task, "15 70")
    shell.send(task, eof=True)
    assert shell.wait(task, timeout=30).exit_code == 0
