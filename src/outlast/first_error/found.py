"""What the readers of formats share: lines, ranks, and how an excerpt is made from lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from outlast.first_error import MAX_CHARS, MAX_LINES, Excerpt
from outlast.frozen import frozen

# How well an excerpt explains a failure.
AFTERMATH = 1  # says that something failed before: make: *** [all] Error 1
WORDS = 2  # a line with a word such as "cannot"
MESSAGE = 3  # a line that has the form of an error message: fatal: not a git repository
CRASH = 4  # an uncaught exception or a panic, with its stack
REPORT = 5  # of a test runner or a compiler: what is wrong, and where

LINE_CHARS = 500  # of a line in an excerpt
GAP = "..."

Line = tuple[int, str]  # its number in the text; its characters without escape sequences and line end


@frozen
class Found:
    """Lines that explain an error."""

    rank: int
    lines: list[Line]
    number: int  # of the line that names the error
    after: int = 0  # how many of the lines that follow belong to it too


# A reader receives the lines after the first one, and None after the last line of the text. It returns
# at the first line that it has no use for, which is then examined like every other line.
Reader = Generator[None, Line | None, Found | None]


@frozen
class Opener:
    """How the first line of an error report looks, and how to read on from there."""

    rank: int  # the highest that its excerpt can have
    needles: tuple[str, ...]  # one of them is in every line that `pattern` matches
    pattern: re.Pattern[str]
    read: Callable[[Line, list[Line]], Reader | Found | None]  # the line, and some lines before it


def make_excerpt(found: Found) -> Excerpt:
    """Lay the lines out within MAX_LINES and MAX_CHARS; the line that names the error stays."""
    lines = sorted({number: text.rstrip() for number, text in found.lines}.items())
    while len(lines) > 1 and not lines[-1][1]:
        lines.pop()
    while True:
        text = _lay_out(lines)
        if len(lines) <= 1 or (len(text) <= MAX_CHARS and text.count("\n") < MAX_LINES):
            return Excerpt(text[:MAX_CHARS], found.number)
        lines.pop(-1 if lines[-1][0] > found.number else 0)


def _lay_out(lines: list[Line]) -> str:
    rows: list[str] = []
    last = lines[0][0]
    for number, text in lines:
        if number > last + 2:  # one line between them is a blank one in most formats
            rows.append(GAP)
        rows.append(text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…")
        last = number
    return "\n".join(rows)
