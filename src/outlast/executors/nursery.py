"""The caller's end of a nursery: start it when it is first needed, ask it, end it with us."""

from __future__ import annotations

import os
import sys
import time

from outlast.errors import StartFailed
from outlast.lean import socket, threading
from outlast.store import staging
from outlast.supervise import request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.model import Surroundings, Terms

_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervise", "nursery.py")
_FORK = b"f"


class Prepared:
    """A task that is being prepared, or waits for its command: not a task yet, and none if nobody begins it."""

    def __init__(self, staged: str, published: str, around: Surroundings, line: socket.socket) -> None:
        self.staged, self.published, self.around = staged, published, around
        self._line = line

    def is_stale(self, around: Surroundings) -> bool:
        """Whether its session has gone on: nobody will want it any more."""
        ours = self.around
        return ours.state == around.state != "" and ours.snapshot != around.snapshot

    def begin(self, terms: Terms, place: int = -1) -> dict[str, Any] | None:
        """What is to run is written down: begin. What the supervisor answers; None if it died before it could."""
        if place >= 0 or not terms.keeps or not request.is_ready(self._line):
            return request.begin(self._line, terms, place)
        now = time.time(), time.monotonic()
        if request.say(self._line, request.Word(terms, place, now)) and self._let_go():
            return {"started": now[0]}
        return request.answer(self._line)

    def _let_go(self) -> bool:
        """Its supervisor was told and is about to; we are awake already. Whether we were faster."""
        try:
            os.rename(self.staged, self.published)
        except OSError:
            return False  # or it cannot be done; it will say why
        staging.let_go(self.published)
        return True

    def has_ended(self) -> bool:
        """Whether its supervisor says so; if not, it may have ended all the same."""
        return request.has_ended(self._line)

    def hang_up(self) -> None:
        """Nobody listens any more; what runs goes on."""
        self._line.close()

    def fileno(self) -> int:
        """Of the line on which the supervisor says when the task has ended."""
        return self._line.fileno()

    def close(self) -> None:
        """Nobody wants it (any more)."""
        try:
            self._line.shutdown(socket.SHUT_WR)  # closing is not enough: what the host forked may hold it open
        except OSError:
            pass
        self._line.close()

    def discard(self) -> None:
        """Take it back before there is a command for it. Its supervisor does the same, unless it was killed."""
        self.close()
        staging.discard(self.staged)


class Nursery:
    """At most one process, shared by all threads of this one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._pid = 0
        self._owner = 0
        self._requests: socket.socket | None = None

    @classmethod
    def early(cls) -> Nursery:
        """One that starts now: while its caller loads the rest of itself, it does the same."""
        made = cls()
        try:
            made._start()
        except (OSError, StartFailed):
            pass  # it is tried again when it is needed, and told then
        return made

    def prepare(
        self, staged: str, published: str, around: Surroundings, lock: int = -1, warm: bool = False
    ) -> Prepared:
        """Have a supervisor forked that prepares a task in `staged`; does not wait for it.

        A task that was pending is published already, and comes with its lock. A `warm` one has no command yet.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [theirs.fileno()]
        try:
            fds += request.wanted(staged, published, around, lock, warm)
            self._send(fds)
        except BaseException:
            ours.close()
            raise
        finally:
            for fd in fds[1:]:
                if fd != lock:
                    os.close(fd)
            theirs.close()
        return Prepared(staged, published, around, ours)

    def _send(self, fds: list[int]) -> None:
        with self._guard:
            if self._requests is None or self._owner != os.getpid():
                self._start()
            try:
                socket.send_fds(self._connected(), _FORK, fds)
            except OSError:
                self._stop()  # somebody ended it; nothing was lost, there was nothing in it
                self._start()
                socket.send_fds(self._connected(), _FORK, fds)

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
            env["LD_BIND_NOW"] = "1"  # or each fork finds the functions of the C library by itself
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
