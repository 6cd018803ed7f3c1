"""Secrets in text, replaced before the text is shown: in one piece, or as it comes.

What is masked does not depend on how the text was cut. What may be the beginning of a
secret is held back until it is known: never more than `LONGEST` characters, and nothing
of a text that cannot become one.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache

from outlast.text import INVISIBLE_RANGES
from outlast.tokenformats import LONGEST, LONGEST_LITERAL, Format, compiled, present

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from re import Pattern

    Span = tuple[int, int]
    Candidate = tuple[int, int, Format | int | None]

MASK = "***"
LOOK_BACK = LONGEST // 2  # bytes before a cursor that are looked at, to see whether it stands inside of a secret
_CONTEXT = LONGEST_LITERAL + 16  # characters that were shown and are still looked at: literals, what is before them
_LONGEST_VALUE = 2048  # of one value that is searched for as a whole; a longer one is several
_LEAST_VALUE = 8
_LEAST_LINE = 16  # of a value of several lines
_OF_LINES = b"PRIVATE KEY"  # is in the literal of the one format whose secrets have many lines
_BEFORE_A_LINE = 128  # what another one, with a line end or two inside of it, has at most before the last
_TRIES = 16  # a short look at a text does not look at more literals
_PLAIN_WORD = 16  # a word of letters alone that is shorter is taken for a word
_TAGS = 0xE0000
_BEGUN = r"(?:[\xc2\xcd\xd8]|[\xe1-\xe3\xef][\x80-\xbf]?|[\xf0\xf3][\x80-\xbf]{0,2})\Z"  # a character of UTF-8
_MOST_INVISIBLE = 16  # in a row: so many are looked through, so that what is held back stays bounded


class _Encoded(tuple[str, ...]):
    """Values as UTF-8, each byte a character: so they are looked for in bytes."""


class Mask:
    """What to mask: these values, and everything that looks like a well-known token."""

    def __init__(self, values: Iterable[str] = (), on: bool = True) -> None:
        self.on = on
        self._values = tuple(sorted({part for value in values for part in searched_for(value)}))
        self._as_bytes = _Encoded(value.encode("utf-8", "surrogateescape").decode("latin-1") for value in self._values)

    def text(self, text: str) -> str:
        """A whole text."""
        return _replaced(text, 0, *_spans(text, 0, 0, self._values, True)) if self.on else text

    def stream(self) -> Stream:
        """Text that comes in pieces."""
        return Stream(self._values, self.on)

    def bytes_stream(self) -> BytesStream:
        """Bytes that come in pieces."""
        return BytesStream(self._as_bytes, self.on)

    def is_clear(self, before: bytes, after: bytes, final: bool) -> bool:
        """Whether there is no secret in `after`, none that reaches into it, and (if not `final`) none that may begin.

        Where it says no there may be none all the same. What is said of bytes holds for the text that they are.
        """
        if not self.on:
            return True
        text = (_near(before) + after).decode("latin-1")
        if not text.isascii() and _invisible(True).search(text):
            return False
        # Whatever is in front of a literal: who reads from the cursor on does not see that.
        if (literals := present(text)) and _may_be_token(text, literals, final):
            return False
        return not self._as_bytes or not any(_values(text, 0, self._as_bytes, final))

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a secret."""
        if not self.on:
            return 0
        return len(data) - _spans(data.decode("latin-1"), 0, 0, self._as_bytes, False)[1]

    def inside(self, before: bytes, after: bytes) -> int:
        """How many bytes of `after` belong to a secret that began, or whose literal began, before it."""
        if not self.on or not before:
            return 0
        before = _near(before)
        cut = border = len(before)
        spans, _ = _spans((before + after).decode("latin-1"), 0, 0, self._as_bytes, True)
        for start, end in spans:
            if end <= cut:
                continue
            rest, _ = _spans(after[cut - border :].decode("latin-1"), 0, 0, self._as_bytes, True)
            if start >= cut and (start - cut, end - cut) in rest:
                break  # who reads from here sees this secret too, and all after it
            cut = end
        return cut - border


OFF = Mask(on=False)


def _near(before: bytes) -> bytes:
    """Where a secret that reaches over the end of this can begin: only the block of a key has several lines."""
    if _OF_LINES in before:
        return before
    return before[max(0, before.rfind(b"\n") - _BEFORE_A_LINE) :]


def searched_for(value: str) -> Iterator[str]:
    """The parts of a secret value that are looked for; none of one that is too short, or a plain word."""
    lines = value.splitlines()
    least = _LEAST_VALUE if len(lines) == 1 else _LEAST_LINE
    for line in map(str.strip, lines):
        if len(line) < least or (line.isalpha() and len(line) < _PLAIN_WORD) or is_place(line):
            continue
        for start in range(0, len(line), _LONGEST_VALUE):
            if len(part := line[start : start + _LONGEST_VALUE]) >= _LEAST_VALUE:
                yield part


def is_place(value: str) -> bool:
    """Whether it says where something is, not what: a path, a web address without a password."""
    return value.startswith(("/", "~/", "./", "../")) or (
        value.startswith(("http://", "https://")) and "@" not in value
    )


class Stream:
    """Text in, masked text out."""

    def __init__(self, values: tuple[str, ...], on: bool) -> None:
        self._values, self._on = values, on
        self._text = ""  # the end of what was shown, and what is held back
        self._shown = 0  # how much of it was shown
        self._fence = 0  # where the last secret ended: no literal reaches back into it

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._text) - self._shown

    def feed(self, text: str) -> str:
        """What is certain now."""
        return self._take(text, False) if self._on else text

    def finish(self) -> str:
        """The rest, when no more will come; what comes nevertheless begins anew."""
        rest = self._take("", True)
        self._text, self._shown, self._fence = "", 0, 0
        return rest

    def _take(self, text: str, final: bool) -> str:
        self._text += text
        spans, sure = _spans(self._text, self._shown, self._fence, self._values, final)
        said = _replaced(self._text, self._shown, spans, sure)
        kept = max(0, sure - _CONTEXT)
        self._fence = max(0, (spans[-1][1] if spans else self._fence) - kept)
        self._text, self._shown = self._text[kept:], sure - kept
        return said


class BytesStream:
    """Bytes in, masked bytes out."""

    def __init__(self, values: tuple[str, ...], on: bool) -> None:
        self._stream = Stream(values, on)
        self._on = on

    @property
    def held(self) -> int:
        """How many bytes are held back."""
        return self._stream.held

    def feed(self, data: bytes) -> bytes:
        """What is certain now."""
        return self._stream.feed(data.decode("latin-1")).encode("latin-1") if self._on else data

    def finish(self) -> bytes:
        """The rest."""
        return self._stream.finish().encode("latin-1")


def _replaced(text: str, start: int, spans: list[Span], end: int) -> str:
    if not spans:
        return text[start:end]
    parts: list[str] = []
    for first, last in spans:
        parts += (text[start:first], MASK)
        start = last
    return "".join((*parts, text[start:end]))


def _spans(text: str, shown: int, fence: int, values: tuple[str, ...], final: bool) -> tuple[list[Span], int]:
    """What is secret in a text from `shown` on, and up to where that is certain."""
    if text.isascii() or not (pattern := _invisible(isinstance(values, _Encoded))).search(text):
        return _visible_spans(text, shown, fence, values, final)
    # A reader who does not see a soft hyphen in a secret still sees the secret.
    most = _MOST_INVISIBLE * (4 if isinstance(values, _Encoded) else 1)
    places = [*_visible_places(text, pattern, most), len(text)]
    plain = "".join(text[place] for place in places[:-1])
    spans, sure = _visible_spans(plain, bisect_left(places, shown), bisect_left(places, fence), values, final)
    return [(places[start], places[end - 1] + 1) for start, end in spans], places[sure]


def _visible_places(text: str, pattern: Pattern[str], most: int) -> Iterator[int]:
    """Where the characters of a text are that a reader sees."""
    at = 0
    for found in pattern.finditer(text):
        if len(found[0]) <= most:
            yield from range(at, found.start())
            at = found.end()
    yield from range(at, len(text))


@cache
def _invisible(encoded: bool) -> Pattern[str]:
    """What matches invisible characters in a row; `encoded`: as UTF-8, also the beginning of one at the end."""
    if not encoded:
        return compiled("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in INVISIBLE_RANGES) + "]+")
    codes = [code for first, last in INVISIBLE_RANGES if first < _TAGS for code in range(first, last + 1)]
    each = [chr(code).encode().decode("latin-1") for code in codes]
    return compiled(f"(?:{'|'.join(each)}|\xf3\xa0[\x80-\xbf][\x80-\xbf])+(?:{_BEGUN})?|{_BEGUN}")


def _visible_spans(text: str, shown: int, fence: int, values: tuple[str, ...], final: bool) -> tuple[list[Span], int]:
    spans: list[Span] = []
    best: Span | None = None
    at, stops = shown, dict[str, int]()
    for where, begun, what in sorted(_candidates(text, shown, fence, values, final), key=_order):
        if best is not None and where > at:
            spans.append(best)
            at = fence = best[1]
            best = None
        if where < at or begun < fence:
            continue
        at = where
        found = _look(text, where, what, None if final else stops)
        if found is None:
            return spans, where
        if found and (best is None or found[1] > best[1]):
            best = found
    return [*spans, best] if best is not None else spans, len(text)


def _order(candidate: Candidate) -> int:
    return candidate[0]


def _candidates(text: str, shown: int, fence: int, values: tuple[str, ...], final: bool) -> Iterator[Candidate]:
    """Where a secret may begin: the place, where its literal begins, and what to look with."""
    for literal, format in present(text):
        begun = text.find(literal, max(fence, shown - len(literal)))
        while begun >= 0:
            if not format.before or compiled(format.before).match(text, begun):
                yield begun + len(literal), begun, format
            begun = text.find(literal, begun + 1)
    yield from _values(text, shown, values, final)


def _values(text: str, shown: int, values: tuple[str, ...], final: bool) -> Iterator[Candidate]:
    """Where one of the values is, or (None) may begin."""
    for value in values:
        begun = text.find(value, shown)
        while begun >= 0:
            yield begun, begun, len(value)
            begun = text.find(value, begun + 1)
        begun = -1 if final else text.find(value[0], max(shown, len(text) - len(value) + 1))
        while begun >= 0:
            if value.startswith(text[begun:]):
                yield begun, begun, None
            begun = text.find(value[0], begun + 1)


def _may_be_token(text: str, literals: list[tuple[str, Format]], final: bool) -> bool:
    """Whether a token is anywhere in a text, or may begin there; also if that takes long to find out."""
    tries, stops = 0, dict[str, int]()
    for literal, format in literals:
        begun = text.find(literal)
        while begun >= 0:
            tries += 1
            if tries > _TRIES or _look(text, begun + len(literal), format, None if final else stops) != ():
                return True
            begun = text.find(literal, begun + 1)
    return False


def _look(text: str, where: int, what: Format | int | None, stops: dict[str, int] | None) -> Span | tuple[()] | None:
    """The secret that begins here; nothing if there is none; None if that is not known yet.

    Without `stops` no more text will come.
    """
    if what is None:
        return None
    if isinstance(what, int):
        return where, where + what
    end = where + what.longest
    if stops is not None and len(text) < end and _goes_on(text, where, what.goes_on, stops):
        return None
    found = compiled(what.pattern).match(text, where, end)
    return found.span(found.re.groups) if found else ()


def _goes_on(text: str, where: int, pattern: str, stops: dict[str, int]) -> bool:
    """Whether all from here to the end of the text may be one token. `stops` has what was found out before."""
    if where <= stops.get(pattern, -1):
        return False
    found = compiled(pattern).match(text, where)
    end = found.end() if found else where
    if end < len(text) and pattern.startswith("["):
        stops[pattern] = end  # a run of letters ends there from wherever one looks
    return end == len(text)
