"""Keys that are sent to tasks, with a terminal and without one."""

from __future__ import annotations

import shlex
import sys

import pytest

from outlast import Shell, Stdin
from outlast.errors import AlreadyEnded, BadInput, InputRefused
from outlast.linux.activity import INPUT
from outlast.types import Task
from tests.conftest import Cli, eventually

OPEN = Stdin(open=True)
# Prints each byte that it reads from its terminal, which sends them one by one; ends at q.
BYTES = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"%sready\\r\\n")
while (data := os.read(0, 100)) != b"q":
    os.write(1, data.hex(" ").encode() + b"\\r\\n")
"""


def reader_of_bytes(shell: Shell, before: str = "") -> Task:
    task = shell.start(f"{shlex.quote(sys.executable)} -c {shlex.quote(BYTES % before)}", tty=True)
    shell.wait(task, timeout=30, until="ready")
    return task


def test_a_terminal_gets_the_bytes_of_the_keys(shell: Shell) -> None:
    task = reader_of_bytes(shell)
    for keys, wanted in (("<C-c>", "03"), ("<Up>", "1b 5b 41"), ("\u00e9<Enter>", "c3 a9 0d"), ("<lt>", "3c")):
        assert shell.send_and_wait(task, keys=keys, until=wanted).met
    assert shell.send_and_wait(task, "text\n", until="74 65 78 74 0d").met  # the Enter key ends a line
    assert shell.send_and_wait(task, b"bytes\n", until="62 79 74 65 73 0a").met
    shell.send(task, keys="q")
    assert shell.wait(task, timeout=30).exit_code == 0


def test_cursor_keys_follow_the_mode_of_the_terminal(shell: Shell) -> None:
    task = reader_of_bytes(shell, before="\\x1b[?1h")
    assert shell.send_and_wait(task, keys="<Up>", until="1b 4f 41").met
    shell.send(task, keys="q")
    assert shell.wait(task, timeout=30).exit_code == 0


def test_ctrl_c_on_a_terminal_interrupts_what_runs_in_front(shell: Shell) -> None:
    task = shell.start("bash --norc --noprofile", tty=True, env={"PS1": "$ "})
    eventually(lambda: shell.activity(task) == INPUT)
    shell.send_and_wait(task, keys="sleep 1000<Enter>")
    shell.send_and_wait(task, keys="<C-c>echo code=$?<Enter>")
    eventually(lambda: "code=130" in shell.screen(task).rows)
    assert shell.send_and_wait(task, keys="<C-d>", timeout=30).exit_code == 0


def test_without_a_terminal_ctrl_c_interrupts_and_ctrl_d_ends(shell: Shell) -> None:
    sleeper = shell.start("echo begun; exec sleep 1000")  # its input is closed: an interrupt needs none
    shell.wait(sleeper, timeout=30, until="begun")
    shell.send(sleeper, keys="<C-c>")
    assert shell.wait(sleeper, timeout=30).signal == 2
    reader = shell.start("cat", stdin=OPEN)
    shell.send(reader, keys="a<lt>b<Enter>c<Tab>d<C-d>")
    assert shell.wait(reader, timeout=30).exit_code == 0
    assert shell.read(reader).output == "a<b\nc\td"
    with pytest.raises(AlreadyEnded):
        shell.send(reader, keys="<C-c>")


def test_what_means_nothing_without_a_terminal_is_refused_and_nothing_is_sent(shell: Shell) -> None:
    task = shell.start("cat", stdin=OPEN)
    with pytest.raises(InputRefused, match="has no terminal, where <Up> means something; start it with one"):
        shell.send(task, keys="typed<Enter><Up>")
    with pytest.raises(BadInput, match="There is no key '<Foo>'"):
        shell.send(task, keys="typed<Enter><Foo>")
    with pytest.raises(BadInput, match="leave out one"):
        shell.send(task, "text", keys="<Enter>")
    shell.send(task, keys="end<Enter><C-d>")
    shell.wait(task, timeout=30)
    assert shell.read(task).output == "end\n"


def test_the_command_line_sends_keys(cli: Cli) -> None:
    task_id = cli("run", "--bg", "--tty", "read -r line; echo got $line").stdout.strip()
    eventually(lambda: cli.json("show", task_id)["activity"] == INPUT)
    cli("send", task_id, "--keys", "wrong<Backspace><C-u>right<Enter>", check=0)
    cli("wait", task_id, check=0)
    assert "got right" in cli("logs", task_id).stdout
    unknown = cli("send", task_id, "--keys", "<Foo>", check=2).stderr
    assert "There is no key '<Foo>'" in unknown
    assert "<PageDown>" in unknown
    assert "--keys sends the keys in TEXT" in cli("send", task_id, "--keys", "--eof", check=2).stderr
