"""A screen drawn into a terminal of another size: cut to what fits. Pure."""

from __future__ import annotations

from outlast.display.table import columns as columns_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from outlast.output.screen import Screen

_FLAGS = {"bold": 1, "dim": 2, "italic": 3, "underline": 4, "inverse": 7}


def paint(screen: Screen, width: int, height: int) -> bytes:
    """Return what draws the screen from the top left corner; the rows around the cursor if not all fit."""
    rows = len(screen.rows)
    first = min(max(0, rows - height), max(0, screen.cursor[0] - height + 1) if screen.cursor else 0)
    modes = zip((25, 7, 1047, 1), (False, False, screen.alternate, screen.application_keys), strict=True)
    parts = [*(f"\x1b[?{mode}{'h' if on else 'l'}" for mode, on in modes), "\x1b[H"]
    for number in range(height):
        row = screen.cells[first + number] if first + number < rows else ()
        parts.append(("\r\n" if number else "") + _paint_row(row, width))
    if screen.cursor and screen.cursor[0] - first < height and screen.cursor[1] < width:
        parts.append(f"\x1b[{screen.cursor[0] - first + 1};{screen.cursor[1] + 1}H\x1b[?25h")
    return "".join(parts).encode("utf-8", "replace")


def _paint_row(row: tuple[tuple[str, Mapping[str, Any]], ...], width: int) -> str:
    # Erased first: behind a full row the cursor stands on its last character, which would be erased, too.
    text, left = "\x1b[0m\x1b[K", width
    for run, style in row:
        part = ""
        for char in run:
            left -= columns_of(char)
            if left < 0:
                break
            part += char
        text += f"\x1b[{sgr(style)}m{part}"
        if left < 0:
            break
    return f"{text}\x1b[0m"


def sgr(style: Mapping[str, Any]) -> str:
    """Return the parameters of the sequence that switches a style on, from plain."""
    found = ["0", *(str(number) for name, number in _FLAGS.items() if style.get(name))]
    for name, base in (("fg", 30), ("bg", 40)):
        colour = str(style.get(name, ""))
        if colour.startswith("ansi-"):
            number = int(colour[5:])
            found.append(str(base + number if number < 8 else base + 52 + number))
        elif colour.startswith("#"):
            found.append(f"{base + 8};2;{';'.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}")
    return ";".join(found)
