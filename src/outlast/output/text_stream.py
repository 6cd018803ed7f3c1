"""One stream of a task on its way from bytes to text.

A read may begin inside of a secret, and its last bytes may be half a character, half an escape sequence or half a
secret: `read_settled` deals with both ends, `TextStream` has the stages between.
"""

from __future__ import annotations

from outlast.light import frozen
from outlast.output.cleaner import INTERMEDIATES, SEQUENCE_LIMIT, STRING_LIMIT, STRINGS, Cleaner
from outlast.output.line_filter import PIECE, LineFilter, LineRange
from outlast.output.redaction import LOOK_BACK
from outlast.output.secret_search import MASK
from outlast.types import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from outlast.output import redaction
    from outlast.output.first_error import Excerpt
    from outlast.output.redaction import Mask
    from outlast.storage.output import Source
    from outlast.types import Cursor, Stream

MARKS = ("\x1e", "\x1f")  # around lines of ours; `Cleaner` removes control characters, so no output contains them
_STRINGS = "".join(STRINGS).encode()


@frozen
class Selection:
    """Which part of the output is wanted. At most one of `cursor`, `tail` and `lines` makes a start."""

    cursor: Cursor | None = None
    tail: int | None = None
    lines: tuple[int, int | None] | None = None
    stream: Stream | None = None
    filter: str | None = None
    exclude: str | None = None
    ignore_case: bool = False
    marked: bool = False
    interleaved: bool = False
    page: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether all from where it starts is wanted."""
        return self.lines is None and not self.filter and not self.exclude

    @property
    def is_plain(self) -> bool:
        """Whether all of the output, or all from a cursor on, is wanted in the usual way."""
        return self.tail is None and self.stream is None and not self.page and self.takes_all

    @property
    def by_lines(self) -> bool:
        return bool(self.filter or self.exclude)

    @property
    def marks(self) -> tuple[str, str]:
        return MARKS if self.marked else ("", "")


EVERYTHING = Selection()


class TextStream:
    """Bytes in; cleaned, redacted and filtered text out."""

    def __init__(self, mask: Mask, selection: Selection = EVERYTHING, live: bool = False) -> None:
        self._cleaner, self._mask, self._marks = Cleaner(live), mask.stream(), selection.marks
        self._filter = LineFilter(selection.filter, selection.exclude, selection.ignore_case)
        self._range = LineRange(selection.lines or (1, None))

    @property
    def hidden(self) -> int:
        """How many lines the filter held back."""
        return self._filter.hidden

    def feed(self, data: bytes) -> str:
        # Redacted before it is filtered: whether a filter lets a line through must not tell a secret.
        return self._range.take(self._filter.feed(self._mask.feed(self._cleaner.feed(data))))

    def feed_slice(self, piece: Slice) -> str:
        """As `feed`, with a line of ours where bytes were dropped."""
        gap = self.finish() + self._range.take(describe_gap(piece.dropped).join(self._marks)) if piece.dropped else ""
        return gap + self.feed(piece.data)

    def finish(self, whole: bool = True) -> str:
        """Return the rest; if not `whole`, more may come, and what may be the beginning of a secret is left out."""
        text = self._mask.feed(self._cleaner.finish()) + (self._mask.finish() if whole else "")
        return self._range.take(self._filter.feed(text) + self._filter.finish())


def describe_gap(dropped: int) -> str:
    """Return the line that stands where bytes are missing, so that both sides are not taken for one text."""
    return f"\n[outlast: {dropped} bytes were dropped here]\n"


def find_first_error(sources: Iterable[Source], mask: Mask) -> Excerpt | None:
    """Search all of a task's streams for the first error, in bounded memory."""
    from outlast.output.first_error import FirstError

    finder = FirstError()
    for source in sources:
        stream = TextStream(mask)
        for piece in source.chunks(0, source.end()):
            finder.feed((f"{stream.finish()}\n" if piece.dropped else "") + stream.feed(piece.data))
            if finder.is_final:
                return finder.finish()
        finder.feed(f"{stream.finish()}\n")
    return finder.finish()


# --- where a read begins and ends --------------------------------------------------------


def mask_start(source: Source, start: int, end: int, mask: Mask) -> Slice | None:
    """Return a mask for the rest of the secret that `start` is inside of; None if it is in none."""
    if not mask.on or not start:
        return None
    first = max(0, start - LOOK_BACK)
    upto = start + min(LOOK_BACK, max(0, end - start))
    around = source.read(first, upto - first)
    if around.start != first or around.next < start:
        return None  # what was before is dropped
    data = around.data
    if around.next < upto:  # it goes on in another file
        rest = source.read(around.next, upto - around.next)
        data += rest.data if rest.start == around.next else b""
    size = mask.inside(data[: start - first], data[start - first :])
    return Slice(around.stream, start, MASK.encode(), 0, start + size) if size else None


def read_settled(source: Source, start: int, end: int, closed: bool, by_lines: bool, mask: Mask) -> Iterator[Slice]:
    """Yield the bytes from `start` to `end` whose meaning cannot change any more.

    Unless the stream is `closed`, the last of them can be half a character, half an escape sequence, half a secret or,
    where lines are matched `by_lines`, half a line. Those are for the next read.
    """
    if masked := mask_start(source, start, end, mask):
        yield masked
        start = masked.next
    if mask.on and not closed:
        first = max(start, end - 2 * LOOK_BACK)
        end -= mask.count_open_bytes(source.read(first, end - first).data) if first < end else 0
    if by_lines and not closed:
        end = _find_last_line_end(source, end)
    for piece in source.chunks(start, end):
        if piece.next < end or closed:
            yield piece
        else:
            size = len(piece.data) - _count_unfinished(piece.data)
            yield Slice(piece.stream, piece.start, piece.data[:size], piece.dropped, piece.start + size)


def _find_last_line_end(source: Source, end: int) -> int:
    if source.read(max(0, end - 1), 1).data in (b"\n", b""):
        return end
    start = source.tail(1, end)
    return start if end - start <= PIECE else end


def _count_unfinished(data: bytes) -> int:
    """Return how many bytes at the end only make sense together with what is still to come."""
    escape = data.rfind(b"\x1b", max(0, len(data) - STRING_LIMIT))
    if escape >= 0 and _is_unfinished(data[escape + 1 :]):
        return len(data) - escape
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            break
    return 0


def _is_unfinished(sequence: bytes) -> bool:
    """Return whether the end of an escape sequence is missing; without its ESC."""
    kind, rest = sequence[:1], sequence[1:]
    if kind and kind in _STRINGS:
        return not any(ender in rest for ender in (b"\a", b"\n", b"\x18", b"\x1a"))
    if len(sequence) >= SEQUENCE_LIMIT:
        return False
    if kind == b"[":
        return all(0x20 <= byte <= 0x3F for byte in rest)
    return not sequence.strip(INTERMEDIATES.encode())


class LiveRedactor:
    """Slices without secrets while they come; a slice ends where a reader can go on without missing anything."""

    def __init__(self, mask: Mask, sources: Mapping[str, Source], start: Cursor) -> None:
        """An offset of `start` that is inside of a secret moves behind it, and a slice in `first` stands for it."""
        self.mask = mask
        found = {name: mask_start(source, start.at(name), source.end(), mask) for name, source in sources.items()}
        self.first = [masked for masked in found.values() if masked]
        self.at = {name: masked.next if masked else start.at(name) for name, masked in found.items()}  # to read from
        self._streams: dict[str, redaction.Stream] = {}
        self._at: dict[str, int] = {}  # redacted up to here

    def take(self, pieces: Iterable[Slice]) -> Iterator[Slice]:
        for piece in pieces:
            if not self.mask.on:
                yield piece
                continue
            if piece.dropped:
                yield from self._finish(piece.stream)
            stream = self._streams.setdefault(piece.stream, self.mask.stream(of_bytes=True))
            start = self._at.get(piece.stream, piece.start) if not piece.dropped else piece.start
            data = stream.feed(piece.data.decode("latin-1")).encode("latin-1")
            self._at[piece.stream] = end = piece.next - stream.held
            if data or piece.dropped:
                yield Slice(piece.stream, start, data, piece.dropped, end)

    @property
    def is_holding(self) -> bool:
        """Whether something is held back that may be the beginning of a secret."""
        return any(stream.held for stream in self._streams.values())

    def finish(self) -> Iterator[Slice]:
        """Yield the rest: no more comes, or it comes too late to wait for."""
        for name in self._streams:
            yield from self._finish(name)

    def _finish(self, name: str) -> Iterator[Slice]:
        stream = self._streams.get(name)
        if stream is not None and stream.held:
            start, held = self._at[name], stream.held
            self._at[name] = start + held
            yield Slice(name, start, stream.finish().encode("latin-1"), 0, start + held)
