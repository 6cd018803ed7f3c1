"""Patterns of a policy and the canonical text that they are compared with.

Canonical text is the words of one simple command after quote removal, joined by one blank. What is not known before it
runs stands in it as `UNKNOWN`, which only a `*` can cover. Matching looks for literal pieces from left to right, so its
time does not depend on how clever the pattern is.
"""

from __future__ import annotations

from outlast.light import frozen

UNKNOWN = "\0"  # in no command line: a line with NUL is not checked any further


@frozen
class Pattern:
    """One pattern of a policy, taken apart once."""

    text: str
    pieces: tuple[str, ...]
    bare: str  # what a trailing ` *` matches without it; "" if there is none

    @property
    def exact(self) -> bool:
        return len(self.pieces) == 1


def compile_pattern(pattern: str) -> Pattern:
    """Return a pattern of a rule, split at its stars."""
    text = pattern.strip()
    return Pattern(text, tuple(text.split("*")), text[:-2] if text.endswith(" *") and text.count("*") == 1 else "")


class Index:
    """Patterns by how they begin, so that a text is compared only with those that it can match. Their order is kept."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.patterns = [compile_pattern(text) for text in texts]
        words = [_first_word(pattern) for pattern in self.patterns]
        pairs = list(zip(self.patterns, words, strict=True))
        self._open = [one for one, word in pairs if word is None]
        self._by_word = {
            wanted: [one for one, word in pairs if word in (None, wanted)] for wanted in words if wanted is not None
        }

    def knows(self, word: str) -> bool:
        """Whether any of them can match a text that begins with this word."""
        return bool(self._open) or word in self._by_word

    def matching(self, text: str) -> list[Pattern]:
        """Those that match, in their order."""
        candidates = self._by_word.get(text.partition(" ")[0], self._open)
        return [pattern for pattern in candidates if matches(pattern, text)] if candidates else []

    def could_match(self, text: str) -> bool:
        """Whether a text with unknown parts might turn out to match any of them."""
        return any(could_match(pattern, text) for pattern in self.beginning_as(text))

    def beginning_as(self, text: str) -> list[Pattern]:
        """Those that begin with the same letter, or with any."""
        letter = text[:1]
        if not letter or letter == UNKNOWN:
            return self.patterns
        return [one for one in self.patterns if one.pieces[0][:1] in ("", letter)]


def _first_word(pattern: Pattern) -> str | None:
    """The word that everything begins with that it matches; None if there is no such word."""
    word, blank, _ = pattern.pieces[0].partition(" ")
    return word if blank or pattern.exact else None


def matches(pattern: Pattern, text: str) -> bool:
    """Return whether a pattern matches the canonical text of a command."""
    pieces = pattern.pieces
    if len(pieces) == 1:
        return text == pieces[0]
    if pattern.bare and text == pattern.bare:
        return True
    first, last = pieces[0], pieces[-1]
    if not (text.startswith(first) and text.endswith(last) and len(text) >= len(first) + len(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in pieces[1:-1]:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def could_match(pattern: Pattern, text: str) -> bool:
    """Whether a text with unknown parts might turn out to match. It may say yes too often, never no."""
    known, unknown, _ = text.partition(UNKNOWN)
    if not unknown:
        return matches(pattern, text)
    first = pattern.pieces[0] if not pattern.bare else pattern.bare
    begins = first.startswith(known) or (not pattern.exact and known.startswith(first))
    tail, end = text.rpartition(UNKNOWN)[2], pattern.pieces[-1]
    return begins and (end.endswith(tail) or tail.endswith(end))
