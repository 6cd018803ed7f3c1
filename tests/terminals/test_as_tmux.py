"""The screen is the one that another terminal shows: the same output, in a window of tmux.

Where terminals differ bittty does as xterm: to erase to the end of a full row erases its last character, too, which
`top` shows. tmux prints the line-drawing set as letters, so programs draw with Unicode here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import Shell
from outlast.types import Task
from tests.conftest import eventually
from tests.terminals import shows, text_of
from tests.terminals.scenes import APPLICATION_DOWN, MENU, write_lines

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

COLUMNS, ROWS = 72, 18
NUMBERS = "".join(f"{number}\n" for number in range(1, 21))
SEQUENCES = (  # what the rows show that are named last is the result of all before
    f"\x1b[2J\x1b[5;10r\x1b[10;1H{NUMBERS}\x1b[r",
    "\x1b[3;3H\x1b7\x1b[12;70Hwraps over\x1b8\x1b[1;41m saved \x1b[0m",
    "\x1b[5;5H\x1b[4habc\x1b[4l\x1b[6;2H\x1b[3@x\x1b[7;2H\x1b[3P\x1b[8;1H\x1b[2L\x1b[9;3H\x1b[1M",
    "\x1b[14;1H\t\ttabs\b\b\x1b[K\x1b[15;1H寿司 größe e\u0301\x1b[16;70H寿\x1b[1;1H\x1bMtop\x1b[17;1Hx\x1b[5Xy",
)
SCENES = {
    "vim": ("vim -N -u NONE -i NONE lines.txt", [("", "line 1"), ("25GzzItext \x1b:set number\r", "25 ")]),
    "less": ("less -N lines.txt", [("", "lines.txt"), ("  b/line 5\r", "line 5")]),
    "htop": ("htop", [("", "F1Help"), (APPLICATION_DOWN * 3, "F1Help")]),
    "curses": (f"{sys.executable} {MENU}", [("", "寿司"), (APPLICATION_DOWN, "寿司")]),
    "sequences": ("cat sequences; sleep 60", [("", "top")]),
}


def show_in_tmux(place: Path, output: bytes) -> str:
    """What tmux shows of the same bytes."""
    (place / "bytes").write_bytes(output)
    server = ["tmux", "-S", str(place / "socket"), "-f", os.devnull]
    env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    show = (
        f"stty -opost -echo; cat {shlex.quote(str(place / 'bytes'))}; : >{shlex.quote(str(place / 'done'))}; sleep 60"
    )
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    status = ["set", "-g", "status", "off", ";"]
    subprocess.run([*server, *status, "new-session", "-d", *size, f"sh -c {shlex.quote(show)}"], env=env, check=True)
    try:
        eventually((place / "done").exists, what="all was printed")
        seen = [""]

        def is_steady() -> bool:
            seen.append(subprocess.run([*server, "capture-pane", "-p"], env=env, capture_output=True, text=True).stdout)
            return seen[-1] == seen[-2] and bool(seen[-1].strip())

        eventually(is_steady, what="tmux has shown it")
        return "\n".join(line.rstrip() for line in seen[-1].splitlines()).rstrip("\n")
    finally:
        subprocess.run([*server, "kill-server"], env=env)


@pytest.mark.parametrize("name", SCENES)
def test_the_screen_is_that_of_tmux(shell: Shell, tmp_path: Path, name: str) -> None:
    command, steps = SCENES[name]
    if name in ("vim", "less", "htop") and not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    write_lines(tmp_path)
    (tmp_path / "sequences").write_text("".join(SEQUENCES))
    env = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "LESS": "", "LESSHISTFILE": "-", "NCURSES_NO_UTF8_ACS": "1"}
    task: Task = shell.start(command, tty=(COLUMNS, ROWS), cwd=tmp_path, env=env)
    for typed, wanted in steps:
        if typed:
            shell.send(task, typed)
        shows(shell, task, wanted)
        shell.wait(task, timeout=5, quiet=0.3)
    shell.kill(task, grace=0)  # so that the screen stays as it is
    ours, output = text_of(shell, task), Path(task.output_file).read_bytes()
    assert show_in_tmux(tmp_path, output) == ours
