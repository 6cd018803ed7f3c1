"""From a task's bytes to a reply: the part that was asked for, cleaned, filtered and cut to its budget.

Memory does not grow with the output: bytes go through in pieces, and only the head and
the tail of the text are held.
"""

from __future__ import annotations

import os

from outlast import head_tail, little
from outlast.light import extended
from outlast.masking import MASK, OFF
from outlast.pages import read_pages
from outlast.selection import MARKS, Collected, Piece, check, gap, share_by_need, work_through
from outlast.storage.output import FILES
from outlast.stream_end import inside_secret, settled
from outlast.text import Cleaner, HeadTail, where_the_rest_is
from outlast.types import START, STREAMS, Cursor, Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from outlast.masking import Mask
    from outlast.selection import Selection
    from outlast.storage.output import Source
    from outlast.types import Task


def read(task: Task, selection: Selection, source: Callable[[str], Source], budget: int, mask: Mask = OFF) -> Result:
    """The wanted part of a task's output, as text."""
    check(selection, task.split)
    streams = STREAMS if task.split else STREAMS[:1]
    wanted = {stream: source(stream) for stream in streams if selection.stream in (None, stream)}
    if selection.page:
        found = read_pages(task, wanted, selection, budget, mask)
    else:
        found = _both_ends_of_each(task, wanted, selection, budget, mask)
    pieces = found.values()
    start = selection.cursor or START
    together = (
        _interleaved(task, wanted, selection, budget, mask) if selection.interleaved and len(wanted) > 1 else None
    )
    return extended(
        Result,
        task,
        output=together.text if together else _joined([piece.text for piece in pieces]),
        stdout=found["stdout"].text if task.split and "stdout" in found else None,
        stderr=found["stderr"].text if task.split and "stderr" in found else None,
        truncated=any(piece.truncated or piece.dropped for piece in (*pieces, *((together,) if together else ()))),
        dropped_bytes=sum(piece.dropped for piece in pieces),
        hidden_lines=sum(piece.hidden for piece in pieces),
        cursor=str(Cursor(**{s: found[s].next if s in found else start.at(s) for s in STREAMS})),
    )


def _both_ends_of_each(
    task: Task, sources: Mapping[str, Source], selection: Selection, budget: int, mask: Mask
) -> dict[str, Piece]:
    """The head and the tail of each stream; a stream that needs little leaves the budget to the other one."""
    collected = {stream: _collect(task, one, stream, selection, budget, mask) for stream, one in sources.items()}
    shares = share_by_need(budget, [one.kept.chars for one in collected.values()])
    return {
        stream: one.cut(share, rest_of(task, {stream: sources[stream]}))
        for (stream, one), share in zip(collected.items(), shares, strict=True)
    }


def rest_of(task: Task, sources: Mapping[str, Source]) -> str:
    """Where the rest of these streams is, and how much of them was dropped for good."""
    directory = os.path.dirname(task.output_file)
    kept = {stream: one.extents() for stream, one in sources.items()}
    paths = [
        os.path.join(directory, FILES[stream]) + ("*" if len(extents) > 1 else "")
        for stream, extents in kept.items()
        if any(extent.size for extent in extents)
    ]
    dropped = sum(one.missing(0, one.end()) for one in sources.values())
    return where_the_rest_is(" and ".join(paths) or task.output_file, dropped)


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


def _collect(task: Task, source: Source, stream: str, selection: Selection, budget: int, mask: Mask) -> Collected:
    if selection.is_plain:
        rest = little.rest(source, (selection.cursor or START).at(stream), task.closed, mask)
        if rest is not None:
            kept = HeadTail(budget, MARKS if selection.marked else ("", ""))
            kept.add(rest[0])
            return Collected(kept, 0, 0, rest[1])
    return _collect_any(task, source, stream, selection, budget, mask)


def _collect_any(task: Task, source: Source, stream: str, selection: Selection, budget: int, mask: Mask) -> Collected:
    """As `_collect`, of whatever size and kind the output is."""
    marks = MARKS if selection.marked else ("", "")
    # Fixed now: a task that prints faster than we read must not keep us for ever.
    end = source.end()
    start = source.tail(selection.tail, end) if selection.tail is not None else (selection.cursor or START).at(stream)
    if end - start > head_tail.MUCH and selection.takes_all:
        both = _both_ends(task, source, start, end, HeadTail(budget, marks), mask)
        if both:
            return both
    return work_through(source, start, end, task.closed, selection, HeadTail(budget, marks), mask)


# --- both ends ---------------------------------------------------------------------------


def _both_ends(task: Task, source: Source, start: int, end: int, kept: HeadTail, mask: Mask) -> Collected | None:
    """The head and the tail of much output; None if they cannot be told without all that is between."""
    _add_head(source, start, end, kept, mask)
    if not kept.has_head:
        return None
    dropped = source.missing(start, end)
    for size in head_tail.sizes(kept.budget):
        tail = _tail(task, source, start, end, size, mask)
        if tail is None:
            return None
        text, place = tail
        if len(text) > kept.budget:
            kept.skip(f"the middle of {end - start - dropped:,} bytes")
            kept.add(text)
            return Collected(kept, dropped, 0, place)
    return None


def _add_head(source: Source, start: int, end: int, kept: HeadTail, mask: Mask) -> None:
    reader = _Cleared(mask)
    if secret := inside_secret(source, start, end, mask):
        kept.add(MASK)
    for piece in source.chunks(start + secret, start + head_tail.MOST):
        if piece.dropped:
            return
        kept.add(reader.feed(piece.data))
        if kept.has_head:
            return


def _tail(task: Task, source: Source, start: int, end: int, size: int, mask: Mask) -> tuple[str, int] | None:
    """The text of the last bytes, at least so many, and up to where it is settled."""
    first = head_tail.forgets_at(source, start, end, size, mask)
    if first is None:
        return None
    reader, texts = _Cleared(mask), []
    if secret := inside_secret(source, first, end, mask):
        texts.append(MASK)
    place = first + secret
    for piece in settled(source, place, end, task.closed, False, mask):
        if piece.dropped:
            return None
        texts.append(reader.feed(piece.data))
        place = piece.next
    return "".join((*texts, reader.finish())), place


def _interleaved(task: Task, sources: Mapping[str, Source], selection: Selection, budget: int, mask: Mask) -> Piece:
    """Both streams from their start as one text, line by line in the order they came."""
    from outlast.storage.output import read_order

    marks = MARKS if selection.marked else ("", "")
    kept = HeadTail(budget, marks)
    readers = {stream: _Cleared(mask) for stream in STREAMS}
    at = dict.fromkeys(STREAMS, 0)
    for stream, upto in read_order(os.path.dirname(task.output_file), {s: one.end() for s, one in sources.items()}):
        for piece in sources[stream].chunks(at[stream], upto):
            if piece.dropped:
                kept.add(readers[stream].finish() + gap(piece.dropped).join(marks))
            kept.add(readers[stream].feed(piece.data))
            at[stream] = piece.next
    for reader in readers.values():
        rest = reader.finish()
        kept.add(rest if not rest or rest.endswith("\n") else rest + "\n")
    cut = kept.cut(rest_of(task, sources))
    return Piece(cut.text, cut.truncated, 0, 0, 0)


def texts(source: Source, mask: Mask) -> Iterator[str]:
    """All of a stream as text, piece by piece, in bounded memory."""
    reader = _Cleared(mask)
    for piece in source.chunks(0, source.end()):
        if piece.dropped:
            yield f"{reader.finish()}\n"
        yield reader.feed(piece.data)
    yield f"{reader.finish()}\n"


class _Cleared:
    """One stream as text, without control sequences and without secrets."""

    def __init__(self, mask: Mask) -> None:
        self._cleaner, self._veil = Cleaner(), mask.stream()

    def feed(self, data: bytes) -> str:
        return self._veil.feed(self._cleaner.feed(data))

    def finish(self) -> str:
        return self._veil.feed(self._cleaner.finish()) + self._veil.finish()
