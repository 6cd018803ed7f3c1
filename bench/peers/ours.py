"""Ours: one `Shell` in a long-lived host, and a process of its own that waits for tasks of others."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.peers.base import Peer
from outlast import Shell

_WAITER = """
import sys
from outlast import Shell
with Shell.open(sys.argv[1]) as shell:
    print("up", flush=True)
    for line in sys.stdin:
        shell.wait(line.strip())
        print("ended", flush=True)
"""


class Ours(Peer):
    name = "outlast"

    def __init__(self, **settings: int) -> None:
        super().__init__()
        self._settings = settings
        self._waiter: subprocess.Popen[bytes] | None = None
        self.shell: Shell | None = None

    @property
    def home(self) -> str:
        return f"{self.place}/state"

    @property
    def opened(self) -> Shell:
        assert self.shell is not None
        return self.shell

    def open(self) -> None:
        os.mkdir(self.home, 0o700)
        if self._settings:
            with open(f"{self.home}/config.toml", "w") as file:
                file.writelines(f"{name} = {value}\n" for name, value in self._settings.items())
        self.shell = Shell.open(self.home)

    def reopen(self) -> None:
        """As another host that has run nothing yet does."""
        self.opened.close()
        self.shell = Shell.open(self.home)

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.communicate()
            self._waiter = None
        if self.shell is not None:
            if running := [task.task_id for task in self.shell.list() if task.status == "running" or task.children]:
                self.shell.kill_all(running)
            self.shell.close()
            self.shell = None

    def foreground(self, command: str) -> None:
        self.opened.run(command)

    def flood(self, command: str) -> None:
        self.wait(self.start(command))  # as with the others: what of it is then shown is another matter

    def start(self, command: str) -> str:
        return self.opened.start(command).task_id

    def wait(self, ticket: str) -> None:
        self.opened.wait(ticket)

    def wait_elsewhere(self, command: str) -> None:
        if self._waiter is None:
            self._waiter = subprocess.Popen(
                [sys.executable, "-c", _WAITER, self.home], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert self._waiter.stdout is not None
            self._waiter.stdout.readline()
        assert self._waiter.stdin is not None
        assert self._waiter.stdout is not None
        self._waiter.stdin.write(self.start(command).encode() + b"\n")
        self._waiter.stdin.flush()
        self._waiter.stdout.readline()

    def discard(self) -> None:
        self.opened.clean(all_finished=True)

    def printed(self, command: str) -> tuple[str, str]:
        task = self.opened.run(command)
        return task.task_id, str(int(task.cursor) - 14)

    def last_lines(self, ticket: tuple[str, str]) -> bytes:
        return self.opened.read(ticket[0], cursor=ticket[1]).output.encode()

    def kill(self, ticket: str) -> None:
        receipt = self.opened.kill(ticket)
        assert not receipt.survivors

    def list_finished(self) -> None:
        found = self.opened.list()
        if len(found) >= 1000:
            return
        ids = [self.start("true") for _ in range(1000 - len(found))]
        for task_id in ids:
            self.wait(task_id)

    def command_line(self, verb: str) -> list[str]:
        words = {"ps": ["ps"], "run": ["run", "true"]}[verb]
        self.env["OUTLAST_HOME"] = f"{self.place}/typed"
        if "PYTHONPATH" in os.environ:
            self.env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return [sys.executable, "-m", "outlast", *words]
