"""From a task's bytes to a reply: the part that was asked for, cleaned, filtered and cut to its budget.

Memory does not grow with the output: bytes go through in pieces, and only the head and
the tail of the text are held.
"""

from __future__ import annotations

import os

from outlast import ends, little
from outlast.errors import BadInput, named
from outlast.frozen import extended, frozen
from outlast.masking import LOOK_BACK, MASK, OFF
from outlast.model import START, STREAMS, Cursor, Result, Slice
from outlast.sieve import Sieve
from outlast.text import Cleaner, HeadTail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outlast.masking import Mask
    from outlast.model import Task
    from outlast.store.output import Source

MARKS = ("\x1e", "\x1f")  # control characters, and `Cleaner` lets none through: so no output can contain them
_LONGEST_STRING = 8192  # of an escape sequence that carries text (a title, a link), as in `text`
_LONGEST_CONTROL = 256  # of any other one
_LONGEST_LINE = 1 << 20  # that is held back until it is finished, as in `sieve`


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
    """What was read of one stream."""

    text: str
    truncated: bool
    dropped: int
    hidden: int
    next: int


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


def read(task: Task, selection: Selection, source: Callable[[str], Source], budget: int, mask: Mask = OFF) -> Result:
    """The wanted part of a task's output, as text."""
    check(selection, task.split)
    streams = STREAMS if task.split else STREAMS[:1]
    wanted = [stream for stream in streams if selection.stream in (None, stream)]
    share = budget // len(wanted)
    found = {stream: _piece(task, source(stream), stream, selection, share, mask) for stream in wanted}
    pieces = found.values()
    start = selection.cursor or START
    texts = [_interleaved(task, source, selection, budget, mask)] if selection.interleaved and len(wanted) > 1 else None
    return extended(
        Result,
        task,
        output=_joined(texts or [piece.text for piece in pieces]),
        stdout=found["stdout"].text if task.split and "stdout" in found else None,
        stderr=found["stderr"].text if task.split and "stderr" in found else None,
        truncated=any(piece.truncated or piece.dropped for piece in pieces),
        dropped_bytes=sum(piece.dropped for piece in pieces),
        hidden_lines=sum(piece.hidden for piece in pieces),
        cursor=str(Cursor(**{s: found[s].next if s in found else start.at(s) for s in STREAMS})),
    )


def little_of(task: Task, source: Source, place: int, budget: int, mask: Mask) -> Result | None:
    """All that follows `place` in the one output of a task, if it is little and plain."""
    rest = little.rest(source, place, task.closed, mask)
    if rest is None or len(rest[0]) > budget:
        return None
    return extended(
        Result,
        task,
        output=rest[0],
        stdout=None,
        stderr=None,
        truncated=False,
        dropped_bytes=0,
        hidden_lines=0,
        cursor=str(rest[1]),
    )


def _joined(texts: list[str]) -> str:
    first, *rest = texts
    for text in rest:
        first += ("\n" if first and text and not first.endswith("\n") else "") + text
    return first


def _piece(task: Task, source: Source, stream: str, selection: Selection, budget: int, mask: Mask) -> Piece:
    if selection.is_plain:
        start = (selection.cursor or START).at(stream)
        rest = little.rest(source, start, task.closed, mask)
        if rest is not None and len(rest[0]) <= budget:
            return Piece(rest[0], False, 0, 0, rest[1])
    source.look_again()
    return _worked_through(task, source, stream, selection, budget, mask)


def _worked_through(task: Task, source: Source, stream: str, selection: Selection, budget: int, mask: Mask) -> Piece:
    marks = MARKS if selection.marked else ("", "")
    cleaner, kept, veil = Cleaner(), HeadTail(budget, marks), mask.stream()
    sieve = Sieve(selection.filter, selection.exclude, selection.ignore_case)
    picker = LineRange(selection.lines)
    if task.closed:
        source.close()
    # Fixed now: a task that prints faster than we read must not keep us for ever.
    end = source.end()
    start = source.tail(selection.tail, end) if selection.tail is not None else (selection.cursor or START).at(stream)
    if (
        end - start > ends.MUCH
        and selection.takes_all
        and (both := _both_ends(task, source, start, end, HeadTail(budget, marks), mask))
    ):
        return both
    if secret := inside_secret(source, start, end, mask):
        kept.add(picker.take(sieve.feed(MASK)))
    place, dropped = start + secret, 0
    for piece in settled(task, source, place, end, bool(selection.filter or selection.exclude), mask):
        if piece.dropped:
            rest = sieve.feed(veil.feed(cleaner.finish()) + veil.finish()) + sieve.finish()
            kept.add(picker.take(rest + gap(piece.dropped).join(marks)))
            dropped += piece.dropped
        # Masked before it is filtered: whether a filter lets a line through must not tell a secret.
        kept.add(picker.take(sieve.feed(veil.feed(cleaner.feed(piece.data)))))
        place = piece.next
    kept.add(picker.take(sieve.feed(veil.feed(cleaner.finish()) + veil.finish()) + sieve.finish()))
    cut = kept.cut(where=task.output_file)
    return Piece(cut.text, cut.truncated, dropped, sieve.hidden, place)


def _both_ends(task: Task, source: Source, start: int, end: int, kept: HeadTail, mask: Mask) -> Piece | None:
    """The head and the tail of much output; None if they cannot be told without all that is between."""
    _add_head(source, start, end, kept, mask)
    if not kept.has_head:
        return None
    dropped = source.missing(start, end)
    for size in ends.sizes(kept.budget):
        tail = _tail(task, source, start, end, size, mask)
        if tail is None:
            return None
        text, place = tail
        if len(text) > kept.budget:
            kept.skip(f"the middle of {end - start - dropped:,} bytes")
            kept.add(text)
            return Piece(kept.cut(where=task.output_file).text, True, dropped, 0, place)
    return None


def _add_head(source: Source, start: int, end: int, kept: HeadTail, mask: Mask) -> None:
    reader = _Cleared(mask)
    if secret := inside_secret(source, start, end, mask):
        kept.add(MASK)
    for piece in source.chunks(start + secret, start + ends.MOST):
        if piece.dropped:
            return
        kept.add(reader.feed(piece.data))
        if kept.has_head:
            return


def _tail(task: Task, source: Source, start: int, end: int, size: int, mask: Mask) -> tuple[str, int] | None:
    """The text of the last bytes, at least so many, and up to where it is settled."""
    first = ends.forgets_at(source, start, end, size, mask)
    if first is None:
        return None
    reader, texts = _Cleared(mask), []
    if secret := inside_secret(source, first, end, mask):
        texts.append(MASK)
    place = first + secret
    for piece in settled(task, source, place, end, False, mask):
        if piece.dropped:
            return None
        texts.append(reader.feed(piece.data))
        place = piece.next
    return "".join((*texts, reader.finish())), place


def _interleaved(task: Task, source: Callable[[str], Source], selection: Selection, budget: int, mask: Mask) -> str:
    """Both streams from their start as one text, line by line in the order they came."""
    from outlast.store import order

    marks = MARKS if selection.marked else ("", "")
    kept = HeadTail(budget, marks)
    sources = {stream: source(stream) for stream in STREAMS}
    readers = {stream: _Cleared(mask) for stream in STREAMS}
    at = dict.fromkeys(STREAMS, 0)
    for stream, upto in order.runs(os.path.dirname(task.output_file), {s: one.end() for s, one in sources.items()}):
        for piece in sources[stream].chunks(at[stream], upto):
            if piece.dropped:
                kept.add(readers[stream].finish() + gap(piece.dropped).join(marks))
            kept.add(readers[stream].feed(piece.data))
            at[stream] = piece.next
    for reader in readers.values():
        rest = reader.finish()
        kept.add(rest if not rest or rest.endswith("\n") else rest + "\n")
    return kept.cut(where=task.output_file).text


class _Cleared:
    """One stream as text, without control sequences and without secrets."""

    def __init__(self, mask: Mask) -> None:
        self._cleaner, self._veil = Cleaner(), mask.stream()

    def feed(self, data: bytes) -> str:
        return self._veil.feed(self._cleaner.feed(data))

    def finish(self) -> str:
        return self._veil.feed(self._cleaner.finish()) + self._veil.finish()


def gap(dropped: int) -> str:
    """What stands where bytes are missing, so that nobody takes both sides of the gap for one text."""
    return f"\n[outlast: {dropped} bytes were dropped here]\n"


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


def settled(task: Task, source: Source, start: int, end: int, by_lines: bool, mask: Mask = OFF) -> Iterator[Slice]:
    """The bytes from `start` to `end` whose meaning cannot change any more.

    While a task prints, the last of them can be half a character, half an escape sequence, half a
    secret or, where lines are matched `by_lines`, half a line. Those are for the next read.
    """
    if mask.on and not task.closed:
        first = max(start, end - 2 * LOOK_BACK)
        end -= mask.unfinished(source.read(first, end - first).data) if first < end else 0
    if by_lines and not task.closed:
        end = _end_of_last_line(source, end)
    for piece in source.chunks(start, end):
        if piece.next < end or task.closed:
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
