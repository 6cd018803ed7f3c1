"""Select the lines that explain an error of Python: tracebacks, and the reports of pytest and unittest."""

from __future__ import annotations

import re

from outlast.output.first_error.takers import REPORT, Found, is_library, rank_of_stack

TRACEBACK = re.compile(r"[\s|]*Traceback \(most recent call last\):")
# A message of several lines ends before what looks like a line of a log, a heading, or another message.
_AFTER_MESSAGE = re.compile(r"\[|\d{4}-\d\d|\d\d:\d\d|[A-Z]{4,8}\b|[-=+*]{4,}|\S+: |\+-")


def take_traceback(lines: list[str], at: int) -> Found | None:
    """Take the innermost frame, that of the program itself, and the exception.

    Of a chain the last exception is what ended the program, and the first is the cause, which the last one often
    hides ("cannot load the settings"). Both are taken. Those between them mostly repeat the message of one of them.
    """
    parts: list[list[int]] = []
    key = start = at
    while True:
        frames, message, end = _read_traceback(lines, start)
        if not message:
            break
        own = [frame for frame in frames if not is_library(lines[frame[0]])]
        shown = [frame for frame in frames if frame in own[-1:] or frame is frames[-1]]
        parts.append([*(line for frame in shown for line in frame), *message])
        key = message[0]
        joint = next((index for index in range(end, min(end + 3, len(lines))) if "exception" in lines[index][:80]), -1)
        if joint < 0 or joint + 2 >= len(lines) or not TRACEBACK.match(lines[joint + 2]):
            break
        parts.append([joint])
        start = joint + 2
    if not parts:
        return None
    taken = [*parts[0], *parts[-2], *parts[-1]] if len(parts) > 2 else parts[0]
    if at and re.search(r"\bERROR\b|\bCRITICAL\b|\+-+ 1 -", lines[at - 1]):
        taken.insert(0, at - 1)
    return Found(rank_of_stack(lines, at), [at, *taken], key)


def _read_traceback(lines: list[str], at: int) -> tuple[list[list[int]], list[int], int]:
    """Return the frames of the traceback at `at`, the lines of its message, and the index after it."""
    indent = lines[at].index("Traceback")
    prefix = lines[at][:indent]
    frames: list[list[int]] = []
    message: list[int] = []
    for index in range(at + 1, len(lines)):
        text = lines[index][indent:] if lines[index].startswith(prefix) else ""
        if message:
            if not text or len(message) > 3 or _AFTER_MESSAGE.match(text):
                break
            message.append(index)
        elif text.startswith('  File "'):
            frames.append([index])
        elif text and text[0] != " ":
            message.append(index)
        elif text and frames and len(frames[-1]) < 3:
            frames[-1].append(index)
    return frames, message, message[-1] + 1 if message else len(lines)


def take_unittest(lines: list[str], at: int) -> Found | None:
    """Take the name of the test and its traceback."""
    start = _find(lines, at + 1, min(at + 5, len(lines)), TRACEBACK)
    found = take_traceback(lines, start) if start >= 0 else None
    return found and Found(REPORT, [at, *found.lines], found.key)


_NAME = re.compile(r"_{3,} .* _{3,}$")
_ERROR = re.compile(r"E  ")
_PLACE = re.compile(r"\S.*:\d+:(?: (?:in )?\S*)?$")
_PLACE_WITH_ERROR = re.compile(r"\S+:\d+: \S")  # --tb=line
_END = ("=====", "-----", "_____", "_ _ _", "!!!!!")


def take_pytest(lines: list[str], at: int) -> Found | None:
    """Take the name of the test, the line of it that failed, and what pytest says about it.

    Where the test failed in a function that it called, both lines are taken: that of the test and the innermost.
    """
    error = _find(lines, at, len(lines), _ERROR)
    native = _find(lines, at, error if error >= 0 else len(lines), TRACEBACK)  # --tb=native
    if native >= 0:
        found = take_traceback(lines, native)
        return found and Found(REPORT, [*_take_name(lines, at, native), *found.lines], found.key)
    if error < 0:
        return None
    if not (name := _take_name(lines, at, error)):  # --tb=line: the place stands below, after what was captured
        return Found(REPORT, [error, max(error, _find(lines, error, len(lines), _PLACE_WITH_ERROR))], error)
    entries = _read_pytest_entries(lines, name[0] + 1, error)
    own = [entry for entry in entries if not any(is_library(lines[index]) for index in entry)]
    taken = [*name, *(index for entry in (*own[:1], *entries[-1:]) for index in entry), error]
    for index in range(error + 1, len(lines)):
        if lines[index].startswith(_END):
            break
        if _ERROR.match(lines[index]) and lines[index][1:].strip() and len(taken) < 11:
            taken.append(index)
        elif _PLACE.match(lines[index]):
            taken.append(index)
            break
    return Found(REPORT, taken, error)


def _read_pytest_entries(lines: list[str], start: int, end: int) -> list[list[int]]:
    """Return the line of each function of the stack, with its place: below it, or above it with --tb=short."""
    entries: list[list[int]] = []
    for index in range(start, end):
        if lines[index].startswith(">"):
            entries.append([index])
        elif _PLACE.match(lines[index]):
            if entries and len(entries[-1]) == 1:
                entries[-1].append(index)
            else:
                entries.append([index, index + 1])
    return entries


def _take_name(lines: list[str], start: int, end: int) -> list[int]:
    return [index for index in range(start, end) if _NAME.match(lines[index])][-1:]


def _find(lines: list[str], start: int, end: int, pattern: re.Pattern[str]) -> int:
    """Return the index of the first line that the pattern matches, or -1."""
    return next((index for index in range(start, end) if pattern.match(lines[index])), -1)
