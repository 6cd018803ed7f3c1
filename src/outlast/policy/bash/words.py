"""Words of a command, their quoting, problems, and a word in the making."""

from __future__ import annotations

import re

from outlast.policy.patterns import UNKNOWN

_BLANK = re.compile(r"\s")
_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x(\{[0-9A-Fa-f]*\}?|[0-9A-Fa-f]{1,2})"
    r"|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(\\\\|.))",
    re.DOTALL,
)
_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_NEEDS_QUOTES = re.compile(r"[\s'\"\\\x00-\x20\x7f-\x9f]|\A\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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
                self.shape = quote_word(self.text)
            else:
                self.shape = f"'{self.text}'" if _BLANK.search(self.text) else self.text
        return self.shape

    @property
    def value(self) -> str | None:
        return None if self.unknown or self.glob else self.text


def with_text(word: Word, text: str) -> Word:
    """The word with another text, as well known as before."""
    changed = Word(text, word.at, word.end)
    changed.unknown, changed.glob, changed.refs, changed.splits = word.unknown, word.glob, word.refs, word.splits
    return changed


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


# --- static text: ANSI-C quoting resolved, words quoted again --------------------------------


def _escape(match: re.Match[str]) -> str:
    letter, octal, byte, short, long, control = match.groups()
    if letter:
        return _LETTERS[letter]
    if control:
        return "\x7f" if control == "?" else chr(ord(control[0].upper()) & 0x1F)
    if octal or byte:
        number = int(octal, 8) & 0xFF if octal else int(byte.strip("{}") or "0", 16) & 0xFF
        # A byte above 127 is a part of a character; as text it is no letter that any name has.
        return chr(number) if number < 128 else chr(0xDC00 + number)
    number = int(short or long, 16)
    return chr(number) if number < 0xD800 or 0xE000 <= number < 0x110000 else "�"


def ansi_c(text: str) -> str:
    """The value of $'text'. A NUL ends it, as in bash."""
    return _ESCAPE.sub(_escape, text).partition("\0")[0]


def quote_word(word: str) -> str:
    """The word as it stands in canonical text: in quotes where it could pass for two, or for none."""
    if not _NEEDS_QUOTES.search(word):
        return word
    if not _CONTROL.search(word):
        return "'" + word.replace("'", "'\\''") + "'"
    inner = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda match: f"\\{ord(match[0]):03o}" if ord(match[0]) < 128 else match[0], inner) + "'"
