"""One bash that lives long, fed through a pipe, with a line that marks each end: how most agents run commands."""

from __future__ import annotations

import os
import select
import subprocess
import time

from bench.peers.base import PATIENCE_S, Peer

_END = b"==end of command=="


class Pipe(Peer):
    name = "bash on a pipe"
    is_reference = True

    def open(self) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        self._bash.kill()
        self._bash.communicate()

    def foreground(self, command: str) -> None:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho '{_END.decode()}'\n".encode())
        deadline = time.monotonic() + PATIENCE_S
        kept, tail = [], b""
        while _END not in tail:
            if not select.select([self._bash.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"not done in {PATIENCE_S:g} s")
            piece = os.read(self._bash.stdout.fileno(), 65536)
            if not piece:
                raise ConnectionError("bash is gone")
            kept.append(piece)
            tail = tail[-len(_END) :] + piece
        b"".join(kept)
