"""What the selected task prints, as it comes; of a task with a terminal its screen."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import RichLog, Static

from outlast.errors import OutlastError
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from textual.app import ComposeResult

    from outlast.shell.async_shell import AsyncShell
    from outlast.types import Slice, Task

_TAIL_BYTES = 256 * 1024  # of each stream that are shown of what was printed before
_MOST_LINES = 5000
_LONGEST_LINE = 4000  # characters; more of one line is not drawn
# Everything that a terminal would obey, but for colours.
_CONTROLS = re.compile(
    r"\x1b\[[0-9;:]*(?P<final>[@-~])|\x1b\[[^@-~]*[@-~]?|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


class OutputPane(Vertical):
    """Follows one task at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.log_view = RichLog(id="log", max_lines=_MOST_LINES, wrap=True, auto_scroll=True)
        self._title, self._unfinished = Static(id="title", markup=False), Static(id="unfinished", markup=False)

    def compose(self) -> ComposeResult:
        yield from (self._title, self.log_view, self._unfinished)

    def show_title(self, title: str) -> None:
        self._title.update(Text(title, no_wrap=True, overflow="ellipsis"))

    async def follow(self, shell: AsyncShell, task: Task) -> None:
        """Show the end of a task's output, and what comes, until this is cancelled or the output ends."""
        self.clear()
        if getattr(task, "tty", None) is not None and not task.finished:
            await self._follow_screen(shell, task)
            return
        printer = _Printer()
        ends = {stream: shell.plain.executor.source(task.task_id, stream).end() for stream in STREAMS[: 1 + task.split]}
        begins = {stream: max(0, end - _TAIL_BYTES) for stream, end in ends.items()}
        if begins["stdout"]:
            self.log_view.write(
                Text("... earlier output is left out; `outlast logs` has all of it", style="dim italic")
            )
        async for piece in shell.follow(task.task_id, cursor=Cursor(**begins)):
            for line in printer.lines_of(piece):
                self.log_view.write(line)
            self._show_unfinished(printer.unfinished)
        if (rest := printer.unfinished) is not None:
            self.log_view.write(rest)
        self._show_unfinished(None)

    async def _follow_screen(self, shell: AsyncShell, task: Task) -> None:
        """Show the screen of a terminal, and again whenever the task printed something."""
        self.show_screen(await shell.screen(task.task_id))
        async for _ in shell.follow(
            task.task_id, cursor=Cursor(shell.plain.executor.source(task.task_id, "stdout").end())
        ):
            self.show_screen(await shell.screen(task.task_id))
        self.show_screen(await shell.screen(task.task_id))

    def show_screen(self, screen: object) -> None:
        self.log_view.clear()
        for row in screen.rows:  # type: ignore[attr-defined]
            self.log_view.write(Text(row, no_wrap=True))

    def show_error(self, error: OutlastError) -> None:
        self.log_view.write(Text(error.message, style="italic"))

    def clear(self) -> None:
        self.log_view.clear()
        self._show_unfinished(None)

    def _show_unfinished(self, line: Text | None) -> None:
        self._unfinished.update(line or Text())
        self._unfinished.display = line is not None


class _Printer:
    """Turns slices of two streams into lines of rich text."""

    def __init__(self) -> None:
        self._decoders = {stream: getincrementaldecoder("utf-8")("replace") for stream in STREAMS}
        self._rests = dict.fromkeys(STREAMS, "")

    def lines_of(self, piece: Slice) -> list[Text]:
        """Return the lines that this slice completes."""
        found = []
        if piece.dropped:
            found.append(Text(f"... {piece.dropped} bytes were dropped here ...", style="dim italic"))
        text = self._rests[piece.stream] + self._decoders[piece.stream].decode(piece.data)
        *lines, self._rests[piece.stream] = text.split("\n")
        return found + [_render_line(line, piece.stream) for line in lines]

    @property
    def unfinished(self) -> Text | None:
        """The last line, while it has no end: a prompt, for example."""
        stream = next((stream for stream in STREAMS if self._rests[stream]), None)
        return _render_line(self._rests[stream], stream) if stream else None


def _render_line(line: str, stream: str) -> Text:
    """Return one line with its colours, and with nothing else in it that a terminal would obey."""
    line = line.removesuffix("\r").rpartition("\r")[2].expandtabs()[:_LONGEST_LINE]  # a progress bar as it is now
    text = Text.from_ansi(_CONTROLS.sub(lambda found: found[0] if found["final"] == "m" else "", line))
    text.plain = text.plain.replace("\x1b", "")
    if stream == "stderr":
        text.stylize("red dim", 0, 0)
        text = Text("! ", style="red") + text
    return text
