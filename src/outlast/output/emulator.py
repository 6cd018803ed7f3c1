"""A terminal emulator without a window: the library `bittty`, behind the few functions that Outlast needs.

All that is known about the library is in this module. What a program prints is hostile input: sequences that resize the
page, print, or define macros are not performed, numbers and strings are bounded, and queries are not answered.
"""

from __future__ import annotations

import codecs

from bittty import Board
from bittty.devices.cursor import SavedCursor
from bittty.model import XTERM
from bittty.style import Style, style_to_ansi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from bittty.style import Color
    from bittty.video import Cell, Video

    Style_ = dict[str, Any]
    Run = tuple[str, Style_]

_MOST_STRING = 4096  # characters of a title or another control string; the rest of it is skipped
_MOST_TITLE = 200
# What a page needs: text, cursor, erasing, scrolling, modes, character sets, styles, titles. All else is ignored.
_DEVICES = ("charset", "control", "cursor", "modes", "blitter", "style", "title")
_IGNORED = (
    *("DECSCPP", "DECSLPP", "VT52_IDENTIFY", "DECALN", "OSC_HYPERLINK", "DECSSDT", "DECSASD"),
    *("NP", "PP", "PPA", "PPR", "PPB", "DECRQUPSS"),
)
_PLAIN = Style()
_FLAGS = ("bold", "dim", "italic", "underline")
# Setting one of these is an action (such as clearing the screen), or changes what a page or a number means.
_NO_STATE = {2, 3, 6, 40, 47, 1047, 1048, 1049, 2027, 8840}


class Emulator:
    """The screen of a terminal of this size."""

    def __init__(self, columns: int, rows: int) -> None:
        self._board = board = Board(width=columns, height=rows, model=XTERM)
        known = {name for device in _DEVICES for name in board.devices[device].handlers}
        for name in list(board.registry):
            if (name not in known and name != "PRINT") or name in _IGNORED:
                del board.registry[name]
        board.title.title = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Show what the program printed."""
        parser = self._board.parser
        parser.feed(self._decoder.decode(data))
        if parser.mode is not None and len(parser.buffer) > _MOST_STRING:
            # Its end is still to come, perhaps after gigabytes. The last character may be the first half of that.
            parser.buffer = parser.buffer[: parser._scan_from] + parser.buffer[-1:]

    def skip(self) -> None:
        """Forget an unfinished sequence: bytes are missing here."""
        self._decoder.reset()
        self._board.parser.reset()

    def resize(self, columns: int, rows: int) -> None:
        self._board.resize(columns, rows)

    # --- what is seen ----------------------------------------------------------------------

    @property
    def columns(self) -> int:
        return int(self._board.width)

    @property
    def height(self) -> int:
        return int(self._board.height)

    @property
    def is_alternate(self) -> bool:
        return bool(self._board.blitter.in_alt_screen)

    @property
    def has_application_keys(self) -> bool:
        return bool(self._board.modes.cursor_application_mode)

    @property
    def title(self) -> str:
        return str(self._board.title.title)[:_MOST_TITLE]

    @property
    def cursor(self) -> tuple[int, int] | None:
        """Return the row and the column; None if it is hidden."""
        cursor = self._board.cursor
        return (cursor.y, min(cursor.display_x, self.columns - 1)) if self._board.modes.cursor_visible else None

    def rows(self) -> list[list[Run]]:
        """Return of each row the runs of characters that look the same."""
        page = self._board.blitter.main_page
        return [list(_merge(page.grid[y])) for y in range(page.height)]

    # --- the whole state -------------------------------------------------------------------

    @property
    def is_between_sequences(self) -> bool:
        """Return whether the state can be dumped: no sequence and no character has begun."""
        return not self._board.parser.buffer and not self._decoder.getstate()[0]

    def dump(self) -> bytes:
        """Return what has to be fed to a new emulator of this size to bring it into the same state."""
        board, alternate = self._board, self.is_alternate
        parts = [*_dump_page(board.blitter.primary_page), *_dump_saved(board.cursor.saved[False])]
        if alternate:
            parts += ["\x1b[?1047h", *_dump_page(board.blitter.alt_page), *_dump_saved(board.cursor.saved[True])]
        parts += self._dump_modes()
        parts += [f"\x1b]2;{''.join(filter(str.isprintable, self.title))}\x1b\\", "\x1b[3g"]
        parts += [f"\x1b[1;{stop + 1}H\x1bH" for stop in sorted(board.cursor.tab_stops)]
        blitter, cursor = board.blitter, board.cursor
        if (blitter.scroll_top, blitter.scroll_bottom) != (0, board.height - 1):
            parts.append(f"\x1b[{blitter.scroll_top + 1};{blitter.scroll_bottom + 1}r")
        parts.append(f"\x1b[{cursor.y + 1};{cursor.display_x + 1}H")
        if board.modes.origin_mode:  # behind the move, whose meaning it changes; the library leaves the cursor there
            parts.append("\x1b[?6h")
        if cursor.wrap_pending:  # the last character once more: then the next one wraps
            row, at = blitter.current_page.grid[cursor.y], cursor.display_x
            if not row[at][1]:  # the second half of a wide one
                at -= 1
                parts.append("\b")
            parts += [style_to_ansi(row[at][0]), row[at][1], "\x1b[0m"]
        parts += [*_dump_charsets(board.charset.current_charset, board.charset.charset_array)]
        parts.append(style_to_ansi(board.style.current))
        return "".join(parts).encode("utf-8", "replace")

    def _dump_modes(self) -> Iterator[str]:
        modes, fresh = self._board.modes, Board(width=2, height=2, model=XTERM).modes
        for private, number in modes._modes:
            now, usual = modes.mode_status(private, number), fresh.mode_status(private, number)
            if now != usual and now in (1, 2) and not (private and number in _NO_STATE):
                yield f"\x1b[{'?' if private else ''}{number}{'h' if now == 1 else 'l'}"


def _dump_page(page: Video) -> Iterator[str]:
    for y in range(page.height):
        yield f"\x1b[{y + 1};1H\x1b[0m\x1b[2K"
        row, style = page.grid[y], _PLAIN
        end = len(row)
        while end and row[end - 1] == (_PLAIN, " "):
            end -= 1
        for cell_style, character in row[:end]:
            if cell_style != style:
                yield "\x1b[0m" + style_to_ansi(cell_style)
                style = cell_style
            yield character if character.isprintable() else ("" if character == "" else " ")
    yield "\x1b[0m"


def _dump_saved(saved: SavedCursor) -> Iterator[str]:
    if saved == SavedCursor():
        return
    place = f"\x1b[{saved.y + 1};{saved.x + 1}H"
    yield f"\x1b[?6h{place}" if saved.origin_mode else place
    yield from _dump_charsets(saved.charsets[0], saved.charsets[2])
    yield f"{style_to_ansi(saved.style)}\x1b7\x1b[0m\x1b[?6l\x0f\x1b(B\x1b)B"


def _dump_charsets(current: int, designated: Sequence[str]) -> Iterator[str]:
    for into, name in zip("()*+", designated, strict=True):
        if name != "B" and len(name) == 1:
            yield f"\x1b{into}{name}"
    if current == 1:
        yield "\x0e"


def _merge(row: Sequence[Cell]) -> Iterator[Run]:
    """Yield runs of characters; the second column of a wide character has no text."""
    text, last = "", _PLAIN
    described: Style_ = {}
    for style, character in row:
        if style != last:
            if (now := _describe(style)) != described:
                if text:
                    yield text, described
                text, described = "", now
            last = style
        is_shown = not character or (character.isprintable() and not style.conceal)
        text += character if is_shown else " "
    if text:
        yield text, described


def _describe(style: Style) -> Style_:
    """Return what is unusual about a style."""
    found: Style_ = {name: True for name in _FLAGS if getattr(style, name)}
    if style.reverse:
        found["inverse"] = True
    for name, color in (("fg", style.fg), ("bg", style.bg)):
        if (described := _describe_color(color)) is not None:
            found[name] = described
    return found


def _describe_color(color: Color | None) -> str | None:
    if color is None or color.mode == "default" or color.value is None:
        return None
    value = color.value
    if isinstance(value, tuple):
        return _name_color(value)
    if value < 16:
        return f"ansi-{value}"
    if value >= 232:
        return _name_color((8 + 10 * (value - 232),) * 3)
    steps = ((value - 16) // 36, (value - 16) // 6 % 6, (value - 16) % 6)
    return _name_color([0 if step == 0 else 55 + 40 * step for step in steps])


def _name_color(parts: Sequence[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in parts)
