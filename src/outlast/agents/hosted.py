"""Stands for an agent that is a coroutine in its host: prints what it prints, and ends as the host says.

The host holds the other end of a socket. When that closes without a word of how the agent ended, the host is
gone and so is the agent: it is unknown how far it came, and the task says so.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct

from outlast.agents.piped import show
from outlast.storage import agentfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_READ_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
NEVER_BEGAN = "the process that was to run it had ended before it could begin"
HOST_GONE = "the process that ran it ended before it did, so it is unknown how far it came"


def frame(**said: object) -> bytes:
    """What one side says to the other: a line of JSON."""
    return json.dumps(said).encode() + b"\n"


def is_ours(line: socket.socket) -> bool:
    """Return whether the other end is of the same user: a name that became free can be taken by any user."""
    found = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.getuid())


def stand_for(name: str, directory: str) -> int:
    """The exit code that the host says."""
    asked = _watch_for_end_request()  # first: from the moment that the host hears of us, it is to hear of the end, too
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(f"\0{name}")
        if not is_ours(line):
            raise ConnectionRefusedError
    except OSError:
        return _lost(NEVER_BEGAN, directory)
    bridge = _Bridge(directory)
    while True:
        poll = select.poll()
        for fd in (line.fileno(), asked):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll()}
        if asked in ready:
            os.read(asked, _READ_BYTES)
            _say(line, frame(cancel=True))
        if line.fileno() in ready:
            data = _receive(line)
            code = bridge.take(data)
            if code is not None:
                return code
            if not data:
                return _lost(HOST_GONE, directory)


def _watch_for_end_request() -> int:
    """A descriptor that is ready when we are asked to end: then the host ends the agent, and says so."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)
    return woken


def _say(line: socket.socket, said: bytes) -> None:
    try:
        line.sendall(said)
    except OSError:
        pass  # the host is gone, which the next look shows


def _receive(line: socket.socket) -> bytes:
    try:
        return line.recv(_READ_BYTES)
    except ConnectionResetError:
        return b""


def _lost(why: str, directory: str) -> int:
    told = agentfile.read(directory)
    agentfile.write({**told, agentfile.LOST: why}, directory)
    return 1


class _Bridge:
    """What the host says, done."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._told: dict[str, Any] = {}
        self._parts: list[bytes] = []

    def take(self, data: bytes) -> int | None:
        """The exit code, once the host has said it."""
        first, *others = data.split(b"\n")
        self._parts.append(first)
        for piece in others:
            said = json.loads(b"".join(self._parts))
            self._parts = [piece]
            show(said.get("print", ""))
            if "told" in said:
                self._told.update(said["told"])
                agentfile.write(self._told, self._directory)
            if "code" in said:
                return int(said["code"])
        return None
