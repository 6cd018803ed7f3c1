"""Find secrets in text: known values, and tokens of the well-known formats.

Matching takes linear time: literals are found by plain searches, and a pattern is matched only behind a literal.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache

from outlast.output.cleaner import INVISIBLE_RANGES
from outlast.output.token_formats import Format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Pattern

    Literals = list[tuple[str, Format]]
    Span = tuple[int, int]
    Candidate = tuple[int, int, Format | int | None]

MASK = "***"
_TAGS = 0xE0000
_BEGUN = r"(?:[\xc2\xcd\xd8]|[\xe1-\xe3\xef][\x80-\xbf]?|[\xf0\xf3][\x80-\xbf]{0,2})\Z"  # a character of UTF-8
_MOST_INVISIBLE = 16  # in a row: so many are looked through, so that what is held back stays bounded


class Encoded(tuple[str, ...]):
    """Values as UTF-8, each byte a character: so they are searched for in bytes."""


def replace_spans(text: str, spans: list[Span], end: int, start: int = 0) -> str:
    """Return the text from `start` to `end` with masks for the secrets in it."""
    if not spans:
        return text[start:end]
    parts: list[str] = []
    for first, last in spans:
        parts += (text[start:first], MASK)
        start = last
    return "".join((*parts, text[start:end]))


class Visible:
    """A text without what a reader does not see: with a soft hyphen in it, a secret can still be read."""

    def __init__(self, text: str, encoded: bool) -> None:
        most = _MOST_INVISIBLE * (4 if encoded else 1)
        self._places = [*_find_visible(text, compile_invisible(encoded), most), len(text)]
        self.text = "".join(text[place] for place in self._places[:-1])

    def get_offset(self, place: int) -> int:
        """Return the offset in here of a place in the whole text."""
        return bisect_left(self._places, place)

    def restore(self, spans: list[Span], sure: int) -> tuple[list[Span], int]:
        """Return what `find_spans` found in here as places in the whole text."""
        places = self._places
        return [(places[start], places[end - 1] + 1) for start, end in spans], places[sure]


def _find_visible(text: str, pattern: Pattern[str], most: int) -> Iterator[int]:
    at = 0
    for found in pattern.finditer(text):
        if len(found[0]) <= most:
            yield from range(at, found.start())
            at = found.end()
    yield from range(at, len(text))


@cache
def compile_invisible(encoded: bool) -> Pattern[str]:
    """Return what matches invisible characters in a row; `encoded`: as UTF-8, also the beginning of one at the end."""
    if not encoded:
        return _compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in INVISIBLE_RANGES) + "]+")
    codes = [code for first, last in INVISIBLE_RANGES if first < _TAGS for code in range(first, last + 1)]
    each = [chr(code).encode().decode("latin-1") for code in codes]
    return _compile(f"(?:{'|'.join(each)}|\xf3\xa0[\x80-\xbf][\x80-\xbf])+(?:{_BEGUN})?|{_BEGUN}")


def find_spans(
    text: str, literals: Literals, values: tuple[str, ...], final: bool, given: int = 0, fence: int = 0
) -> tuple[list[Span], int]:
    """Return the secrets in a text from `given` on, and up to where that is certain. `literals` are those in it.

    No literal reaches back over the `fence`. If not `final`, more text may come.
    """
    spans: list[Span] = []
    best: Span | None = None
    at, stops = given, dict[str, int]()
    for where, begun, what in sorted(_find_candidates(text, literals, values, final, given, fence), key=_get_offset):
        if best is not None and where > at:
            spans.append(best)
            at = fence = best[1]
            best = None
        if where < at or begun < fence:
            continue
        at = where
        found = _match(text, where, what, None if final else stops)
        if found is None:
            return spans, where
        if found and (best is None or found[1] > best[1]):
            best = found
    return [*spans, best] if best is not None else spans, len(text)


def _get_offset(candidate: Candidate) -> int:
    return candidate[0]


def _find_candidates(
    text: str, literals: Literals, values: tuple[str, ...], final: bool, given: int, fence: int
) -> Iterator[Candidate]:
    """Yield where a secret may begin: its offset, that of its literal, and what to match there."""
    for literal, format in literals:
        begun = text.find(literal, max(fence, given - len(literal)))
        while begun >= 0:
            if not format.before or _compile(format.before).match(text, begun):
                yield begun + len(literal), begun, format
            begun = text.find(literal, begun + 1)
    yield from _find_values(text, values, final, given)


def _find_values(text: str, values: tuple[str, ...], final: bool, given: int = 0) -> Iterator[Candidate]:
    """Yield where one of the values is, or (None) may begin."""
    for value in values:
        begun = text.find(value, given)
        while begun >= 0:
            yield begun, begun, len(value)
            begun = text.find(value, begun + 1)
        begun = -1 if final else text.find(value[0], max(given, len(text) - len(value) + 1))
        while begun >= 0:
            if value.startswith(text[begun:]):
                yield begun, begun, None
            begun = text.find(value[0], begun + 1)


def _match(text: str, where: int, what: Format | int | None, stops: dict[str, int] | None) -> Span | tuple[()] | None:
    """Return the secret that begins here, () if there is none, None if that is not known yet.

    Without `stops` no more text comes.
    """
    if what is None:
        return None
    if isinstance(what, int):
        return where, where + what
    end = where + what.longest
    if stops is not None and len(text) < end and _goes_on(text, where, what.goes_on, stops):
        return None
    found = _compile(what.pattern).match(text, where, end)
    return found.span(found.re.groups) if found else ()


def _goes_on(text: str, where: int, pattern: str, stops: dict[str, int]) -> bool:
    """Return whether all from here to the end of the text may be one token. `stops` caches where runs ended."""
    if where <= stops.get(pattern, -1):
        return False
    found = _compile(pattern).match(text, where)
    end = found.end() if found else where
    if end < len(text) and pattern.startswith("["):
        stops[pattern] = end  # a run of one character class ends there wherever it began
    return end == len(text)


_compiled: dict[str, Pattern[str]] = {}


def _compile(pattern: str) -> Pattern[str]:
    found = _compiled.get(pattern)
    if found is None:
        import re  # most texts have no literal

        # ASCII: bytes are searched as one character each, and beyond ASCII none of those means anything.
        found = _compiled[pattern] = re.compile(pattern, re.ASCII)
    return found
