"""What a running task does: seen from outside, without asking it. Real programs in states that the test knows."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time

import pytest

from outlast import Shell, Stdin
from outlast.linux import activity
from outlast.linux.activity import BUSY, EVENTS, INPUT, NETWORK, SLEEPING, STOPPED, Activity, Inputs, of_task
from outlast.storage import task_activity
from tests.conftest import eventually

pytestmark = pytest.mark.plain_user  # what the kernel shows of a process depends on who looks


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def node(code: str) -> str:
    return f"node -e {shlex.quote(code)}"


SOCKET = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
CONSOLE = "import threading, sys; threading.Thread(target=sys.stdin.readline, daemon=True).start(); "
PROMPT = (
    "require('readline').createInterface({input: process.stdin, output: process.stdout}).question('name? ', () => {})"
)
# The input of each is kept open, so a false "waiting for input" could be said of all of them.
DOES = {
    # They compute.
    "bash loop": ("while :; do :; done", BUSY),
    "python loop": (python("while True: pass"), BUSY),
    "a busy thread beside a reader": (python(f"{CONSOLE}\nwhile True: pass"), BUSY),
    # They wait for a person.
    "read": ("read line", INPUT),
    "read -s": ("read -rs secret", INPUT),
    "cat": ("cat", INPUT),
    "python input": (python("input('name? ')"), INPUT),
    "python repl": (f"{shlex.quote(sys.executable)} -i -q", INPUT),
    "python poll": (python("import select; p = select.poll(); p.register(0); p.poll()"), INPUT),
    "python select": (python("import select; select.select([0], [], [])"), INPUT),
    "python epoll": (python("import select; p = select.epoll(); p.register(0, 1); p.poll()"), INPUT),
    "bc": ("bc -q", INPUT),
    "gdb": ("gdb -q -nx", INPUT),
    "node prompt": (node(PROMPT), INPUT),
    "prompt behind a job": ("sleep 60 & read line; kill $!", INPUT),
    "reader at the head of a pipe": ("cat | sort", INPUT),
    # They read, but not what a person sends; or they could go on by themselves.
    "substitution": ("echo $(sleep 60)", SLEEPING),
    "pipe": ("sleep 60 | cat", SLEEPING),
    "reader of another descriptor": ("cat <(sleep 60)", SLEEPING),
    "shell waits for a child": ("sleep 60; true", SLEEPING),
    "prompt with a time limit": (python("import select; select.select([0], [], [], 600)"), EVENTS),
    "server that also polls its input": (python(f"{SOCKET}import select; select.select([0, s], [], [])"), EVENTS),
    "server with a console": (python(f"{SOCKET}{CONSOLE}s.accept()"), NETWORK),
    "node server with a console": (node("process.stdin.resume(); require('http').createServer().listen(0)"), EVENTS),
    "node watcher with a console": (node("process.stdin.resume(); require('fs').watch('/tmp')"), EVENTS),
    "follower of a file": ("tail -f /etc/passwd", EVENTS),
    "coprocess": ("coproc cat; wait", SLEEPING),
    "reader of a named pipe that is not written to": ('d=$(mktemp -d); mkfifo $d/p; (cat $d/p); rm -r "$d"', SLEEPING),
    "lock": ("exec 9</etc/passwd; flock 9; flock /etc/passwd true", SLEEPING),
    # They wait for the network, or sleep.
    "accept": (python(f"{SOCKET}s.accept()"), NETWORK),
    "receive": (python("import socket; a, b = socket.socketpair(); a.recv(1)"), NETWORK),
    "node server": (node("require('http').createServer().listen(0)"), NETWORK + "|" + EVENTS),
    "sleep": ("sleep 60", SLEEPING),
    "select without descriptors": (python("import select; select.select([], [], [], 60)"), SLEEPING),
    "a thread for another": (python("import threading; threading.Event().wait()"), SLEEPING),
    "node timer": (node("setTimeout(() => {}, 60000)"), EVENTS),
    "stopped": ("kill -STOP $$", STOPPED),
}


def is_there(command: str) -> bool:
    return shutil.which(command.split(maxsplit=1)[0]) is not None or not command.startswith(("gdb", "bc", "node"))


@pytest.mark.parametrize("name", DOES)
def test_what_a_program_does(shell: Shell, name: str) -> None:
    command, wanted = DOES[name]
    if not is_there(command):
        pytest.skip(f"{command.split()[0]} is not installed")
    task = shell.start(command, stdin=Stdin(open=True), env={"PYTHONUNBUFFERED": "1"})
    # Seen several times in a row: while it starts, a program computes and waits for the disk.
    begins = f"pid {task.pid} (bash) reads a pipe"  # the shell has not begun with the command
    eventually(lambda: shell.activity(task.task_id).evidence != begins)
    eventually(lambda: all(shell.activity(task.task_id) in wanted.split("|") for _ in range(10)), what=wanted)
    seen = [shell.activity(task.task_id) for _ in range(20)]
    assert sum(found in wanted.split("|") for found in seen) > 15, [found.evidence for found in seen]
    assert wanted == INPUT or INPUT not in seen  # a collector of garbage may compute for a moment, but reads no input
    assert all(found.evidence.startswith("pid ") for found in seen)


@pytest.mark.parametrize("name", [name for name, (_, wanted) in DOES.items() if wanted != INPUT])
def test_input_is_not_claimed_where_the_call_is_hidden(shell: Shell, name: str, monkeypatch) -> None:
    """With Yama, a caller that is no ancestor sees the kernel function alone."""
    command, _ = DOES[name]
    if not is_there(command):
        pytest.skip(f"{command.split()[0]} is not installed")
    task = shell.start(command, stdin=Stdin(open=True), env={"PYTHONUNBUFFERED": "1"})
    eventually(lambda: shell.activity(task.task_id).evidence not in ("", f"pid {task.pid} (bash) reads a pipe"))
    read = activity._bytes
    monkeypatch.setattr(activity, "_bytes", lambda path: b"" if path.endswith("/syscall") else read(path))
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        found = shell.activity(task.task_id)
        assert found != INPUT, found.evidence


# On a terminal. A program that draws itself anew from time to time goes on by itself.
ON_A_TERMINAL = {
    "read": ("read line", INPUT),
    "cat": ("cat", INPUT),
    "bash": ("bash --norc --noprofile -i", INPUT),
    "a job that was stopped": ("bash --norc --noprofile -ic 'sleep 60 & kill -STOP $!; read line'", INPUT),
    "python repl": (f"{shlex.quote(sys.executable)} -q", INPUT),
    "less": ("LESS= less /etc/services", INPUT),
    "vim": ("vim -u NONE -i NONE", INPUT),  # after the 4 s of its `updatetime`
    "gdb": ("gdb -q -nx", INPUT),
    "python input": ("python3 -c 'input()'", INPUT),
    "node repl": ("node", INPUT),  # after its first collection of garbage, which it waits 8 s for
    "a menu of bash": ("select dish in soup pie; do echo $dish; done", INPUT),
    "ssh-keygen": ("ssh-keygen -f $(mktemp -d)/key", INPUT),
    "/dev/tty": ("read line < /dev/tty", INPUT),
    "top": ("top -d 60", EVENTS),
    "htop": ("htop -d 100", EVENTS),
    "another terminal inside": ("script -qc 'read line' /dev/null", EVENTS),
    "pipe": ("sleep 60 | cat", SLEEPING),
    "pager of a slow program": ("(echo line; sleep 60) | LESS= less", SLEEPING),
    "server with a console": (python(f"{SOCKET}{CONSOLE}s.accept()"), NETWORK),
    "python's server": (f"{shlex.quote(sys.executable)} -m http.server 0", EVENTS),
    "shell waits for a child": ("bash --norc --noprofile -ic 'sleep 60; true'", SLEEPING),
    "loop": ("while :; do :; done", BUSY),
}


@pytest.mark.parametrize("name", ON_A_TERMINAL)
def test_what_a_program_does_on_a_terminal(shell: Shell, name: str) -> None:
    command, wanted = ON_A_TERMINAL[name]
    for program in ("less", "vim", "gdb", "top", "htop", "script", "node", "ssh-keygen"):
        if program in command and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    task = shell.start(command, tty=True)
    eventually(lambda: all(shell.activity(task.task_id) == wanted for _ in range(10)), what=wanted)
    if wanted == INPUT:
        assert shell.activity(task.task_id).evidence.endswith("its terminal")


def test_a_reader_is_found_where_the_call_is_hidden(shell: Shell, monkeypatch) -> None:
    read = activity._bytes
    monkeypatch.setattr(activity, "_bytes", lambda path: b"" if path.endswith("/syscall") else read(path))
    task = shell.start("read line", stdin=Stdin(open=True))
    found = eventually(lambda: (now := shell.activity(task.task_id)) == INPUT and now)
    assert (found, found.evidence) == (INPUT, f"pid {task.pid} (bash) reads its standard input")


def test_a_file_that_is_called_stdin_is_not_the_input(shell: Shell, tmp_path) -> None:
    os.mkfifo(tmp_path / "stdin")
    task = shell.start(f"read line <> {tmp_path}/stdin", stdin=Stdin(open=True))
    eventually(lambda: os.path.realpath(f"/proc/{task.pid}/fd/0") == str(tmp_path / "stdin"))
    assert shell.activity(task.task_id) != INPUT


def test_a_program_that_keeps_its_output_back_is_named(shell: Shell, monkeypatch) -> None:
    monkeypatch.setattr(activity, "BUFFERED_AFTER_S", 0.3)
    code = "import time\nwhile True: print('tick'); time.sleep(1)"
    buffers = {"PYTHONUNBUFFERED": ""}
    kept, shown = (shell.start(python(code), env={"PYTHONUNBUFFERED": value}) for value in ("", "1"))
    silent, asks = shell.start("sleep 60"), shell.start(python("input()"), stdin=Stdin(open=True), env=buffers)
    found = eventually(lambda: (now := shell.activity(kept.task_id)) == activity.BUFFERED and now)
    assert "has printed nothing into a pipe for" in found.evidence
    eventually(lambda: shell.read(shown.task_id).output)
    eventually(lambda: shell.show(silent.task_id).elapsed_ms > 300 and shell.show(asks.task_id).elapsed_ms > 300)
    assert shell.activity(shown.task_id) in (SLEEPING, BUSY)
    assert shell.activity(silent.task_id) == SLEEPING
    eventually(lambda: shell.activity(asks.task_id) == INPUT)


def test_of_a_task_that_is_over_nothing_is_said(shell: Shell) -> None:
    task = shell.run("true")
    eventually(lambda: shell.show(task.task_id).closed)
    assert shell.activity(task.task_id) == Activity() == ""
    assert of_task({}, Inputs()) == ""


def test_a_pending_task_does_nothing(shell: Shell) -> None:
    first = shell.start("sleep 60")
    pending = shell.start("true", after=[first.task_id])
    assert shell.activity(pending.task_id) == ""


def test_a_look_is_cheap_enough_for_every_reply(shell: Shell) -> None:
    task = shell.start("sleep 60 | cat | cat", stdin=Stdin(open=True))
    directory = os.path.dirname(task.output_file)
    eventually(lambda: shell.activity(task.task_id) == SLEEPING)
    times = []
    for _ in range(50):
        began = time.perf_counter()
        task_activity.activity_of(directory)
        times.append(time.perf_counter() - began)
    assert sorted(times)[len(times) // 2] < 0.01  # measured: 0.5 ms for four processes
