"""task-spooler: a server on a socket of its own that runs as many at once as are asked for."""

from __future__ import annotations

import os

from bench.peers.base import Peer, not_on_path


class Spooler(Peer):
    name = "task-spooler"

    @classmethod
    def missing(cls) -> str:
        return not_on_path("tsp")

    def open(self) -> None:
        self.env |= {"TS_SOCKET": f"{self.place}/socket", "TS_SLOTS": "900", "TS_MAXFINISHED": "1000"}
        self._listed = 0

    def close(self) -> None:
        if os.path.exists(f"{self.place}/socket"):
            self.call("tsp", "-K")

    def foreground(self, command: str) -> None:
        self.call("tsp", "-f", "bash", "-c", command)

    def start(self, command: str) -> str:
        return self.call("tsp", "bash", "-c", command).decode().strip()

    def wait(self, ticket: str) -> None:
        self.call("tsp", "-w", ticket)

    def wait_elsewhere(self, command: str) -> None:
        self.start_and_wait(command)

    def flood(self, command: str) -> None:
        self.printed(command)

    def printed(self, command: str) -> str:
        ticket = self.start(command)
        self.wait(ticket)
        return ticket

    def last_lines(self, ticket: str) -> bytes:
        return self.call("tsp", "-t", ticket)

    def kill(self, ticket: str) -> None:
        self.call("tsp", "-k", ticket)

    def list_finished(self) -> None:
        while self._listed < 1000:
            last = self.start("true")
            self._listed += 1
            if self._listed == 1000:
                self.wait(last)
        self.call("tsp")

    def command_line(self, verb: str) -> list[str]:
        return {"ps": ["tsp"], "run": ["tsp", "-f", "true"]}[verb]
