"""Uncaught exceptions and panics, with the part of their stack that explains them."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

from outlast.first_error.found import CRASH, MESSAGE, Found, Line, Opener, Reader

_MOST_LINES = 10_000  # of one stack: a recursion in Java has 1024 frames for each cause

TRACEBACK = re.compile(r"^(.{0,120}?)(Exception Group )?Traceback \(most recent call last\):")
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_LIBRARY = re.compile(r'File "(?:<frozen |[^"]*/(?:lib/python|site-packages/|dist-packages/))')
_LOG_LINE = re.compile(r"^\[?(?:\d{4}-\d\d|\d\d:\d\d|[A-Z]{4,8}\b)|^[-=]{5,}|^\S+: ")
_SUBGROUP = re.compile(r"^[\s|]*(?:\+-[+-]*-+ \d+ -+|\w*ExceptionGroup: )")


class _Traceback:
    """One traceback of a chain: its frames that explain, and its exception."""

    def __init__(self, header: Line) -> None:
        self.header = header
        self.frames: list[list[Line]] = []  # the last two
        self.own: list[Line] = []  # the last one that is not of a library
        self.error: list[Line] = []

    def add_frame(self, line: Line) -> None:
        self.frames = [*self.frames[-1:], [line]]
        if not _LIBRARY.search(line[1]):
            self.own = self.frames[-1]

    def add_source(self, line: Line) -> None:
        if self.frames and len(self.frames[-1]) < 3:
            self.frames[-1].append(line)

    def lines(self, frames: int) -> list[Line]:
        """The last `frames` frames, or the last one of the program itself instead of the one before."""
        shown = self.frames[-frames:]
        if self.own and self.own not in shown:
            shown = [self.own, *shown[1:]] if frames == 1 else [self.own, *shown]
        return [self.header, *(line for frame in shown for line in frame), *self.error]


def read_traceback(header: Line, before: list[Line]) -> Reader:
    """Read a Python traceback and those that it is chained to.

    Of a chain the last exception is what ended the program and the first is the cause, which the last
    one often hides ("cannot load the settings"). Both are shown: the cause with one frame, the last
    with two. Those between repeat the message of one of them.
    """
    match = TRACEBACK.match(header[1])
    prefix = match[1] if match else ""
    first, last = None, _Traceback((header[0], header[1]))
    for _ in range(_MOST_LINES):
        line = yield
        if line is None:
            break
        text = _without_prefix(line[1], prefix)
        if text.startswith("  File "):
            last.add_frame(line)
        elif text.startswith(" ") or (not text and not last.error):
            last.add_source(line)
        else:
            last.error.append(line)
            connection = yield from _read_message(last, prefix)
            if connection is None:
                break
            first = first or last
            last = _Traceback(connection)
    if not last.error:
        return None
    number = last.error[0][0]
    context = [line for line in before[-2:] if _SUBGROUP.match(line[1]) or "ERROR" in line[1]]
    if first is None:
        return Found(CRASH, [*context, *last.lines(2)], number)
    return Found(CRASH, [*first.lines(1), *last.lines(2)], number)


def _read_message(last: _Traceback, prefix: str) -> Generator[None, Line | None, Line | None]:
    """Read the other lines of a message; the connecting line if another traceback follows."""
    is_blank = False
    while (line := (yield)) is not None:
        text = _without_prefix(line[1], prefix)
        if text.startswith(_CHAINED):
            yield  # the blank line after it
            header = yield  # Traceback (most recent call last):
            return line if header else None
        if is_blank or len(last.error) > 4 or _LOG_LINE.match(text):
            return None
        is_blank = not text.strip()
        if not is_blank:
            last.error.append(line)
    return None


def _without_prefix(text: str, prefix: str) -> str:
    """Remove what a log or a container writes before each line; times in it differ from line to line."""
    if not prefix or text.startswith("  File "):
        return text
    return text[len(prefix) :] if text.startswith((prefix, prefix.rstrip())) or text[len(prefix) :][:2] == "  " else text


def _read_syntax_error(line: Line, before: list[Line]) -> Found:
    """Python prints the place, the source and a caret before the message, and no traceback."""
    lines = [line]
    for earlier in reversed(before[-4:]):
        if not earlier[1].startswith("  "):
            break
        lines.insert(0, earlier)
        if earlier[1].startswith("  File "):
            break
    return Found(CRASH, lines, line[0])


_FRAME = re.compile(r"^\s+at ")
_CAUSE = re.compile(r"^\s*(?:Caused by: |\[cause\]: )")
_INTERNAL = ("node:internal", "(java.base/", "jdk.internal", "node:async_hooks")


def _read_stack(header: Line, before: list[Line]) -> Reader:
    """Java, node and their like: the message, the first frames, and the last cause with its own."""
    message = [header]
    while (line := (yield)) is not None and not _FRAME.match(line[1]) and not _CAUSE.match(line[1]):
        if len(message) > 6 or TRACEBACK.match(line[1]):
            line = None
            break
        message.append(line)
    if line is None:  # no stack
        return Found(MESSAGE, [*before[-1:], *message[:4]], header[0])
    frames: list[Line] = []
    cause: list[Line] = []
    for _ in range(_MOST_LINES):
        if _CAUSE.match(line[1]):
            cause = [line]
        elif _FRAME.match(line[1]):
            part = cause or frames
            if len(part) < 3 and not any(name in line[1] for name in _INTERNAL):
                part.append(line)
        elif not line[1].startswith(("\t", "  ")):
            break
        if (line := (yield)) is None:
            break
    return Found(CRASH, [*_throw_site(before), *message, *frames, *cause], header[0])


def _throw_site(before: list[Line]) -> list[Line]:
    """What node prints before the message: file and line, the source, a caret, a blank line."""
    site = before[-4:]
    if len(site) == 4 and re.search(r":\d+$", site[0][1]) and not site[3][1].strip():
        return [line for line in site if line[1].strip()]
    return [line for line in before[-1:] if "ERROR" in line[1]]


_GO_LIBRARY = re.compile(r"^(?:testing|runtime|panic|created by)\b")


def read_go_frames() -> Generator[None, Line | None, list[Line]]:
    """The first two frames that are not of the standard library's runtime."""
    frames: list[Line] = []
    last: Line | None = None
    for _ in range(60):
        line = yield
        if line is None or line[1].startswith(("FAIL", "exit status")):
            break
        if line[1].startswith("\t") and last and "(" in last[1] and not _GO_LIBRARY.match(last[1]):
            frames += [last, line]
        if len(frames) >= 4:
            break
        last = line
    return frames


def _read_go_panic(header: Line, before: list[Line]) -> Reader:
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 6:
        if line[1].startswith("goroutine "):
            frames = yield from read_go_frames()
            return Found(CRASH, [*lines, line, *frames], header[0])
        lines.append(line)
    return Found(MESSAGE, lines[:4], header[0])


def _read_rust_panic(header: Line, before: list[Line]) -> Reader:
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 10 and line[1].strip():
        if line[1].startswith(("stack backtrace:", "note: ")):
            break
        lines.append(line)
    return Found(CRASH, lines, header[0])


def _read_ruby(header: Line, before: list[Line]) -> Reader:
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 5 and line[1].lstrip().startswith("from "):
        lines.append(line)
    return Found(CRASH, lines, header[0])


def _read_sanitizer(line: Line, before: list[Line]) -> Found:
    return Found(CRASH, [line], line[0], after=6)


def _opener(needles: tuple[str, ...], pattern: str, read: Callable[[Line, list[Line]], Reader | Found]) -> Opener:
    return Opener(CRASH, needles, re.compile(pattern), read)


_EXCEPTION = r"(?:[\w$]+[.:]{1,2})*(?:[A-Z]\w*)?(?:Error|Exception)\b(?: \[\w+\])?(?:: |:?$)"

CRASHES = (
    # A group's own traceback says nothing; the first of its exceptions has one too.
    _opener(("raceback (most",), r"^.{0,120}?(?<!Exception Group )Traceback \(most recent call last\):", read_traceback),
    _opener(("Error: ",), r"^(?:Syntax|Indentation|Tab)Error: ", _read_syntax_error),
    _opener(
        ("Error", "Exception"),
        rf'^\s*(?:Exception in thread "[^"]*" |Unhandled exception\. |Uncaught )?{_EXCEPTION}',
        _read_stack,
    ),
    _opener(("panic: ", "fatal error: "), r"^(?:panic|fatal error): ", _read_go_panic),
    _opener((" panicked at ",), r"^thread '.*' .*panicked at |^thread '.*' panicked at ", _read_rust_panic),
    _opener((":in ",), r"^\S+:\d+:in .*\([A-Z][\w:]*\)$", _read_ruby),
    _opener(("Sanitizer",), r"ERROR: \w+Sanitizer|runtime error: ", _read_sanitizer),
)
