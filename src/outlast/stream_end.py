"""What at the two ends of a part of a stream is not final: half a character, half a sequence, half a secret."""

from __future__ import annotations

from outlast.masking import LOOK_BACK, OFF
from outlast.types import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.masking import Mask
    from outlast.storage.output import Source

_LONGEST_STRING = 8192  # of an escape sequence that carries text (a title, a link), as in `text`
_LONGEST_CONTROL = 256  # of any other one
_LONGEST_LINE = 1 << 20  # that is held back until it is finished, as in `sieve`


def inside_secret(source: Source, start: int, end: int, mask: Mask) -> int:
    """How many bytes from `start` on belong to a secret that begins before it: a cursor can be anywhere."""
    if not mask.on or not start:
        return 0
    first = max(0, start - LOOK_BACK)
    upto = start + min(LOOK_BACK, max(0, end - start))
    around = source.read(first, upto - first)
    if around.start != first or around.next < start:
        return 0  # what was before is dropped
    data = around.data
    if around.next < upto:  # it goes on in another file
        rest = source.read(around.next, upto - around.next)
        data += rest.data if rest.start == around.next else b""
    return mask.inside(data[: start - first], data[start - first :])


def settled(source: Source, start: int, end: int, closed: bool, by_lines: bool, mask: Mask = OFF) -> Iterator[Slice]:
    """The bytes from `start` to `end` whose meaning cannot change any more.

    Unless the stream is `closed`, the last of them can be half a character, half an escape sequence, half a
    secret or, where lines are matched `by_lines`, half a line. Those are for the next read.
    """
    if mask.on and not closed:
        first = max(start, end - 2 * LOOK_BACK)
        end -= mask.unfinished(source.read(first, end - first).data) if first < end else 0
    if by_lines and not closed:
        end = _end_of_last_line(source, end)
    for piece in source.chunks(start, end):
        if piece.next < end or closed:
            yield piece
        else:
            size = len(piece.data) - _unfinished(piece.data)
            yield Slice(piece.stream, piece.start, piece.data[:size], piece.dropped, piece.start + size)


def _end_of_last_line(source: Source, end: int) -> int:
    if source.read(max(0, end - 1), 1).data in (b"\n", b""):
        return end
    start = source.tail(1, end)
    return start if end - start <= _LONGEST_LINE else end


def _unfinished(data: bytes) -> int:
    """How many bytes at the end only make sense together with what is still to come."""
    escape = data.rfind(b"\x1b", max(0, len(data) - _LONGEST_STRING))
    if escape >= 0 and _is_unfinished(data[escape + 1 :]):
        return len(data) - escape
    return _half_character(data)


def _is_unfinished(sequence: bytes) -> bool:
    """Whether the end of an escape sequence is missing; without its ESC."""
    kind, rest = sequence[:1], sequence[1:]
    if kind and kind in b"]PX^_k":
        return not any(ender in rest for ender in (b"\a", b"\n", b"\x18", b"\x1a"))
    if len(sequence) >= _LONGEST_CONTROL:
        return False
    if kind == b"[":
        return all(0x20 <= byte <= 0x3F for byte in rest)
    return all(0x20 <= byte <= 0x2F for byte in sequence)


def _half_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character that is still being printed."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < length else 0
        if byte < 0x80:
            return 0
    return 0
