"""Asks for a yes on the page of `outlast serve`, from a process that cannot ask itself, or that asks at its terminal.

    asker ── question, one line of JSON ─▶ approvals/ID.socket of each server
          ◀── answer, one line ──────────

The connection is the question: if either side dies, the kernel closes it, and the question is gone from the page. The
sockets are in the private state directory, and both sides check the user of the other one. A policy keeps commands
from that directory as it keeps them from its own rules, and a server that runs inside a task is not asked: so no
command answers for the user.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from contextvars import ContextVar

from outlast.light import json, socket
from outlast.policy.approval import show_description, show_line, show_lines
from outlast.storage import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.policy.approval import Answer, Approval

DIRECTORY = "approvals"
SUFFIX = ".socket"
ANSWERS = ("yes", "session", "always", "no")
MOST_BYTES = 1 << 16  # of a question; what is longer is cut before
_MOST_PARTS = 20
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_CONNECT_S = 1.0  # a server that is stopped must not hold a command for ever
_ANSWER_BYTES = 4096

# What a server recognises its own questions by.
reference: ContextVar[str] = ContextVar("reference", default="")


class RemoteQuestion:
    """One question that was put to all servers of a state directory; the first answer counts."""

    def __init__(self, home: str, approval: Approval) -> None:
        self._lines = [line for line in map(_connect, find_sockets(home)) if line is not None]
        said = _encode(describe(approval)) if self._lines else b""
        for line in list(self._lines):
            try:
                line.sendall(said)
            except OSError:
                self._drop(line)

    def __enter__(self) -> RemoteQuestion:
        return self

    def __exit__(self, *_: object) -> None:
        for line in list(self._lines):
            self._drop(line)

    def _drop(self, line: Any) -> None:
        self._lines.remove(line)
        line.close()

    @property
    def is_asked(self) -> bool:
        """Whether there is a server that may still answer."""
        return bool(self._lines)

    def wait(self, patience: float | None, also: int = -1) -> Answer | None:
        """Return the answer; None if there is none in time, no server is left, or the descriptor `also` is ready."""
        deadline = None if patience is None else time.monotonic() + patience
        while self._lines or also >= 0:
            poll = select.poll()
            for fd in (*(line.fileno() for line in self._lines), *((also,) if also >= 0 else ())):
                poll.register(fd, select.POLLIN)
            left = None if deadline is None else deadline - time.monotonic()
            ready = {fd for fd, _ in poll.poll(None if left is None else max(0.0, left * 1000))}
            for line in [one for one in self._lines if one.fileno() in ready]:
                if answer := _receive(line):
                    return answer
                self._drop(line)
            if also in ready or not ready:
                return None
        return None


def ask(home: str, approval: Approval, patience: float) -> Answer | None:
    """Return the answer of a person at a page; None if no page is served, or none answers in time."""
    if patience <= 0 or not find_sockets(home):
        return None
    with RemoteQuestion(home, approval) as question:
        return question.wait(patience)


def find_sockets(home: str) -> list[str]:
    """Return the sockets at which commands wait for an answer."""
    directory = os.path.join(home, DIRECTORY)
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(SUFFIX)]
    except OSError:
        return []


def reach(directory_fd: int, path: str) -> str:
    """Return a short path of a socket: the kernel takes 107 bytes, and state directories may be deep."""
    return f"/proc/self/fd/{directory_fd}/{os.path.basename(path)}"


def _connect(path: str) -> Any | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(_CONNECT_S)
    try:
        directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            line.connect(reach(directory, path))
        finally:
            os.close(directory)
        pid, uid = peer_of(line)
        # A command must not answer itself: what a task started is no page of the user's.
        if uid == os.getuid() and pid and not record.is_in_task(pid):
            return line
    except ConnectionRefusedError:
        try:
            os.unlink(path)  # of a server that was killed
        except OSError:
            pass
    except OSError:
        pass
    line.close()
    return None


def peer_of(line: Any) -> tuple[int, int]:
    """Return the process at the other end, and its user."""
    found = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def _receive(line: Any) -> Answer | None:
    """Anything that is not an answer is none."""
    try:
        found = json.loads(line.recv(_ANSWER_BYTES)).get("answer")
    except (OSError, ValueError, AttributeError):
        return None
    return found if found in ANSWERS else None


def _encode(question: dict[str, Any]) -> bytes:
    return json.dumps(question).encode() + b"\n"


def describe(approval: Approval) -> dict[str, Any]:
    """Return what a page shows of a question, with everything escaped that a reader would not see."""
    parts = [
        {"command": show_line(one.command), "verdict": one.verdict, "why": show_line(one.why)}
        for one in approval.parts[:_MOST_PARTS]
    ]
    return {
        "category": approval.category,
        "command": "\n".join(show_lines(approval.command)),
        "description": show_description(approval),
        "evidence": show_line(approval.evidence),
        "policy": show_line(approval.policy),
        "cwd": show_line(approval.cwd),
        "session": show_line(approval.session),
        "task_ids": list(approval.task_ids[:_MOST_PARTS]),
        "parts": parts,
        "always": [show_line(one) for one in approval.always],
        "from": _name_program(),
        "reference": reference.get(),
    }


def _name_program() -> str:
    """Return in a few words which program asks."""
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    return f"outlast {sys.argv[1]}" if name in ("outlast", "__main__.py") and len(sys.argv) > 1 else name
