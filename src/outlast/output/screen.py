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

from outlast.light import fields, frozen, json
from outlast.linux.files import open_locked, open_regular, read_file, unlock_and_close
from outlast.storage.layout import SIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from outlast.output.emulator import Emulator
    from outlast.output.redaction import Mask
    from outlast.storage.output import Source

    Size = tuple[int, int]
    Run = tuple[str, dict[str, object]]

CHECKPOINT = "screen"
_REPLAYED_BYTES = 1 << 19  # an emulator takes a second for 0.2 MB (one letter on each line) to 3 MB
_LEAST_BYTES = 1 << 17  # that are replayed if none of it clears the screen: some 60 pages of 80x24
_CHECKPOINT_BYTES = 1 << 14  # replaying less takes milliseconds
_SEARCHED_BYTES = 4 << 20  # of what is skipped, at its end; and of its beginning, where most programs set their modes
_BEGINNING_BYTES = 1 << 18
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
_MARGINS = re.compile(rb"\x1b\[[0-9]*;?[0-9]*r|\x1bc")
_TITLE = re.compile(rb"\x1b\][02];[^\x07\x1b\x00]{0,200}(?:\x07|\x1b\\)")


@frozen
class Screen:
    """What a person would see on a task's terminal. Places are counted from 0."""

    columns: int
    rows: tuple[str, ...]  # the text of each, without blanks at its end
    cursor: tuple[int, int] | None  # row and column; None: it is hidden
    title: str
    alternate: bool  # the screen of a full-screen program, which the output before it comes back after
    application_keys: bool  # the arrow keys send what full-screen programs ask for (DECCKM)
    exact: bool  # False: so much was printed unseen that only the end of it was looked at
    cells: tuple[tuple[tuple[str, Mapping[str, Any]], ...], ...]
    """Of each row the runs of characters that look the same, with what is unusual about them: fg, bg, bold ..."""

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` has."""
        return {name: value for name, value in fields(self).items() if name != "cells"}

    def to_page(self) -> dict[str, Any]:
        """Return what a page draws: `rows` is their number, and `cells` has their text."""
        return {**fields(self), "rows": len(self.rows)}


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


def replay(directory: str, source: Source, first_size: Size, end: int | None = None) -> tuple[Emulator, bool]:
    """Return an emulator that has seen the output (up to `end`), and whether it has seen enough of it to be exact."""
    from outlast.output.emulator import Emulator

    sizes = [(0, first_size), *read_sizes(directory)]
    end = source.end() if end is None else end
    known = _read_checkpoint(directory, end) or Checkpoint(0, *first_size, True, b"")
    emulator = Emulator(known.columns, known.rows)
    emulator.feed(known.state)
    at, exact = known.offset, known.exact
    if end - at > _REPLAYED_BYTES:
        at, state = _skip_to_end(source, at, end)
        emulator.resize(*_size_at(sizes, at))
        emulator.feed(state)
        exact = False
    exact = _replay_from(emulator, source, at, end, sizes) and exact
    if end - known.offset >= _CHECKPOINT_BYTES and emulator.is_between_sequences:
        made = Checkpoint(end, emulator.columns, emulator.height, exact, emulator.dump())
        _write_checkpoint(directory, made)
    return emulator, exact


def _replay_from(emulator: Emulator, source: Source, at: int, end: int, sizes: Sequence[tuple[int, Size]]) -> bool:
    """Feed the output from `at` on, and resize where the terminal was resized. Returns whether nothing is missing."""
    complete = True
    changes: list[tuple[int, Size | None]] = [(offset, size) for offset, size in sizes if offset >= at]
    for offset, size in [*changes, (end, None)]:
        for piece in source.chunks(at, min(offset, end)):
            if piece.dropped:
                emulator.skip()
                complete = False
            emulator.feed(piece.data)
        at = max(at, min(offset, end))
        if size is not None and size != (emulator.columns, emulator.height):
            emulator.resize(*size)
    return complete


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


def _skip_to_end(source: Source, begin: int, end: int) -> tuple[int, bytes]:
    """Return a place near the end, and what sets the modes as they are there."""
    near = end - _REPLAYED_BYTES
    data = b"".join(piece.data for piece in source.chunks(near, end))
    cleared = [found.start() for found in _FRESH.finditer(data)]
    cut = cleared[-1] if cleared else max(0, len(data) - _LEAST_BYTES)
    if not cleared:  # not in the middle of a sequence
        cut = next((at for at in (data.find(b"\x1b", cut), data.find(b"\n", cut)) if at >= 0), cut)
    late = max(begin, near - _SEARCHED_BYTES)
    searched = [(begin, min(begin + _BEGINNING_BYTES, late)), (late, near)]
    skipped = b"".join(piece.data for start, stop in searched for piece in source.chunks(start, stop))
    return end - len(data) + cut, _find_state(skipped + data[:cut])


def _find_state(skipped: bytes) -> bytes:
    """Return what sets the modes and the title as they are after `skipped`."""
    found: list[tuple[int, bytes]] = []
    for mode in _MODES:
        places = [(skipped.rfind(word), word) for word in (b"\x1b[?%sh" % mode, b"\x1b[?%sl" % mode)]
        if max(places)[0] >= 0:
            found.append(max(places))
    for margins in list(_MARGINS.finditer(skipped))[-1:]:
        found.append((margins.start(), margins[0]))
    if (start := max(skipped.rfind(b"\x1b]0;"), skipped.rfind(b"\x1b]2;"))) >= 0 and (
        title := _TITLE.match(skipped, start)
    ):
        found.append((start, title[0]))
    return b"".join(text for _, text in sorted(found))


# --- checkpoints -------------------------------------------------------------------------


def _read_checkpoint(directory: str, end: int) -> Checkpoint | None:
    try:
        head, _, state = read_file(f"{directory}/{CHECKPOINT}", _MOST_BYTES).partition(b"\n")
        values = json.loads(head)
        found = Checkpoint(state=state, **{name: values[name] for name in ("offset", "columns", "rows", "exact")})
        good = values["crc"] == crc32(state) and 0 < found.offset <= end
        return found if good and 0 < found.columns < 10000 and 0 < found.rows < 10000 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
