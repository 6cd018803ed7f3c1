"""Which part of a task's output is wanted, and the way of that part from bytes to text."""

from __future__ import annotations

from outlast.errors import BadInput, named
from outlast.light import frozen
from outlast.masking import MASK
from outlast.sieve import Sieve
from outlast.stream_end import inside_secret, settled
from outlast.text import Cleaner, HeadTail
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.masking import Mask
    from outlast.storage.output import Source

MARKS = ("\x1e", "\x1f")  # control characters, and `Cleaner` lets none through: so no output can contain them


@frozen
class Selection:
    """Which part of the output is wanted. At most one of `cursor`, `tail` and `lines` makes a start."""

    cursor: Cursor | None = None
    tail: int | None = None
    lines: tuple[int, int | None] | None = None
    stream: str | None = None
    filter: str | None = None
    exclude: str | None = None
    ignore_case: bool = False
    marked: bool = False
    interleaved: bool = False
    page: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether all from the start, or from a cursor on, is wanted."""
        return self.tail is None and self.takes_all

    @property
    def takes_all(self) -> bool:
        """Whether all from where it starts is wanted."""
        return self.lines is None and not self.filter and not self.exclude


@frozen
class Piece:
    """What is shown of one stream."""

    text: str
    truncated: bool
    dropped: int
    hidden: int
    next: int


@frozen
class Collected:
    """One stream from where the selection starts, before it is cut to its share of the budget."""

    kept: HeadTail
    dropped: int
    hidden: int
    next: int

    def cut(self, budget: int, rest: str) -> Piece:
        cut = self.kept.cut(rest, budget)
        return Piece(cut.text, cut.truncated, self.dropped, self.hidden, self.next)


def check(selection: Selection, split: bool) -> None:
    """Say what is wrong with a selection before anything is read."""
    if selection.stream is not None and selection.stream not in STREAMS:
        raise BadInput(f"There is no stream {named(selection.stream)}; use stdout or stderr.")
    if selection.stream == "stderr" and not split:
        raise BadInput(
            "This task was run without --split, so its stderr is in its one output, in the order printed; "
            "read that one."
        )
    if selection.tail is not None and selection.tail < 0:
        raise BadInput(f"The number of last lines must be 0 or more, not {selection.tail}.")
    if selection.lines is not None:
        first, last = selection.lines
        if first < 1 or (last is not None and last < first):
            upto = "the end" if last is None else last
            raise BadInput(f"Lines {first} to {upto} are no range; count from 1, and give the smaller number first.")
    if selection.is_plain:
        return
    starts = [name for name in ("cursor", "tail", "lines") if getattr(selection, name) is not None]
    if len(starts) > 1:
        raise BadInput(f"Only one of {' and '.join(starts)} can say where to start; leave out the rest.")
    Sieve(selection.filter, selection.exclude, selection.ignore_case)


def work_through(
    source: Source, start: int, end: int, closed: bool, selection: Selection, kept: HeadTail, mask: Mask
) -> Collected:
    """Clean, mask and filter the bytes from `start` to `end`. `closed`: no more follow, so the last ones are final."""
    marks = MARKS if selection.marked else ("", "")
    cleaner, veil = Cleaner(), mask.stream()
    sieve = Sieve(selection.filter, selection.exclude, selection.ignore_case)
    picker = LineRange(selection.lines)
    if secret := inside_secret(source, start, end, mask):
        kept.add(picker.take(sieve.feed(MASK)))
    place, dropped = start + secret, 0
    for piece in settled(source, place, end, closed, bool(selection.filter or selection.exclude), mask):
        if piece.dropped:
            rest = sieve.feed(veil.feed(cleaner.finish()) + veil.finish()) + sieve.finish()
            kept.add(picker.take(rest + gap(piece.dropped).join(marks)))
            dropped += piece.dropped
        # Masked before it is filtered: whether a filter lets a line through must not tell a secret.
        kept.add(picker.take(sieve.feed(veil.feed(cleaner.feed(piece.data)))))
        place = piece.next
    kept.add(picker.take(sieve.feed(veil.feed(cleaner.finish()) + veil.finish()) + sieve.finish()))
    return Collected(kept, dropped, sieve.hidden, place)


def gap(dropped: int) -> str:
    """What stands where bytes are missing, so that nobody takes both sides of the gap for one text."""
    return f"\n[outlast: {dropped} bytes were dropped here]\n"


class LineRange:
    """Lets through the lines from the first to the last, both counted from 1."""

    def __init__(self, lines: tuple[int, int | None] | None) -> None:
        self._lines = lines
        self._at = 1

    def take(self, text: str) -> str:
        if self._lines is None:
            return text
        first, last = self._lines
        taken = []
        for line in text.splitlines(keepends=True):
            if self._at >= first and (last is None or self._at <= last):
                taken.append(line)
            self._at += line.endswith("\n")
        return "".join(taken)


def share_by_need(budget: int, needs: Sequence[int]) -> list[int]:
    """Divide a budget so that none gets more than it needs while another gets less than its equal part."""
    shares = [0] * len(needs)
    left = budget
    for rank, index in enumerate(sorted(range(len(needs)), key=lambda one: needs[one])):
        shares[index] = min(needs[index], left // (len(needs) - rank))
        left -= shares[index]
    return shares
