"""The application: the list above, what the selected task prints below, and the keys.

The list is read again when an event says that a task began or ended; timers let the times run on, and look at what the
running tasks do. Nothing here knows how tasks are stored: everything goes through `AsyncShell`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from typing import ClassVar

from textual.app import App
from textual.binding import Binding
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widgets import DataTable, Footer, Input, Static

from outlast.display import table
from outlast.display.render import doing, ending, receipt, saying
from outlast.errors import OutlastError
from outlast.notices.async_streams import wait_for_change
from outlast.output.cleaner import inline
from outlast.tui.dialogs import AskText, Confirm, Help
from outlast.tui.output_pane import OutputPane
from outlast.tui.task_table import TaskTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from outlast.linux.activity import Activity
    from outlast.shell.async_shell import AsyncShell
    from outlast.types import Task

LISTED_AT_MOST = 1000  # tasks
_LOOKED_AT = 50  # running tasks whose activity is shown
_ACTIVITY_S = 2.0  # between two looks at it: no event tells when it changes
_TITLE = 200  # characters
_SEARCH = "search in commands, descriptions, ids and sessions"
_EMPTY = "No tasks yet.\n\nStart one in another terminal:\n\n    outlast run --bg 'make test'"


class Top(App[None]):
    """`outlast top`."""

    TITLE = "outlast top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; padding: 0 1; background: $panel; }
    #search { display: none; border: none; height: 1; padding: 0 1; }
    #search.open { display: block; }
    #tasks { height: 45%; overflow-x: hidden; scrollbar-gutter: stable; }
    #empty { display: none; height: 45%; padding: 2 4; }
    OutputPane { height: 1fr; }
    OutputPane #title { height: 1; padding: 0 1; background: $panel; }
    OutputPane #log { height: 1fr; padding: 0 1; }
    OutputPane #unfinished { display: none; height: auto; max-height: 3; padding: 0 1; }
    .empty #empty { display: block; }
    .empty #tasks, .large #tasks, .large #summary { display: none; }
    .dialog { width: 70; max-width: 90%; height: auto; padding: 1 2; border: round $accent; background: $surface; }
    AskText, Confirm, Help { align: center middle; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
        Binding("enter", "enlarge", "Output"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("f", "next_filter", "Filter"),
        Binding("x", "kill", "Kill"),
        Binding("s", "send", "Send"),
        Binding("a", "attach", "Attach"),
        Binding("r", "again", "Run again"),
        Binding("d", "remove", "Remove", show=False),
        Binding("j", "move(1)", "Down", show=False),
        Binding("k", "move(-1)", "Up", show=False),
        Binding("g", "end(False)", "Start of the output", show=False),
        Binding("G", "end(True)", "End of the output", show=False),
        Binding("escape", "leave", "Back", show=False),
        Binding("question_mark", "help", "Keys", key_display="?"),
    ]
    status_filter: reactive[str] = reactive("all", init=False)
    search: reactive[str] = reactive("", init=False)

    def __init__(self, shell: AsyncShell) -> None:
        super().__init__()
        self._shell = shell
        self._tasks: list[Task] = []
        self._activities: dict[str, Activity] = {}
        self._followed = ""
        self.table, self.output = TaskTable(), OutputPane()
        self._summary, self._search_field = Static(id="summary", markup=False), Input(placeholder=_SEARCH, id="search")
        self._all = Vertical(id="all")

    def compose(self) -> ComposeResult:
        with self._all:
            yield self._summary
            yield self._search_field
            yield self.table
            yield Static(_EMPTY, id="empty", markup=False)
            yield self.output
        yield Footer()

    def on_mount(self) -> None:
        self.table.focus()
        self.run_worker(self._watch_tasks())
        self.run_worker(self._watch_activities())
        self.run_worker(self._look_elsewhere())

    # --- what is shown -----------------------------------------------------------------------

    async def _watch_tasks(self) -> None:
        """Read the list now, and again whenever a task begins or ends."""
        stream = await asyncio.to_thread(self._shell.plain.notice_board.following, None)
        try:
            while True:
                await asyncio.to_thread(stream.look)  # before the list is read: no task is missed between the two
                self._tasks = await self._shell.list(most=LISTED_AT_MOST)
                self._show_tasks()
                await wait_for_change(stream.watch)
        finally:
            stream.close()

    async def _watch_activities(self) -> None:
        while True:
            running = [task for task in self._tasks if task.status == "running"][:_LOOKED_AT]
            found = await asyncio.to_thread(self._shell.plain.reader.activities, running)
            if found != self._activities:
                self._activities = found
                self._show_tasks()
            await asyncio.sleep(_ACTIVITY_S)

    async def _look_elsewhere(self) -> None:
        """Bring tasks on other machines up to date, which ring no bell here."""
        while True:
            with suppress(OSError, OutlastError):
                await asyncio.to_thread(self._shell.plain.executor.refresh)
            await asyncio.sleep(_ACTIVITY_S)

    def _show_tasks(self) -> None:
        """Show the tasks that match the filter and the search."""
        tasks = self._tasks
        running = sum(task.status == "running" for task in tasks)
        pending = sum(task.status == "pending" for task in tasks)
        shown = [task for task in tasks if task.status in table.FILTERS[self.status_filter] and self._matches(task)]
        waiting = frozenset(task for task, activity in self._activities.items() if activity == "waiting for input")
        self.table.show_tasks(table.in_order(shown, lambda task: task.background), waiting)
        filters = "  ".join(f"[{name}]" if name == self.status_filter else name for name in table.FILTERS)
        search = f"   search: {self.search}" if self.search else ""
        self._summary.update(f"{running} running  {pending} pending  {len(tasks)} in all   {filters}{search}")
        self._all.set_class(not tasks, "empty")
        self._follow_selected()

    def _matches(self, task: Task) -> bool:
        words = f"{task.task_id} {task.session} {task.name} {task.description} {task.command}".lower()
        return all(word in words for word in self.search.lower().split())

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self._follow_selected()

    def _follow_selected(self) -> None:
        task = self.table.selected
        if task is None:
            self._followed = ""
            self.workers.cancel_group(self, "follow")
            self.output.clear()
            self.output.show_title("")
            return
        self.output.show_title(self._describe(task))
        if task.task_id != self._followed:
            self._followed = task.task_id
            self.run_worker(self._follow(task), group="follow", exclusive=True)

    async def _follow(self, task: Task) -> None:
        try:
            await self.output.follow(self._shell, task)
        except OutlastError as error:
            self.output.show_error(error)

    # --- filter and search -------------------------------------------------------------------

    def watch_status_filter(self) -> None:
        self._show_tasks()

    def watch_search(self) -> None:
        self._show_tasks()

    def action_next_filter(self) -> None:
        names = list(table.FILTERS)
        self.status_filter = names[(names.index(self.status_filter) + 1) % len(names)]

    def action_search(self) -> None:
        self._search_field.add_class("open")
        self.screen.set_focus(self._search_field)  # at once: what is typed next belongs to it, and is no key

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self._search_field:
            self.search = event.value

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self._search_field:
            self.table.focus()

    def action_leave(self) -> None:
        """Leave the search, or the large output."""
        self._search_field.value = ""
        self._search_field.remove_class("open")
        self._all.remove_class("large")
        self.table.focus()

    # --- moving ------------------------------------------------------------------------------

    def action_move(self, rows: int) -> None:
        self.table.move_cursor(row=self.table.cursor_row + rows)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_enlarge()

    def action_enlarge(self) -> None:
        """Give the output the whole screen, or take it back."""
        self._all.toggle_class("large")
        (self.output.log_view if self._all.has_class("large") else self.table).focus()

    def action_end(self, is_end: bool) -> None:
        log = self.output.log_view
        log.auto_scroll = is_end
        (log.scroll_end if is_end else log.scroll_home)(animate=False)

    def action_help(self) -> None:
        rows = [
            (binding.key_display or binding.key, binding.description)
            for binding in self.BINDINGS
            if isinstance(binding, Binding)
        ]
        self.push_screen(Help(rows))

    # --- acting on the selected task ---------------------------------------------------------

    def action_kill(self) -> None:
        if (task := self.table.selected) is None:
            return
        if task.finished and not task.children:
            self.notify(f"{task.task_id} has ended already.", severity="warning")
            return

        def end(is_wanted: bool | None) -> None:
            if is_wanted:
                self._act(self._kill(task))

        self.push_screen(Confirm(f"End {task.task_id} with its whole tree?\n{self._describe(task)}"), end)

    async def _kill(self, task: Task) -> str:
        return receipt(await self._shell.kill(task.task_id)).rstrip()

    def action_send(self) -> None:
        if (task := self.table.selected) is None:
            return

        def send(text: str | None) -> None:
            if text is not None:
                self._act(self._send(task, text))

        self.push_screen(AskText(f"A line for the input of {task.task_id}:"), send)

    async def _send(self, task: Task, text: str) -> str:
        await self._shell.send(task.task_id, text + "\n")
        return f"Sent to {task.task_id}."

    def action_remove(self) -> None:
        if (task := self.table.selected) is not None:
            self._act(self._remove(task))

    async def _remove(self, task: Task) -> str:
        await self._shell.remove(task.task_id)
        self._tasks = [one for one in self._tasks if one.task_id != task.task_id]  # a removal rings no bell
        self._show_tasks()
        return f"{task.task_id} was removed with its output."

    def action_again(self) -> None:
        if (task := self.table.selected) is not None:
            self._act(self._run_again(task))

    async def _run_again(self, task: Task) -> str:
        return f"{(await self._shell.start(like=task)).task_id} runs the same again."

    def action_attach(self) -> None:
        """Give the terminal to `outlast attach`, and take it back when the user detaches."""
        if (task := self.table.selected) is not None:
            with self.suspend():
                subprocess.run([sys.executable, "-m", "outlast", "attach", task.task_id], check=False)

    def _act(self, work: Awaitable[str]) -> None:
        """Do something with a task, and say what came of it."""

        async def act() -> None:
            try:
                self.notify(await work, markup=False)
            except OutlastError as error:
                self.notify(error.message, severity="error", markup=False)

        self.run_worker(act())

    def _describe(self, task: Task) -> str:
        how = ending(task) if task.finished else task.status
        if not task.finished and (activity := self._activities.get(task.task_id)):
            how = f"{how} ({doing(activity)})"
        return f"{task.task_id}  {how}  {inline(saying(task), _TITLE)}"
