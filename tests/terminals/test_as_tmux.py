"""The screen is the one that another terminal shows: the same output, in a window of tmux."""

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
from tests.terminals.test_programs import APPLICATION_DOWN, MENU, write_lines

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

COLUMNS, ROWS = 72, 18
ART = r"""printf '\033[2J\033[5;10r\033[10;1H'; seq 1 20; printf '\033[r\033[3;3H\033(0lqqk\033(B\0337\033[12;70Hwraps over'
printf '\0338\033[1;41m saved \033[0m\033[5;5H\033[4habc\033[4l\033[6;2H\033[3@x\033[7;2H\033[3P\033[8;1H\033[2L\033[9;3H\033[1M'
printf '\033[14;1H\t\ttabs\b\b\033[K\033[15;1H寿司 größe e\314\201\033[16;70H寿\033[1;1H\033Mtop\033[17;1Hx\033[5Xy'; sleep 60"""
SCENES = {
    "vim": ("vim -N -u NONE -i NONE lines.txt", [("", "line 1"), ("25GzzItext \x1b:set number\r", "25 ")]),
    "less": ("less -N lines.txt", [("", "lines.txt"), ("  b/line 5\r", "line 5")]),
    "htop": ("htop", [("", "F1Help"), (APPLICATION_DOWN * 3, "F1Help")]),
    "top": ("top -d 60", [("", "PID USER")]),
    "curses": (f"{sys.executable} {MENU}", [("", "寿司"), (APPLICATION_DOWN, "寿司")]),
    "sequences": (ART, [("", "top")]),
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
    if name in ("vim", "less", "htop", "top") and not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    write_lines(tmp_path)
    env = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "LESS": "", "LESSHISTFILE": "-"}
    task: Task = shell.start(command, tty=(COLUMNS, ROWS), cwd=tmp_path, env=env)
    for typed, wanted in steps:
        if typed:
            shell.send(task, typed)
        shows(shell, task, wanted)
        shell.wait(task, timeout=5, quiet=0.3)
    shell.kill(task, grace=0) if name in ("htop", "top") else None
    ours, output = text_of(shell, task), Path(task.output_file).read_bytes()
    assert show_in_tmux(tmp_path, output) == ours
