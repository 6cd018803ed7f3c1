"""asyncio's own subprocesses, in a loop of this process."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from typing import Any

from bench.peers.base import PATIENCE_S, Peer


class Asyncio(Peer):
    name = "asyncio"
    is_reference = True

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started: list[Process] = []

    def close(self) -> None:
        for process in list(self._started):
            self.wait(process)
        self._loop.close()

    def _do(self, what: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(what, PATIENCE_S))

    def foreground(self, command: str) -> None:
        async def run() -> None:
            process = await self._spawn(command, asyncio.subprocess.PIPE)
            await process.communicate()

        self._do(run())

    def _spawn(self, command: str, stdout: int | None = None) -> Any:
        return asyncio.create_subprocess_exec("bash", "-c", command, env=self.env, stdout=stdout)

    def start(self, command: str) -> Process:
        process: Process = self._do(self._spawn(command))
        self._started.append(process)
        return process

    def wait(self, ticket: Process) -> None:
        self._do(ticket.wait())
        self._started.remove(ticket)
