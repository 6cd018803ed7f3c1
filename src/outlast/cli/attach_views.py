"""What a person who is attached to a task sees of it, as it comes: its lines, or the screen of its terminal.

While the person's window has the size of the task's terminal, the bytes that the program prints go to it as they are.
In a window of another size they would mean something else: a place that is not there, a row that ends elsewhere. There
the emulator computes the screen, and what fits of it is drawn.
"""

from __future__ import annotations

import os
import time
from itertools import islice

from outlast.cli.common import write
from outlast.cli.own_terminal import UNDO
from outlast.storage.layout import SIZES
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from outlast.cli.own_terminal import OwnTerminal
    from outlast.output.text_stream import LiveRedactor
    from outlast.shell.shell import Shell
    from outlast.types import Slice, Task

    Size = tuple[int, int]

_HELD_S = 0.03  # what may be the beginning of a secret is shown then: an echo must not wait for the next key
_HINT_S = 2.0  # how long the key that detaches is shown
_FRAME_S = 0.05  # between two drawings of a screen that is cut, which takes milliseconds; after a flood longer
_WHOLE_S = 0.1  # the rest of a sequence that a program has begun comes at once
_PAUSE_S = 0.005
_BEHIND_BYTES = 1 << 20  # of output that a window has not shown yet: then it skips to the screen as it is now


class Lines:
    """The output of a task without a terminal, from its last lines on."""

    def __init__(self, shell: Shell, task: Task, terminal: OwnTerminal) -> None:
        self._shell, self._id, self._terminal = shell, task.task_id, terminal
        self._live: LiveRedactor

    def begin(self) -> None:
        size = self._terminal.size()
        shown = self._shell.read(self._id, tail=max(1, size[1] - 2) if size else 10)
        if shown.output:
            write(shown.output.removesuffix("\n") + ("\n" if shown.output.endswith("\n") else ""))
        _, self._live, first = self._shell.reader.open_live(self._id, str(shown.cursor), False)
        self._show(first)

    def update(self) -> None:
        """Show what is new."""
        self._show(self._live.take(self._shell.reader.read_fresh(self._id, self._live.at)))

    def patience(self) -> float | None:
        """Return after how long without an event to call `settle`."""
        return _HELD_S if self._live.is_holding else None

    def settle(self) -> None:
        """Show what was held back: nothing more came for a moment, or the task has ended."""
        self._show(self._live.finish())

    finish = settle

    def _show(self, pieces: Iterable[Slice]) -> None:
        for piece in pieces:
            self._terminal.write(piece.data)


class Page:
    """The screen of a task's terminal."""

    def __init__(self, shell: Shell, task: Task, terminal: OwnTerminal, first_size: Size, keys: str) -> None:
        self._shell, self._id, self._terminal, self._first_size = shell, task.task_id, terminal, first_size
        self._directory = os.path.dirname(task.output_file)
        self._source = shell.executor.source(task.task_id, STREAMS[0])
        self._mask = shell.context.mask_for(task)
        self._live: LiveRedactor
        self._resizes: object = None  # tells whether the task's terminal was resized after the screen was drawn
        self._drawn_to: int | None = None  # the place in the output that a cut screen shows; None if it is not cut
        self._next_frame = 0.0
        self._keys = self._hint = keys
        self._hint_until, self._hint_is_drawn = 0.0, False

    @property
    def is_cut(self) -> bool:
        return self._drawn_to is not None

    @property
    def task_size(self) -> Size:
        """The size of the task's terminal."""
        from outlast.output.screen import read_sizes

        return [self._first_size, *(size for _, size in read_sizes(self._directory))][-1]

    def begin(self) -> None:
        if self._terminal.raw:
            self._hint_until = time.monotonic() + _HINT_S
        self.draw()

    def begin_in_place(self) -> None:
        """Show what the program prints from its first byte on, below what is on our screen."""
        self._resizes = self._read_resizes()
        if self._terminal.size() != self.task_size:
            self.begin()
            return
        _, self._live, first = self._shell.reader.open_live(self._id, "0", False)
        self._show(first)

    # --- the screen as it is -------------------------------------------------------------------

    def draw(self) -> None:
        """Draw the screen as it is now."""
        began = time.monotonic()
        self._resizes = self._read_resizes()  # before the screen is computed: `update` sees what changes later
        self._hint_is_drawn = False
        self._terminal.is_page = True
        size = self._terminal.size()
        if size in (None, self.task_size):
            self._draw_whole(began + _WHOLE_S)
        else:
            self._draw_cut(*size)
        self._next_frame = max(began + _FRAME_S, 2 * time.monotonic() - began)

    def _draw_whole(self, deadline: float) -> None:
        """Bring our window into the state of the task's terminal. What the program prints then goes there."""
        from outlast.output.screen import replay

        while True:
            end = self._source.end()
            emulator, _ = replay(self._directory, self._source, self._first_size, end)
            if emulator.is_between_sequences or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        self._drawn_to, self._hint = None, self._keys
        if self._terminal.is_screen:
            state = self._mask.text(emulator.dump().decode("utf-8", "replace")).encode()
            self._terminal.write(UNDO + b"\x1b[H\x1b[2J" + state)
        _, self._live, first = self._shell.reader.open_live(self._id, str(Cursor(end)), False)
        self._show(first)

    def _draw_cut(self, columns: int, rows: int) -> None:
        from outlast.cli.cells import paint
        from outlast.output.screen import replay, view

        end = self._source.end()
        screen = view(*replay(self._directory, self._source, self._first_size, end), self._mask)
        begin = b""
        if self._drawn_to is None:
            begin = UNDO
            self._hint_until = time.monotonic() + _HINT_S
        self._hint = f"{self._keys}; the task's terminal has {screen.columns}x{len(screen.rows)}"
        self._terminal.write(begin + paint(screen, columns, rows))
        self._drawn_to = end

    def _read_resizes(self) -> object:
        try:
            found = os.stat(f"{self._directory}/{SIZES}")
        except OSError:
            return None  # it was never resized
        return found.st_size, found.st_mtime_ns

    # --- what is new ---------------------------------------------------------------------------

    def update(self) -> None:
        """Show some of what is new. Of a flood it is a piece at a time, so that keys are read in between."""
        if self._hint_until and time.monotonic() >= self._hint_until:
            self.hide_hint()
        if self._resizes != self._read_resizes():
            self.draw()  # and not what was printed for another size
        elif self._drawn_to is not None:
            if self._source.end() != self._drawn_to and time.monotonic() >= self._next_frame:
                self.draw()
        elif (behind := self._source.end() - self._shown_to) > _BEHIND_BYTES:
            self.draw()
        elif behind:
            fresh = self._shell.reader.read_fresh(self._id, self._live.at)
            self._show(self._live.take(islice(fresh, 1)))

    def patience(self) -> float | None:
        """Return after how long without an event to call `settle`."""
        now, end = time.monotonic(), self._source.end()
        waits = []
        if self._hint_until:
            waits.append(max(0.0, self._hint_until - now) if self._hint_is_drawn else _HELD_S)
        if self._drawn_to is not None:
            waits += [max(0.0, self._next_frame - now)] if end != self._drawn_to else []
        elif end > self._shown_to:
            waits.append(0.0)
        elif self._live.is_holding:
            waits.append(_HELD_S)
        return min(waits, default=None)

    def settle(self) -> None:
        """Show what was held back for a moment: what may be the beginning of a secret, the hint."""
        if self._drawn_to is None and self._shown_to == self._source.end():
            self._show(self._live.finish())
        if self._hint_until and not self._hint_is_drawn:
            self._draw_hint()

    def finish(self) -> None:
        """Show how the screen was when the task ended."""
        self.hide_hint()
        if self._drawn_to is not None:
            self.draw()
            return
        while self._shown_to < self._source.end():
            self.update()
        self._show(self._live.finish())

    @property
    def _shown_to(self) -> int:
        return self._live.at[STREAMS[0]]

    def _show(self, pieces: Iterable[Slice]) -> None:
        for piece in pieces:
            self._hint_is_drawn = False
            self._terminal.write(piece.data)

    # --- the hint ------------------------------------------------------------------------------

    def _draw_hint(self) -> None:
        self._hint_is_drawn = True
        if size := self._terminal.size():
            text = f" {self._id}: {self._hint} "[: size[0]]
            at = f"\x1b[{size[1]};{size[0] - len(text) + 1}H"
            self._terminal.write(f"\x1b7{at}\x1b[0;7m{text}\x1b[0m\x1b8".encode())

    def hide_hint(self) -> None:
        if self._hint_until:
            self._hint_until = 0.0
            self.draw()
