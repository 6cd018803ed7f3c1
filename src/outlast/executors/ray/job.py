"""Runs one task of Outlast as a job of Ray: `python job.py DIRECTORY SECONDS`, in an unpacked package with its files.

It knows nothing of Outlast but its guard. What comes back is in lines of the job's log, among those that Ray writes:

    outlast begun                       the task is this job's; what follows is true
    outlast piece NAME OFFSET BASE64    a piece of an output file
    outlast file NAME BASE64            a small file that the shell left
    outlast record BASE64               a page of the record, after all output that was printed before it
    outlast refused REASON              the guard could not start the command
    outlast processes PID...            those of the task at this moment; Ray ends them all at a stop

SECONDS is the grace at a stop; Ray gives three seconds, then it kills this process.
"""

from __future__ import annotations

import base64
import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

PIECE_BYTES = 48 << 10
PAUSE_S, MOST_GRACE_S = 0.05, 2.0
SMALL_FILES = ("pipes", "start", "state")
FDS = ((100, "before", os.O_RDONLY), (101, "start", os.O_RDWR))


def say(word: str, *rest: str) -> None:
    """Send one line of the protocol."""
    sys.stdout.write("outlast " + " ".join((word, *rest)) + "\n")
    sys.stdout.flush()


def encode(data: bytes) -> str:
    """Encode bytes for one line of the protocol."""
    return base64.b64encode(data).decode()


def prepare(directory: str) -> None:
    """Make the task's directory; it has the lengths of paths that the launch names."""
    os.umask(0o077)
    os.mkdir(directory)
    for path in glob.glob("files/*"):
        shutil.copyfile(path, os.path.join(directory, os.path.basename(path)))
    os.chmod(os.path.join(directory, "outlast-guard"), 0o700)


def describe() -> bytes:
    """Return the launch with the variables that only this worker has; those that it names itself come first."""
    with open("launch", "rb") as file:
        launch = file.read()
    for name, value in os.environb.items():
        line = name + b"=" + value
        if b"\n" + name + b"=" not in launch:
            launch += b"env %d\n%s\n" % (len(line), line)
    return launch + b"end 0\n\n"


def start(directory: str) -> subprocess.Popen[bytes]:
    """Start the guard of the task."""
    for number, name, flags in FDS:
        if os.path.exists(os.path.join(directory, name)):
            fd = os.open(os.path.join(directory, name), flags)
            os.dup2(fd, number)
            os.close(fd)
    guard = os.path.join(directory, "outlast-guard")
    fds = [number for number, name, _ in FDS if os.path.exists(os.path.join(directory, name))]
    process = subprocess.Popen([guard, "--stay", "0"], stdin=subprocess.PIPE, pass_fds=fds, close_fds=True)
    assert process.stdin
    process.stdin.write(describe())
    process.stdin.close()
    return process


class Sender:
    """Sends what is new in a directory."""

    def __init__(self, directory: str) -> None:
        self.directory, self.page = directory, b""
        self.sent: dict[str, int] = {}

    def send(self, last: bool = False) -> None:
        page = self.read("record", 0, 4096)
        for name in sorted(os.listdir(self.directory)):
            if name.partition(".")[0] in ("output", "stderr", "order"):
                self.send_output(name)
        if len(page) == 4096 and page != self.page:
            if last:
                for name in SMALL_FILES:
                    if os.path.exists(os.path.join(self.directory, name)):
                        say("file", name, encode(self.read(name, 0, 1 << 24)))
            say("record", encode(page))
            self.page = page

    def send_output(self, name: str) -> None:
        at = self.sent.get(name, 0)
        while data := self.read(name, at, PIECE_BYTES):
            say("piece", name, str(at), encode(data))
            at += len(data)
        if name not in self.sent and at == 0:
            say("piece", name, "0", "")
        self.sent[name] = at

    def read(self, name: str, at: int, most: int) -> bytes:
        try:
            with open(os.path.join(self.directory, name), "rb") as file:
                file.seek(at)
                return file.read(most)
        except OSError:
            return b""


def list_tree(pid: int, guard: str) -> list[int]:
    """Return the processes below `pid` that are no guards."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            try:
                with open(f"/proc/{child}/stat") as file:
                    is_gone = file.read().rpartition(")")[2].split()[0] in "ZX"
                if not is_gone and not os.path.samefile(f"/proc/{child}/exe", guard):
                    found.append(child)
            except OSError:
                pass
            found += list_tree(child, guard)
    return found


class Tree:
    """The processes of the task."""

    def __init__(self, root: int, guard: str) -> None:
        self.root, self.guard = root, guard
        self.known: list[int] = []

    def say_changes(self) -> None:
        found = sorted(list_tree(self.root, self.guard))
        if found != self.known:
            say("processes", *map(str, found))
            self.known = found

    def end(self, grace: float, is_over: Callable[[], bool]) -> None:
        """End what Ray did not reach, such as processes that begin now."""
        deadline, told = time.monotonic() + grace, set[int]()
        while not is_over():
            for pid in list_tree(self.root, self.guard):
                try:
                    if time.monotonic() >= deadline:
                        os.kill(pid, signal.SIGKILL)
                    elif pid not in told:
                        os.kill(pid, signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)
                        told.add(pid)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)


def main(directory: str, grace: float) -> int:
    """Run one task, and send what happens to it until it has ended."""
    stop: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    prepare(directory)
    say("begun")
    process = start(directory)
    sender, tree = Sender(directory), Tree(process.pid, os.path.join(directory, "outlast-guard"))
    while process.poll() is None:
        sender.send()
        if stop:
            tree.say_changes()  # for the receipt
            tree.end(min(grace, MOST_GRACE_S), lambda: process.poll() is not None)
        else:
            tree.say_changes()
            time.sleep(PAUSE_S)
    refusal = sender.read("refused", 0, 4096).decode(errors="replace").partition(" ")[2]
    if refusal:
        say("refused", refusal)
    else:
        sender.page = b""
        sender.send(last=True)
    shutil.rmtree(directory, ignore_errors=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
