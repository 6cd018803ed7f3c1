"""The dashboard: tasks as a person wants to see them at a glance. Pure: tasks in, text out."""

from __future__ import annotations

from outlast.display.render import doing as _short
from outlast.display.render import saying
from outlast.light import frozen
from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outlast.types import Task

ROWS = 10
LOOKED_AT = 200  # finished tasks that are sorted into background and foreground; older ones count as foreground
HEADER = ("STATUS", "ID", "DESCRIPTION", "TIME", "TYPE")
_ACTIVITY = "ACTIVITY"  # the last column, if a task runs whose activity is known
EMPTY = "No tasks found"
FILTERS: dict[str, tuple[str, ...]] = {
    "all": ("pending", "running", "completed", "failed", "killed"),
    "running": ("running",),
    "completed": ("completed",),
    "error": ("failed",),
}

_NOTHING: Mapping[str, str] = {}
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


def in_order(tasks: Sequence[Task], is_background: Callable[[Task], bool]) -> list[Task]:
    """What runs, what waits, what ran in the background, and then foreground commands; each newest first, as given."""
    finished = [task for task in tasks if task.finished]
    # The table shows few of them, and each answer costs a read of a file.
    looked_at = {task.task_id: is_background(task) for task in finished[:LOOKED_AT]}
    background = [task for task in finished if looked_at.get(task.task_id)]
    return [
        *(task for task in tasks if task.status == "running"),
        *(task for task in tasks if task.status == "pending"),
        *background,
        *(task for task in finished if not looked_at.get(task.task_id)),
    ]


def dashboard(
    tasks: Sequence[Task], width: int, colour: bool, room: int | None = None, doing: Mapping[str, str] = _NOTHING
) -> str:
    """The first tasks as a table, and how many more there are; `doing` says by id what those do that run.

    Every task that has not ended has a row, also beyond the usual number; `room` is how many lines there are at most.
    """
    if not tasks:
        return EMPTY + "\n"
    rows_at_most = max(ROWS, sum(not task.finished for task in tasks))
    if room is not None:
        rows_at_most = max(1, min(rows_at_most, room - (1 if len(tasks) < room else 2)))
    shown = tasks[:rows_at_most]
    rows = [HEADER, *(_cells(task) for task in shown)]
    if doing:
        activities = [_ACTIVITY, *(_short(doing.get(task.task_id, "")) for task in shown)]
        rows = [(*row, activity) for row, activity in zip(rows, activities, strict=True)]
    sizes = [max(columns(row[number]) for row in rows) for number in range(len(rows[0]))]
    others = sum(sizes) - sizes[_DESCRIPTION] + len(_GAP) * (len(sizes) - 1)
    sizes[_DESCRIPTION] = min(sizes[_DESCRIPTION], max(_NARROWEST, width - others))
    paints = [(_BOLD,) * len(sizes), *((LOOKS[task.status].colour, _BOLD, "", _DIM, _MUTED, "") for task in shown)]
    lines = [_line(row, sizes, paint if colour else None) for row, paint in zip(rows, paints, strict=True)]
    if len(tasks) > len(shown):
        lines.append(f"... and {len(tasks) - len(shown)} more tasks")
    return "\n".join(lines) + "\n"


def _cells(task: Task) -> tuple[str, ...]:
    look = LOOKS[task.status]
    what = inline(saying(task), _LONGEST_DESCRIPTION)
    return f"{look.icon} {look.word}", task.task_id, what, minutes(task.elapsed_ms), type_of(task)


def type_of(task: Task) -> str:
    """remote for a task on another machine, agent for an agent, else what the command is for: test, build, bash ..."""
    if task.executor != "local":
        return "remote"
    return "agent" if task.kind == "agent" else task.category


def minutes(milliseconds: int) -> str:
    """A time as the dashboard shows it: 0m 12s, 3m 4s, 75m 0s."""
    seconds = max(0, milliseconds) // 1000
    return f"{seconds // 60}m {seconds % 60}s"


def _line(row: Sequence[str], sizes: Sequence[int], paint: Sequence[str] | None) -> str:
    cells = [fit(cell, size) for cell, size in zip(row, sizes, strict=True)]
    gaps = [" " * (size - columns(cell)) + _GAP for cell, size in zip(cells, sizes, strict=True)]
    if paint:
        cells = [f"\033[{code}m{cell}\033[0m" if code else cell for cell, code in zip(cells, paint, strict=False)]
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


def fit(text: str, size: int) -> str:
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
