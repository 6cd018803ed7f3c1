"""Drives `outlast-guard` directly: writes a launch description, starts the program, reads its messages and files."""

from __future__ import annotations

import binascii
import ctypes
import errno
import fcntl
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from outlast.guard import client
from outlast.guard.client import find_guard

Item = tuple[str, str | bytes | int | float]

PATIENCE_S = 30.0
SLOTS = {
    "guards": (0, 1024),
    "code": (1024, 128),
    "ending": (1152, 448),
    "position": (1600, 64),
    "outcome": (1664, 2432),
}
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
BPF_LOAD, BPF_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06


def find_words() -> list[str]:
    """How to call the guard."""
    return shlex.split(os.environ.get("OUTLAST_GUARD", "")) or [find_guard()]


def prctl(*arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*(ctypes.c_ulong(one) for one in arguments)):
        raise OSError(ctypes.get_errno(), "prctl")


def read_slot(directory: Path, slot: str) -> dict[str, Any]:
    """The value of a slot of the record; empty if it was never written. Reads again if a write is in progress."""
    start, size = SLOTS[slot]
    for _ in range(100):
        text = (directory / "record").read_bytes()[start : start + size].strip()
        if not text:
            return {}
        check, _, value = text.partition(b" ")
        if binascii.crc32(value) == int(check, 16):
            found: dict[str, Any] = json.loads(value)
            return found
    raise AssertionError(f"{slot} is damaged")


def read_stream(directory: Path, name: str = "output", head: int | None = None) -> list[tuple[int, bytes]]:
    """The pieces of a stream that are kept: where each starts, and its bytes."""
    first = (directory / name).read_bytes()
    pieces = [(0, first if head is None else first[:head])]
    for path in sorted(directory.glob(f"{name}.[0-9]*")):
        pieces.append((int(path.name.rpartition(".")[2]), path.read_bytes()))
    return pieces


class Task:
    """One run of the guard."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket, staging: Path, published: Path) -> None:
        self.process = process
        self.line = line
        self.staging = staging
        self.directory = published
        self.last = ""

    def receive(self, patience: float = PATIENCE_S) -> tuple[str, list[str]]:
        """The next message; ("", []) at the end of the connection."""
        ready, _, _ = select.select([self.line], [], [], patience)
        assert ready, "the guard sent no message"
        data = self.line.recv(1024)
        return client.parse_message(data) if data else ("", [])

    def expect(self, word: str) -> list[str]:
        """The next message, which has to begin with `word`. A new supervisor may repeat the last one before it."""
        found, rest = self.receive()
        while found == self.last and found != word:
            found, rest = self.receive()
        assert found == word, (found, rest)
        self.last = word
        return rest

    def begin(self, *terms: Item) -> None:
        """Send the terms of a prepared task."""
        self.line.send(client.encode_items(terms) or b"")

    def slot(self, name: str) -> dict[str, Any]:
        return read_slot(self.directory, name)

    def output(self, name: str = "output") -> bytes:
        return (self.directory / name).read_bytes()

    def is_alive(self) -> bool:
        """Whether the lock is held. A shared probe does not disturb a starter."""
        with open(self.directory / "lock", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def wait_closed(self) -> None:
        """Wait until both guards have exited."""
        while self.receive()[0]:
            pass
        wait_until(lambda: not self.is_alive(), "the lock is released")

    def run(self) -> list[str]:
        """From the start to the end; what the last message says about how the command ended."""
        self.expect("started")
        ended = self.expect("ended")
        self.wait_closed()
        return ended

    def pid(self, role: str) -> int:
        """The pid of the supervisor, the keeper or the command, as recorded."""
        found: int = self.slot("guards")[role][0]
        return found


def wait_until(look: Callable[[], Any], what: str, patience: float = PATIENCE_S) -> Any:
    """Poll for a condition, with a bound."""
    deadline = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < deadline, f"did not come true: {what}"
        time.sleep(0.002)
    return found


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in path.read_text().split()]
    return found


def is_gone(pid: int) -> bool:
    """Whether a process ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def make_memfd(data: bytes) -> int:
    fd = os.memfd_create("launch")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}


class Launcher:
    """Starts tasks below one directory, and at the end checks that no process is left."""

    def __init__(self, place: Path, program: str) -> None:
        self.place = place
        self.program = program
        self.wrapper: list[str] = []
        self.preexec: Callable[[], None] | None = None
        self.tasks: list[Task] = []
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a test leaves behind comes to us
        for name in ("staging", "tasks"):
            (place / name).mkdir()

    def describe(self, name: str, script: str | None, items: Iterable[Item]) -> list[Item]:
        staging = self.place / "staging" / name
        staging.mkdir()
        mark = f"OUTLAST_TASK_ID={name}-{uuid.uuid4()}"  # no other task of the machine may have it
        lines: list[Item] = [("directory", str(staging)), ("publish", str(self.place / "tasks" / name))]
        if script is not None:
            lines += [("program", "/bin/bash"), ("arg", "bash"), ("arg", "-c"), ("arg", script)]
            lines += [("env", f"PATH={os.environ['PATH']}"), ("env", mark)]
            lines += [("mark", mark)]
        given = list(items)
        if not any(key == "cwd" for key, _ in given):
            lines.append(("cwd", str(self.place)))
        return lines + given

    def start(self, script: str | None, *items: Item, fds: tuple[int, ...] = (), hang_up: bool = False) -> Task:
        """Start a task. `fds` are passed to the guard with the same numbers."""
        name = f"t{len(self.tasks)}"
        return self.start_bytes(client.encode_launch(self.describe(name, script, items)), name, fds, hang_up)

    def start_bytes(self, launch: bytes, name: str, fds: tuple[int, ...] = (), hang_up: bool = False) -> Task:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memfd = make_memfd(launch)
        words = [*self.wrapper, self.program, str(memfd), str(theirs.fileno())]
        process = subprocess.Popen(
            words,
            pass_fds=(memfd, theirs.fileno(), *fds),
            stdout=subprocess.PIPE,
            preexec_fn=self.preexec,  # noqa: PLW1509 - the tests have no threads
        )
        os.close(memfd)
        theirs.close()
        task = Task(process, ours, self.place / "staging" / name, self.place / "tasks" / name)
        self.tasks.append(task)
        if hang_up:
            ours.close()
        return task

    def close(self) -> None:
        """End what is left, and fail if there was anything."""
        for task in self.tasks:
            task.line.close()
            task.process.wait(PATIENCE_S)
            if task.process.stdout:
                task.process.stdout.close()
        left = self._reap()
        deadline = time.monotonic() + 5
        while left and time.monotonic() < deadline:
            time.sleep(0.005)
            left = self._reap()
        words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)  # other tests count the children of this process
        while doomed := self._reap():
            for pid in doomed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        assert not words, f"left behind: {words}"

    def _reap(self) -> list[int]:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return children_of(os.getpid())


def ignore_signals() -> None:
    """In a child before its `execve`: ignore all signals, also those that the C library keeps for itself."""
    ignored = ctypes.create_string_buffer((1).to_bytes(8, sys.byteorder), 64)  # struct sigaction of the kernel: SIG_IGN
    libc = ctypes.CDLL(None)
    for number in range(1, 65):
        libc.syscall(SYS_RT_SIGACTION[os.uname().machine], number, ignored, None, 8)


def refuse_splice(also_pipes: bool) -> None:
    """In a child before its `execve`: let `splice` fail with EINVAL, to files only or always, as some file systems do.

    The guard passes an offset pointer only when it splices to a file.
    """
    off_out = 16 + 3 * 8  # of struct seccomp_data; little endian
    pointer = [
        (BPF_LOAD, 0, 0, off_out),
        (BPF_EQUAL, 0, 3, 0),  # not a null pointer: refuse
        (BPF_LOAD, 0, 0, off_out + 4),
        (BPF_EQUAL, 0, 1, 0),
    ]
    refuse_call({"x86_64": 275, "aarch64": 76}, [] if also_pipes else pointer, errno.EINVAL)


def refuse_pidfd_info() -> None:
    """In a child before its `execve`: let ioctl(PIDFD_GET_INFO) fail, as on a kernel before Linux 6.15."""
    request = [(BPF_LOAD, 0, 0, 16 + 8), (BPF_EQUAL, 1, 0, 0xC040FF0B)]
    refuse_call({"x86_64": 16, "aarch64": 29}, request, errno.ENOTTY)


def refuse_call(numbers: dict[str, int], condition: list[tuple[int, int, int, int]], number: int) -> None:
    """Install a seccomp filter on a system call. `condition` is followed by two steps: allow, and refuse."""
    allow, refuse = (BPF_RETURN, 0, 0, 0x7FFF0000), (BPF_RETURN, 0, 0, 0x00050000 | number)
    steps = [(BPF_LOAD, 0, 0, 0), (BPF_EQUAL, 1, 0, numbers[os.uname().machine]), allow, *condition]
    steps += [allow, refuse] if condition else [refuse]
    packed = b"".join(
        code.to_bytes(2, "little") + bytes([true, false]) + k.to_bytes(4, "little") for code, true, false, k in steps
    )
    filters = ctypes.create_string_buffer(packed)
    program = ctypes.create_string_buffer(
        len(steps).to_bytes(8, "little") + ctypes.addressof(filters).to_bytes(8, "little")
    )
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(program), 0, 0)
