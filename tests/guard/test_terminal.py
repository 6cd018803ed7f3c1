"""A command with a terminal: both guards hold the pseudo-terminal, its input and its size."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from outlast.guard.client import encode_launch
from tests.guard.harness import Item, Launcher, Task, is_gone, wait_until
from tests.guard.test_parser import REQUIRED, check

TTY: list[Item] = [("stdin", "open"), ("tty", "80x24")]


def send(task: Task, data: bytes) -> None:
    fd = os.open(task.directory / "stdin", os.O_WRONLY | os.O_NONBLOCK)
    assert os.write(fd, data) == len(data)
    os.close(fd)


def resize(task: Task, size: str) -> None:
    (task.directory / "size").write_text(f"{size}\n")
    fd = os.open(task.directory / "wake", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"\0")
    os.close(fd)


def prints(task: Task, text: bytes) -> None:
    wait_until(lambda: text in task.output(), f"{text!r} in the output")


def test_the_command_has_a_controlling_terminal(launcher: Launcher) -> None:
    task = launcher.start("tty; stty size; : >/dev/tty && echo controlled; test -t 0 -a -t 1 -a -t 2; exit $?", *TTY)
    assert task.run() == ["exit", "0"]
    name, *rest = task.output().split(b"\r\n")
    assert name.startswith(b"/dev/pts/")
    assert rest == [b"24 80", b"controlled", b""]


def test_a_refusal_says_why() -> None:
    bad = "tty: needs stdin open, and neither split nor prepare\n"
    assert check(encode_launch([*REQUIRED, ("tty", "80x24")])) == (1, bad)
    assert check(encode_launch([*REQUIRED, *TTY, ("split", 1)])) == (1, bad)
    assert check(encode_launch([*REQUIRED, *TTY, ("prepare", 1), ("publish", "/x")])) == (1, bad)
    assert check(encode_launch([*REQUIRED, *TTY])) == (0, "")


@pytest.mark.parametrize("size", ["0x24", "80x0", "80", "x", "80x24x", "-1x3", " 1x3", "80x24 ", "10000x1"])
def test_a_bad_size_is_refused(size: str) -> None:
    assert check(encode_launch([*REQUIRED, ("stdin", "open"), ("tty", size)])) == (1, "tty: bad value\n")


def test_input_comes_from_the_named_pipe(launcher: Launcher) -> None:
    task = launcher.start("read -rsp 'Password: ' word; echo; echo \"got $word\"; cat; echo ended", *TTY)
    task.expect("started")
    prints(task, b"Password: ")
    send(task, b"secret\n")
    prints(task, b"got secret\r\n")
    send(task, "größe\n\x04".encode())
    assert task.expect("ended") == ["exit", "0"]
    task.wait_closed()
    assert task.output().decode() == "Password: \r\ngot secret\r\ngröße\r\ngröße\r\nended\r\n"


def test_a_control_key_interrupts(launcher: Launcher) -> None:
    task = launcher.start("trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.01; done", *TTY)
    task.expect("started")
    prints(task, b"ready")
    send(task, b"\x03")
    assert task.expect("ended") == ["exit", "5"]
    task.wait_closed()


def test_a_new_size_reaches_the_program_and_is_noted(launcher: Launcher) -> None:
    script = "trap 'stty size' WINCH; trap 'exit 0' INT; echo ready; while :; do sleep 0.01; done"
    task = launcher.start(script, *TTY)
    task.expect("started")
    prints(task, b"ready\r\n")
    resize(task, "100x50")
    prints(task, b"50 100\r\n")
    resize(task, "100x50")  # nothing changes
    resize(task, "nonsense")
    resize(task, "20x5")
    prints(task, b"5 20\r\n")
    send(task, b"\x03")
    task.expect("ended")
    task.wait_closed()
    first, second = (task.directory / "sizes").read_text().splitlines()
    assert first == f"{len('ready' + chr(13) + chr(10)):020}  100x  50"
    assert second.split()[1:] == ["20x", "5"]
    assert int(second.split()[0]) == task.output().index(b"5 20\r\n")


def test_all_that_was_printed_before_the_end_is_there_at_the_end(launcher: Launcher) -> None:
    for _ in range(20):
        task = launcher.start("stty -opost; printf '%09d' {1..2000}", *TTY)
        task.expect("started")
        task.expect("ended")
        assert task.output() == b"".join(b"%09d" % number for number in range(1, 2001))
        task.wait_closed()


def test_a_child_that_keeps_the_terminal_open_prints_on(launcher: Launcher) -> None:
    task = launcher.start("trap '' HUP; (sleep 0.2; echo late) & exit 4", *TTY)
    task.expect("started")
    assert task.expect("ended") == ["exit", "4"]
    task.wait_closed()
    assert task.output() == b"late\r\n"


def test_the_end_of_the_shell_hangs_up(launcher: Launcher) -> None:
    """As on any terminal: what shares the group of the shell gets SIGHUP from the kernel."""
    task = launcher.start("sleep 60 & echo $! >pid; exit 0", *TTY)
    assert task.run() == ["exit", "0"]
    assert is_gone(int((launcher.place / "pid").read_text()))


def test_the_limit_hangs_up(launcher: Launcher) -> None:
    script = "trap 'echo hup; exit 9' HUP; trap '' TERM; echo ready; while :; do sleep 0.01; done"
    task = launcher.start(script, *TTY, ("limit", 0.3), ("grace", 20))
    assert task.run() == ["exit", "9"]
    assert b"hup" in task.output()


def test_a_terminal_that_is_not_read_holds_the_writer_not_the_guard(launcher: Launcher) -> None:
    task = launcher.start("stty raw -echo; echo ready; exec sleep 60", *TTY, ("limit", 3), ("grace", 0.1))
    task.expect("started")
    prints(task, b"ready")
    fd = os.open(task.directory / "stdin", os.O_WRONLY | os.O_NONBLOCK)
    sent, quiet_since = 0, time.monotonic()
    while time.monotonic() - quiet_since < 0.5:
        try:
            sent += os.write(fd, b"x" * 65536)
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    os.close(fd)
    assert 4096 < sent < 1 << 20
    before = Path(f"/proc/{task.pid('supervisor')}/stat").read_text().split()[13:15]
    time.sleep(0.3)  # a supervisor that spins would use all of it
    after = Path(f"/proc/{task.pid('supervisor')}/stat").read_text().split()[13:15]
    assert sum(map(int, after)) - sum(map(int, before)) < 15
    assert task.expect("ended") == ["signal", str(int(signal.SIGHUP))]
    task.wait_closed()


@pytest.mark.parametrize("role", ["supervisor", "keeper"])
def test_the_terminal_survives_either_guard(launcher: Launcher, role: str) -> None:
    script = 'stty -echo; echo ready; while read -r line; do echo "<$line> $(stty size)"; done; exit 6'
    task = launcher.start(script, *TTY)
    task.expect("started")
    prints(task, b"ready\r\n")
    for number in range(5):
        send(task, b"%d\n" % number)
        prints(task, b"<%d> 24 80\r\n" % number)
        before = task.pid(role)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda before=before: task.pid(role) != before, "another guard")  # type: ignore[misc]
    resize(task, "90x30")
    wait_until((task.directory / "sizes").exists, "the new size")
    send(task, b"last\n\x04")
    assert task.expect("ended") == ["exit", "6"]
    task.wait_closed()
    wanted = b"ready\r\n" + b"".join(b"<%d> 24 80\r\n" % number for number in range(5)) + b"<last> 30 90\r\n"
    assert task.output() == wanted
