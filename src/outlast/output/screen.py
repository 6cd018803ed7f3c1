"""The screen of a task's terminal, computed from what the task printed.

A reader replays the output since the last checkpoint through an emulator, and leaves a checkpoint for the next one. A
checkpoint is text that brings a new emulator into the same state, so reading one can do no more than output can. Where
more was printed than can be replayed in a moment, only the end is: the state of the modes is searched for in
what was skipped, and the screen says that it may not be exact.
"""

from __future__ import annotations

import os
import re
from binascii import crc32
from itertools import accumulate

from outlast.light import frozen, json
from outlast.linux.files import open_locked, open_regular, read_file, unlock_and_close
from outlast.storage.layout import SIZES
from outlast.types import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outlast.output.emulator import Emulator
    from outlast.output.redaction import Mask
    from outlast.storage.output import Source

    Size = tuple[int, int]
    Run = tuple[str, dict[str, object]]

CHECKPOINT = "screen"
_REPLAYED_BYTES = 1 << 19  # an emulator takes a second for 0.2 MB (one letter on each line) to 3 MB
_CHECKPOINT_BYTES = 1 << 14  # replaying less takes milliseconds
_SEARCHED_BYTES = 64 << 20  # of what is skipped
_MOST_BYTES = 4 << 20  # of a checkpoint
_MASK = "*"
# After one of these nothing is left of what was on the screen before.
_FRESH = re.compile(rb"\x1b\[[23]J|\x1b\[H\x1b\[0?J|\x1bc|\x1b\[\?1049h")
_MODES = (
    b"1049",
    b"25",
    b"1",
    b"7",
    b"6",
    b"2004",
)  # that are set (h) and reset (l), and outlast what is on the screen
_TITLE = re.compile(rb"\x1b\][02];[^\x07\x1b\x00]{0,200}(?:\x07|\x1b\\)")


@frozen
class Checkpoint:
    """The state of the emulator when it had seen the first `offset` bytes of the output."""

    offset: int
    columns: int
    rows: int
    exact: bool
    state: bytes


def compute_screen(directory: str, source: Source, first_size: Size, mask: Mask) -> Screen:
    """Return the screen of the task in `directory`, whose terminal had `first_size` at the start."""
    return view(*replay(directory, source, first_size), mask)


def replay(directory: str, source: Source, first_size: Size) -> tuple[Emulator, bool]:
    """Return an emulator that has seen the output, and whether it has seen enough of it to be exact."""
    from outlast.output.emulator import Emulator

    sizes = [(0, first_size), *read_sizes(directory)]
    end = source.end()
    begin = _read_checkpoint(directory, end)
    if end - begin.offset > _REPLAYED_BYTES:
        begin = _skip_to_end(source, begin, end, sizes)
    columns, rows = (begin.columns, begin.rows) if begin.columns else first_size
    emulator = Emulator(columns, rows)
    emulator.feed(begin.state)
    exact = _replay_from(emulator, source, begin, end, sizes)
    if end - begin.offset >= _CHECKPOINT_BYTES and emulator.is_between_sequences:
        columns, rows = _size_at(sizes, end)
        _write_checkpoint(directory, Checkpoint(end, columns, rows, exact, emulator.dump()))
    return emulator, exact


def _replay_from(
    emulator: Emulator, source: Source, begin: Checkpoint, end: int, sizes: list[tuple[int, Size]]
) -> bool:
    """Feed the output from the checkpoint on, and resize where the terminal was resized."""
    exact, at = begin.exact, begin.offset
    changes: list[tuple[int, Size | None]] = [(offset, size) for offset, size in sizes if offset >= at]
    for offset, size in [*changes, (end, None)]:
        for piece in source.chunks(at, min(offset, end)):
            if piece.dropped:
                emulator.skip()
                exact = False
            emulator.feed(piece.data)
        at = max(at, min(offset, end))
        if size is not None and size != (emulator.columns, emulator.height):
            emulator.resize(*size)
    return exact


def read_sizes(directory: str) -> list[tuple[int, Size]]:
    """Return from which byte of the output on the terminal had another size, and which."""
    try:
        lines = read_file(f"{directory}/{SIZES}", 1 << 16).splitlines()
        found = [(int(line[:20]), (int(line[21:25]), int(line[26:30]))) for line in lines]
    except (OSError, ValueError):
        return []
    # The guard overwrites the last line when the file is full; a successor may note a size twice.
    return sorted(found, key=lambda entry: entry[0])


def _size_at(sizes: list[tuple[int, Size]], offset: int) -> Size:
    return [size for at, size in sizes if at <= offset][-1]


# --- too much to replay ------------------------------------------------------------------


def _skip_to_end(source: Source, begin: Checkpoint, end: int, sizes: list[tuple[int, Size]]) -> Checkpoint:
    """Return a place near the end to begin at, with the modes that hold there."""
    near = end - _REPLAYED_BYTES
    data = b"".join(piece.data for piece in source.chunks(near, near + _REPLAYED_BYTES // 2))
    cleared = [found.start() for found in _FRESH.finditer(data)]
    cut = cleared[-1] if cleared else max(data.find(b"\n") + 1, 0)
    skipped = b"".join(piece.data for piece in source.chunks(max(begin.offset, near - _SEARCHED_BYTES), near))
    before = skipped + data[:cut]
    columns, rows = _size_at(sizes, near + cut)
    state = _find_state(before) if before else b""
    return Checkpoint(near + cut, columns, rows, bool(cleared) and begin.exact, state)


def _find_state(skipped: bytes) -> bytes:
    """Return what sets the modes and the title as they are after `skipped`."""
    found: list[tuple[int, bytes]] = []
    for mode in _MODES:
        places = [(skipped.rfind(word), word) for word in (b"\x1b[?%sh" % mode, b"\x1b[?%sl" % mode)]
        if max(places)[0] >= 0:
            found.append(max(places))
    if (start := max(skipped.rfind(b"\x1b]0;"), skipped.rfind(b"\x1b]2;"))) >= 0 and (
        title := _TITLE.match(skipped, start)
    ):
        found.append((start, title[0]))
    return b"".join(text for _, text in sorted(found))


# --- checkpoints -------------------------------------------------------------------------


def _read_checkpoint(directory: str, end: int) -> Checkpoint:
    nothing = Checkpoint(0, 0, 0, True, b"")
    try:
        head, _, state = read_file(f"{directory}/{CHECKPOINT}", _MOST_BYTES).partition(b"\n")
        values = json.loads(head)
        found = Checkpoint(state=state, **{name: values[name] for name in ("offset", "columns", "rows", "exact")})
        good = values["crc"] == crc32(state) and 0 < found.offset <= end
        good = good and 0 < found.columns <= 9999 and 0 < found.rows <= 9999
        return found if good else nothing
    except (OSError, ValueError, KeyError, TypeError):
        return nothing


def _write_checkpoint(directory: str, made: Checkpoint) -> None:
    """Keep it for the next reader. Without a lock, or on a full disk, that one has to do more."""
    head = {name: made.__dict__[name] for name in ("offset", "columns", "rows", "exact")}
    data = json.dumps({**head, "crc": crc32(made.state)}).encode() + b"\n" + made.state
    if len(data) > _MOST_BYTES:
        return
    try:
        os.close(open_regular(path := f"{directory}/{CHECKPOINT}", os.O_RDWR | os.O_CREAT))
        fd = open_locked(path, flags=os.O_RDWR)
        if fd is None:
            return
        try:
            # A reader that sees a part of it finds that the checksum is wrong.
            os.pwrite(fd, data, 0)
            os.ftruncate(fd, len(data))
        finally:
            unlock_and_close(fd)
    except OSError:
        pass


# --- as callers see it -------------------------------------------------------------------


def view(emulator: Emulator, exact: bool, mask: Mask) -> Screen:
    """Return what is on the screen, without secrets."""
    cells = _mask_rows(emulator.rows(), mask)
    return Screen(
        columns=emulator.columns,
        rows=tuple("".join(text for text, _ in row).rstrip() for row in cells),
        cursor=emulator.cursor,
        title=mask.text(emulator.title),
        alternate=emulator.is_alternate,
        application_keys=emulator.has_application_keys,
        exact=exact,
        cells=tuple(tuple(row) for row in cells),
    )


def _mask_rows(rows: Sequence[Sequence[Run]], mask: Mask) -> list[list[Run]]:
    """Replace each character of a secret. A secret may go on in the next row, so the rows are searched as one text."""
    texts = ["".join(text for text, _ in row) for row in rows]
    whole = "".join(texts)
    hidden = bytearray(len(whole))
    starts = [0, *accumulate(map(len, texts))]
    # By itself each row, too: a token that ends at the edge would be none with what follows in the next row.
    for start, text in [(0, whole), *zip(starts, texts, strict=False)]:
        for first, last in mask.spans(text):
            hidden[start + first : start + last] = b"\1" * (last - first)
    if not any(hidden):
        return [list(row) for row in rows]
    return [list(_hide(row, hidden[start:])) for row, start in zip(rows, starts, strict=False)]


def _hide(row: Sequence[Run], hidden: bytearray) -> Iterator[Run]:
    at = 0
    for text, style in row:
        yield "".join(_MASK if hidden[at + n] else one for n, one in enumerate(text)), style
        at += len(text)
