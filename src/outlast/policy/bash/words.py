"""Words of a command, problems, and a word in the making."""

from __future__ import annotations

import re

from outlast.policy.bash.quoting import quoted
from outlast.policy.patterns import UNKNOWN

_BLANK = re.compile(r"\s")


def names(text: str) -> frozenset[str]:
    """A set of names, written as one text."""
    return frozenset(text.split())


def table(text: str) -> dict[str, frozenset[str]]:
    """For each name what stands behind its colon: `name name: value value; name: value`, or in lines."""
    entries = [one.partition(":") for one in re.split("[;\n]", text.strip())]
    return {name: names(values) for some, _, values in entries for name in some.split()}


NUMERIC = names("-eq -ne -lt -le -gt -ge")  # between two numbers, in tests and conditions
NUMBER = re.compile(r"[-+]?[0-9]+")
# A variable and what it may be besides its value (`${X:-/}`); "" if only that is known (`$(echo /)`); None: anything.
Ref = tuple[str, tuple[str, ...]] | None


class Unreadable(Exception):
    """The rest of the text cannot be read with certainty."""


class Word:
    """One word. `text` is its value, with `UNKNOWN` for what only a run can tell."""

    unknown = False  # holds a variable or a substitution
    glob = False  # holds a glob, a brace expansion or a tilde
    splits = False  # may become several words, or none
    quoted = False
    refs: tuple[Ref, ...] = ()  # for each `UNKNOWN` in the text what it stands for
    shape = ""  # how it stands in canonical text, once it was asked for

    def __init__(self, text: str, at: int, end: int) -> None:
        self.text = self.source = self.lead = text
        # `source` is how it was written, if that is not its value; `lead` is what it certainly begins with.
        self.at = at
        self.end = end

    @property
    def static(self) -> bool:
        return not (self.unknown or self.glob)

    @property
    def canonical(self) -> str:
        """How it stands in the text that patterns are compared with."""
        if not self.shape:
            if not self.unknown:
                self.shape = quoted(self.text)
            else:
                self.shape = f"'{self.text}'" if _BLANK.search(self.text) else self.text
        return self.shape

    @property
    def value(self) -> str | None:
        return None if self.unknown or self.glob else self.text


class Problem:
    """Something that cannot be analysed. `hides`: a denied program could be behind it; `evaluates`: values are code."""

    def __init__(self, why: str, at: int, depth: int, inside: str, hides: bool, evaluates: bool = False) -> None:
        self.why, self.at, self.depth, self.inside = why, at, depth, inside
        self.hides, self.evaluates = hides, evaluates


class Loop:
    """A name that gets the value of each of these words: of `for NAME in WORDS`, or of `${NAME:=WORD}`."""

    def __init__(self, at: int, depth: int, inside: str, name: str, values: list[Word]) -> None:
        self.at, self.depth, self.inside, self.name, self.values = at, depth, inside, name, values


class Pieces:
    """A word in the making."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.refs: list[Ref] = []
        self.unknown = self.glob = self.splits = self.quoted = False
        self.lead: str | None = None
        self.braces = 0  # how much of a brace expansion was seen: { then , then }

    def add_unknown(self, quoted: bool, ref: Ref = None) -> None:
        self.settle()
        self.parts.append(UNKNOWN)
        self.refs.append(ref)
        self.unknown = True
        self.splits = self.splits or not quoted

    def add_glob(self, text: str) -> None:
        self.settle()
        self.parts.append(text)
        self.glob = self.splits = True

    def settle(self) -> None:
        if self.lead is None:
            self.lead = "".join(self.parts)

    def word(self, at: int, end: int) -> Word:
        word = Word("".join(self.parts), at, end)
        if self.unknown or self.glob or self.splits:
            word.unknown, word.glob, word.splits = self.unknown, self.glob, self.splits
            word.refs = tuple(self.refs)
        if self.quoted:
            word.quoted = True
        if self.lead is not None:
            word.lead = self.lead
        return word
