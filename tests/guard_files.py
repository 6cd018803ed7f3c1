"""Writes a task's files as the guard does, for tests that need a certain state on disk."""

from __future__ import annotations

import os

from outlast.storage import record
from outlast.storage.output import (
    FILES,
    NOTE_BYTES,
    ORDER,
    ORDER_BYTES,
    ORDER_ENTRY,
    ORDER_STDERR,
    SEGMENTS,
    Bound,
    Extent,
    list_extents,
)
from outlast.types import Guards


def write_guards(guards: Guards, directory: str) -> None:
    """Record the guards of a task."""
    identities = {"supervisor": guards.supervisor, "keeper": guards.keeper, "command": guards.command}
    value = {
        **{name: [one.pid, one.tick] for name, one in identities.items() if one},
        "boot": guards.command.boot,
        "started": guards.started,
        "monotonic": guards.monotonic,
        "recoveries": guards.recoveries,
    }
    record.write("guards", value, directory)


class Sink:
    """Bounded output files in the current directory, as the guard writes them."""

    def __init__(self, stream: str, bound: Bound, reached: int = 0) -> None:
        """`reached`: the offset of the stream, if the last bytes were dropped and are in no file."""
        self._stream, self._bound = stream, bound
        kept = list_extents(".", stream, bound.head)
        self._segments = [extent.path for extent in kept if extent.start]
        last = kept[-1] if kept else Extent(0, 0, FILES[stream])
        self.offset = max(last.end, reached)
        self._gap = self.offset != last.end
        self._open(last.path, last.start)

    def _open(self, path: str, start: int) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.start = start
        self._size = self._bound.head if start == 0 else self._bound.segment

    def room(self) -> int:
        """Return how many bytes fit into the current file; open a new one when it is full."""
        left = self._size - (self.offset - self.start)
        if left > 0 and not self._gap:
            return left
        if self.start == 0 and not self._gap:
            note = b"\n[outlast: the bound is reached; newer output is in output.NUMBER"
            os.pwrite(self.fd, note.ljust(NOTE_BYTES - 2) + b"]\n", self._bound.head)
        while len(self._segments) >= SEGMENTS:
            os.unlink(self._segments.pop(0))
        path = f"{FILES[self._stream]}.{self.offset:020d}"
        os.close(self.fd)
        self._open(path, self.offset)
        self._segments.append(path)
        self._gap = False
        return self._size

    def wrote(self, count: int) -> None:
        self.offset += count

    def dropped(self, count: int) -> None:
        """The next `count` bytes are not kept; what comes later starts a new segment."""
        self._gap = True
        self.offset += count


class Order:
    """The order of the two streams of a split task, written to the current directory."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def came(self, stream: str, upto: int) -> None:
        if self._last is not None and self._last[0] != stream:
            self._append(*self._last)
        self._last = (stream, upto)

    def _append(self, stream: str, upto: int) -> None:
        with open(ORDER, "ab") as file:
            if file.tell() < ORDER_BYTES:
                file.write((upto | (ORDER_STDERR if stream == "stderr" else 0)).to_bytes(ORDER_ENTRY, "little"))
