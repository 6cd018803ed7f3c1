"""The caller's end of a nursery: start it when it is first needed, ask it, end it with us."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from outlast.errors import StartFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervise", "nursery.py")


class Nursery:
    """At most one process, shared by all threads of this one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._pid = 0
        self._owner = 0
        self._requests: socket.socket | None = None

    def fork(self, staged: str, published: str, **held: int) -> dict[str, Any] | None:
        """Have a supervisor forked for a task: its answer, or None if it died before it answered.

        `held` are descriptors that it goes on holding: a place, and the lock of a task that was pending.
        """
        reader, writer = os.pipe()
        try:
            try:
                self._send(json.dumps([staged, published, "reply", *held]).encode(), [writer, *held.values()])
            finally:
                os.close(writer)
            answer = _read(reader)
        finally:
            os.close(reader)
        return json.loads(answer) if answer else None

    def _send(self, line: bytes, fds: list[int]) -> None:
        with self._guard:
            if self._requests is None or self._owner != os.getpid():
                self._start()
            try:
                socket.send_fds(self._connected(), [line], fds)
            except OSError:
                self._stop()  # somebody ended it; nothing was lost, there was nothing in it
                self._start()
                socket.send_fds(self._connected(), [line], fds)

    def _connected(self) -> socket.socket:
        assert self._requests is not None
        return self._requests

    def _start(self) -> None:
        # One message is one request, and the other side sees our end when we die.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            actions = [
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ]
            arguments = [sys.executable, "-I", "-S", _SCRIPT]
            # Some interpreters are linked against a library that only this variable finds.
            env = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
            self._pid = os.posix_spawn(sys.executable, arguments, env, file_actions=actions, setsid=True)
        except OSError as error:
            ours.close()
            raise StartFailed(f"No process can be started: {error.strerror}.") from None
        finally:
            theirs.close()
            os.close(null)
        self._requests, self._owner = ours, os.getpid()

    def _stop(self) -> None:
        if self._requests is None:
            return
        requests, self._requests = self._requests, None
        if self._owner != os.getpid():
            requests.close()
            return
        try:
            requests.shutdown(socket.SHUT_WR)  # closing is not enough: what the host forked may hold it open
        except OSError:
            pass  # somebody ended it
        requests.close()
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass  # the host reaps its children itself

    def close(self) -> None:
        with self._guard:
            self._stop()


def _read(reply: int) -> bytes:
    try:
        return os.read(reply, 65536)
    except OSError:
        return os.read(reply, 65536)  # the task may be there already: do not give up its answer at once
