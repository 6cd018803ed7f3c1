"""Lines that match a regular expression, in linear time whatever the pattern.

Python's `re` can take minutes on 4 KB. RE2 cannot, and for that gives up back-references
and look-around.
"""

from __future__ import annotations

from outlast.errors import BadPattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Regexp(Protocol):
        def search(self, text: bytes) -> object | None: ...


PATTERN_LIMIT = 10_000  # characters; a longer one is not written by hand
PIECE = 1 << 20  # characters of one line that are held for matching
NAMED = 80  # characters of a pattern that an error repeats

# How RE2 names what it leaves out; (?P=name) it reports only as far as (?P.
LOOK_AROUND = ("(?=", "(?!", "(?<=", "(?<!")
BACK_REFERENCES = (*(f"\\{digit}" for digit in range(1, 10)), "\\k", "\\g")


class LineFilter:
    """Lets the lines through that match `filter` and do not match `exclude`.

    A line is matched without its line end. Of a line longer than PIECE only the first
    PIECE characters are matched, and what is decided for them holds for the rest of it.
    No pattern, or an empty one, holds nothing back.
    """

    def __init__(self, filter: str | None, exclude: str | None, ignore_case: bool = False) -> None:
        self.hidden = 0  # lines not let through so far
        self._wanted = _compile(filter, ignore_case) if filter else None
        self._unwanted = _compile(exclude, ignore_case) if exclude else None
        self._held: list[str] = []
        self._held_chars = 0
        self._verdict: bool | None = None  # on the long line that we are inside of

    def feed(self, text: str) -> str:
        """The lines that pass, with their newlines; an unfinished one is held."""
        if self._wanted is None and self._unwanted is None:
            return text
        *lines, unfinished = text.split("\n")
        passed = [self._end_line(line) for line in lines]
        passed.append(self._begin_line(unfinished))
        return "".join(passed)

    def matches(self, line: str) -> bool:
        """Whether a line would pass."""
        return self._passes(line)

    def finish(self) -> str:
        """The last line, if it had no newline and passes."""
        rest = self._end_line("")[:-1] if self._held_chars else ""
        self._verdict = None
        return rest

    def _begin_line(self, text: str) -> str:
        if self._verdict is not None:
            return text if self._verdict else ""
        self._held.append(text)
        self._held_chars += len(text)
        # Not at PIECE: a line of just that length is a whole one, and loses its line end.
        if self._held_chars <= PIECE:
            return ""
        line = self._take_held()
        self._verdict = self._passes(line)
        return line if self._verdict else ""

    def _end_line(self, text: str) -> str:
        if self._verdict is None:
            line = self._take_held() + text
            passes = self._passes(line)
        else:
            line, passes, self._verdict = text, self._verdict, None
        return line + "\n" if passes else ""

    def _take_held(self) -> str:
        line = "".join(self._held)
        self._held.clear()
        self._held_chars = 0
        return line

    def _passes(self, line: str) -> bool:
        piece = line[:PIECE] if len(line) > PIECE else line.removesuffix("\r")
        data = piece.encode("utf-8", "replace")
        passes = (self._wanted is None or self._wanted.search(data) is not None) and (
            self._unwanted is None or self._unwanted.search(data) is None
        )
        self.hidden += not passes
        return passes


def _compile(pattern: str, ignore_case: bool) -> Regexp:
    if len(pattern) > PATTERN_LIMIT:
        raise BadPattern(
            f"The pattern {_quote(pattern)} is too long: "
            f"it has {len(pattern):,} characters, and at most {PATTERN_LIMIT:,} are allowed."
        )
    # Here, not above: the import takes 12 ms, and most reads have no pattern.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # groups are of no use here, and finding them is slower
    options.case_sensitive = not ignore_case
    try:
        regexp: Regexp = re2.compile(pattern, options)
    except re2.error as error:
        raise BadPattern(_complaint(pattern, error.args[0].decode("utf-8", "replace"))) from None
    except UnicodeEncodeError as error:
        where = f"character {error.start + 1} is half of a surrogate pair"
        raise BadPattern(f"The pattern {_quote(pattern)} is not a regular expression: {where}.") from None
    return regexp


def _complaint(pattern: str, reason: str) -> str:
    """One sentence: the pattern, what is wrong with it and, if it can be told, where."""
    what, _, part = reason.partition(": ")
    told = f"{what}: {_shorten(part)}" if part else what
    if part and pattern.count(part) == 1 and not pattern.startswith(part):
        told += f" (at character {pattern.index(part) + 1})"
    if part.startswith(LOOK_AROUND) or part in BACK_REFERENCES or (part == "(?P" and "(?P=" in pattern):
        told += "; back-references and look-around are not supported"
    return f"The pattern {_quote(pattern)} is not a regular expression: {told}."


def _quote(pattern: str) -> str:
    return f"'{_shorten(pattern)}'"


def _shorten(text: str) -> str:
    text = text if len(text) <= NAMED else text[: NAMED - 1] + "…"
    # Escaped only if it must be: in most patterns that would double every backslash.
    return text if text.isprintable() else repr(text)[1:-1]


class LineRange:
    """Lets through the lines from the first to the last, both counted from 1."""

    def __init__(self, lines: tuple[int, int | None]) -> None:
        self._first, self._last = lines
        self._at = 1

    def take(self, text: str) -> str:
        if self._first == 1 and self._last is None:
            return text
        taken = []
        for line in text.splitlines(keepends=True):
            if self._at >= self._first and (self._last is None or self._at <= self._last):
                taken.append(line)
            self._at += line.endswith("\n")
        return "".join(taken)
