"""The mirror of a task that runs elsewhere: a directory like that of any task, with copies of the far files.

All code that reads a task works on it unchanged. Three things differ: no guard holds a lock here, the file `mirror`
says instead whether the task's guards live and when that was seen; the bells are rung by the process that copies; and
output is written at its offset, so copying a piece twice, or by two processes at once, changes nothing.

Order is what makes a mirror true: a record is copied after the output that was printed before it. A page that was read
earlier than the one that is here is not taken back.
"""

from __future__ import annotations

import os
import time

from outlast.light import json
from outlast.linux.files import FileLock, open_regular, read_file
from outlast.storage import record, watch
from outlast.storage.layout import SIZES, random_token
from outlast.storage.output import FILES, ORDER, SEGMENTS
from outlast.storage.record import MIRROR, read_mirror

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_LOCK = "mirror.lock"
STARTING = "starting"  # locked by the process that starts the task, until the other side confirmed it
_MOST_CHILDREN = 1000
_OUTPUTS = (*FILES.values(), ORDER, SIZES)


def create(staged: str, first: str = "") -> None:
    """Make a staged directory that of a task whose start is not confirmed yet; `first` is started with it."""
    record.reserve(staged)
    watch.create(staged)
    os.close(open_regular(f"{staged}/{_LOCK}", os.O_WRONLY | os.O_CREAT))
    if first:
        os.link(f"{first}/{STARTING}", f"{staged}/{STARTING}")  # one lock for a thousand tasks, and one descriptor
    else:
        os.close(open_regular(f"{staged}/{STARTING}", os.O_WRONLY | os.O_CREAT))
    now = time.time()
    _write(staged, {"alive": True, "confirmed": False, "created": now, "seen": now, "problem": "", "children": []})


def write_output(directory: str, name: str, offset: int, data: bytes) -> None:
    """Write a piece of an output file at its place."""
    fd = open_regular(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT)
    try:
        while data:
            count = os.pwrite(fd, data, offset)
            offset, data = offset + count, data[count:]
    finally:
        os.close(fd)


def replace_file(directory: str, name: str, data: bytes) -> None:
    """Replace a small file at once."""
    temporary = f"{directory}/{name}.{random_token()}"
    with open(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
    os.rename(temporary, f"{directory}/{name}")


def apply(directory: str, page: bytes | None, alive: bool, children: Sequence[int] = (), problem: str = "") -> None:
    """Take over a page of the far record, and whether guards of the task live there; None: the record here is true.

    Call it after everything that was printed before the page was read is written here.
    """
    with _lock(directory):
        known = read_mirror(directory)
        if page is not None and _progress(page) >= _progress(read_file(f"{directory}/{record.NAME}")):
            _write_page(directory, page)
        alive = alive and bool(known["alive"])
        now, shown = time.time(), list(children)[:_MOST_CHILDREN]
        _write(
            directory, {**known, "alive": alive, "confirmed": True, "seen": now, "problem": problem, "children": shown}
        )
    ring(directory)


def note_confirmed(directory: str) -> None:
    """Note that the other side has the task."""
    with _lock(directory):
        _write(directory, {**read_mirror(directory), "confirmed": True, "problem": ""})


def note_problem(directory: str, problem: str) -> None:
    """Note why nothing new can be known. What is known stays as it was seen last."""
    with _lock(directory):
        known = read_mirror(directory)
        if known["problem"] != problem:
            _write(directory, {**known, "problem": problem})
    ring(directory)


def note_gone(directory: str) -> None:
    """Note that the other side knows nothing of the task any more. Without a code it is lost."""
    apply(directory, None, alive=False)


def end_unstarted(directory: str, why: str) -> None:
    """Record that the task never began, which the other side has confirmed."""
    with _lock(directory):
        if "outcome" not in record.read(directory):
            record.write_never_started(why, time.time(), directory)
    apply(directory, None, alive=False)


def lock_start(directory: str) -> int | None:
    """Lock the start of a task, whose other side is asked now; None if another process does that."""
    from outlast.linux.files import open_locked

    return open_locked(f"{directory}/{STARTING}", flags=os.O_RDWR)


def is_confirmed(directory: str) -> bool:
    """Return whether the other machine has confirmed that it has the task."""
    return bool(read_mirror(directory)["confirmed"])


def ring(directory: str) -> None:
    """Wake what waits for this task, and what waits for any."""
    watch.wake_waiters(directory)
    watch.wake_waiters(f"{os.path.dirname(os.path.dirname(directory))}/outbox")


def is_output(name: str) -> bool:
    """Return whether a file of a task only grows, so that it is copied by offset."""
    base, dot, number = name.partition(".")
    return base in _OUTPUTS and (not dot or number.isdecimal())


def drop_segments(directory: str) -> None:
    """Keep as many segments of each stream as the guard keeps there."""
    for stream in FILES.values():
        names = sorted(name for name in os.listdir(directory) if name.startswith(f"{stream}.") and is_output(name))
        for name in names[:-SEGMENTS]:
            os.unlink(f"{directory}/{name}")


def _lock(directory: str) -> FileLock:
    return FileLock(open_regular(f"{directory}/{_LOCK}", os.O_WRONLY | os.O_CREAT))


def _write(directory: str, known: dict[str, Any]) -> None:
    replace_file(directory, MIRROR, json.dumps(known).encode())


def _write_page(directory: str, page: bytes) -> None:
    fd = open_regular(f"{directory}/{record.NAME}", os.O_WRONLY)
    try:
        os.pwrite(fd, page, 0)
    finally:
        os.close(fd)


def _progress(page: bytes) -> tuple[int, ...]:
    """Return how far a record has come, to compare two pages of one task. Damaged ones are the earliest."""
    try:
        found = record.parse(page)
    except (KeyError, TypeError, ValueError):
        return (-1,)
    position = found.get("position", {})
    steps = [int(name in found) for name in ("outcome", "code", "ending", "guards")]
    return (*steps, found.get("guards", {}).get("recoveries", 0), sum(position.values()))
