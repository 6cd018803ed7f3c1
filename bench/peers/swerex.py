"""SWE-ReX: a bash session of its local deployment, in a Python of its own that takes one command a line."""

from __future__ import annotations

import json
import select
import subprocess

from bench.peers.base import PATIENCE_S, PEERS, Peer

_DRIVER = """
import asyncio, json, sys
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

async def main():
    deployment = LocalDeployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=10))
    print("up", flush=True)
    for line in sys.stdin:
        await deployment.runtime.run_in_session(BashAction(command=json.loads(line), check="silent", timeout=60))
        print("done", flush=True)
    await deployment.stop()

asyncio.run(main())
"""


class SweRex(Peer):
    name = "SWE-ReX"

    @classmethod
    def missing(cls) -> str:
        return "" if list(PEERS.glob("lib/python*/site-packages/swerex")) else "swe-rex"

    def open(self) -> None:
        self._driver = subprocess.Popen(
            [PEERS / "bin" / "python", "-c", _DRIVER],
            env=self.env,
            cwd=self.place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._answer(max(PATIENCE_S, 30.0))

    def close(self) -> None:
        try:
            self._driver.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.communicate()

    def _answer(self, patience: float = PATIENCE_S) -> None:
        assert self._driver.stdout is not None
        if not select.select([self._driver.stdout], [], [], patience)[0]:
            raise TimeoutError(f"not done in {patience:g} s")
        if not self._driver.stdout.readline():
            raise ConnectionError("its process is gone")

    def foreground(self, command: str) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps(command).encode() + b"\n")
        self._answer()

    def start(self, command: str) -> None:
        self.foreground(f"( {command} ) > /dev/null 2>&1 &")

    def start_and_wait(self, command: str) -> None:
        self.foreground(command)
