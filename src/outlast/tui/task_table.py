"""The list of tasks: one row each, in the order of the dashboard, kept in place while it changes."""

from __future__ import annotations

import time

from rich.text import Text
from textual.widgets import DataTable

from outlast.display import table
from outlast.display.render import saying
from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.types import Task

_NARROWEST = 10  # columns of what the task runs
_COLUMNS = (("STATUS", 13), ("ID", 14), ("TIME", 8), ("TYPE", 7), ("SESSION", 12), ("WHAT", _NARROWEST))
_COLOURS = {"running": "blue", "pending": "grey50", "completed": "green", "failed": "red", "killed": "yellow"}
_LONGEST = 300  # characters of a command
_TIME = "TIME"
_TICK_S = 1.0  # the times that are shown have seconds


class TaskTable(DataTable[Text]):
    """The tasks that match the filter. The selected task stays selected when others come and go."""

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, id="tasks")
        self._tasks: dict[str, Task] = {}
        self._waiting: frozenset[str] = frozenset()
        self._listed_at = 0.0

    def on_mount(self) -> None:
        for name, width in _COLUMNS:
            self.add_column(name, key=name, width=width)
        self.set_interval(_TICK_S, self.update_times)

    @property
    def selected(self) -> Task | None:
        """The task under the cursor."""
        ids = list(self._tasks)
        return self._tasks[ids[self.cursor_row]] if 0 <= self.cursor_row < len(ids) else None

    def on_resize(self) -> None:
        """Give the last column what the others leave."""
        *others, last = self.ordered_columns
        used = sum(column.get_render_width(self) for column in others) + 2 * self.cell_padding
        last.width = max(_NARROWEST, self.scrollable_content_region.width - used)
        self.refresh()

    def show_tasks(self, tasks: Sequence[Task], waiting: frozenset[str] = frozenset()) -> None:
        """Show these tasks, in this order; those that wait for input first."""
        chosen, row = self.selected, self.cursor_row
        self._listed_at = time.monotonic()
        tasks = sorted(tasks, key=lambda task: task.task_id not in waiting)
        before, self._waiting = self._waiting, waiting
        if [task.task_id for task in tasks] == list(self._tasks):
            self._update_changed(tasks, before ^ waiting)
            return
        self._tasks = {task.task_id: task for task in tasks}
        self.clear()
        for task in tasks:
            self.add_row(*self._cells(task), key=task.task_id)
        if chosen is not None and chosen.task_id in self._tasks:
            row = list(self._tasks).index(chosen.task_id)
        self.move_cursor(row=min(row, len(tasks) - 1))

    def _update_changed(self, tasks: Sequence[Task], others: frozenset[str]) -> None:
        for task in tasks:
            if task != self._tasks[task.task_id] or task.task_id in others:
                for (name, _), cell in zip(_COLUMNS, self._cells(task), strict=True):
                    self.update_cell(task.task_id, name, cell)
            self._tasks[task.task_id] = task

    def update_times(self) -> None:
        """Let the times of running tasks run on."""
        since = round((time.monotonic() - self._listed_at) * 1000)
        for task in self._tasks.values():
            if task.status == "running":
                self.update_cell(task.task_id, _TIME, _describe_time(task.elapsed_ms + since))

    def _cells(self, task: Task) -> tuple[Text, ...]:
        look, colour = table.LOOKS[task.status], _COLOURS[task.status]
        word = look.word
        if task.task_id in self._waiting:
            word, colour = "Needs input", "bold yellow"
        return (
            Text(f"{look.icon} {word}", style=colour),
            Text(task.task_id, style="bold"),
            _describe_time(task.elapsed_ms),
            Text(table.type_of(task), style="dim"),
            Text(task.session, style="dim", no_wrap=True, overflow="ellipsis"),
            Text(inline(saying(task), _LONGEST), no_wrap=True, overflow="ellipsis"),
        )


def _describe_time(milliseconds: int) -> Text:
    return Text(table.minutes(milliseconds), style="dim", justify="right")
