"""Faults around a terminal: kill -9 of either guard, and input to a program that does not read."""

from __future__ import annotations

import os
import re
import subprocess
import time

import pytest

from outlast import Shell
from outlast.errors import InputRefused
from outlast.types import Task
from tests.conftest import eventually
from tests.faults.support import dice, directory_of, replace_guard
from tests.terminals import shows

LINES = 3000
# Reads a word after each hundred lines, so that input is on its way while guards die.
TALKS = (
    'stty -echo; for ((n = 1; n <= {lines}; n++)); do echo "line $n"; '
    'if ((n % 500 == 0)); then read -r word; echo "<$word>"; fi; done; stty size; exit 7'
)


def kill_guards(shell: Shell, count: int) -> None:
    """`count` tasks with a terminal, each of which loses guards (never both at once) while it prints and reads."""
    rng = dice()
    for _ in range(count):
        task = shell.start(TALKS.format(lines=LINES), tty=(80, 24))
        for turn in range(1, LINES // 500 + 1):
            replace_guard(task, rng.choice(["supervisor", "keeper"]))
            if turn == 3:
                shell.resize(task, 100, 30)
            if turn == 1:
                await_output(task, b"line 1\r\n")  # by then it has switched the echo off
            shell.send(task, f"word {turn}\n")
            if rng.random() < 0.5 and turn < LINES // 500:  # after the last one it ends
                replace_guard(task, rng.choice(["supervisor", "keeper"]))
            await_output(task, f"<word {turn}>".encode())
        ended = shell.wait(task, timeout=60)
        assert (ended.status, ended.exit_code) == ("failed", 7)
        await_closed(shell, task)
        assert printed(task) == all_lines()
        assert shell.screen(task).rows[28] == "30 100"


def printed(task: Task) -> bytes:
    with open(task.output_file, "rb") as file:
        return file.read()


def await_output(task: Task, wanted: bytes) -> None:
    eventually(lambda: wanted in printed(task), what=str(wanted))


def await_closed(shell: Shell, task: Task) -> None:
    eventually(lambda: shell.show(task).closed, what="the task is closed")


def all_lines() -> bytes:
    text = ""
    for n in range(1, LINES + 1):
        text += f"line {n}\r\n" + (f"<word {n // 500}>\r\n" if n % 500 == 0 else "")
    return (text + "30 100\r\n").encode()


@pytest.mark.timeout(300)
def test_kills_of_guards_of_tasks_with_a_terminal(shell: Shell) -> None:
    kill_guards(shell, 3)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_kills_of_guards_of_tasks_with_a_terminal_in_full(shell: Shell) -> None:
    kill_guards(shell, 100)


# --- input to a terminal that is not read ------------------------------------------------


def send_until_refused(shell: Shell, task: Task, piece: bytes) -> int:
    """Send what is too much; returns how much of it was taken."""
    with pytest.raises(InputRefused, match="does not read its input") as refused:
        shell.send(task, piece)
    return int(re.findall(r": (\d+) of \d+ bytes were taken", str(refused.value))[0])


def feed_the_deaf(shell: Shell, size: int) -> None:
    task = shell.start("echo ready; sleep 1000", tty=True)
    shows(shell, task, "ready")
    began = time.monotonic()
    piece = b"a line that is not read\n" * (min(size, 16 << 20) // 24)
    taken = sum(send_until_refused(shell, task, piece) for _ in range(size // len(piece)))
    assert 0 < taken < 1 << 20  # what the pipe and the kernel's terminal hold
    assert time.monotonic() - began < 30 + 3 * size / len(piece)
    before = os.path.getsize(f"{directory_of(task)}/output")
    with pytest.raises(InputRefused, match="does not read its input: 0 of 2 bytes were taken"):
        shell.send(task, "x\n")
    assert before < 1 << 20  # the echo of what it took
    began = time.monotonic()
    assert shell.kill(task, grace=5).survivors == ()
    assert time.monotonic() - began < 5


def test_input_to_a_terminal_that_is_not_read(shell: Shell) -> None:
    """Fault 14: bounded, refused with a reason, no deadlock; and the task can be ended."""
    feed_the_deaf(shell, 4 << 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_gigabyte_to_a_terminal_that_is_not_read(shell: Shell) -> None:
    feed_the_deaf(shell, 1 << 30)


def test_a_line_of_which_the_kernel_would_drop_the_end_is_refused(shell: Shell) -> None:
    task = shell.start("cat", tty=True)
    with pytest.raises(InputRefused, match=r"takes lines of at most 4095 bytes while its program reads line by line"):
        shell.send(task, "short\n" + "x" * 4096 + "\n")
    shell.send(task, "x" * 4095 + "\n", eof=True)
    assert shell.wait(task, timeout=30).exit_code == 0
    assert printed(task) == (b"x" * 4095 + b"\r\n") * 2
    task = shell.start("stty raw -echo; echo ready; head -c 5000 | wc -c", tty=True)
    shows(shell, task, "ready")
    shell.send(task, "x" * 5000)
    shows(shell, task, "5000")


def test_a_program_that_reads_late_gets_all_of_it(shell: Shell) -> None:
    """What was refused was not taken, and what was taken is not lost."""
    task = shell.start("stty raw -echo; echo ready; sleep 1; head -c 60000 | cksum", tty=True)
    shows(shell, task, "ready")
    data = b"".join(b"%07d\n" % number for number in range(7500))
    shell.send(task, data)
    assert shell.wait(task, timeout=60).exit_code == 0
    wanted = subprocess.run(["cksum"], input=data, capture_output=True).stdout.decode().strip()
    assert wanted in "\n".join(shell.screen(task).rows)
