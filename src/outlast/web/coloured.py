"""One line of output as a page shows it: as a terminal would end up showing it, with its colours and nothing else.

What is left of control sequences are those of colours and weights (SGR), which the page understands and nothing obeys.
"""

from __future__ import annotations

import re

from outlast.output.cleaner import Cleaner, is_plain

_TOKEN = re.compile(
    r"\x1b\[([0-9:;]*)m|\x1b\[([0-9;]*)([CDGK])|\x1b[\]PX^_k][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?|([\r\b])"
)
_WIDEST = 512  # cells that the cursor can jump over
MOST_CHARS = 10_000


def show(data: bytes) -> tuple[str, int]:
    """Return the text of a line, and how many characters of it were left out at its end."""
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    cut = max(0, len(text) - MOST_CHARS)
    text = text[:MOST_CHARS]
    if is_plain(text):
        return text, cut
    if "\x1b" not in text and "\x9b" not in text:
        return plain(text.encode("utf-8", "replace")), cut
    return _draw(text), cut


def plain(data: bytes) -> str:
    """Return the text of a line without its colours."""
    cleaner = Cleaner()
    return (cleaner.feed(data.rstrip(b"\r\n")) + cleaner.finish()).replace("\n", " ")


def _draw(text: str) -> str:
    """Return a line as it ends up after its moves within the line; each cell keeps the colour it was written in."""
    cells: list[tuple[str, str]] = []
    column, style, at = 0, "", 0
    for found in _TOKEN.finditer(text):
        column = _write(cells, column, text[at : found.start()], style)
        at = found.end()
        colours, amount, move, control = found.groups()
        if colours is not None:
            style = _change_style(style, colours)
        elif move == "K":
            cells[:] = _erase(cells, column, amount)
        elif move:
            column = _move(column, int(amount.partition(";")[0] or 1), move)
        elif control:
            column = 0 if control == "\r" else max(0, column - 1)
    _write(cells, column, text[at:], style)
    return _join(cells)


def _write(cells: list[tuple[str, str]], column: int, text: str, style: str) -> int:
    shown = text if text.isprintable() else plain(text.encode("utf-8", "replace"))
    if not shown:
        return column
    cells.extend([(" ", "")] * (column - len(cells)))
    cells[column : column + len(shown)] = [(char, style) for char in shown]
    return column + len(shown)


def _move(column: int, amount: int, move: str) -> int:
    wanted = {"C": column + amount, "D": column - amount, "G": amount - 1}[move]
    return min(max(0, wanted), column + _WIDEST)


def _erase(cells: list[tuple[str, str]], column: int, how: str) -> list[tuple[str, str]]:
    if how in ("", "0"):
        return cells[:column]
    gone = min(column + 1, len(cells)) if how == "1" else len(cells)
    return [(" ", "")] * gone + cells[gone:] if how == "1" else []


def _change_style(style: str, given: str) -> str:
    """Return the style after a sequence: all that was said since the last reset."""
    last = given.split(";")
    if "0" in last and "38" not in last and "48" not in last:
        last = last[len(last) - last[::-1].index("0") :]
        style = ""
    if not given or not last:
        return ""
    joined = f"{style};{';'.join(last)}".strip(";")
    return joined if len(joined) < 100 else ";".join(last)[:100]


def _join(cells: list[tuple[str, str]]) -> str:
    text, before = [], ""
    for char, style in cells:
        if style != before:
            text.append(("\x1b[0m" if before else "") + (f"\x1b[{style}m" if style else ""))
            before = style
        text.append(char)
    return "".join(text) + ("\x1b[0m" if before else "")
