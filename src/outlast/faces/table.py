"""The dashboard: tasks as a person wants to see them at a glance. Pure: tasks in, text out."""

from __future__ import annotations

from outlast.faces.render import saying
from outlast.frozen import frozen
from outlast.text import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.model import Task

ROWS = 10
HEADER = ("STATUS", "ID", "DESCRIPTION", "TIME", "TYPE")
EMPTY = "No tasks found"
FILTERS: dict[str, tuple[str, ...]] = {
    "all": ("pending", "running", "completed", "failed", "killed"),
    "running": ("running",),
    "completed": ("completed",),
    "error": ("failed",),
}

_GAP = "  "
_DESCRIPTION = 2  # its column: the one that gives way
_NARROWEST = len(HEADER[_DESCRIPTION])
_LONGEST_DESCRIPTION = 500


@frozen
class Look:
    """How a status is shown: an icon, a word, and a colour for both."""

    icon: str
    word: str
    colour: str


LOOKS = {
    "running": Look("●", "Running", "34"),
    "pending": Look("○", "Pending", "90"),
    "completed": Look("✔", "Done", "32"),
    "failed": Look("✖", "Failed", "31"),
    "killed": Look("⊘", "Stopped", "33"),
}
_BOLD, _DIM, _MUTED = "1", "2", "90"  # "bright" as bold: bright white cannot be read on a light ground


def dashboard(tasks: Sequence[Task], width: int, colour: bool) -> str:
    """The first tasks as a table, and how many more there are."""
    if not tasks:
        return EMPTY + "\n"
    shown = tasks[:ROWS]
    rows = [HEADER, *(_cells(task) for task in shown)]
    sizes = [max(columns(row[number]) for row in rows) for number in range(len(HEADER))]
    others = sum(sizes) - sizes[_DESCRIPTION] + len(_GAP) * (len(HEADER) - 1)
    sizes[_DESCRIPTION] = min(sizes[_DESCRIPTION], max(_NARROWEST, width - others))
    paints = [(_BOLD,) * len(HEADER), *((LOOKS[task.status].colour, _BOLD, "", _DIM, _MUTED) for task in shown)]
    lines = [_line(row, sizes, paint if colour else None) for row, paint in zip(rows, paints, strict=True)]
    if len(tasks) > ROWS:
        lines.append(f"... and {len(tasks) - ROWS} more tasks")
    return "\n".join(lines) + "\n"


def _cells(task: Task) -> tuple[str, ...]:
    look = LOOKS[task.status]
    what = inline(saying(task), _LONGEST_DESCRIPTION)
    return f"{look.icon} {look.word}", task.task_id, what, minutes(task.elapsed_ms), type_of(task)


def type_of(task: Task) -> str:
    """bash or agent, or remote wherever it is that it runs elsewhere."""
    return task.kind if task.executor == "local" else "remote"


def minutes(milliseconds: int) -> str:
    """A time as the dashboard shows it: 0m 12s, 3m 4s, 75m 0s."""
    seconds = max(0, milliseconds) // 1000
    return f"{seconds // 60}m {seconds % 60}s"


def _line(row: Sequence[str], sizes: Sequence[int], paint: Sequence[str] | None) -> str:
    cells = [fitted(cell, size) for cell, size in zip(row, sizes, strict=True)]
    gaps = [" " * (size - columns(cell)) + _GAP for cell, size in zip(cells, sizes, strict=True)]
    if paint:
        cells = [f"\033[{code}m{cell}\033[0m" if code else cell for cell, code in zip(cells, paint, strict=True)]
    return "".join(cell + gap for cell, gap in zip(cells, gaps, strict=True)).rstrip()


# --- how wide text is on a screen --------------------------------------------------------


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if char.isascii():
        return 1
    # Only here: most tables need it for their icons alone, which are in the map.
    width = _KNOWN.get(char)
    if width is None:
        from unicodedata import category, east_asian_width

        # Marks stand upon the character before them, and format characters nowhere.
        marks = category(char) in ("Mn", "Me", "Cf") or "\u1160" <= char <= "\u11ff"
        width = 0 if marks else 2 if east_asian_width(char) in "WF" else 1
    return width


_KNOWN = dict.fromkeys("●○✔✖⊘…", 1)


def fitted(text: str, size: int) -> str:
    """As much of a text as fits into so many columns, with … where it was cut."""
    if columns(text) <= size:
        return text
    left, kept = size - 1, []
    for char in text:
        left -= _columns_of(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…" if size > 0 else ""
