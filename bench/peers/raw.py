"""The limit: what the standard library takes for the same, with nothing kept."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from bench.peers.base import Peer


class Raw(Peer):
    name = "raw"

    def __init__(self) -> None:
        super().__init__()
        self._running: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        for process in self._running:
            process.wait()
        self._running.clear()

    def foreground(self, command: str) -> None:
        subprocess.run(["bash", "-c", command], env=self.env)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["bash", "-c", command], env=self.env, start_new_session=True)
        self._running.append(process)
        return process

    def wait(self, ticket: subprocess.Popen[bytes]) -> None:
        ticket.wait()

    def wait_elsewhere(self, command: str) -> None:
        self.start_and_wait(command)

    def flood(self, command: str) -> None:
        with open(f"{self.place}/output", "wb") as file:
            subprocess.run(["bash", "-c", command], env=self.env, stdout=file, check=True)

    def printed(self, command: str) -> str:
        self.flood(command)
        return f"{self.place}/output"

    def last_lines(self, ticket: str) -> bytes:
        with open(ticket, "rb") as file:
            file.seek(-14, os.SEEK_END)
            return file.read()

    def kill(self, ticket: Any) -> None:
        os.killpg(ticket.pid, 15)
        ticket.wait()

    def list_finished(self) -> None:
        """As many files as ours has tasks, each looked at."""
        where = f"{self.place}/thousand"
        if not os.path.isdir(where):
            os.mkdir(where)
            for number in range(1000):
                open(f"{where}/{number}", "w").close()
        for entry in os.scandir(where):
            os.stat(entry.path)
