"""How bash writes words down: what `declare -p` and `trap -p` print, and the way back.

Without regular expressions: guards come by here, and loading those takes longer than
everything else that a guard does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTROL = bytes([*range(32), 127])
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"E": b"\x1b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_ESCAPES[b"v"] = b"\v"
_OCTAL, _HEX = b"01234567", b"0123456789abcdefABCDEF"
_IN_DOUBLE = (b"\\", b'"', b"$", b"`")


def is_name(text: str) -> bool:
    """Whether a variable of bash can have this name."""
    return text.isascii() and text.isidentifier()


def consists_of(word: bytes, allowed: bytes) -> bool:
    """Whether there is a word, of these characters only."""
    return bool(word) and not word.translate(None, allowed)


def quoted(value: bytes) -> bytes:
    """As `declare -p` prints it: on one line, whatever it holds."""
    if value.translate(None, _CONTROL) == value:
        for special in _IN_DOUBLE:  # the backslash first
            value = value.replace(special, b"\\" + special)
        return b'"' + value + b'"'
    value = value.replace(b"\\", b"\\\\").replace(b"'", b"\\'")
    return b"$'" + b"".join(b"\\%03o" % one if one in _CONTROL else bytes((one,)) for one in value) + b"'"


def single(text: bytes) -> bytes:
    """In single quotes."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def value_of(line: bytes) -> bytes | None:
    """The value that a `declare` line gives to a plain variable; None if it gives none, or an array."""
    _, equals, text = line.partition(b"=")
    if equals and text.startswith(b'"') and text.endswith(b'"'):
        return b"".join(_from_double(text[1:-1]))
    if equals and text.startswith(b"$'") and text.endswith(b"'"):
        return b"".join(_from_dollar(text[2:-1]))
    return None


def _from_double(text: bytes) -> Iterator[bytes]:
    while True:
        plain, backslash, text = text.partition(b"\\")
        yield plain
        if not backslash:
            return
        yield b"" if text[:1] in _IN_DOUBLE else b"\\"
        yield text[:1]
        text = text[1:]


def _from_dollar(text: bytes) -> Iterator[bytes]:
    while True:
        plain, backslash, text = text.partition(b"\\")
        yield plain
        if not backslash:
            return
        if octal := _leading(text[:3], _OCTAL):
            yield bytes((int(octal, 8) & 255,))
            text = text[len(octal) :]
        elif text[:1] == b"x" and (hexadecimal := _leading(text[1:3], _HEX)):
            yield bytes((int(hexadecimal, 16),))
            text = text[1 + len(hexadecimal) :]
        else:
            yield _ESCAPES.get(text[:1], text[:1])
            text = text[1:]


def _leading(text: bytes, allowed: bytes) -> bytes:
    return text[: len(text) - len(text.lstrip(allowed))]


def traps(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What `trap -p` printed: each action, in its quotes, and its signal."""
    while True:
        _, found, text = text.partition(b"trap -- ")
        if not found:
            return
        end = _end_of_word(text, 0)
        signal, newline, rest = text[end:].partition(b"\n")
        if newline and end and signal[:1] == b" ":
            yield text[:end], signal[1:]
            text = rest


def _end_of_word(text: bytes, at: int) -> int:
    """Where a word ends that consists of single quotes and escaped ones."""
    while True:
        if text[at : at + 1] == b"'":
            at = text.find(b"'", at + 1) + 1 or len(text)
        elif text[at : at + 2] == b"\\'":
            at += 2
        else:
            return at
