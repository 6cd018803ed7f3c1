"""A long output page by page: each read shows what comes next, and its cursor says where the following page begins."""

from __future__ import annotations

from outlast.selection import MARKS, Piece, share_by_need, work_through
from outlast.text import HeadTail
from outlast.types import START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.masking import Mask
    from outlast.selection import Selection
    from outlast.storage.output import Source
    from outlast.types import Task

_RUN_BYTES = 1 << 20  # that are filtered at once
_SHORTEST_RUN_BYTES = 64


def read_pages(
    task: Task, sources: Mapping[str, Source], selection: Selection, budget: int, mask: Mask
) -> dict[str, Piece]:
    """Of each stream what comes next, as much as fits; the cursor says where the following page begins."""
    start = selection.cursor or START
    needs = [max(0, one.end() - start.at(stream)) for stream, one in sources.items()]
    shares = share_by_need(budget, needs)
    found = {}
    for (stream, source), share in zip(sources.items(), shares, strict=True):
        found[stream] = _page(source, start.at(stream), task.closed, selection, share, mask)
    return found


def _page(source: Source, start: int, closed: bool, selection: Selection, budget: int, mask: Mask) -> Piece:
    """The next text of one stream that fits: several runs of lines, as long as a filter leaves room for more."""
    end = source.end()
    texts: list[str] = []
    place, dropped, hidden, room = start, 0, 0, budget
    while place < end and room > 0:
        run = _next_run(source, place, end, closed, selection, room, bool(texts), mask)
        if run is None:
            break
        texts.append(run.text)
        place, dropped, hidden = run.next, dropped + run.dropped, hidden + run.hidden
        room -= len(run.text)
        if not selection.filter and not selection.exclude:
            break
    return Piece("".join(texts), place < end and bool(texts), dropped, hidden, place)


def _next_run(
    source: Source, start: int, end: int, closed: bool, selection: Selection, room: int, is_full: bool, mask: Mask
) -> Piece | None:
    """Whole lines from `start` on whose text fits into `room`; None if there are none that are settled, or fit.

    A first line that is longer than the room is cut: a page that shows nothing would be the last one.
    """
    by_lines = bool(selection.filter or selection.exclude)
    size = max(room, _RUN_BYTES) if by_lines else room
    first = source.read(start, 1).start  # behind what was dropped
    while True:
        upto = _end_of_run(source, first, min(end, first + size))
        kept = HeadTail(max(room, 4 * size), MARKS if selection.marked else ("", ""))
        run = work_through(source, start, upto, closed and upto == end, selection, kept, mask)
        text = run.kept.cut().text
        if run.next <= start and upto < end:
            size *= 2  # one line that is longer than all this
        elif run.next <= start:
            return None
        elif len(text) <= room:
            return Piece(text, False, run.dropped, run.hidden, run.next)
        elif is_full:
            return None
        elif upto - first <= _SHORTEST_RUN_BYTES or b"\n" not in source.read(first, upto - first - 1).data:
            return Piece(run.kept.cut("", room).text, True, run.dropped, run.hidden, run.next)
        else:
            size = (upto - first) // 2


def _end_of_run(source: Source, start: int, end: int) -> int:
    """The end of the last whole line before `end`, if there is one behind `start`."""
    data = source.read(start, end - start)
    newline = data.data.rfind(b"\n") if data.start == start and data.next == end else -1
    return start + newline + 1 if newline >= 0 else end
