"""Reads tasks and their output. Nothing in here changes a task."""

from __future__ import annotations

import os
from itertools import islice

from outlast.errors import WITH_TERMINAL, BadInput, InputRefused, OutlastError, quote
from outlast.light import replace
from outlast.output.reader import check_options, read
from outlast.output.redaction import OFF
from outlast.output.text_stream import EVERYTHING, LiveRedactor, find_first_error
from outlast.shell import conditions, validation
from outlast.shell.context import translate_errors
from outlast.storage import reader_cursors
from outlast.types import STREAMS, Cursor, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Unpack

    from outlast.executors.base import Executors
    from outlast.linux.activity import Activity
    from outlast.output.first_error import Excerpt
    from outlast.output.screen import Screen
    from outlast.shell.conditions import Condition
    from outlast.shell.context import Context
    from outlast.shell.options import ListOptions, ReadOptions, TaskId
    from outlast.storage.index import Mark, Usual
    from outlast.storage.output import Source
    from outlast.types import Result, Slice

_PAGE = 100  # tasks that are looked up at once
_STATUS_WORDS = {"error": "failed", "cancelled": "killed"}
_STATUSES = ("pending", "running", "completed", "failed", "killed")
OUTSIDE = "outside the sandbox"  # how the error of a command begins that failed because of its sandbox


class _Explained:
    """Raises what is wrong with a task in place of the system's error about one of its files."""

    def __init__(self, executor: Executors, task_id: str) -> None:
        self._executor, self._task_id = executor, task_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._executor.explain(self._task_id, error) from None


class Reader:
    """What the tasks of one shell print, and how they are."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._executor, self._redactor = context.executor, context.redactor

    def _find(self, task: TaskId) -> Task:
        """Return a task as it is now, not redacted."""
        return self._executor.status(self.context.find(task))

    def _sources(self, task: Task) -> dict[str, Source]:
        return {name: self._executor.source(task.task_id, name) for name in (STREAMS if task.split else STREAMS[:1])}

    @translate_errors
    def read(self, task: TaskId, **options: Unpack[ReadOptions]) -> Result:
        """As `Shell.read`."""
        selected: dict[str, Any] = dict(options)
        new, reader, most = selected.pop("new", False), selected.pop("reader", None), selected.pop("max_chars", None)
        cursor = selected.pop("cursor", None)
        selection = replace(EVERYTHING, cursor=None if cursor is None else validation.cursor(cursor), **selected)
        budget = self.context.settings.shown_chars if most is None else most
        check_options(selection, new, budget)
        # Of what is over only the output is looked at; if it is gone with its task, that is noticed there.
        task_id = task.task_id if isinstance(task, Task) else task
        over = self._executor.registry.get_cached(task_id, self.context.scope)
        found = self._redactor.redact_cached(over or self._find(task_id))
        try:
            sources, mask = self._sources(found), self.context.mask_for(found)
            if not new:
                return self._explain_refusal(read(found, selection, sources, budget, mask))
            # While the cursor is held, no other process reads as the same reader.
            with reader_cursors.ReaderCursor(os.path.dirname(found.output_file), self._reader_name(reader)) as place:
                result = read(found, replace(selection, cursor=place.cursor), sources, budget, mask)
                place.save(validation.cursor(result.cursor))
            return self._explain_refusal(result)
        except OSError as error:
            self.context.find(task_id)  # which says so if it was removed
            raise self._executor.explain(found.task_id, error) from None

    @translate_errors
    def screen(self, task: TaskId) -> Screen:
        """As `Shell.screen`."""
        task_id = self.context.find(task)
        launch, directory = self._executor.registry.launch_of(task_id), self._executor.registry.home.task(task_id)
        if launch.tty is None:
            raise InputRefused(f"{task_id} has no terminal, so it has no screen.", WITH_TERMINAL)
        from outlast.output.screen import compute_screen  # most commands have no terminal

        with _Explained(self._executor, task_id):
            source, mask = self._executor.source(task_id, STREAMS[0]), self.context.mask_for(self._find(task_id))
            return compute_screen(directory, source, launch.tty, mask)

    def _explain_refusal(self, result: Result) -> Result:
        """Return a result that says of what failed in a sandbox whether it failed because of it."""
        if result.status != "failed" or not result.sandbox or result.error:
            return result
        from outlast.sandbox.refusals import LAST_LINES, find_refusal  # most commands run without

        selection, budget = replace(EVERYTHING, tail=LAST_LINES), self.context.settings.shown_chars
        said = read(result, selection, self._sources(result), budget, self.context.mask_for(result)).output
        line = find_refusal(result.sandbox, said, result.exit_code)
        return replace(result, error=f"{OUTSIDE}: {line}") if line else result

    def _reader_name(self, reader: str | None) -> str:
        return reader or f"session {self.context.session}"

    @translate_errors
    def reader_position(self, task: TaskId, reader: str | None = None) -> Cursor:
        """Return where `reader` (by default this session) stopped reading what is new."""
        found = self._find(task)
        with _Explained(self._executor, found.task_id):
            return reader_cursors.read_cursor(os.path.dirname(found.output_file), self._reader_name(reader))

    @translate_errors
    def is_first_time(self, task: TaskId, what: str) -> bool:
        """Return whether this session has not been told `what` of a task before; from now on it has."""
        found = self._find(task)
        with _Explained(self._executor, found.task_id):
            return reader_cursors.claim_once(
                os.path.dirname(found.output_file), f"session {self.context.session}: {what}"
            )

    def open_live(
        self, task: TaskId, cursor: str | Cursor | None, raw: bool
    ) -> tuple[str, LiveRedactor, Sequence[Slice]]:
        """Return a task's id, how to redact what it prints from `cursor` on, and the slices that come first."""
        found, start = self._find(task), validation.cursor(cursor)
        with _Explained(self._executor, found.task_id):
            live = LiveRedactor(OFF if raw else self.context.mask_for(found), self._sources(found), start)
        return found.task_id, live, live.first

    def read_fresh(self, task_id: str, at: dict[str, int]) -> Iterator[Slice]:
        """Yield what there is to read now, not masked, and move `at`; bounded, so that a flood cannot hide the end."""
        self.context.check_reachable(task_id)
        with _Explained(self._executor, task_id):
            for stream, offset in at.items():
                source = self._executor.source(task_id, stream)
                for piece in source.chunks(offset, source.end()):
                    at[stream] = piece.next
                    yield piece

    def show_output_to(self, condition: Condition, task_id: str) -> None:
        """Give a condition the streams that it looks at."""
        self.context.check_reachable(task_id)
        with _Explained(self._executor, task_id):
            condition.begin(self._sources(self._executor.status(task_id)))

    @translate_errors
    def reaction(self, task_id: str, until: str | None, from_start: bool = False) -> Condition:
        """Return what to wait for after input is sent: a line that matches `until`, or that the program reacted."""
        if until is None:
            condition: Condition = conditions.Reaction(lambda: self.activity(task_id), from_start)
        else:
            ends = {name: source.end() for name, source in self._sources(self._executor.status(task_id)).items()}
            condition = conditions.Line(until, Cursor(**ends))
        self.show_output_to(condition, task_id)
        return condition

    @translate_errors
    def show(self, task: TaskId) -> Task:
        """As `Shell.show`."""
        return self._redactor.redact(self._find(task))

    @translate_errors
    def list(self, **options: Unpack[ListOptions]) -> list[Task]:
        """As `Shell.list`."""
        status, kind, most = options.get("status"), options.get("kind"), options.get("most")
        ended_after = options.get("ended_after")
        wanted = _STATUS_WORDS.get(status, status) if status else None
        if wanted is not None and wanted not in _STATUSES:
            raise BadInput(f"There is no status {quote(status)}; use one of {', '.join(_STATUSES)}.")
        if most is not None and most < 1:
            raise BadInput(f"The number of tasks to list must be 1 or more, not {most}.")
        self._executor.refresh()
        registry, scope = self._executor.registry, self.context.scope or options.get("session")
        if ended_after is not None:
            tasks = registry.recent(scope, ended_after, -1 if most is None else most)
        else:
            tasks = registry.tasks(scope, -1 if most is None else max(most, _PAGE))
        chosen = (task for task in tasks if wanted in (None, task.status) and kind in (None, task.kind))
        return [
            self._redactor.redact_cached(task) for task in islice(chosen, None if ended_after is not None else most)
        ]

    @translate_errors
    def look(self, task_id: str) -> Task:
        """As `show`, of a task named by its whole id: one that has ended is read and redacted once."""
        self.context.check_reachable(task_id)
        return self._redactor.redact_cached(self._executor.status(task_id))

    def look_at_all(self, marks: Sequence[Mark]) -> Iterator[Task]:
        """As `look`, of many tasks at once; what is gone is left out."""
        self._executor.refresh()
        for task in self._executor.registry.load(marks):
            if self.context.scope in (None, task.session):
                yield self._redactor.redact_cached(task)

    def redacted_tasks(self, page: int) -> Iterator[Task]:
        """Yield all tasks that can be reached, newest first, loading `page` of them at once."""
        for task in self._executor.registry.tasks(self.context.scope, page):
            yield self._redactor.redact_cached(task)

    @translate_errors
    def usual(self, command: str) -> Usual | None:
        """Return how long this command took in this session when it last went well, if it did."""
        return self._executor.registry.usual(command, self.context.session)

    @translate_errors
    def activity(self, task: TaskId) -> Activity:
        """As `Shell.activity`."""
        return self._executor.activity(self.context.find(task))

    def activities(self, tasks: Iterable[Task]) -> dict[str, Activity]:
        """Return by id what those tasks do that run."""
        found = {}
        for task in tasks:
            if task.status == "running":
                try:
                    found[task.task_id] = self.activity(task)
                except OutlastError:
                    continue  # removed since it was listed
        return found

    @translate_errors
    def printed_at(self, task: Task) -> float | None:
        """Return when a task last printed something."""
        with _Explained(self._executor, task.task_id):
            times = [source.changed_at() for source in self._sources(task).values()]
        return max((at for at in times if at is not None), default=None)

    @translate_errors
    def first_error(self, task: TaskId) -> Excerpt | None:
        """Return the first error in a task's output, with the lines that explain it; None if nothing looks like one."""
        found = self._find(task)
        with _Explained(self._executor, found.task_id):
            return find_first_error(self._sources(found).values(), self.context.mask_for(found))

    @translate_errors
    def line_counts(self, task: Task) -> tuple[int, int]:
        """Return how many lines of stdout and of stderr are kept."""
        self.context.check_reachable(task.task_id)
        return self._executor.registry.line_counts(task)
