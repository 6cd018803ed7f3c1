"""`outlast logs`: what a task printed, whole or in part, once or as it comes."""

from __future__ import annotations

import sys

from outlast.cli.arguments import Asked, Parser, whole
from outlast.cli.common import open_shell, task_json, write
from outlast.errors import BadInput, quote
from outlast.output.reader import check_selection
from outlast.output.redaction import OFF
from outlast.output.text_stream import Selection, TextStream, describe_gap, mask_start, read_settled
from outlast.shell import validation
from outlast.storage import reader_cursors
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from outlast.shell.shell import Shell
    from outlast.types import Slice, Task

READER = "command line"
INTERRUPTED = 130
_EXAMPLES = """\
  outlast logs 1a2b                     all of it, without colours and control sequences
  outlast logs -f 1a2b                  as it comes, until the task ends
  outlast logs --new 1a2b               what came since the last --new
  outlast logs --tail 20 1a2b           the last 20 lines
  outlast logs --filter 'error|warn' 1a2b
  outlast logs --from 4096 --json 1a2b  from a cursor; the reply has the next one
  outlast logs --raw 1a2b > copy        the bytes as they were printed"""


def logs_parser() -> Parser:
    """Return the options of `outlast logs`."""
    made = Parser("logs", "Print what a task printed.", _EXAMPLES)
    add = made.add
    add("-f", "--follow", action="store_true", help="go on until the task ends")
    add("--from", dest="cursor", metavar="CURSOR", help="start at this cursor")
    add("--new", action="store_true", help="only what is new since the last --new")
    add("--tail", type=whole, metavar="N", help="only the last N lines")
    add("--lines", metavar="A:B", help="only the lines from A to B, counted from 1")
    add("--filter", metavar="RE", help="only lines that match")
    add("--exclude", metavar="RE", help="no lines that match")
    add("-i", "--ignore-case", action="store_true", help="match without regard to case")
    add("--stream", metavar="stdout|stderr", help="only this stream of a task that was run with --split")
    add("--raw", action="store_true", help="the bytes as they were printed")
    return made.takes_id().takes_session().takes_json()


def logs(asked: Asked) -> int:
    """Do what `outlast logs` asks; returns the exit code."""
    selection = _selection(asked)
    with open_shell(asked.session) as shell:
        if asked.json:
            if asked.follow or asked.raw:
                raise BadInput("--json gives one object; leave out -f and --raw.")
            result = shell.read(
                asked.id,
                cursor=selection.cursor,
                new=asked.new,
                reader=READER,
                tail=selection.tail,
                lines=selection.lines,
                stream=selection.stream,
                filter=selection.filter,
                exclude=selection.exclude,
                ignore_case=selection.ignore_case,
            )
            write(task_json(shell, result) + "\n")
            return 0
        return _Printing(shell, shell.show(asked.id), selection, asked).run()


def _selection(asked: Asked) -> Selection:
    if asked.new and (asked.cursor is not None or asked.tail is not None or asked.lines is not None):
        raise BadInput("--new starts where the last --new ended; leave out --from, --tail and --lines.")
    if asked.raw and (asked.filter or asked.exclude or asked.lines is not None):
        raise BadInput("--raw gives the bytes as they are; leave out --filter, --exclude and --lines.")
    return Selection(
        cursor=validation.cursor(asked.cursor) if asked.cursor is not None else None,
        tail=asked.tail,
        lines=_range(asked.lines) if asked.lines is not None else None,
        stream=asked.stream,
        filter=asked.filter,
        exclude=asked.exclude,
        ignore_case=asked.ignore_case,
    )


def _range(text: str) -> tuple[int, int | None]:
    first, colon, last = text.partition(":")
    try:
        start = int(first) if first or not colon else 1
        return start, (int(last) if last else None) if colon else start
    except ValueError:
        raise BadInput(f"{quote(text)} is not a range of lines; write 10:20, 10: or :20.") from None


class _Printing:
    """One run of `logs` that prints as it reads."""

    def __init__(self, shell: Shell, task: Task, selection: Selection, asked: Asked) -> None:
        check_selection(selection, task.split)
        self._shell, self._task, self._selection, self._asked = shell, task, selection, asked
        streams = STREAMS if task.split else STREAMS[:1]
        self._streams = [stream for stream in streams if selection.stream in (None, stream)]
        self._mask = OFF if asked.raw else shell.context.mask_for(task)
        self._lines = {stream: TextStream(self._mask, selection, asked.follow) for stream in self._streams}

    def run(self) -> int:
        if not self._asked.new:
            return self._run(self._start(), None)
        with reader_cursors.ReaderCursor(self._directory, READER) as place:
            return self._run(place.cursor, place)

    def _run(self, start: Cursor, moved: reader_cursors.ReaderCursor | None) -> int:
        place, code = self._outside_secrets(start), 0
        at = {stream: place.at(stream) for stream in STREAMS}
        try:
            for piece in self._pieces(place):
                if piece.stream in self._streams:
                    self._print(piece)
                    at[piece.stream] = piece.next
        except KeyboardInterrupt:
            code = INTERRUPTED  # what was shown until then was read
        # What is still being printed may be half a secret.
        whole = not code and (self._asked.follow or self._task.closed)
        for stream in self._streams:
            self._write(stream, self._lines[stream].finish(whole))
        if moved is not None:
            moved.save(Cursor(**at))
        self._say_what_is_hidden()
        return code

    @property
    def _directory(self) -> str:
        return self._shell.executor.registry.home.task(self._task.task_id)

    def _start(self) -> Cursor:
        if self._selection.tail is not None:
            sources = {s: self._shell.executor.source(self._task.task_id, s) for s in self._streams}
            return Cursor(**{s: source.tail(self._selection.tail) for s, source in sources.items()})
        return self._selection.cursor or Cursor()

    def _outside_secrets(self, place: Cursor) -> Cursor:
        """Return the place, or where the secret ends that it is inside of."""
        at = {stream: place.at(stream) for stream in STREAMS}
        for stream in self._streams:
            source = self._shell.executor.source(self._task.task_id, stream)
            if masked := mask_start(source, at[stream], source.end(), self._mask):
                at[stream] = masked.next
                self._print(masked)
        return Cursor(**at)

    def _pieces(self, place: Cursor) -> Iterator[Slice]:
        if self._asked.follow:
            return self._shell.follow(self._task.task_id, cursor=place, raw=True)  # masked as text, further down
        if self._asked.new:
            return self._read_settled(place)
        return self._shell.reader.read_fresh(self._task.task_id, {stream: place.at(stream) for stream in self._streams})

    def _read_settled(self, place: Cursor) -> Iterator[Slice]:
        for stream in self._streams:
            source = self._shell.executor.source(self._task.task_id, stream)
            closed, by_lines = self._task.closed, self._selection.by_lines
            yield from read_settled(source, place.at(stream), source.end(), closed, by_lines, self._mask)

    def _print(self, piece: Slice) -> None:
        if piece.dropped:
            self._write(piece.stream, self._lines[piece.stream].finish() + describe_gap(piece.dropped))
        if self._asked.raw:
            out = self._out(piece.stream).buffer
            out.write(piece.data)
            out.flush()
        else:
            self._write(piece.stream, self._lines[piece.stream].feed(piece.data))

    def _write(self, stream: str, text: str) -> None:
        out = self._out(stream)
        out.write(text)
        out.flush()

    def _out(self, stream: str) -> TextIO:
        # Both streams go to the one of the same name. A single one was asked for, so it can be piped.
        return sys.stderr if stream == "stderr" and len(self._streams) > 1 else sys.stdout

    def _say_what_is_hidden(self) -> None:
        hidden = sum(lines.hidden for lines in self._lines.values())
        if hidden:
            sys.stderr.write(f"[outlast: {hidden} {'line is' if hidden == 1 else 'lines are'} not shown]\n")
