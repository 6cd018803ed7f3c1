"""Both ends of a long output, without a look at what is between: a reply shows no more than those.

What is shown is what it would be if all had been cleaned and masked. The head is cleaned
from the start on. The tail is cleaned from a place on at which a cleaner forgets what was
before: behind a line end, or deep inside of a line in which nothing moves the cursor. If
there is no such place, all has to be cleaned.
"""

from __future__ import annotations

from outlast.text import CONTROLS, LINE_LIMIT
from outlast.tokenformats import LONGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.masking import Mask
    from outlast.storage.output import Source

MUCH = 1 << 23  # bytes; to clean fewer takes some ten milliseconds
MOST = 1 << 21  # that are cleaned of each end: more than the longest line that is held back until it is known
_CONTEXT = 2 * LONGEST  # before what is shown of the tail: who begins inside of a secret has come out of it by then
_LINE = 1 << 18  # in which the end of a line is looked for
_CONTROLS = bytes(sorted(CONTROLS))


def sizes(budget: int) -> Iterator[int]:
    """How many bytes of the tail to try, until they are enough text."""
    size = _CONTEXT + 4 * budget  # as many bytes as the characters have at most
    while size <= MOST:
        yield size
        size *= 4


def forgets_at(source: Source, start: int, end: int, wanted: int, mask: Mask) -> int | None:
    """A place before the last `wanted` bytes from which on cleaning needs to know nothing of what was before."""
    first = max(start, end - wanted - _LINE)
    data = _whole(source, first, end - wanted)
    if data is None:
        return None
    if (newline := data.find(b"\n")) >= 0:
        return first + newline + 1
    return end - wanted if _is_deep_in_a_line(source, start, end, end - wanted, mask) else None


def _is_deep_in_a_line(source: Source, start: int, end: int, place: int, mask: Mask) -> bool:
    """Whether nothing that comes in the line can reach back to what was before `place`, nor did so."""
    # A line is let go each time it has so many characters; wherever that was, it was among twice as many.
    before = _whole(source, max(start, place - 2 * LINE_LIMIT), place)
    behind = _whole(source, place, end)
    if before is None or behind is None or len(before) < 2 * LINE_LIMIT:
        return False
    line = before + behind.partition(b"\n")[0]
    if not line.isascii() or len(line.translate(None, _CONTROLS)) < len(line):
        return False
    # Where one secret follows another, without a blank, it matters where one begins.
    return mask.is_clear(b"", before[-_CONTEXT:], False)


def _whole(source: Source, start: int, end: int) -> bytes | None:
    """These bytes, if all of them are kept."""
    parts = []
    for piece in source.chunks(start, end):
        if piece.dropped:
            return None
        parts.append(piece.data)
        start = piece.next
    return b"".join(parts) if start == end else None
