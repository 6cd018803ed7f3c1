"""The terminal of the person at the keyboard while `outlast attach` has it: its modes, its signals, its size.

It is given back as it was whatever happens: at the end, after an error, before a stop (SIGTSTP), at SIGTERM and SIGHUP.
"""

from __future__ import annotations

import os
import re
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Self

_STDIN, _STDOUT = 0, 1
_ALTERNATE = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")
# What a program may have left switched on: origin mode, scroll region, the alternate screen, colours, character set,
# application keys, mouse, focus, bracketed paste, a hidden cursor, no line wrapping. The first two move the cursor, so
# they come before the alternate screen is left, where the cursor goes back to its place.
UNDO = (
    b"\x1b[?6l\x1b[r\x1b[?1049l\x1b[?1047l\x1b[0m\x0f\x1b(B\x1b[?1l\x1b>\x1b[4l\x1b[?7h\x1b[?25h\x1b[?2004l\x1b[?1004l"
    b"\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?2026l\x1b[0 q"
)


class OwnTerminal:
    """Standard input and output while we are attached. `raw`: keys come one by one and mean nothing to us."""

    def __init__(self, raw: bool, detach: bytes) -> None:
        self.raw, self._detach = raw and os.isatty(_STDIN), detach
        self.is_page = False  # all of the screen was drawn; if not, the program printed below what was there before
        self._is_alternate = False
        self.is_screen = os.isatty(_STDOUT)
        self._modes: Any = None  # as they were
        self._handlers: dict[int, Any] = {}
        self.woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.continued = False  # after a stop: what is on the screen is another program's
        self.interrupts = 0

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number, handler in (
            (signal.SIGWINCH, _wake_only),
            (signal.SIGTSTP, self._stop),
            (signal.SIGINT, self._interrupt),
            (signal.SIGTERM, _leave),
            (signal.SIGHUP, _leave),
        ):
            self._handlers[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_IGN if number == signal.SIGTSTP else handler)  # none may come in between
        self._give_back()
        signal.signal(signal.SIGTSTP, self._handlers[signal.SIGTSTP])
        signal.set_wakeup_fd(-1)
        os.close(self.woken)
        os.close(self._wake)

    def _take(self) -> None:
        if not os.isatty(_STDIN):
            return
        import termios
        import tty

        self._modes = self._modes or termios.tcgetattr(_STDIN)
        if self.raw:
            tty.setraw(_STDIN, termios.TCSADRAIN)
            return
        modes = [*self._modes[:6], [*self._modes[6]]]
        modes[6][termios.VEOL] = self._detach  # ends a line, so we see it at once
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, modes)

    def _give_back(self) -> None:
        if self.is_screen and (self.raw or self.is_page):
            size = self.size()
            before, after = b"", b""
            if self.is_page:
                after = f"\x1b[{size[1]};1H\r\n".encode() if size else b"\r\n"
            elif not self._is_alternate:
                before, after = b"\x1b[0m\x0f\x1b(B\x1b7", b"\x1b8"  # the cursor stays where the program left it
            try:
                self.write(before + UNDO + after)
            except OSError:
                pass  # the terminal is gone
        if self._modes is not None:
            import termios

            try:
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._modes)
            except (termios.error, OSError):
                pass

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self.continued = True

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += 1

    def size(self) -> tuple[int, int] | None:
        """Return columns and rows; None where there is no terminal, or it does not know."""
        try:
            columns, rows = os.get_terminal_size(_STDOUT)
        except OSError:
            return None
        return (columns, rows) if columns and rows else None

    def write(self, data: bytes) -> None:
        sys.stdout.flush()
        if modes := _ALTERNATE.findall(data):
            self._is_alternate = modes[-1] == b"h"
        while data:
            data = data[os.write(_STDOUT, data) :]

    def read(self) -> bytes:
        """Return what was typed; nothing at the end of the input."""
        try:
            return os.read(_STDIN, 65536)
        except OSError:
            return b""  # the terminal is gone

    def drain_wakes(self) -> None:
        try:
            os.read(self.woken, 4096)
        except BlockingIOError:
            pass


def _wake_only(number: int, frame: FrameType | None) -> None:
    pass


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
