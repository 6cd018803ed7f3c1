"""What a supervisor is asked: to prepare a task, and later to begin it.

The first comes as descriptors: its line to whoever asks, what to prepare, and what goes
with it. The second is a word on the line, with the place of a background task.
Variables and input may hold secrets, so they are handed over in memory, not on disk.
"""

from __future__ import annotations

import os

from outlast.frozen import fields
from outlast.lean import json, socket
from outlast.model import Stdin, Surroundings, Terms, as_sandbox
from outlast.supervise import ENDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WARM_KIND = "bash"
MOST_DESCRIPTORS = 4  # line, request, and one each of the following
TEXT, LOCK = "text", "lock"  # the command's input; the lock of a task that was pending
HERE, FOLLOW = "here", "follow"  # another one is wanted afterwards: in the same directory, or where its session is then


def wanted(staged: str, published: str, around: Surroundings, lock: int = -1) -> list[int]:
    """The descriptors that say what to prepare; those that are new are the caller's to close (all but `lock`).

    Without a place to publish it, it is a warm one: its supervisor stages it below the home `staged`, and tells where.
    """
    beside = {TEXT: in_memory(around.stdin.text)} if around.stdin.text is not None else {}
    if lock >= 0:
        beside[LOCK] = lock
    plain = {**fields(around), "stdin": {"file": around.stdin.file, "open": around.stdin.open}}
    plain["sandbox"] = fields(around.sandbox) if around.sandbox else None
    return [in_memory(json.dumps([staged, published, plain, [*beside]]).encode()), *beside.values()]


def understood(request: int, *beside: int) -> tuple[str, str, Surroundings, dict[str, int]]:
    """What to prepare where, and what goes with it."""
    staged, published, values, names = json.loads(from_memory(request))
    os.close(request)
    values["stdin"], values["sandbox"] = Stdin(**values["stdin"]), as_sandbox(values["sandbox"])
    return staged, published, Surroundings(**values), dict(zip(names, beside, strict=True))


def in_memory(data: bytes) -> int:
    """A descriptor to read `data` from."""
    # Without a file object: those take more memory than all else that a guard does with it.
    fd = os.memfd_create("outlast")
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def from_memory(fd: int) -> bytes:
    """What was put there."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


def begin(line: socket.socket, terms: Terms, place: int = -1, again: str = "") -> dict[str, Any] | None:
    """Have a prepared task begin: what its supervisor answers; None if it died before it could.

    With `again` its guards prepare another one like it when it is over.
    """
    try:
        # Said, not read from what is on disk: somebody waits.
        socket.send_fds(line, json.dumps([fields(terms), again]).encode(), [place] if place >= 0 else [])
    except OSError:
        pass  # it is dead, or has refused; then it said why before
    found: dict[str, Any] | None = answer(line)
    return found


def answer(line: socket.socket) -> Any:
    """What the supervisor says next; None if it could not: it died, or the system would not send it."""
    said = _read(line)
    return json.loads(said) if said not in (b"", ENDED) else None


def _read(line: socket.socket) -> bytes:
    try:
        return line.recv(65536)
    except TimeoutError:
        raise
    except OSError:
        # A supervisor that refused did not read what we said last, and its end is then told
        # before its answer. And if it is something else: the task may be there already.
        return line.recv(65536)


def offered(line: socket.socket) -> tuple[str, str, str, str] | None:
    """Where a warm task waits, with which snapshot and in which directory its shell began; None if there is none."""
    said = _read(line)
    while said == ENDED:
        said = _read(line)  # of the task before
    told = json.loads(said) if said else None
    return tuple(told) if isinstance(told, list) else None


def await_begin(line: socket.socket) -> tuple[Terms, int, str] | None:
    """In a supervisor: wait for the word: terms, place (-1: none), and whether another one like it will be wanted.

    None if nobody wants the task any more.
    """
    try:
        said, places = socket.recv_fds(line, 4096, 1)
    except OSError:
        return None
    if not said:
        return None
    terms, again = json.loads(said)
    return Terms(**terms), places[0] if places else -1, again
