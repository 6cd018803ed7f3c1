"""Read the part of a task's output that a selection names, as text within a budget.

Memory does not grow with the output: bytes go through in pieces, and only the head and the tail of the text are held.
What is short and plain is read with one look at one file. Of much output only both ends are read, and they are what
they would be if all of it had been read.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput, quote
from outlast.light import extend, frozen
from outlast.output.cleaner import CONTROLS, LINE_LIMIT, SLICE_BYTES, Cleaner, is_plain
from outlast.output.head_tail import BUDGET, Cut, HeadTail, where_the_rest_is
from outlast.output.line_filter import LineFilter
from outlast.output.redaction import LOOK_BACK
from outlast.output.text_stream import TextStream, describe_gap, read_settled
from outlast.output.token_formats import LONGEST
from outlast.storage.output import FILES, read_order
from outlast.types import START, STREAMS, Cursor, Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlast.output.redaction import Mask
    from outlast.output.text_stream import Selection
    from outlast.storage.output import Source
    from outlast.types import Task

_CONTROLS = bytes(sorted(CONTROLS))
_SHORT = 1 << 15  # bytes
MUCH = 1 << 23  # bytes; to clean fewer takes some ten milliseconds
MOST = 1 << 21  # bytes that are cleaned of each end: more than the longest line that is held back
_CONTEXT = 2 * LONGEST  # bytes before the tail: a read that begins inside of a secret has left it by then
_LINE = 1 << 18  # bytes in which the end of a line is searched
_RUN_BYTES = 1 << 20  # that are filtered at once for a page
_SHORTEST_RUN_BYTES = 64


@frozen
class Part:
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

    def cut(self, budget: int, rest: str) -> Part:
        cut = self.kept.cut(rest, budget)
        return Part(cut.text, cut.truncated, self.dropped, self.hidden, self.next)


def read(task: Task, selection: Selection, sources: Mapping[str, Source], budget: int, mask: Mask) -> Result:
    """Return the wanted part of a task's output, as text."""
    start = selection.cursor or START
    if not task.split and selection.is_plain:
        short = StreamReader(sources["stdout"], task.closed, selection, mask, start.stdout).read_short()
        if short is not None and len(short.text) <= budget:
            texts = {"output": short.text, "stdout": None, "stderr": None, "truncated": False}
            return extend(Result, task, **texts, dropped_bytes=0, hidden_lines=0, cursor=str(short.next))
    check_selection(selection, task.split)
    streams = {
        name: StreamReader(source, task.closed, selection, mask, start.at(name))
        for name, source in sources.items()
        if selection.stream in (None, name)
    }
    together = None
    if selection.page:
        found = _read_page(streams, budget)
    else:
        if selection.interleaved and len(streams) > 1:
            together = _interleave(task, streams, selection, budget, mask)
        found = _read_ends(task, streams, budget)
    parts, out, err = list(found.values()), found.get("stdout"), found.get("stderr")
    return extend(
        Result,
        task,
        output=together.text if together else _join([part.text for part in parts]),
        stdout=out.text if task.split and out else None,
        stderr=err.text if task.split and err else None,
        truncated=any(part.truncated or part.dropped for part in (*parts, together) if part),
        dropped_bytes=sum(part.dropped for part in parts),
        hidden_lines=sum(part.hidden for part in parts),
        cursor=str(Cursor(out.next if out else start.stdout, err.next if err else start.stderr)),
    )


def check_selection(selection: Selection, split: bool) -> None:
    """Raise `BadInput` for a selection that makes no sense, before anything is read."""
    if selection.stream is not None and selection.stream not in STREAMS:
        raise BadInput(f"There is no stream {quote(selection.stream)}; use stdout or stderr.")
    if selection.stream == "stderr" and not split:
        raise BadInput(
            "This task was run without --split, so its stderr is in its one output, in the order printed; "
            "read that one."
        )
    if selection.tail is None and selection.takes_all:
        return
    if selection.tail is not None and selection.tail < 0:
        raise BadInput(f"The number of last lines must be 0 or more, not {selection.tail}.")
    if selection.lines is not None:
        first, last = selection.lines
        if first < 1 or (last is not None and last < first):
            upto = "the end" if last is None else last
            raise BadInput(f"Lines {first} to {upto} are no range; count from 1, and give the smaller number first.")
    starts = [name for name in ("cursor", "tail", "lines") if getattr(selection, name) is not None]
    if len(starts) > 1:
        raise BadInput(f"Only one of {' and '.join(starts)} can say where to start; leave out the rest.")
    if selection.by_lines:
        LineFilter(selection.filter, selection.exclude, selection.ignore_case)


def check_options(selection: Selection, new: bool, budget: int) -> None:
    """Raise `BadInput` for options that contradict each other. `new`: it starts where the last read ended."""
    part = selection.tail is not None or selection.lines is not None
    if new and (selection.cursor is not None or part):
        raise BadInput("What is new starts where the last read ended; leave out cursor, tail and lines.")
    if selection.page and (part or selection.interleaved):
        raise BadInput("Pages follow one another from a cursor on; leave out tail, lines and interleaved.")
    if selection.interleaved and (new or selection.cursor is not None or part or selection.by_lines):
        raise BadInput("Both streams in the order they came are shown whole; leave out what selects a part.")
    if budget < 1:
        raise BadInput(f"The number of characters to show must be 1 or more, not {budget}.")


def _join(texts: list[str]) -> str:
    first, *rest = texts
    for text in rest:
        first += ("\n" if first and text and not first.endswith("\n") else "") + text
    return first


def _read_ends(task: Task, streams: Mapping[str, StreamReader], budget: int) -> dict[str, Part]:
    """Return the head and the tail of each stream; one that needs little leaves its budget to the other."""
    collected = [stream.collect(budget) for stream in streams.values()]
    shares = share_by_need(budget, [one.kept.chars for one in collected])
    found = {}
    for (name, stream), one, share in zip(streams.items(), collected, shares, strict=True):
        found[name] = one.cut(share, _describe_rest(task, {name: stream}) if one.kept.chars > share else "")
    return found


def _read_page(streams: Mapping[str, StreamReader], budget: int) -> dict[str, Part]:
    """Return of each stream what comes next, as much as fits."""
    shares = share_by_need(budget, [max(0, stream.source.end() - stream.start) for stream in streams.values()])
    return {name: streams[name].page(share) for name, share in zip(streams, shares, strict=True)}


def share_by_need(budget: int, needs: Sequence[int]) -> list[int]:
    """Divide a budget so that none gets more than it needs while another gets less than its equal part."""
    shares = [0] * len(needs)
    left = budget
    for rank, index in enumerate(sorted(range(len(needs)), key=lambda one: needs[one])):
        shares[index] = min(needs[index], left // (len(needs) - rank))
        left -= shares[index]
    return shares


def _describe_rest(task: Task, streams: Mapping[str, StreamReader]) -> str:
    """Return where the rest of these streams is, and how much of them was dropped for good."""
    directory = os.path.dirname(task.output_file)
    kept = {name: stream.source.extents() for name, stream in streams.items()}
    paths = [
        os.path.join(directory, FILES[name]) + ("*" if len(extents) > 1 else "")
        for name, extents in kept.items()
        if any(extent.size for extent in extents)
    ]
    dropped = sum(stream.source.missing(0, stream.source.end()) for stream in streams.values())
    return where_the_rest_is(" and ".join(paths) or task.output_file, dropped)


def _interleave(task: Task, streams: Mapping[str, StreamReader], selection: Selection, budget: int, mask: Mask) -> Part:
    """Return both streams from their start as one text, line by line in the order they came."""
    kept = HeadTail(budget, selection.marks)
    texts, at = {name: TextStream(mask) for name in streams}, dict.fromkeys(streams, 0)
    ends = {name: stream.source.end() for name, stream in streams.items()}
    for name, upto in read_order(os.path.dirname(task.output_file), ends):
        for piece in streams[name].source.chunks(at[name], upto):
            if piece.dropped:
                kept.add(texts[name].finish() + describe_gap(piece.dropped).join(selection.marks))
            kept.add(texts[name].feed(piece.data))
            at[name] = piece.next
    for text in texts.values():
        rest = text.finish()
        kept.add(rest if not rest or rest.endswith("\n") else rest + "\n")
    cut = kept.cut(_describe_rest(task, streams))
    return Part(cut.text, cut.truncated, 0, 0, 0)


class StreamReader:
    """Reads one stream of a task, from `start` on, as a selection wants it."""

    def __init__(self, source: Source, closed: bool, selection: Selection, mask: Mask, start: int) -> None:
        self.source, self.start = source, start
        self._closed, self._selection, self._mask = closed, selection, mask

    def read_short(self) -> Part | None:
        """Return all that follows, if it is in one file, short, plain text without secrets."""
        found = self.source.read_short_rest(self.start, LOOK_BACK if self._mask.on else 0, _SHORT)
        if found is None:
            return None
        before, after = found
        text = _decode_plain(after)
        if text is None or not (self._mask.is_clear(before, after, self._closed) if after else True):
            return None
        return Part(text, False, 0, 0, self.start + len(after))

    def collect(self, budget: int) -> Collected:
        """Return the head and the tail of the text from where the selection starts."""
        selection, source = self._selection, self.source
        end = source.end()  # fixed now: a task that prints faster than we read must not keep us for ever
        start = source.tail(selection.tail, end) if selection.tail is not None else self.start
        if end - start > MUCH and selection.takes_all:
            both = self._collect_ends(start, end, HeadTail(budget, selection.marks))
            if both:
                return both
        return self._collect_all(start, end, self._closed, budget)

    def _collect_all(self, start: int, end: int, closed: bool, budget: int) -> Collected:
        """Read all bytes from `start` to `end`. `closed`: no more follow, so the last ones are final."""
        selection, kept = self._selection, HeadTail(budget, self._selection.marks)
        text, offset, dropped = TextStream(self._mask, selection), start, 0
        for piece in read_settled(self.source, start, end, closed, selection.by_lines, self._mask):
            kept.add(text.feed_slice(piece))
            dropped += piece.dropped
            offset = piece.next
        kept.add(text.finish())
        return Collected(kept, dropped, text.hidden, offset)

    # --- both ends ---

    def _collect_ends(self, start: int, end: int, kept: HeadTail) -> Collected | None:
        """Read both ends of much output; None if they cannot be told without all that is between."""
        head = TextStream(self._mask)
        for piece in read_settled(self.source, start, start + MOST, True, False, self._mask):
            if piece.dropped or kept.has_head:
                break
            kept.add(head.feed(piece.data))
        size, dropped = _CONTEXT + 4 * kept.budget, self.source.missing(start, end)
        while kept.has_head and size <= MOST:
            tail = self._read_tail(start, end, size)
            if tail is None:
                return None
            text, offset = tail
            if len(text) > kept.budget:
                kept.skip(f"the middle of {end - start - dropped:,} bytes")
                kept.add(text)
                return Collected(kept, dropped, 0, offset)
            size *= 4
        return None

    def _read_tail(self, start: int, end: int, size: int) -> tuple[str, int] | None:
        """Return the text of the last bytes, at least `size`, and up to where it is settled."""
        offset = self._find_resync_offset(start, end, end - size)
        if offset is None:
            return None
        stream, texts = TextStream(self._mask), []
        for piece in read_settled(self.source, offset, end, self._closed, False, self._mask):
            if piece.dropped:
                return None
            texts.append(stream.feed(piece.data))
            offset = piece.next
        return "".join((*texts, stream.finish())), offset

    def _find_resync_offset(self, start: int, end: int, before: int) -> int | None:
        """Return an offset up to `before` from which cleaning needs to know nothing of what was before it.

        That is behind a line end, or deep inside of a line in which nothing moves the cursor.
        """
        first = max(start, before - _LINE)
        data = self._read_whole(first, before)
        if data is None:
            return None
        if (newline := data.find(b"\n")) >= 0:
            return first + newline + 1
        return before if self._is_deep_in_line(start, end, before) else None

    def _is_deep_in_line(self, start: int, end: int, offset: int) -> bool:
        # A line is let go each time it has LINE_LIMIT characters; wherever that was, it was among twice as many.
        before = self._read_whole(max(start, offset - 2 * LINE_LIMIT), offset)
        behind = self._read_whole(offset, end)
        if before is None or behind is None or len(before) < 2 * LINE_LIMIT:
            return False
        line = before + behind.partition(b"\n")[0]
        if not line.isascii() or len(line.translate(None, _CONTROLS)) < len(line):
            return False
        # Where one secret follows another without a blank, it matters where the first one begins.
        return self._mask.is_clear(b"", before[-_CONTEXT:], False)

    def _read_whole(self, start: int, end: int) -> bytes | None:
        """Return these bytes, if all of them are kept."""
        parts = []
        for piece in self.source.chunks(start, end):
            if piece.dropped:
                return None
            parts.append(piece.data)
            start = piece.next
        return b"".join(parts) if start == end else None

    # --- pages ---

    def page(self, budget: int) -> Part:
        """Return the next text that fits: several runs of lines, as long as a filter leaves room for more."""
        end = self.source.end()
        texts: list[str] = []
        offset, dropped, hidden = self.start, 0, 0
        while offset < end and budget > 0:
            run = self._next_run(offset, end, budget, bool(texts))
            if run is None:
                break
            texts.append(run.text)
            offset, dropped, hidden = run.next, dropped + run.dropped, hidden + run.hidden
            budget -= len(run.text)
            if not self._selection.by_lines:
                break
        return Part("".join(texts), offset < end and bool(texts), dropped, hidden, offset)

    def _next_run(self, start: int, end: int, room: int, is_full: bool) -> Part | None:
        """Return whole lines from `start` on whose text fits into `room`; None if none are settled, or none fit.

        A first line that is longer than the room is cut: a page that shows nothing would be the last one.
        """
        size = max(room, _RUN_BYTES) if self._selection.by_lines else room
        first = self.source.read(start, 1).start  # behind what was dropped
        while True:
            upto = self._find_end_of_run(first, min(end, first + size))
            run = self._collect_all(start, upto, self._closed and upto == end, max(room, 4 * size))
            text = run.kept.cut().text
            if run.next <= start and upto < end:
                size *= 2  # one line that is longer than all this
            elif run.next <= start:
                return None
            elif len(text) <= room:
                return Part(text, False, run.dropped, run.hidden, run.next)
            elif is_full:
                return None
            elif upto - first <= _SHORTEST_RUN_BYTES or b"\n" not in self.source.read(first, upto - first - 1).data:
                return Part(run.kept.cut("", room).text, True, run.dropped, run.hidden, run.next)
            else:
                size = (upto - first) // 2

    def _find_end_of_run(self, start: int, end: int) -> int:
        """Return the end of the last whole line before `end`, if there is one behind `start`."""
        data = self.source.read(start, end - start)
        newline = data.data.rfind(b"\n") if data.start == start and data.next == end else -1
        return start + newline + 1 if newline >= 0 else end


def _decode_plain(data: bytes) -> str | None:
    """Return these bytes as text, if cleaning them changes nothing but line ends."""
    if data.isascii() and len(data.translate(None, _CONTROLS)) == len(data):
        return data.decode("ascii")
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return text if is_plain(text) else None


def clean(data: bytes, budget: int = BUDGET, where: str = "") -> Cut:
    """Return these bytes as text within a budget; `where` they all are is named if they do not fit."""
    cleaner, ends = Cleaner(), HeadTail(budget)
    for start in range(0, len(data), SLICE_BYTES):
        ends.add(cleaner.feed(data[start : start + SLICE_BYTES]))
    ends.add(cleaner.finish())
    return ends.cut(where_the_rest_is(where) if where else "")
