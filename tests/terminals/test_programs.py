"""Real programs, driven by the library, by the tools, and by a person who is attached: all see the same screens.

The screens are golden files, to be looked at. After a change on purpose:
`OUTLAST_GOLDEN=write pytest tests/terminals/test_programs.py -k library`.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from outlast import Shell
from outlast.tools import Toolbox
from tests.cli import agreed
from tests.cli.test_terminal import Terminal
from tests.conftest import Cli, end_all, eventually
from tests.terminals import shows
from tests.terminals.scenes import (
    APPLICATION_DOWN,
    CTRL_C,
    CTRL_D,
    DELETE,
    ENTER,
    ESCAPE,
    MENU,
    SCENES,
    Scene,
    only_frame,
)

KEYS = {
    ENTER: "<Enter>",
    ESCAPE: "<Esc>",
    CTRL_C: "<C-c>",
    CTRL_D: "<C-d>",
    DELETE: "<Backspace>",
    APPLICATION_DOWN: "<Down>",
}


class Way(Protocol):
    """A way to drive a program. What is seen are the rows of the screen, and the row and column of its cursor."""

    def start(self, command: str, size: tuple[int, int], place: Path, env: dict[str, str]) -> None: ...

    def type(self, typed: str) -> None: ...

    def look(self) -> tuple[list[str], tuple[int, int] | None]: ...

    def close(self) -> None: ...


class ByLibrary:
    def __init__(self, home: str) -> None:
        self.shell = Shell.open(home=home).__enter__()

    def start(self, command: str, size: tuple[int, int], place: Path, env: dict[str, str]) -> None:
        self.task = self.shell.start(command, tty=size, cwd=place, env=env)

    def type(self, typed: str) -> None:
        self.shell.send(self.task, typed)

    def look(self) -> tuple[list[str], tuple[int, int] | None]:
        screen = self.shell.screen(self.task)
        return list(screen.rows), screen.cursor

    def close(self) -> None:
        end_all(self.shell)
        self.shell.close()


class ByTools:
    """As a model does: keys, and what the replies show."""

    def __init__(self, home: str) -> None:
        self._box = Toolbox.open(home=home, session="model", policy="yolo").__enter__()

    def _call(self, tool: str, **given: Any) -> None:
        reply = self._box.call(tool, given)
        assert not reply.error, reply.text
        self.task_id = reply.data["task_id"]
        self._screen = reply.data.get("screen")
        if self._screen is not None:
            rows = "\n".join(self._screen["rows"]).rstrip("\n")
            assert f"```\n{rows}\n```\n" in reply.text  # what a model sees of it
        else:
            assert "xit code 0" in reply.text

    def start(self, command: str, size: tuple[int, int], place: Path, env: dict[str, str]) -> None:
        self._box.shell.run("; ".join(f"export {name}={shlex.quote(value)}" for name, value in env.items()))
        self._call("bash", command=command, tty=True, size="{}x{}".format(*size), cwd=str(place))

    def type(self, typed: str) -> None:
        keys = re.sub("|".join(map(re.escape, KEYS)), lambda found: KEYS[found[0]], typed.replace("<", "<lt>"))
        self._call("bash_input", task_id=self.task_id, keys=keys)

    def look(self) -> tuple[list[str], tuple[int, int] | None]:
        self._call("bash_output", task_id=self.task_id)
        screen = self._screen or self._box.shell.screen(self.task_id).to_dict()
        return list(screen["rows"]), screen["cursor"]

    def close(self) -> None:
        end_all(self._box.shell)
        self._box.close()


class ByAttach(ByLibrary):
    """As a person does, in a window of tmux."""

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self._home = home
        self._windows: list[Terminal] = []

    def start(self, command: str, size: tuple[int, int], place: Path, env: dict[str, str]) -> None:
        super().start(command, size, place, env)
        self._windows.append(Terminal(Cli(self._home), str(place), size))
        self._windows[0].type(f"clear; exec outlast attach {self.task.task_id}")

    def type(self, typed: str) -> None:
        self._windows[0]._tmux("send-keys", "-H", *(f"{byte:02x}" for byte in typed.encode()))

    def look(self) -> tuple[list[str], tuple[int, int] | None]:
        rows = self._windows[0]._tmux("capture-pane", "-p").split("\n")
        flag, row, column = self._windows[0]._tmux("display", "-p", "#{cursor_flag} #{cursor_y} #{cursor_x}").split()
        return rows, (int(row), int(column)) if flag == "1" else None

    def close(self) -> None:
        for window in self._windows:
            window.close()
        super().close()


WAYS: dict[str, Callable[[str], Way]] = {"library": ByLibrary, "tools": ByTools, "attach": ByAttach}


def shown(scene: Scene, typed: str, way: Way) -> str:
    """What a golden file has of one step."""
    rows, cursor = way.look()
    where = "" if scene.normalise is only_frame else f", cursor {cursor and tuple(cursor)}"
    text = "\n".join(row.rstrip() for row in rows).rstrip("\n")
    return f"--- typed: {typed!r}{where}\n{scene.normalise(text)}\n"


@pytest.fixture
def way(request: pytest.FixtureRequest, home: str) -> Iterator[Way]:
    made = WAYS[request.param](home)
    yield made
    made.close()


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("name", SCENES)
def test_the_screens_of(way: Way, tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    scene = SCENES[name]
    if scene.needs and not shutil.which(scene.needs):
        pytest.skip(f"{scene.needs} is not installed")
    command = scene.command
    if name == "ssh":
        command = shlex.join([*request.getfixturevalue("sshd"), "PS1='remote> ' exec bash --norc --noprofile -i"])
    scene.prepare(tmp_path)
    way.start(command, scene.size, tmp_path, {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", **scene.env})
    if type(way) is ByLibrary:
        play_and_compare(way, scene, name)
    else:
        play_as_agreed(way, scene, name)


def play_and_compare(way: ByLibrary, scene: Scene, name: str) -> None:
    """Each screen once it has what is wanted and stays as it is."""
    seen = []
    for typed, wanted in scene.steps:
        if typed:
            way.type(typed)
        shows(way.shell, way.task, wanted)
        if (typed, wanted) == scene.steps[-1]:
            assert way.shell.wait(way.task, timeout=30).exit_code == 0
        else:
            way.shell.wait(way.task, timeout=20, quiet=0.2)
        shows(way.shell, way.task, wanted)
        seen.append(shown(scene, typed, way))
    now = "".join(seen)
    assert now == agreed(f"screens/{name}.txt", now)


def play_as_agreed(way: Way, scene: Scene, name: str) -> None:
    """Each screen has to become the one that was agreed on."""
    agreed_on = re.split("(?m)^(?=--- typed: )", agreed(f"screens/{name}.txt", ""))[1:]
    for (typed, _), wanted in zip(scene.steps, agreed_on, strict=True):
        if typed:
            way.type(typed)
        if isinstance(way, ByAttach) and typed == scene.steps[-1][0]:
            assert way.shell.wait(way.task, timeout=30).exit_code == 0
            return  # the window is the person's own again
        await_screen(way, scene, typed, wanted)


def await_screen(way: Way, scene: Scene, typed: str, wanted: str) -> None:
    seen = ""

    def is_there() -> bool:
        nonlocal seen
        seen = shown(scene, typed, way)
        return seen == wanted

    try:
        eventually(is_there)
    except pytest.fail.Exception:
        assert seen == wanted


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


def test_a_new_size_reaches_the_other_side_of_ssh(shell: Shell, sshd: list[str]) -> None:
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
