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

_COLUMNS = (("STATUS", 9), ("ID", 14), ("TIME", 8), ("TYPE", 7), ("SESSION", 12), ("WHAT", None))
_COLOURS = {"running": "blue", "pending": "grey50", "completed": "green", "failed": "red", "killed": "yellow"}
_LONGEST = 300  # characters of a command
_TIME = "TIME"
_TICK_S = 1.0  # the times that are shown have seconds


class TaskTable(DataTable[Text]):
    """The tasks that match the filter. The selected task stays selected when others come and go."""

    def __init__(self) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, id="tasks")
        self._tasks: dict[str, Task] = {}
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

    def show_tasks(self, tasks: Sequence[Task]) -> None:
        """Show these tasks, in this order."""
        chosen, row = self.selected, self.cursor_row
        self._listed_at = time.monotonic()
        if [task.task_id for task in tasks] == list(self._tasks):
            self._update_changed(tasks)
            return
        self._tasks = {task.task_id: task for task in tasks}
        self.clear()
        for task in tasks:
            self.add_row(*_cells(task), key=task.task_id)
        if chosen is not None and chosen.task_id in self._tasks:
            row = list(self._tasks).index(chosen.task_id)
        self.move_cursor(row=min(row, len(tasks) - 1))

    def _update_changed(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task != self._tasks[task.task_id]:
                for (name, _), cell in zip(_COLUMNS, _cells(task), strict=True):
                    self.update_cell(task.task_id, name, cell)
            self._tasks[task.task_id] = task

    def update_times(self) -> None:
        """Let the times of running tasks run on."""
        since = round((time.monotonic() - self._listed_at) * 1000)
        for task in self._tasks.values():
            if task.status == "running":
                self.update_cell(task.task_id, _TIME, _describe_time(task.elapsed_ms + since))


def _cells(task: Task) -> tuple[Text, ...]:
    look, colour = table.LOOKS[task.status], _COLOURS[task.status]
    return (
        Text(f"{look.icon} {look.word}", style=colour),
        Text(task.task_id, style="bold"),
        _describe_time(task.elapsed_ms),
        Text(table.type_of(task), style="dim"),
        Text(task.session, style="dim"),
        Text(inline(saying(task), _LONGEST), no_wrap=True),
    )


def _describe_time(milliseconds: int) -> Text:
    return Text(table.minutes(milliseconds), style="dim", justify="right")
