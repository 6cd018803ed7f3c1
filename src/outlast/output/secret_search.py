"""Find secrets in text: known values, and tokens of the well-known formats.

Matching takes linear time: literals are found by plain searches, and a pattern is matched only behind a literal.
"""

from __future__ import annotations

from outlast.output.token_formats import Format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Pattern

    Literals = list[tuple[str, Format]]
    Span = tuple[int, int]
    Candidate = tuple[int, int, Format | int | None]

MASK = "***"


def replace_spans(text: str, spans: list[Span], end: int, start: int = 0) -> str:
    """Return the text from `start` to `end` with masks for the secrets in it."""
    if not spans:
        return text[start:end]
    parts: list[str] = []
    for first, last in spans:
        parts += (text[start:first], MASK)
        start = last
    return "".join((*parts, text[start:end]))


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
