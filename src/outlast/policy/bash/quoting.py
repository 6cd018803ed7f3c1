"""Static text of bash words: ANSI-C quoting resolved, words quoted again."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x(\{[0-9A-Fa-f]*\}?|[0-9A-Fa-f]{1,2})"
    r"|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(\\\\|.))",
    re.DOTALL,
)
_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_NEEDS_QUOTES = re.compile(r"[\s'\"\\\x00-\x20\x7f-\x9f]|\A\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _escaped(match: re.Match[str]) -> str:
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
    return _ESCAPE.sub(_escaped, text).partition("\0")[0]


def quoted(word: str) -> str:
    """The word as it stands in canonical text: in quotes where it could pass for two, or for none."""
    if not _NEEDS_QUOTES.search(word):
        return word
    if not _CONTROL.search(word):
        return "'" + word.replace("'", "'\\''") + "'"
    inner = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + _CONTROL.sub(lambda match: f"\\{ord(match[0]):03o}" if ord(match[0]) < 128 else match[0], inner) + "'"
