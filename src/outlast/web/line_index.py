"""Where each line of a stream begins: a sparse index that is counted on, so 100 MB are read once.

A split task has both streams as one list of lines, in the order in which their lines were completed.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from itertools import pairwise

from outlast.storage.output import read_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.storage.output import Source

_BLOCK = 1 << 16  # bytes between two places that the index knows
_TIMES_AT_MOST = 10_000  # moments at which lines were seen to come


class StreamIndex:
    """The lines of one stream. A gap where bytes were dropped ends the line before it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._begin(())

    def _begin(self, gaps: tuple[tuple[int, int], ...]) -> None:
        self._gaps, self.dropped = gaps, sum(size for _, size in gaps)
        self._offsets, self._numbers = [0], [0]  # so many lines end before that offset
        self.end = self.lines = 0  # counted so far
        self.open_since = 0  # where the line begins that has no end yet

    def update(self) -> None:
        """Count on to the end of the stream as it is now; begin anew if bytes were dropped that had been counted."""
        if (gaps := self._find_gaps()) != self._gaps:
            self._begin(gaps)
        for piece in self.source.chunks(self.end, self.source.end()):
            if piece.dropped:
                self._note(self.end)
                self.lines += 1 if self.end > self.open_since else 0
                self.open_since = self.end = piece.start
                self._note(piece.start)
            for at in range(0, len(piece.data), _BLOCK):
                self._count(piece.data[at : at + _BLOCK], piece.start + at)
            self.end = piece.next

    def _find_gaps(self) -> tuple[tuple[int, int], ...]:
        kept = [extent for extent in self.source.extents() if extent.size]
        pairs = pairwise(kept)
        return tuple((before.end, behind.start - before.end) for before, behind in pairs if behind.start > before.end)

    def _count(self, data: bytes, start: int) -> None:
        found = data.count(b"\n")
        self.lines += found
        self.end = start + len(data)
        if found:
            self.open_since = start + data.rfind(b"\n") + 1
        if self.end - self._offsets[-1] >= _BLOCK:
            self._note(self.end)

    def _note(self, offset: int) -> None:
        self._offsets.append(offset)
        self._numbers.append(self.lines)

    @property
    def total(self) -> int:
        """How many lines there are, with the one that has no end yet."""
        return self.lines + (1 if self.end > self.open_since else 0)

    def count_until(self, offset: int) -> int:
        """Return how many lines end before an offset that was counted."""
        at = bisect_right(self._offsets, offset) - 1
        chunks = self.source.chunks(self._offsets[at], offset)
        return self._numbers[at] + sum(piece.data.count(b"\n") for piece in chunks)

    def offset_of(self, line: int) -> int:
        """Return where a line begins; lines count from 0."""
        if line <= 0 or line >= self.lines:
            return 0 if line <= 0 else self.open_since if line == self.lines else self.end
        at = bisect_left(self._numbers, line) - 1  # the line begins behind this place, and before the next
        missing = line - self._numbers[at]
        for piece in self.source.chunks(self._offsets[at], self.end):
            if piece.dropped:
                return piece.start
            if (here := piece.data.count(b"\n")) < missing:
                missing -= here
                continue
            position = -1
            for _ in range(missing):
                position = piece.data.index(b"\n", position + 1)
            return piece.start + position + 1
        return self.end


class OutputIndex:
    """The lines of a task: of one stream, or of both in the order they came."""

    def __init__(self, directory: str, sources: Mapping[str, Source]) -> None:
        self._directory = directory
        self.streams = {name: StreamIndex(source) for name, source in sources.items()}
        self._runs: list[tuple[int, str, int, int]] = []  # total before, stream, its first line, how many
        self._totals: list[int] = []
        self._counts: dict[tuple[str, int, int], int] = {}  # as many as the file of the order has entries
        self._times: list[tuple[int, float]] = []  # so many lines were there at that moment

    def update(self) -> int:
        """Count on; return how many lines there are."""
        before = self.total("both") if self._times else 0
        for index in self.streams.values():
            index.update()
        if len(self.streams) > 1:
            self._merge()
        total = self.total("both")
        if not self._times or total != before:
            self._times.append((total, time.time()))
            del self._times[1 : max(1, len(self._times) - _TIMES_AT_MOST)]
        return total

    def _merge(self) -> None:
        ends = {name: index.end for name, index in self.streams.items()}
        self._runs = []
        lines, total = dict.fromkeys(self.streams, 0), 0
        for name, upto in read_order(self._directory, ends):
            index = self.streams[name]
            until = index.lines if upto >= index.end else self._count_once(index, name, upto)
            if until > lines[name]:
                self._runs.append((total, name, lines[name], until - lines[name]))
                total, lines[name] = total + until - lines[name], until
        for name, index in self.streams.items():
            if index.total > index.lines:
                self._runs.append((total, name, index.lines, 1))
                total += 1
        self._totals = [run[0] for run in self._runs]

    def _count_once(self, index: StreamIndex, name: str, offset: int) -> int:
        key = name, offset, index.dropped
        if key not in self._counts:
            self._counts[key] = index.count_until(offset)
        return self._counts[key]

    def total(self, stream: str) -> int:
        if stream in self.streams:
            return self.streams[stream].total
        if len(self.streams) == 1:
            return self.streams["stdout"].total
        return self._runs[-1][0] + self._runs[-1][3] if self._runs else 0

    @property
    def dropped(self) -> int:
        return sum(index.dropped for index in self.streams.values())

    def parts(self, stream: str, first: int, count: int) -> list[tuple[int, str, int, int]]:
        """Return the lines from `first` on as runs within a stream: number, stream, its first line, how many."""
        if stream in self.streams or len(self.streams) == 1:
            name = stream if stream in self.streams else "stdout"
            many = min(count, self.streams[name].total - first)
            return [(first, name, first, many)] if many > 0 else []
        found = []
        for before, name, start, size in self._runs[max(0, bisect_right(self._totals, first) - 1) :]:
            skip = max(0, first - before)
            many = min(size - skip, count)
            if many <= 0:
                break
            found.append((before + skip, name, start + skip, many))
            count -= many
        return found

    def seen_at(self, line: int) -> float | None:
        """Return when a line was seen to come; None if it was there before we looked."""
        at = bisect_right(self._times, line, key=lambda one: one[0])
        return self._times[at][1] if 0 < at < len(self._times) else None
