"""Make an excerpt of a bounded size from the lines that explain an error."""

from __future__ import annotations

import re

from outlast.output.first_error.excerpt import Excerpt

MAX_LINES = 12
MAX_CHARS = 1500
LINE_CHARS = 300
GAP = "..."
CUT = "…"

_INTERESTING = (
    re.compile(r"\"(?:stderr|msg|message|error)\": ?\"(?!non-zero|\")"),
    re.compile(r"(?i)error|fatal|exception|fail|panic|undefined|cannot|denied|not found|critical"),
)


def make_excerpt(lines: list[tuple[int, str]], key: int) -> Excerpt:
    """Lay out numbered lines. Those farthest from line `key` are left out if there are too many."""
    lines = [(number, _shorten(text)) for number, text in lines if text.strip()] or lines[:1]
    while len(lines) > 1 and not _fits(lines):
        below, above = lines[-1][0] - key, key - lines[0][0]
        lines.pop(-1 if below >= above else 0)
    return Excerpt(tuple(_add_gaps(lines)), lines[0][0])


def _fits(lines: list[tuple[int, str]]) -> bool:
    rows = _add_gaps(lines)
    return len(rows) <= MAX_LINES and sum(len(row) + 1 for row in rows) <= MAX_CHARS


def _add_gaps(lines: list[tuple[int, str]]) -> list[str]:
    rows: list[str] = []
    last = lines[0][0]
    for number, text in lines:
        if number > last + 2:  # a single line that is left out is a blank one in most formats
            rows.append(GAP)
        rows.append(text)
        last = number
    return rows


def _shorten(text: str) -> str:
    """Cut a long line to the part around its first word that tells an error."""
    if len(text) <= LINE_CHARS:
        return text
    match = next((match for pattern in _INTERESTING if (match := pattern.search(text))), None)
    start = match.start() - LINE_CHARS // 3 if match and match.start() > LINE_CHARS // 2 else 0
    if start == 0:
        return text[: LINE_CHARS - 1] + CUT
    end = start + LINE_CHARS - 2
    return CUT + (text[start:] if end + 1 >= len(text) else text[start:end] + CUT)[-LINE_CHARS + 1 :]
