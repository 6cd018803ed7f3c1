"""Rows about terminals: much output through one, and the screen after much output."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

from bench.measure import Lacks, Turn, timed
from bench.peers import Ours, Peer, Raw
from bench.rows import OPENED_S, Goal, Race, Row

_LINE = b"%07d a line of ordinary length that a build or a test prints, sixty-eight\n"
_MANY, _FEW = 1_300_000, 30_000  # lines: 100 MB, and 2.3 MB
LONG = 1_000_000_000
_SCREEN = b"\x1b[%d;1H\x1b[3%dmrow %d\x1b[0m\x1b[K"


def terminal_output(race: Race) -> Row:
    """The same file through a terminal: ours, and `script`, which does nothing else."""
    lines = _FEW if race.quick else _MANY

    def look_at(peer: Peer) -> Turn:
        path = f"{peer.place}/lines"
        with open(path, "wb") as file:
            file.writelines(_LINE % number for number in range(lines))
        command = f"cat {path}"

        def turn() -> float:
            if isinstance(peer, Ours):
                return timed(lambda: peer.wait(peer.opened.start(command, tty=True).task_id))
            if not shutil.which("script"):
                raise Lacks("script is not installed")
            words = ["script", "-qc", command, f"{peer.place}/typescript"]
            return timed(lambda: subprocess.run(words, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True))

        return turn

    whole = Ours(output_limit_bytes=4 * LONG, state_limit_bytes=20 * LONG)
    try:
        whole.open()
        timings = race.run(look_at, race.effort(5), [whole, race.raw])
    finally:
        whole.remove()
    return Row("terminal-output", f"{lines * 76 / 1e6:.0f} MB through a terminal", "script(1)", timings, Goal(2.0))


def screen_after_much(race: Race) -> Row:
    """The first look at the screen of a full-screen program that has printed a gigabyte, by a host that just opened."""
    size = 20_000_000 if race.quick else LONG
    ours = Ours(output_limit_bytes=4 * LONG, state_limit_bytes=20 * LONG)

    def turn() -> float:
        try:
            os.unlink(checkpoint)
        except FileNotFoundError:
            pass
        ours.reopen()
        time.sleep(OPENED_S)
        return timed(lambda: _check(ours.opened.screen(task.task_id).rows))

    try:
        ours.open()
        task = ours.opened.start("true", tty=True)
        ours.wait(task.task_id)
        checkpoint = f"{os.path.dirname(task.output_file)}/screen"
        _draw(task.output_file, size)
        timings = race.run(lambda peer: turn, race.effort(10), [ours])
    finally:
        ours.remove()
    what = f"a screen after {size / 1e9:g} GB that was not looked at"
    return Row("terminal-screen", what, "-", timings, Goal(1000.0, is_ratio=False))


def _draw(path: str, size: int) -> None:
    page = b"".join(_SCREEN % (row, row % 8, row) for row in range(1, 25))
    block = page * (1_000_000 // len(page))
    with open(path, "wb") as file:
        file.write(b"\x1b[?1049h\x1b[2J")
        for _ in range(size // len(block)):
            file.write(block)


def _check(rows: tuple[str, ...]) -> None:
    if rows != tuple(f"row {number}" for number in range(1, 25)):
        raise RuntimeError(f"the screen is {rows}")


_KEY = b"Q"  # in nothing that tmux or we draw ourselves
_READY = b"ready"
_ECHO_S = 20.0
_CAT = "stty -icanon; echo ready; exec cat > /dev/null"  # the kernel echoes; without lines, none becomes too long


class _Keyboard:
    """A terminal in which a program shows what is typed at the command that echoes it."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self._pid, self._fd = pty.fork()
        if not self._pid:
            os.execvpe(words[0], words, {**env, "TERM": "xterm-256color"})
        self._await(_READY)
        time.sleep(2.5)  # until what is shown on entry is hidden again

    def _await(self, text: bytes) -> None:
        seen = b""
        while text not in seen:
            if not select.select([self._fd], [], [], _ECHO_S)[0]:
                raise TimeoutError(f"{text!r} did not appear")
            seen += os.read(self._fd, 65536)

    def press(self) -> float:
        def turn() -> None:
            os.write(self._fd, _KEY)
            self._await(_KEY)

        time.sleep(0.02)  # a person is slower, and so nothing of the last key is on its way
        return timed(turn)

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._fd)


def keystroke(race: Race) -> Row:
    """From a key that is typed to its echo: in a terminal itself, through tmux, through `outlast attach`."""
    with ExitStack() as stack:

        def keyboard(words: list[str], env: dict[str, str]) -> Turn:
            made = _Keyboard(words, env)
            stack.callback(made.close)
            return made.press

        def look_at(peer: Peer) -> Turn:
            if isinstance(peer, Raw):
                return keyboard(["bash", "-c", _CAT], dict(os.environ))
            if isinstance(peer, Ours):
                task = peer.opened.start(_CAT, tty=True)
                stack.callback(peer.opened.kill, task.task_id)
                words = [sys.executable, "-m", "outlast", "attach", task.task_id]
                return keyboard(words, {**os.environ, "OUTLAST_HOME": peer.opened.context.home})
            if not shutil.which("tmux"):
                raise Lacks("tmux is not installed")
            words = ["tmux", "-L", f"bench-{os.getpid()}", "-f", os.devnull]
            stack.callback(subprocess.run, [*words, "kill-server"], capture_output=True, check=False)
            return keyboard([*words, "new-session", "bash", "-c", _CAT], {**os.environ, "SHELL": "/bin/sh"})

        others = [peer for peer in race.others if peer.name == "tmux"]
        timings = race.run(look_at, race.effort(100, 5), [race.ours, race.raw, *others])
    return Row("keystroke", "a key that is typed, to its echo, attached", "a pty", timings, Goal(10.0, is_ratio=False))
