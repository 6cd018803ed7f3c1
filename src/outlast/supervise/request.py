"""What a supervisor is asked: to prepare a task, and later to begin it.

The first comes as descriptors: its line to whoever asks, what to prepare, and what goes
with it. The second is a word on the line, with the place of a background task.
Variables and input may hold secrets, so they are handed over in memory, not on disk.
"""

from __future__ import annotations

import os

from outlast.frozen import fields, frozen
from outlast.lean import json, socket
from outlast.model import Stdin, Surroundings, Terms, as_sandbox
from outlast.supervise import ENDED, READY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST_DESCRIPTORS = 4  # line, request, and one each of the following
TEXT, LOCK = "text", "lock"  # the command's input; the lock of a task that was pending


@frozen
class Word:
    """To begin: on which terms, and with which place (-1: none).

    `at` is when, as time and monotonic time, if the caller may let it go by itself.
    """

    terms: Terms
    place: int
    at: tuple[float, float] | None


def wanted(staged: str, published: str, around: Surroundings, lock: int = -1, warm: bool = False) -> list[int]:
    """The descriptors that say what to prepare; those that are new are the caller's to close (all but `lock`).

    A `warm` one is prepared before there is a command for it.
    """
    beside = {TEXT: in_memory(around.stdin.text)} if around.stdin.text is not None else {}
    if lock >= 0:
        beside[LOCK] = lock
    return [written(around, staged, published, [*beside], warm), *beside.values()]


def written(
    around: Surroundings, staged: str = "", published: str = "", beside: Sequence[str] = (), warm: bool = False
) -> int:
    """In memory: what to prepare where, and the names of what goes with it."""
    plain = {**fields(around), "stdin": {"file": around.stdin.file, "open": around.stdin.open}}
    plain["sandbox"] = fields(around.sandbox) if around.sandbox else None
    return in_memory(json.dumps([staged, published, plain, beside, warm]).encode())


def understood(request: int, *beside: int) -> tuple[str, str, Surroundings, dict[str, int], bool]:
    """What to prepare where, what goes with it, and whether it is warm."""
    staged, published, around, names, warm = _read_back(from_memory(request))
    return staged, published, around, dict(zip(names, beside, strict=True)), warm


def _read_back(text: bytes) -> tuple[str, str, Surroundings, list[str], bool]:
    staged, published, values, names, warm = json.loads(text)
    values["stdin"], values["sandbox"] = Stdin(**values["stdin"]), as_sandbox(values["sandbox"])
    return staged, published, Surroundings(**values), names, warm


def add(request: int, found: object) -> None:
    """Write down beside what was asked what became of it, for who goes on with it."""
    os.pwrite(request, b"\n" + json.dumps(found).encode(), os.fstat(request).st_size)


def with_found(request: int) -> tuple[Surroundings, Any]:
    """What was asked, and what was added."""
    asked, _, found = from_memory(request).rpartition(b"\n")  # a newline in a text is written otherwise
    return _read_back(asked)[2], json.loads(found)


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


def begin(line: socket.socket, terms: Terms, place: int = -1) -> dict[str, Any] | None:
    """Have a prepared task begin: what its supervisor answers; None if it died before it could."""
    say(line, Word(terms, place, None))
    return answer(line)


def say(line: socket.socket, word: Word) -> bool:
    """Have a prepared task begin; False if nobody hears it: its supervisor is dead, or has refused and said why."""
    # Said, not read from what is on disk: somebody waits.
    said = json.dumps([fields(word.terms), word.at]).encode()
    try:
        socket.send_fds(line, said, [word.place] if word.place >= 0 else [])
    except OSError:
        return False
    return True


def answer(line: socket.socket) -> dict[str, Any] | None:
    """What the supervisor says next; None if it could not: it died, or the system would not send it."""
    said = _read(line)
    while said == READY:
        said = _read(line)
    found: dict[str, Any] | None = json.loads(said) if said not in (b"", ENDED) else None
    return found


def _read(line: socket.socket) -> bytes:
    try:
        return line.recv(65536)
    except TimeoutError:
        raise
    except OSError:
        # A supervisor that refused did not read what we said last, and its end is then told
        # before its answer. And if it is something else: the task may be there already.
        return line.recv(65536)


def has_ended(line: socket.socket) -> bool:
    """Whether the supervisor has said that the end of its task is recorded."""
    try:
        return line.recv(2, socket.MSG_PEEK | socket.MSG_DONTWAIT) == ENDED
    except OSError:
        return False


def is_ready(line: socket.socket) -> bool:
    """Whether the supervisor of a warm task has said that its caller may let it go."""
    try:
        # Looked at first: if it is something else, it is for another to read.
        return line.recv(2, socket.MSG_PEEK | socket.MSG_DONTWAIT) == READY == line.recv(2)
    except OSError:
        return False  # not yet, or it is dead


def await_begin(line: socket.socket) -> Word | None:
    """In a supervisor: wait for the word. None if nobody wants the task any more."""
    try:
        said, places = _word(line)
    except OSError:
        return None
    if not said:
        return None
    terms, at = json.loads(said)
    return Word(Terms(**terms), places[0] if places else -1, tuple(at) if at else None)


def _word(line: socket.socket) -> tuple[bytes, list[int]]:
    try:
        return socket.recv_fds(line, 4096, 1)
    except ConnectionResetError:
        return socket.recv_fds(line, 4096, 1)  # who gave it is gone and had not read all that we said; it counts
