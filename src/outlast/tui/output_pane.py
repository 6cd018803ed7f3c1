"""What the selected task prints, as it comes; of a task with a terminal its screen."""

from __future__ import annotations

import asyncio
import re
from codecs import getincrementaldecoder

from rich.style import Style
from rich.text import Text
from textual.containers import Vertical
from textual.widgets import RichLog, Static

from outlast.errors import OutlastError
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from textual.app import ComposeResult

    from outlast.output.screen import Screen
    from outlast.shell.async_shell import AsyncShell
    from outlast.types import Slice, Task

_TAIL_BYTES = 256 * 1024  # of each stream that are shown of what was printed before
_MOST_LINES = 5000
_DRAW_S = 0.05  # between two pictures of a screen that changes all the time
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
        if task.tty is not None and not task.finished:
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
        self._show_screen(await shell.screen(task))
        end = shell.plain.executor.source(task.task_id, STREAMS[0]).end()
        async for _ in shell.follow(task, cursor=Cursor(end), raw=True):
            self._show_screen(await shell.screen(task))
            await asyncio.sleep(_DRAW_S)
        self._show_screen(await shell.screen(task))

    def _show_screen(self, screen: Screen) -> None:
        self.log_view.clear()
        for row, runs in enumerate(screen.cells):
            text = Text(no_wrap=True)
            for part, look in runs:
                text.append(part, _style_of(look))
            if screen.cursor is not None and screen.cursor[0] == row:
                column = screen.cursor[1]
                text.pad_right(max(0, column + 1 - len(text)))
                text.stylize("reverse", column, column + 1)
            self.log_view.write(text, scroll_end=False)

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


def _style_of(look: Mapping[str, Any]) -> Style:
    """Return how characters of a terminal look."""
    colours = [look.get("fg"), look.get("bg")]
    colours = [f"color({one[5:]})" if one and one.startswith("ansi-") else one for one in colours]
    flags: Any = {name: True for name in ("bold", "dim", "italic", "underline") if look.get(name)}
    return Style(color=colours[0], bgcolor=colours[1], reverse=bool(look.get("inverse")) or None, **flags)


def _render_line(line: str, stream: str) -> Text:
    """Return one line with its colours, and with nothing else in it that a terminal would obey."""
    line = line.removesuffix("\r").rpartition("\r")[2].expandtabs()[:_LONGEST_LINE]  # a progress bar as it is now
    text = Text.from_ansi(_CONTROLS.sub(lambda found: found[0] if found["final"] == "m" else "", line))
    text.plain = text.plain.replace("\x1b", "")
    if stream == "stderr":
        text = Text("! ", style="red") + text
    return text
