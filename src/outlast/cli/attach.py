"""`outlast attach`: a person's terminal becomes the task's, until the task ends or the person detaches.

What the task prints goes to the terminal as it is, and what is typed goes to the task. Any number of people can be
attached to one task; its terminal has the size of the one who typed or resized last. Where the sizes differ (with
--watch), the screen is drawn from an emulator, cut to what fits.
"""

from __future__ import annotations

import os
import select
import sys
import time

from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import exit_code, open_shell, write
from outlast.cli.own_terminal import OwnTerminal
from outlast.display import render
from outlast.errors import AlreadyEnded, BadInput, InputRefused, OutlastError, named
from outlast.output.cleaner import inline
from outlast.storage.layout import SIZE
from outlast.types import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from outlast.output.emulator import Emulator
    from outlast.output.text_stream import LiveRedactor
    from outlast.shell.shell import Shell
    from outlast.types import Slice, Task

_STDIN = 0
_HINT_S = 2.0  # how long the key is shown on the screen
_HELD_S = 0.03  # what may be the beginning of a secret is shown then: an echo must not wait for the next key
_SIZED_S = 0.5  # a guard sets the size within milliseconds
_PAUSE_S = 0.005
_FRAME_S = 0.05  # between two drawings of a screen of another size
_WHOLE_S = 0.1  # the rest of a sequence that a program has begun comes at once


def attach_parser() -> Parser:
    made = Parser(
        "attach",
        "Make your terminal the task's: see its screen, type at it. Ctrl-] detaches, and the task goes on.\n"
        "Exits with the task's own code when it ends, with 0 after a detach.",
        "  outlast run --bg --tty vim notes.txt   prints the id\n"
        "  outlast attach 1a2b\n"
        "  outlast attach 1a2b --watch            only look: Ctrl-] or Ctrl-C leaves\n\n"
        "Several people can be attached; the terminal has the size of the one who typed or resized last.\n"
        "A task without a terminal (--tty) is shown as it prints, and is sent whole lines if its input is\n"
        "open (--stdin open): Ctrl-C interrupts it, Ctrl-D ends its input. The setting detach_key names\n"
        "another key than <C-]>.",
    )
    made.add("--watch", action="store_true", help="only look; what you type is not sent, the size is not changed")
    return made.takes_id().takes_session()


def attach(asked: Asked) -> int:
    with open_shell(asked.session) as shell:
        name, key = detach_key(shell.settings.detach_key)
        task = shell.show(asked.id)
        if task.status == "pending":
            sys.stderr.write(f"outlast: {task.task_id} {render.waits(task)}.\n")
            shell.driver.drive(shell.flows.wait_for_phase(task.task_id, "begun", None))
            task = shell.show(task.task_id)
        if not task.finished:
            told = _Attachment(shell, task, asked.watch, name, key).run()
            task = shell.show(task.task_id)
            if told is not None and not task.finished:
                write(f"outlast: detached from {task.task_id}, which goes on; `outlast attach {task.task_id}`\n")
                return told
        sys.stderr.write(f"outlast: {task.task_id} {task.status}: {render.ending(task)}\n")
        return exit_code(task)


def detach_key(setting: str) -> tuple[str, bytes]:
    """Return how a person calls the key that detaches, and its byte."""
    from outlast.shell import keys

    found = keys.parse(setting)
    byte = keys.encode(found)
    if len(found) != 1 or len(byte) != 1 or byte[0] >= 0x20 or byte in b"\0\r\n\t\x1b\x03\x04":
        raise BadInput(f"The setting detach_key is {named(setting)}; use Ctrl and another character, such as <C-]>.")
    return f"Ctrl-{chr(byte[0] + 0x40)}", byte


class _Attachment:
    """One person attached to one task that has begun."""

    def __init__(self, shell: Shell, task: Task, watches: bool, name: str, key: bytes) -> None:
        self._shell, self._task, self._id, self._key_name, self._key = shell, task, task.task_id, name, key
        self._directory = os.path.dirname(task.output_file)
        launch = shell.executor.registry.launch_of(task.task_id)
        self._first_size, self._has_input = launch.tty, launch.stdin.open
        self._watches = watches or not self._has_input
        self._terminal = OwnTerminal(raw=launch.tty is not None, detach=key)
        self._live: LiveRedactor
        self._emulator: Emulator | None = None  # draws, if our size is another than the task's
        self._drawn_at = 0.0
        self._sized: object = None  # the size of the task's terminal as we last set or saw it
        self._keys, self._hint_until, self._hint_is_hidden = "", 0.0, False
        self._input_ended = False
        self._code = 0  # after a detach

    def run(self) -> int | None:
        """Stay attached until the task ends (None) or the person detaches (the exit code)."""
        with self._terminal as terminal, self._shell.executor.watch(self._id) as watch:
            self._begin()
            while True:
                watch.arm()
                over = self._shell.executor.has_reached(self._id, "ended")
                self._show(self._live.take(self._shell.reader.read_fresh(self._id, self._live.at)))
                if over:
                    self._show(self._live.finish())
                    return None
                ready = self._wait([*watch.fds, terminal.woken])
                if terminal.woken in ready:
                    terminal.drain_wakes()
                    if not self._react_to_signals():
                        return self._code
                if not ready:
                    self._show(self._live.finish())
                    self._keep_hint()
                if _STDIN in ready and not self._type(terminal.read()):
                    return self._code

    def _wait(self, fds: Iterable[int]) -> set[int]:
        poll = select.poll()
        for fd in (*fds, *(() if self._input_ended else (_STDIN,))):
            poll.register(fd, select.POLLIN)
        left = [_HELD_S] if self._live.is_holding else []
        if self._hint_until:
            left.append(_HELD_S if self._hint_is_hidden else max(0.0, self._hint_until - time.monotonic()))
        left += [_FRAME_S] if self._emulator is not None and not self._drawn_at else []
        return {fd for fd, _ in poll.poll(min(left) * 1000 + 1 if left else None)}

    # --- what is shown -----------------------------------------------------------------------

    def _begin(self) -> None:
        what = inline(self._task.description or self._task.command, 60)
        keys = self._keys = f"{self._key_name} detaches" + (", so does Ctrl-C" if self._watches else "")
        about = f"outlast: attached to {self._id} ({what}){' to look' if self._watches else ''}; {keys}"
        if self._first_size is None:
            sys.stderr.write(f"{about}\n")
            self._begin_with_lines()
            return
        if self._terminal.is_screen:
            size = self._terminal.size()
            # What is on the screen moves up, into what can be scrolled back to.
            self._terminal.write(f"{about}\r\n".encode() + b"\r\n" * (size[1] if size else 24))
        if not self._watches:
            self._take_size()
        self._draw()
        if self._terminal.raw:
            self._hint_until, self._hint_is_hidden = time.monotonic() + _HINT_S, True

    def _begin_with_lines(self) -> None:
        size = self._terminal.size()
        shown = self._shell.read(self._id, tail=max(1, size[1] - 2) if size else 10)
        if shown.output:
            write(shown.output.removesuffix("\n") + ("\n" if shown.output.endswith("\n") else ""))
        self._follow_from(str(shown.cursor))

    def _follow_from(self, cursor: str) -> None:
        _, self._live, first = self._shell.reader.open_live(self._id, cursor, False)
        self._show(first)

    def _draw(self) -> None:
        """Draw the screen as it is now, and follow from there."""
        from outlast.output.screen import replay

        assert self._first_size is not None
        source = self._shell.executor.source(self._id, STREAMS[0])
        deadline = time.monotonic() + _WHOLE_S
        while True:
            end = source.end()
            emulator, _ = replay(self._directory, source, self._first_size, end)
            if emulator.is_between_sequences or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        if self._watches:
            self._sized = self._read_size()
        size = self._terminal.size()
        fits = size is None or not self._watches or (emulator.columns, emulator.height) == size
        self._emulator = None if fits else emulator
        if not fits:
            self._draw_cut()
        elif self._terminal.is_screen:
            mask = self._shell.context.mask_for(self._task)
            state = mask.text(emulator.dump().decode("utf-8", "replace")).encode()
            self._terminal.write(b"\x1b[0m\x1b[r\x1b[H\x1b[2J" + state)
        self._follow_from(str(Cursor(end)))

    def _draw_cut(self) -> None:
        from outlast.cli.cells import paint  # few look at a screen of another size
        from outlast.output.screen import view

        if self._emulator is not None and (size := self._terminal.size()):
            self._terminal.write(paint(view(self._emulator, True, self._shell.context.mask_for(self._task)), *size))
            self._drawn_at = time.monotonic()

    def _show(self, pieces: Iterable[Slice]) -> None:
        for piece in pieces:
            self._hint_is_hidden = True
            if self._emulator is not None:
                self._emulator.feed(piece.data)
                self._drawn_at = 0.0 if time.monotonic() - self._drawn_at < _FRAME_S else self._drawn_at
                if self._drawn_at:
                    self._draw_cut()
            else:
                self._terminal.write(piece.data)
        if self._emulator is not None and not self._drawn_at:
            self._draw_cut()
        if self._watches and self._first_size is not None and self._sized != self._read_size():
            self._draw()  # another person made it larger or smaller

    def _draw_hint(self) -> None:
        if size := self._terminal.size():
            text = f" {self._id}: {self._keys} "[: size[0]]
            at = f"\x1b[{size[1]};{size[0] - len(text) + 1}H"
            self._terminal.write(f"\x1b7{at}\x1b[0;7m{text}\x1b[0m\x1b8".encode())

    def _keep_hint(self) -> None:
        """Draw the hint again over what the program drew, or hide it when its time is over."""
        if time.monotonic() >= self._hint_until:
            self._hide_hint()
        elif self._hint_is_hidden:
            self._hint_is_hidden = False
            self._draw_hint()

    def _hide_hint(self) -> None:
        if self._hint_until:
            self._hint_until = 0.0
            self._draw()

    # --- what is typed -----------------------------------------------------------------------

    def _type(self, data: bytes) -> bool:
        """Send what was typed; False if the person detaches."""
        before, key, _ = data.partition(self._key)
        self._hide_hint()
        if not data and self._terminal.raw:
            self._code = 129
            return False  # the terminal is gone
        if self._watches:
            self._input_ended |= not data
            return not key and not (self._terminal.raw and b"\x03" in data)
        if before:
            self._send(before)
        if not data:
            self._input_ended = True
            if os.isatty(_STDIN):  # Ctrl-D
                self._send(b"", eof=True)
        return not key

    def _send(self, data: bytes, eof: bool = False) -> None:
        try:
            if self._first_size is not None and self._sized != self._read_size():
                self._take_size()  # another person typed before: now the size is ours
                self._draw()
            self._shell.control.send(self._id, data, eof=eof)
        except AlreadyEnded:
            pass  # its end is told in a moment
        except InputRefused as refused:
            if self._terminal.raw:
                self._terminal.write(b"\a")
            else:
                sys.stderr.write(f"outlast: {refused.message}\n")

    def _react_to_signals(self) -> bool:
        """React to a changed size, to a continuation after a stop, and to Ctrl-C; False if the person leaves."""
        if self._terminal.interrupts:
            self._terminal.interrupts = 0
            if self._watches:
                return False
            self._shell.executor.interrupt(self._id)
        if self._first_size is not None and self._terminal.size() != self._size_seen and not self._watches:
            self._take_size()
        elif self._emulator is not None or self._terminal.continued:
            self._terminal.continued = False
            self._draw()
        return True

    def _take_size(self) -> None:
        """Give the task's terminal our size, and wait a moment until it has it."""
        from outlast.output.screen import read_sizes
        from outlast.shell.validation import MOST_COLUMNS, MOST_ROWS

        self._size_seen = size = self._terminal.size()
        if size is None or size[0] > MOST_COLUMNS or size[1] > MOST_ROWS:
            return
        current = self._shell.show(self._id).tty
        if current is not None and tuple(map(int, current.split("x"))) != size:
            try:
                self._shell.resize(self._id, *size)
            except OutlastError:
                return  # it ends at this moment
            deadline = time.monotonic() + _SIZED_S
            while read_sizes(self._directory)[-1:] != [(0, size)] and time.monotonic() < deadline:
                if (sizes := read_sizes(self._directory)) and sizes[-1][1] == size:
                    break
                time.sleep(_PAUSE_S)
        self._sized = self._read_size()

    _size_seen: tuple[int, int] | None = None

    def _read_size(self) -> object:
        """Return what tells whether the size was set again: it is overwritten in place."""
        try:
            found = os.stat(os.path.join(self._directory, SIZE))
            return found.st_mtime_ns
        except OSError:
            return None
