"""A task's output on disk: bounded exactly, readable at any cursor, also while it grows.

The first half of the bound is the file `output` (`stderr` for the other stream of a
split task). Past it the newest bytes roll through segments named by where they start,
`output.00000000000104857600`; the oldest segment goes when a new one is needed. So
cursors, what was dropped and where to go on all follow from names and sizes alone, and
a new supervisor needs nobody to tell it.
"""

from __future__ import annotations

import os

from outlast.frozen import frozen
from outlast.linux.files import open_regular
from outlast.storage import record
from outlast.types import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {"stdout": "output", "stderr": "stderr"}
SEGMENTS = 8  # the tail that is kept is between 7 and 8 eighths of its half
NOTE_BYTES = 100  # the line for people where the head ends; it counts like everything else
_READ_BYTES = 256 * 1024


@frozen
class Bound:
    """How the bytes of one stream are laid out."""

    head: int
    segment: int


def bound_of(limit: int, split: bool) -> Bound:
    """The layout that keeps one stream within its share of `limit` bytes."""
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


def extents(directory: str, stream: str, head: int) -> list[Extent]:
    """What is kept of a stream, in order. Gaps between two runs were dropped."""
    base = FILES[stream]
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == base:
                start = 0
            elif entry.name.startswith(base + ".") and entry.name[len(base) + 1 :].isdecimal():
                start = int(entry.name[len(base) + 1 :])
            else:
                continue
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue  # rolled away since the directory was read
            # Past its bound the head ends with a line for people (see Sink); that is not output.
            found.append(Extent(start, min(size, head) if start == 0 else size, entry.path))
    return sorted(found, key=lambda extent: extent.start)


class Sink:
    """Where the supervisor's next byte goes."""

    def __init__(self, stream: str, bound: Bound, reached: int | None = 0) -> None:
        """`reached`: how far the stream had come, if the last bytes were dropped and left no trace.

        None: nothing was ever printed, so there is nothing to look for.
        """
        self._stream, self._bound = stream, bound
        if reached is None:
            self._segments: list[str] = []
            self.offset, self._gap = 0, False
            self._open(FILES[stream], 0)
            return
        kept = extents(".", stream, bound.head)
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
        """How many bytes fit into the current file; moves on to a new one when it is full."""
        left = self._size - (self.offset - self.start)
        if left > 0 and not self._gap:
            return left
        if self.start == 0 and not self._gap:
            self._tell_of_the_bound()
        while len(self._segments) >= SEGMENTS:
            os.unlink(self._segments.pop(0))
        path = f"{FILES[self._stream]}.{self.offset:020d}"
        old = self.fd
        self._open(path, self.offset)
        os.close(old)
        self._segments.append(path)
        self._gap = False
        return self._size

    def rebound(self, bound: Bound) -> None:
        """Another layout, for a stream of which nothing is kept yet."""
        self._bound, self._size = bound, bound.head

    def wrote(self, count: int) -> None:
        self.offset += count

    def dropped(self, count: int) -> None:
        """The next `count` bytes of the stream were not kept; what comes later starts a segment of its own."""
        self._gap = True
        self.offset += count

    def _tell_of_the_bound(self) -> None:
        base = FILES[self._stream]
        line = f"\n[outlast: the bound is reached; newer output is in {base}.NUMBER, where NUMBER is its first byte"
        try:
            os.pwrite(self.fd, line.ljust(NOTE_BYTES - 2).encode() + b"]\n", self._bound.head)
        except OSError:
            pass  # for people who read the file as it is; not worth losing anything for


class Source:
    """Reads one stream of a task, at any cursor, whatever rolls away meanwhile."""

    def __init__(self, directory: str, stream: str, bound: Bound) -> None:
        self._directory, self._stream, self._bound = directory, stream, bound
        self._closed = False
        self._known: tuple[int, list[Extent]] | None = None

    def close(self) -> None:
        """No more will be printed: what there is need not be looked for again."""
        self._closed = True

    def extents(self) -> list[Extent]:
        return self._kept()[1]

    def _kept(self) -> tuple[int, list[Extent]]:
        """Up to where bytes were dropped, and what is kept."""
        known = self._known  # another thread may forget it
        if known is not None:
            return known
        dropped_up_to = self._dropped_up_to()
        found = (dropped_up_to, self._extents(dropped_up_to))
        if self._closed:
            self._known = found
        return found

    def _extents(self, dropped_up_to: int) -> list[Extent]:
        if not dropped_up_to:
            # Most outputs are one file: as long as it is not full and nothing was dropped, there is no other.
            path = os.path.join(self._directory, FILES[self._stream])
            try:
                size = os.stat(path, follow_symlinks=False).st_size
            except FileNotFoundError:
                return []
            if size < self._bound.head:
                return [Extent(0, size, path)]
        return extents(self._directory, self._stream, self._bound.head)

    def look_again(self) -> None:
        """Forget what was found before."""
        self._known = None

    def around(self, cursor: int, before: int, most: int) -> tuple[bytes, bytes] | None:
        """So many bytes before `cursor`, and all that follows it, in one look.

        None if more than `most` follow, if not all of it is there, or if it is in several files.
        """
        dropped_up_to, kept = self._kept()
        if dropped_up_to or not kept:
            return None
        last = kept[-1]
        first, end = max(0, cursor - before), last.start + last.size
        if not last.start <= first <= cursor <= end <= cursor + most:
            return None
        try:
            # Also if there is nothing to read: so a task that was removed does not go unnoticed.
            fd = open_regular(last.path)
        except FileNotFoundError:
            return None
        try:
            data = os.pread(fd, end - first, first - last.start)
        finally:
            os.close(fd)
        return (data[: cursor - first], data[cursor - first :]) if len(data) == end - first else None

    def end(self) -> int:
        """Where the stream stands now."""
        dropped_up_to, kept = self._kept()
        return max(kept[-1].end if kept else 0, dropped_up_to)

    def missing(self, start: int, end: int) -> int:
        """How many bytes between two places are not kept."""
        kept = (min(extent.end, end) - max(extent.start, start) for extent in self.extents())
        return end - start - sum(size for size in kept if size > 0)

    def changed_at(self) -> float | None:
        """When something was last printed; None if nothing was."""
        kept = [extent for extent in self.extents() if extent.size]
        try:
            return os.stat(kept[-1].path).st_mtime if kept else None
        except FileNotFoundError:
            return self.changed_at()  # rolled away: there is a newer one

    def _dropped_up_to(self) -> int:
        """Where the stream stood when bytes were last dropped for want of space."""
        return int(record.read(self._directory, ("position",)).get("position", {}).get(self._stream, 0))

    def read(self, cursor: int, most: int = _READ_BYTES) -> Slice:
        """The next bytes from `cursor` on, skipping what was dropped; empty at the end."""
        gone = cursor
        while True:
            extent = next((e for e in self.extents() if e.size and e.end > cursor), None)
            if extent is None:
                # Nothing is kept from here on. If bytes were dropped, look again: those
                # that were kept before them may have come between our two looks.
                if gone == cursor and (gone := max(cursor, self._dropped_up_to())) > cursor:
                    continue
                return Slice(self._stream, gone, b"", gone - cursor, gone)
            start = max(cursor, extent.start)
            try:
                fd = open_regular(extent.path)
            except FileNotFoundError:
                self._known = None
                continue  # rolled away between the look and the open: look again
            try:
                data = os.pread(fd, min(most, extent.end - start), start - extent.start)
            finally:
                os.close(fd)
            return Slice(self._stream, start, data, start - cursor, start + len(data))

    def chunks(self, cursor: int = 0, until: int | None = None) -> Iterator[Slice]:
        """All slices from `cursor` to where the stream stands when it is reached, or to `until`."""
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
        """The cursor from which the last `lines` lines (of those before `end`) can be read."""
        end = self.end() if end is None else end
        place, newest = end, True
        for extent in reversed(self.extents() if lines > 0 else []):
            upto = min(extent.end, end)
            while upto > extent.start:
                start = max(extent.start, upto - _READ_BYTES)
                piece = self.read(start, upto - start)
                if piece.start != start:
                    return place  # rolled away: what came before it is not there any more
                data = piece.data
                if newest and data.endswith(b"\n"):
                    data = data[:-1]  # it ends the last line and does not start another
                newest = False
                count = data.count(b"\n")
                if count >= lines:
                    return start + _newline_from_end(data, lines) + 1
                lines -= count
                place = upto = start
        return place


def _newline_from_end(data: bytes, n: int) -> int:
    """Where the n-th newline from the end is."""
    place = len(data)
    for _ in range(n):
        place = data.rindex(b"\n", 0, place)
    return place


def stream_of(file: str) -> str:
    """The stream whose bytes a file holds."""
    return "stderr" if file.partition(".")[0] == FILES["stderr"] else "stdout"


def count_lines(
    directory: str, limit: int, split: bool, known: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """The lines in each output file, as (bytes counted, lines), going on from what is `known`."""
    counted = {}
    bound = bound_of(limit, split)
    for stream in FILES:
        for extent in extents(directory, stream, bound.head):
            file = os.path.basename(extent.path)
            upto, lines = known.get(file, (0, 0))
            counted[file] = (extent.size, lines + _newlines(extent.path, upto, extent.size))
    return counted


def _newlines(path: str, start: int, end: int) -> int:
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return 0  # rolled away; the next count does without it
    try:
        places = range(start, end, _READ_BYTES)
        return sum(os.pread(fd, min(_READ_BYTES, end - place), place).count(b"\n") for place in places)
    finally:
        os.close(fd)
