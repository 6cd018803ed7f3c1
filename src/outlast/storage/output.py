"""A task's output on disk: bounded exactly, readable at any cursor, also while it grows.

The first half of the bound is the file `output` (`stderr` for the other stream of a split task). Past it the guard
writes the newest bytes to segments named by the offset at which they start, `output.00000000000104857600`, and removes
the oldest segment when it needs a new one. So cursors and gaps follow from file names and sizes alone.

In a split task the file `order` says in which order the two streams came: each entry is where one stream stopped
because the other one went on.
"""

from __future__ import annotations

import os

from outlast.light import frozen
from outlast.linux.files import open_regular
from outlast.storage import record
from outlast.types import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILES = {"stdout": "output", "stderr": "stderr"}
SEGMENTS = 8  # the tail that is kept is between 7 and 8 eighths of its half
NOTE_BYTES = 100  # the line for people where the head ends; it counts like everything else
ORDER = "order"
ORDER_BYTES = 32 * 1024  # the guard writes no more entries than fit
ORDER_ENTRY = 8
ORDER_STDERR = 1 << 63  # in an entry: it is about stderr
_READ_BYTES = 256 * 1024


@frozen
class Bound:
    """How the bytes of one stream are laid out."""

    head: int
    segment: int


def bound_of(limit: int, split: bool) -> Bound:
    """Return the layout that keeps one stream within its share of `limit` bytes."""
    share = limit // 2 if split else limit
    tail = share // 2
    return Bound(head=share - tail, segment=max(1, (tail - NOTE_BYTES) // SEGMENTS))


@frozen
class Extent:
    """A run of kept bytes: where it starts in the stream, how long it is, in which file."""

    start: int
    size: int
    path: str

    @property
    def end(self) -> int:
        return self.start + self.size


def list_extents(directory: str, stream: str, head: int) -> list[Extent]:
    """Return what is kept of a stream, in order. Gaps between two extents were dropped."""
    found = []
    for name in os.listdir(directory):
        base, dot, number = name.partition(".")
        if base != FILES[stream] or (dot and not number.isdecimal()):
            continue
        try:
            size = os.lstat(path := f"{directory}/{name}").st_size
        except FileNotFoundError:
            continue  # the guard removed it since the directory was read
        # At the bound the guard adds a line for people to the head, which is not output.
        found.append(Extent(int(number), size, path) if dot else Extent(0, min(size, head), path))
    return sorted(found, key=lambda extent: extent.start)


class Source:
    """Reads one stream of a task at any cursor, also while the guard removes segments."""

    def __init__(self, directory: str, stream: str, bound: Bound) -> None:
        self._directory, self._stream, self._bound = directory, stream, bound

    def extents(self) -> list[Extent]:
        return self._extents(self._dropped_until())

    def _dropped_until(self) -> int:
        """Return where the stream stood when bytes were last dropped for want of space."""
        return int(record.read(self._directory, ("position",)).get("position", {}).get(self._stream, 0))

    def _extents(self, dropped_until: int) -> list[Extent]:
        if not dropped_until:
            # Most outputs are one file: while it is not full and nothing was dropped, there is no other.
            path = os.path.join(self._directory, FILES[self._stream])
            try:
                size = os.stat(path, follow_symlinks=False).st_size
            except FileNotFoundError:
                return []
            if size < self._bound.head:
                return [Extent(0, size, path)]
        return list_extents(self._directory, self._stream, self._bound.head)

    def end(self) -> int:
        """Return the offset of the end of the stream."""
        dropped_until = self._dropped_until()
        kept = self._extents(dropped_until)
        return max(kept[-1].end if kept else 0, dropped_until)

    def missing(self, start: int, end: int) -> int:
        """Return how many bytes between two offsets are not kept."""
        kept = (min(extent.end, end) - max(extent.start, start) for extent in self.extents())
        return end - start - sum(size for size in kept if size > 0)

    def changed_at(self) -> float | None:
        """Return when something was last printed; None if nothing was."""
        kept = [extent for extent in self.extents() if extent.size]
        try:
            return os.stat(kept[-1].path).st_mtime if kept else None
        except FileNotFoundError:
            return self.changed_at()  # the guard removed it: there is a newer one

    def read_short_rest(self, cursor: int, before: int, most: int) -> tuple[bytes, bytes] | None:
        """Return up to `before` bytes before `cursor` and all that follows it, with one read.

        None if more than `most` bytes follow, if some of them are missing, or if they are in several files.
        """
        dropped_until = self._dropped_until()
        kept = self._extents(dropped_until)
        if dropped_until or not kept:
            return None
        last = kept[-1]
        first = max(0, cursor - before)
        if not last.start <= first <= cursor <= last.end <= cursor + most:
            return None
        try:
            # Also if there is nothing to read: this shows whether the task was removed.
            data = _read_at(last.path, first - last.start, last.end - first)
        except FileNotFoundError:
            return None
        return (data[: cursor - first], data[cursor - first :]) if len(data) == last.end - first else None

    def read(self, cursor: int, most: int = _READ_BYTES) -> Slice:
        """Return the next bytes from `cursor` on, skipping what was dropped; empty at the end."""
        gap_end = cursor
        while True:
            extent = next((e for e in self.extents() if e.size and e.end > cursor), None)
            if extent is None:
                # Nothing is kept from here on. If bytes were dropped, look again: bytes that were kept before
                # them may have come between the two looks.
                if gap_end == cursor and (gap_end := max(cursor, self._dropped_until())) > cursor:
                    continue
                return Slice(self._stream, gap_end, b"", gap_end - cursor, gap_end)
            start = max(cursor, extent.start)
            try:
                data = _read_at(extent.path, start - extent.start, min(most, extent.end - start))
            except FileNotFoundError:
                continue  # the guard removed the segment before we opened it: look again
            return Slice(self._stream, start, data, start - cursor, start + len(data))

    def chunks(self, cursor: int = 0, until: int | None = None) -> Iterator[Slice]:
        """Yield all slices from `cursor` to the end of the stream, or to `until`."""
        while until is None or cursor < until:
            piece = self.read(cursor, _READ_BYTES if until is None else min(_READ_BYTES, until - cursor))
            if piece.next == cursor:
                return
            if until is not None and piece.start >= until:
                yield Slice(self._stream, until, b"", until - cursor, until)
                return
            yield piece
            cursor = piece.next

    def tail(self, lines: int, end: int | None = None) -> int:
        """Return the cursor from which the last `lines` lines (of those before `end`) can be read."""
        end = self.end() if end is None else end
        offset, is_last = end, True
        for extent in reversed(self.extents() if lines > 0 else []):
            upto = min(extent.end, end)
            while upto > extent.start:
                start = max(extent.start, upto - _READ_BYTES)
                piece = self.read(start, upto - start)
                if piece.start != start:
                    return offset  # the guard removed the segment, and all before it
                data = piece.data
                if is_last and data.endswith(b"\n"):
                    data = data[:-1]  # it ends the last line and does not start another
                is_last = False
                count = data.count(b"\n")
                if count >= lines:
                    return start + len(data.rsplit(b"\n", lines)[0]) + 1
                lines -= count
                offset = upto = start
        return offset


def _read_at(path: str, offset: int, size: int) -> bytes:
    fd = open_regular(path)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def read_order(directory: str, ends: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the streams in turn, each up to its offset at that moment, until both are at their `ends`."""
    try:
        with open(open_regular(os.path.join(directory, ORDER)), "rb") as file:
            data = file.read(ORDER_BYTES)
    except OSError:
        data = b""  # without the file, or past its bound, the streams follow one another
    found = []
    for at in range(0, len(data) - ORDER_ENTRY + 1, ORDER_ENTRY):
        entry = int.from_bytes(data[at : at + ORDER_ENTRY], "little")
        stream = "stderr" if entry & ORDER_STDERR else "stdout"
        found.append((stream, min(entry & ~ORDER_STDERR, ends[stream])))
    last = found[-1][0] if found else "stderr"
    # The last entry is there because the other stream went on after it.
    other = "stdout" if last == "stderr" else "stderr"
    return [*found, (other, ends[other]), (last, ends[last])]


def count_lines(directory: str, limit: int, split: bool, known: dict[str, list[int]]) -> dict[str, list[int]]:
    """Count the lines in each output file, as [bytes counted, lines], going on from what is `known`."""
    counted = {}
    bound = bound_of(limit, split)
    for stream in FILES:
        for extent in list_extents(directory, stream, bound.head):
            file = os.path.basename(extent.path)
            upto, lines = known.get(file, (0, 0))
            counted[file] = [extent.size, lines + _count_newlines(extent.path, upto, extent.size)]
    return counted


def sum_lines(counted: dict[str, list[int]], stream: str) -> int:
    """Return how many lines of a stream `count_lines` counted."""
    return sum(lines for file, (_, lines) in counted.items() if file.partition(".")[0] == FILES[stream])


def _count_newlines(path: str, start: int, end: int) -> int:
    offsets = range(start, end, _READ_BYTES)
    try:
        return sum(_read_at(path, offset, min(_READ_BYTES, end - offset)).count(b"\n") for offset in offsets)
    except FileNotFoundError:
        return 0  # the guard removed the segment
