"""`outlast attach`: a person's terminal becomes the task's, until the task ends or the person detaches.

What the task prints goes to the terminal as it is, and what is typed goes to the task. Any number of people can be
attached to one task; its terminal has the size of the one who typed or resized last.
"""

from __future__ import annotations

import os
import select
import sys

from outlast.cli.arguments import Asked, Parser
from outlast.cli.attach_views import Lines, Page
from outlast.cli.common import exit_code, open_shell, write
from outlast.cli.own_terminal import OwnTerminal
from outlast.display import render
from outlast.errors import AlreadyEnded, BadInput, InputRefused, OutlastError, quote
from outlast.output.cleaner import inline
from outlast.shell.validation import MOST_COLUMNS, MOST_ROWS
from outlast.storage.watch import Deadline, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from outlast.shell.shell import Shell
    from outlast.storage.watch import Watch
    from outlast.types import Task

_STDIN = 0
_SIZED_S = 0.5  # a guard sets the size within milliseconds


def attach_parser() -> Parser:
    """Return the options of `outlast attach`."""
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
    """Do what `outlast attach` asks; returns the exit code."""
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
        raise BadInput(f"The setting detach_key is {quote(setting)}; use Ctrl and another character, such as <C-]>.")
    return f"Ctrl-{chr(byte[0] + 0x40)}", byte


def attend(shell: Shell, task: Task) -> None:
    """Attach the person who has just started a task to it, until it ends or the person detaches."""
    name, key = detach_key(shell.settings.detach_key)
    sys.stderr.write(f"outlast: {task.task_id}; {name} detaches, and it goes on.\n")
    _Attachment(shell, task, False, name, key, in_place=True).run()


class _Attachment:
    """One person attached to one task that has begun."""

    def __init__(self, shell: Shell, task: Task, watches: bool, name: str, key: bytes, in_place: bool = False) -> None:
        """`in_place`: below what is on the person's screen, from the first byte that the program prints."""
        self._shell, self._task, self._id, self._key = shell, task, task.task_id, key
        launch = shell.executor.registry.launch_of(task.task_id)
        self._watches = watches or not launch.stdin.open
        self._keys = f"{name} detaches" + (", so does Ctrl-C" if self._watches else "")
        self._terminal = OwnTerminal(raw=launch.tty is not None, detach=key)
        self._page = Page(shell, task, self._terminal, launch.tty, self._keys) if launch.tty else None
        self._view = self._page or Lines(shell, task, self._terminal)
        self._watch: Watch  # while we are attached
        self._own_size: tuple[int, int] | None = None  # of our window, when the task's terminal last got it
        self._in_place, self._input_ended = in_place, False
        self._code = 0  # after a detach

    def run(self) -> int | None:
        """Stay attached until the task ends (None) or the person detaches (the exit code)."""
        with self._terminal as terminal, self._shell.executor.watch(self._id) as watch:
            self._watch = watch
            self._begin()
            while True:
                watch.arm()
                over = self._shell.executor.has_reached(self._id, "ended")
                self._view.update()
                if over:
                    self._view.finish()
                    return None
                ready = self._wait([*watch.fds, terminal.woken])
                if terminal.woken in ready:
                    terminal.drain_wakes()
                    if not self._react_to_signals():
                        return self._code
                if not ready:
                    self._view.settle()
                if _STDIN in ready and not self._type(terminal.read()):
                    return self._code

    def _begin(self) -> None:
        if self._in_place and self._page is not None:
            self._own_size = self._terminal.size()
            self._page.begin_in_place()
            return
        what = inline(self._task.description or self._task.command, 60)
        about = f"outlast: attached to {self._id} ({what}){' to look' if self._watches else ''}; {self._keys}"
        if self._page is None:
            sys.stderr.write(f"{about}\n")
        else:
            if self._terminal.is_screen:
                size = self._terminal.size()
                # What is on the screen moves up, into what can be scrolled back to.
                self._terminal.write(f"{about}\r\n".encode() + b"\r\n" * (size[1] if size else 24))
            self._give_size()
        self._view.begin()

    def _wait(self, fds: Iterable[int]) -> set[int]:
        poll = select.poll()
        for fd in (*fds, *(() if self._input_ended else (_STDIN,))):
            poll.register(fd, select.POLLIN)
        patience = self._view.patience()
        return {fd for fd, _ in poll.poll(None if patience is None else patience * 1000)}

    # --- what is typed -----------------------------------------------------------------------

    def _type(self, data: bytes) -> bool:
        """Send what was typed; False if the person detaches."""
        before, key, _ = data.partition(self._key)
        if self._page is not None:
            self._page.hide_hint()
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
            if self._page is not None and self._page.is_cut:
                self._give_size()  # another person typed before
                self._page.draw()
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
        if self._page is not None and (self._terminal.continued or self._terminal.size() != self._own_size):
            self._terminal.continued = False
            self._give_size()
            self._page.draw()
        return True

    def _give_size(self) -> None:
        """Give the task's terminal the size of our window, unless we only look, and wait a moment until it has it."""
        page, size = self._page, self._terminal.size()
        self._own_size = size
        if page is None or self._watches or size is None or size[0] > MOST_COLUMNS or size[1] > MOST_ROWS:
            return
        if size != page.task_size:
            try:
                self._shell.resize(self._id, *size)
            except OutlastError:
                return  # it ends at this moment
            until(self._watch, lambda: page.task_size == size, Deadline(_SIZED_S))
