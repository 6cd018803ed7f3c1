"""Represents an agent that another program started: shows its output file until a caller says how it ended."""

from __future__ import annotations

import os
import select

from outlast.agents.piped import show_bytes
from outlast.storage import agentfile

DONE, FAILED = b"done", b"failed"
_LOOK_EVERY_S = 0.2  # a stranger's file rings no bell
_READ_BYTES = 1 << 16


def follow(output_file: str, directory: str) -> int:
    """Return the exit code that a caller wrote to our standard input."""
    copy = _Copy(output_file)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    heard = b""
    while True:
        copy.take()
        if not poll.poll(_LOOK_EVERY_S * 1000):
            continue
        data = os.read(0, _READ_BYTES)
        if not data:
            poll.unregister(0)  # no caller can write any more; the task can still be ended
            continue
        *lines, heard = (heard + data).split(b"\n")
        for line in lines:
            if line in (DONE, FAILED):
                copy.take()
                if line == FAILED:
                    agentfile.write({"error": "it was marked as failed"}, directory)
                return int(line == FAILED)


class _Copy:
    """What a file has got since we last looked; one that was emptied or replaced is read from its start."""

    def __init__(self, path: str) -> None:
        self._path, self._at, self._fd = path, 0, -1

    def take(self) -> None:
        try:
            self._rest()
            if self._is_another():
                self._open()
                self._rest()
        except OSError:
            pass  # not there (yet), or not for us: who reads it is told

    def _is_another(self) -> bool:
        # Ours is held open, so its number cannot be that of another one.
        return self._fd < 0 or not os.path.samestat(os.fstat(self._fd), os.stat(self._path))

    def _open(self) -> None:
        fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._at = fd, 0

    def _rest(self) -> None:
        if self._fd < 0:
            return
        if os.fstat(self._fd).st_size < self._at:
            self._at = 0
        while data := os.pread(self._fd, _READ_BYTES, self._at):
            show_bytes(data)
            self._at += len(data)
