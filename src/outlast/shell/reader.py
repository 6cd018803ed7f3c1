"""Reads tasks and their output. Nothing in here changes a task."""

from __future__ import annotations

import os
from itertools import islice

from outlast import conditions, validation
from outlast.errors import BadInput, named
from outlast.frozen import replaced
from outlast.output import reader as output_reader
from outlast.output.redaction import OFF
from outlast.output.text_stream import LiveRedactor, Selection, mask_start, read_text
from outlast.shell.context import translate_errors
from outlast.storage import reader_cursors
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.conditions import Condition
    from outlast.output.first_error import Excerpt
    from outlast.shell.context import Context
    from outlast.storage.output import Source
    from outlast.types import Result, Slice, Task, Usual


_PAGE = 100  # tasks that are looked up at once
_STATUS_WORDS = {"error": "failed", "cancelled": "killed"}
_STATUSES = ("pending", "running", "completed", "failed", "killed")


class Reader:
    """What the tasks of one shell print, and how they are."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._executor, self._redactor = context.executor, context.redactor

    @translate_errors
    def find(self, part: str) -> str:
        """The whole id of a task that can be reached."""
        return self.context.find(part)

    def status(self, task_id: str) -> Task:
        """A task as it is now, not redacted."""
        return self._executor.status(self.find(task_id))

    @translate_errors
    def read(
        self,
        task_id: str,
        *,
        cursor: str | Cursor | None = None,
        new: bool = False,
        reader: str | None = None,
        tail: int | None = None,
        lines: tuple[int, int | None] | None = None,
        stream: str | None = None,
        filter: str | None = None,
        exclude: str | None = None,
        ignore_case: bool = False,
        max_chars: int | None = None,
        marked: bool = False,
        interleaved: bool = False,
        page: bool = False,
    ) -> Result:
        """What a task printed, as text for a model: all, from a cursor, the last lines, a range, or what is new.

        `new` reads on from where `reader` (by default this session) stopped. `marked`: each line of ours in the text,
        about what is left out, stands between the two `selection.MARKS`, which no output contains. `interleaved`: the
        output of a split task is both streams, whole, in the order they came, not one after the other. `page`: if more
        is there than fits, it shows what comes first, not both ends, and `cursor` is where the next page begins.
        """
        # Of what is over only the output is looked at; if it is gone with its task, that is noticed there.
        over = self._executor.registry.get_cached(task_id, self.context.scope)
        task = self._redactor.redact_cached(over or self._executor.status(self.find(task_id)))
        if new and (cursor is not None or tail is not None or lines is not None):
            raise BadInput("What is new starts where the last read ended; leave out cursor, tail and lines.")
        selection = Selection(
            cursor=validation.cursor(cursor) if cursor is not None else None,
            tail=tail,
            lines=lines,
            stream=stream,
            filter=filter,
            exclude=exclude,
            ignore_case=ignore_case,
            marked=marked,
            interleaved=interleaved,
            page=page,
        )
        if page and (tail is not None or lines is not None or interleaved):
            raise BadInput("Pages follow one another from a cursor on; leave out tail, lines and interleaved.")
        if interleaved and (new or cursor is not None or selection.tail or lines or filter or exclude):
            raise BadInput("Both streams in the order they came are shown whole; leave out what selects a part.")
        budget = self.context.settings.shown_chars if max_chars is None else max_chars
        if budget < 1:
            raise BadInput(f"The number of characters to show must be 1 or more, not {budget}.")
        try:
            if not new:
                return self._selected(task, selection, budget)
            return self._new(task, selection, budget, reader or f"session {self.context.session}")
        except OSError as error:
            self.find(task_id)  # which says so if it was removed
            raise self._executor.trouble(task.task_id, error) from None

    def _new(self, task: Task, selection: Selection, budget: int, reader: str) -> Result:
        """What `reader` has not read yet; nobody else reads as the same reader meanwhile."""
        with reader_cursors.ReaderCursor(os.path.dirname(task.output_file), reader) as place:
            result = self._selected(task, replaced(selection, cursor=place.cursor), budget)
            place.save(validation.cursor(result.cursor))
        return result

    def _selected(self, task: Task, selection: Selection, budget: int) -> Result:
        def source(stream: str) -> Source:
            return self._executor.registry.source(task.task_id, stream)

        return output_reader.read(task, selection, source, budget, self.context.mask_for(task))

    def show_output_to(self, condition: Condition, task_id: str) -> None:
        """Give a condition the streams that it looks at."""
        self.context.check_reachable(task_id)
        streams = STREAMS if self._executor.status(task_id).split else STREAMS[:1]
        condition.begin({stream: self._executor.source(task_id, stream) for stream in streams})
        condition.has_begun = True

    @translate_errors
    def reaction(self, task_id: str, until: str | None) -> Condition:
        """What to wait for after input is sent: a line that matches `until`, or that the program reacted."""
        if until is None:
            condition: Condition = conditions.Reaction(lambda: self.activity(task_id))
        else:
            condition = conditions.Line(until, self._end_of_output(task_id))
        self.show_output_to(condition, task_id)
        return condition

    @translate_errors
    def reader_position(self, task_id: str, reader: str | None = None) -> Cursor:
        """Where `reader` (by default this session) stopped reading what is new."""
        directory = os.path.dirname(self._executor.status(self.find(task_id)).output_file)
        return reader_cursors.read_cursor(directory, reader or f"session {self.context.session}")

    def _end_of_output(self, task_id: str) -> Cursor:
        """Behind the last byte that a task has printed so far."""
        streams = STREAMS if self._executor.status(task_id).split else STREAMS[:1]
        return Cursor(**{stream: self._executor.source(task_id, stream).end() for stream in streams})

    def open_live(self, task: Task, at: dict[str, int], raw: bool = False) -> tuple[LiveRedactor, list[Slice]]:
        """How slices are redacted that begin at these offsets; one inside of a secret moves behind it: the slices."""
        live = LiveRedactor(OFF if raw else self.context.mask_for(task))
        first = []
        for stream, offset in at.items():
            source = self._executor.source(task.task_id, stream)
            if masked := mask_start(source, offset, source.end(), live.mask):
                first.append(masked)
                at[stream] = masked.next
        return live, first

    def fresh(self, task_id: str, at: dict[str, int]) -> Iterator[Slice]:
        """What there is to read now, moving `at` along; bounded, so that a flood cannot hide the end. Not masked."""
        self.context.check_reachable(task_id)
        try:
            for stream, place in at.items():
                source = self._executor.source(task_id, stream)
                for piece in source.chunks(place, source.end()):
                    at[stream] = piece.next
                    yield piece
        except OSError as error:
            raise self._executor.trouble(task_id, error) from None

    # --- list --------------------------------------------------------------------------------

    @translate_errors
    def show(self, task_id: str) -> Task:
        """What is known of a task now."""
        return self.context.redact(self._executor.status(self.find(task_id)))

    @translate_errors
    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        session: str | None = None,
        most: int | None = None,
        ended_after: float | None = None,
    ) -> list[Task]:
        """The tasks of this session (an operator: of all, or of one), newest first.

        `most`: only so many, so that it takes no longer where there are many. `ended_after`: those that go on, and
        (`most` of) those that ended after that moment.
        """
        wanted = _STATUS_WORDS.get(status, status) if status else None
        if wanted is not None and wanted not in _STATUSES:
            raise BadInput(f"There is no status {named(status)}; use one of {', '.join(_STATUSES)}.")
        if most is not None and most < 1:
            raise BadInput(f"The number of tasks to list must be 1 or more, not {most}.")
        tasks = self._listed(self.context.scope or session, most, ended_after)
        if wanted is not None or kind is not None:
            tasks = (task for task in tasks if wanted in (None, task.status) and kind in (None, task.kind))
        chosen = tasks if most is None or ended_after is not None else islice(tasks, most)
        return [self._redactor.redact_cached(task) for task in chosen]

    def _listed(self, session: str | None, most: int | None, ended_after: float | None) -> Iterator[Task]:
        registry = self._executor.registry
        if ended_after is not None:
            return registry.recent(session, ended_after, -1 if most is None else most)
        return registry.tasks(session, -1 if most is None else max(most, _PAGE))

    @translate_errors
    def is_first_time(self, task_id: str, what: str) -> bool:
        """Whether this session has not been told `what` of a task before; from now on it has."""
        directory = os.path.dirname(self._executor.status(self.find(task_id)).output_file)
        return reader_cursors.claim_once(directory, f"session {self.context.session}: {what}")

    @translate_errors
    def usual(self, command: str) -> Usual | None:
        """How long this command took in this session when it last went well, if it did."""
        return self._executor.registry.usual(command, self.context.session)

    @translate_errors
    def activity(self, task_id: str) -> str:
        """What a running task does at this moment, in a few words; nothing if that cannot be seen."""
        from outlast.activity import of_task

        return of_task(self._executor.members(self.find(task_id)))

    @translate_errors
    def printed_at(self, task: Task) -> float | None:
        """When a task last printed something."""
        sources = [self._executor.source(task.task_id, stream) for stream in (STREAMS if task.split else STREAMS[:1])]
        return max((at for source in sources if (at := source.changed_at()) is not None), default=None)

    @translate_errors
    def first_error(self, task_id: str) -> Excerpt | None:
        """The first error in what a task printed, with the lines that explain it; None if nothing looks like one."""
        from outlast.output.first_error import FirstError

        task = self._executor.status(self.find(task_id))
        finder = FirstError()
        try:
            for stream in STREAMS if task.split else STREAMS[:1]:
                source = self._executor.registry.source(task.task_id, stream)
                for text in read_text(source, self.context.mask_for(task)):
                    finder.feed(text)
                    if finder.is_final:
                        break
        except OSError as error:
            raise self._executor.trouble(task.task_id, error) from None
        return finder.finish()

    @translate_errors
    def line_counts(self, task: Task) -> tuple[int, int]:
        """How many lines of stdout and of stderr are kept."""
        self.context.check_reachable(task.task_id)
        return self._executor.registry.line_counts(task)
