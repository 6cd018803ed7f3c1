"""nq: one directory is one queue, so what runs at once gets a directory each."""

from __future__ import annotations

import os
import subprocess

from bench.peers.base import PATIENCE_S, Peer, not_on_path


class Nq(Peer):
    name = "nq"

    @classmethod
    def missing(cls) -> str:
        return not_on_path("nq")

    def open(self) -> None:
        self._queues = 0
        self.env["NQDIR"] = f"{self.place}/typed"
        os.makedirs(f"{self.place}/typed", exist_ok=True)

    def _nq(self, queue: str, *words: str) -> bytes:
        ran = subprocess.run(
            ["nq", *words],
            env={**self.env, "NQDIR": queue},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=True,
        )
        return ran.stdout.strip()

    def start(self, command: str) -> tuple[str, str]:
        self._queues += 1
        queue = f"{self.place}/queue{self._queues}"
        os.mkdir(queue)
        return queue, self._nq(queue, "bash", "-c", command).decode()

    def wait(self, ticket: tuple[str, str]) -> None:
        self._nq(ticket[0], "-w", ticket[1])

    def foreground(self, command: str) -> None:
        queue, job = self.start(command)
        self.wait((queue, job))
        with open(f"{queue}/{job}", "rb") as file:
            file.read(65536)

    def wait_elsewhere(self, command: str) -> None:
        self.start_and_wait(command)

    def command_line(self, verb: str) -> list[str]:
        return {"ps": ["nq", "-t"], "run": ["nq", "true"]}[verb]
