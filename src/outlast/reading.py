"""From a task's bytes to a reply: the part that was asked for, cleaned, filtered and cut to its budget.

Memory does not grow with the output: bytes go through in pieces, and only the head and
the tail of the text are held.
"""

from __future__ import annotations

from outlast.errors import BadInput
from outlast.frozen import fields, frozen
from outlast.model import START, STREAMS, Cursor, Result
from outlast.sieve import Sieve
from outlast.text import Cleaner, HeadTail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.model import Task
    from outlast.store.output import Source


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
        raise BadInput(f"There is no stream '{selection.stream}'; use stdout or stderr.")
    if selection.stream == "stderr" and not split:
        raise BadInput("This task was run without --split: its stderr is in its one output, in the order printed.")
    if selection.tail is not None and selection.tail < 0:
        raise BadInput(f"The number of last lines must be 0 or more, not {selection.tail}.")
    if selection.lines is not None:
        first, last = selection.lines
        if first < 1 or (last is not None and last < first):
            raise BadInput(f"Lines {first} to {last} are no range; the first line is 1.")
    starts = [name for name in ("cursor", "tail", "lines") if getattr(selection, name) is not None]
    if len(starts) > 1:
        raise BadInput(f"Only one of {' and '.join(starts)} can say where to start.")
    Sieve(selection.filter, selection.exclude, selection.ignore_case)


def read(task: Task, selection: Selection, source: Callable[[str], Source], budget: int) -> Result:
    """The wanted part of a task's output, as text."""
    check(selection, task.split)
    streams = STREAMS if task.split else STREAMS[:1]
    wanted = [stream for stream in streams if selection.stream in (None, stream)]
    share = budget // len(wanted)
    found = {stream: _piece(task, source(stream), stream, selection, share) for stream in wanted}
    pieces = found.values()
    start = selection.cursor or START
    return Result(
        **fields(task),
        output=_joined([piece.text for piece in pieces]),
        stdout=found["stdout"].text if task.split and "stdout" in found else None,
        stderr=found["stderr"].text if task.split and "stderr" in found else None,
        truncated=any(piece.truncated or piece.dropped for piece in pieces),
        dropped_bytes=sum(piece.dropped for piece in pieces),
        hidden_lines=sum(piece.hidden for piece in pieces),
        cursor=str(Cursor(**{s: found[s].next if s in found else start.at(s) for s in STREAMS})),
    )


def _joined(texts: list[str]) -> str:
    first, *rest = texts
    for text in rest:
        first += ("\n" if first and text and not first.endswith("\n") else "") + text
    return first


def _piece(task: Task, source: Source, stream: str, selection: Selection, budget: int) -> Piece:
    cleaner, kept = Cleaner(), HeadTail(budget)
    sieve = Sieve(selection.filter, selection.exclude, selection.ignore_case)
    picker = LineRange(selection.lines)
    start = source.tail(selection.tail) if selection.tail is not None else (selection.cursor or START).at(stream)
    # Fixed now: a task that prints faster than we read must not keep us for ever.
    end = max(source.end(), start)
    place, dropped = start, 0
    for piece in source.chunks(start, end):
        data = piece.data
        if piece.next >= end and not task.closed:
            data = data[: len(data) - _half_character(data)]
        kept.add(picker.take(sieve.feed(cleaner.feed(data))))
        dropped += piece.dropped
        place = piece.start + len(data)
    kept.add(picker.take(sieve.feed(cleaner.finish()) + sieve.finish()))
    cut = kept.cut(where=task.output_file)
    return Piece(cut.text, cut.truncated, dropped, sieve.hidden, place)


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
