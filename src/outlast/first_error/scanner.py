"""Search blocks of lines for openers, and hand the lines after an opener to its reader."""

from __future__ import annotations

import re

from outlast.first_error import LONGEST_LINE, Excerpt
from outlast.first_error.compilers import COMPILERS
from outlast.first_error.crashes import CRASHES
from outlast.first_error.found import REPORT, Found, Line, Opener, Reader, make_excerpt
from outlast.first_error.messages import MESSAGES
from outlast.first_error.runners import RUNNERS

OPENERS = (*RUNNERS, *COMPILERS, *CRASHES, *MESSAGES)  # the first that matches a line reads it
LINES_BEFORE = 12  # that an opener can look back at

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


class Scanner:
    """Sees the text as blocks of complete lines.

    Most text contains none of the needles. `str.find` passes it at 2 GB/s for each needle; a regular
    expression for all of them reaches 45 MB/s.
    """

    def __init__(self) -> None:
        self.done = False
        self._best: Found | None = None
        self._number = 1  # of the first line of the block
        self._before: list[str] = []  # the last lines before the block
        self._reader: Reader | None = None
        self._reader_rank = 0
        self._owed = 0  # lines that still have to be appended to `_best`
        self._openers: tuple[Opener, ...] = OPENERS
        self._needles = _needles_of(OPENERS)

    def scan(self, block: str) -> None:
        """Search lines; only the last block may end without a newline."""
        start, number = 0, self._number
        self._pay(block, 0, number)
        if self._reader:
            start, number = self._read_on(block, 0, number)
        upcoming: dict[str, int] = {}
        while not self.done and start < len(block):
            hit = self._find_needle(block, start, upcoming)
            if hit < 0:
                break
            line_start = max(start, block.rfind("\n", start, hit) + 1)
            number += block.count("\n", start, line_start)
            line = (number, _line_at(block, line_start))
            opened = self._open(line, block, line_start)
            start, number = _next_start(block, line_start), number + 1
            if opened:
                start, number = self._read_on(block, start, number)
        self._number += block.count("\n")
        self._before = [*self._before, *_last_lines(block, len(block))][-LINES_BEFORE:]

    def finish(self) -> Excerpt | None:
        """Return the best excerpt of all that was scanned."""
        if self._reader and not self.done:
            self._send(None)
        return make_excerpt(self._best) if self._best else None

    def _find_needle(self, block: str, start: int, upcoming: dict[str, int]) -> int:
        """The first position at or after `start` where a needle is within the first characters of a line."""
        while True:
            nearest, width = -1, 0
            for needle in self._needles:
                at = upcoming.get(needle, -2)
                if -1 != at < start:
                    at = upcoming[needle] = block.find(needle, start)
                if at >= 0 and (nearest < 0 or at < nearest):
                    nearest, width = at, len(needle)
            if nearest < 0:
                return -1
            line_start = max(start, block.rfind("\n", start, nearest) + 1)
            if nearest + width - line_start <= LONGEST_LINE:
                return nearest
            start = _next_start(block, nearest)

    def _open(self, line: Line, block: str, line_start: int) -> bool:
        """Find the opener of a line; whether a reader has to be given the lines after it."""
        text = line[1]
        for opener in self._openers:
            if opener.rank <= self._reader_rank or not any(needle in text for needle in opener.needles):
                continue
            if not opener.pattern.search(text):
                continue
            opened = opener.read(line, self._lines_before(block, line_start, line[0]))
            if opened is None:
                continue
            if isinstance(opened, Found):
                self._keep(opened, block, _next_start(block, line_start), line[0] + 1)
                return False
            self._close_reader()
            self._reader, self._reader_rank = opened, opener.rank
            next(opened)
            return True
        return False

    def _read_on(self, block: str, start: int, number: int) -> tuple[int, int]:
        """Give lines to the reader until it returns; then the start and number of the line it stopped at."""
        while start < len(block) and self._reader:
            line = (number, _line_at(block, start))
            # A report interrupts what is of a lower rank, so that a reader cannot hide it.
            if self._reader_rank < REPORT and self._open(line, block, start):
                pass
            elif self._send(line, block, start):
                break
            start, number = _next_start(block, start), number + 1
        return start, number

    def _send(self, line: Line | None, block: str = "", start: int = 0) -> bool:
        """Whether the reader returned; `start` is where the line is."""
        assert self._reader
        try:
            self._reader.send(line)
        except StopIteration as returned:
            self._reader, self._reader_rank = None, 0
            if returned.value is not None:
                self._keep(returned.value, block, start, line[0] if line else 0)
            return True
        return False

    def _close_reader(self) -> None:
        if self._reader:
            self._send(None)
            self._owed = 0

    def _keep(self, found: Found, block: str, start: int, number: int) -> None:
        """Keep it if it is better than what we have; line `number`, the first after it, begins at `start`."""
        if self._best and found.rank <= self._best.rank:
            return
        self._best = found
        self._owed = found.after
        self._openers = tuple(opener for opener in OPENERS if opener.rank > found.rank)
        self._needles = _needles_of(self._openers)
        self._pay(block, start, number)
        self.done = found.rank == REPORT

    def _pay(self, block: str, start: int, number: int) -> None:
        while self._owed and self._best and start < len(block):
            self._best.lines.append((number, _line_at(block, start)))
            self._owed -= 1
            start, number = _next_start(block, start), number + 1

    def _lines_before(self, block: str, start: int, number: int) -> list[Line]:
        lines = [*self._before, *_last_lines(block, start)][-LINES_BEFORE:]
        return [(number - len(lines) + index, line) for index, line in enumerate(lines)]


def _needles_of(openers: tuple[Opener, ...]) -> tuple[str, ...]:
    needles = {needle for opener in openers for needle in opener.needles}
    # One that contains another one finds nothing that the shorter one does not.
    return tuple(sorted(one for one in needles if not any(other != one and other in one for other in needles)))


def _next_start(block: str, start: int) -> int:
    end = block.find("\n", start)
    return len(block) if end < 0 else end + 1


def _line_at(block: str, start: int) -> str:
    end = block.find("\n", start, start + LONGEST_LINE)
    line = block[start : start + LONGEST_LINE if end < 0 else end]
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    # What a progress bar wrote before the last carriage return is no longer on the screen.
    return line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line


def _last_lines(block: str, end: int) -> list[str]:
    """The last LINES_BEFORE lines that end at or before `end`, which is the start of a line."""
    lines: list[str] = []
    while end > 0 and len(lines) < LINES_BEFORE:
        start = block.rfind("\n", 0, end - 1) + 1
        lines.append(_line_at(block, start))
        end = start
    return lines[::-1]
