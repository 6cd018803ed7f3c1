"""Select the lines that explain an error, from its first line and those around it.

A taker is given some lines and the index of the one where its rule matched. It returns the indexes of the
lines to show, or None if this is not the beginning of an error after all.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.frozen import frozen

# How well an excerpt explains a failure.
AFTERMATH = 1  # says that something failed before: make: *** [all] Error 1
WORDS = 2  # a line with a word such as "cannot", or an exception that was logged as a warning
MESSAGE = 3  # a line that has the form of an error message: fatal: not a git repository
CRASH = 4  # an uncaught exception or a panic, with its stack
REPORT = 5  # of a test runner or a compiler: what is wrong, and where


@frozen
class Found:
    """The lines that explain an error."""

    rank: int
    lines: list[int]  # their indexes
    key: int  # the index of the line that names the error: it is never left out


Taker = Callable[[list[str], int], Found | None]

_POINTER = re.compile(r"\s*[|\s]*[\^~]")


def take_span(
    rank: int = REPORT, *, title: str = "", above: str = "", then: str = "", below: str = "", until: str = "", most: int = 8
) -> Taker:
    """Return a taker for the line itself and lines next to it; blank lines are left out. The patterns:

    title: the nearest earlier line that matches is taken too. above: the lines directly above are taken while
    they match, at most three. then: the next line must match, else it is no error. below: the lines below
    are taken while they match, or while the next one points to a column of them. until: the last line is the
    one before a line that matches.
    """
    title_re, above_re, then_re = re.compile(title), re.compile(above), re.compile(then)
    below_re, until_re = re.compile(below), re.compile(until) if until else None

    def take(lines: list[str], at: int) -> Found | None:
        if then and not (at + 1 < len(lines) and then_re.search(lines[at + 1])):
            return None
        taken = [at]
        while above and len(taken) < 4 and taken[0] > 0 and above_re.search(lines[taken[0] - 1]):
            taken.insert(0, taken[0] - 1)
        if title:
            taken[:0] = next(([i] for i in range(taken[0] - 1, -1, -1) if title_re.search(lines[i])), [])
        most_lines = len(taken) + most
        for index in range(at + 1, len(lines)):
            if len(taken) >= most_lines or (until_re and until_re.search(lines[index])):
                break
            is_marked = index + 1 < len(lines) and _POINTER.match(lines[index + 1])
            if not below_re.search(lines[index]) and not is_marked:
                break
            if lines[index].strip(" │|"):
                taken.append(index)
        return Found(rank, taken, at)

    return take


# --- test runners ------------------------------------------------------------------------

_PYTEST_PLACE = re.compile(r"\S.*:\d+:(?: (?:in )?\S*)?$")
_PYTEST_ONE_LINE = re.compile(r"\S+:\d+: \S")


def take_pytest(lines: list[str], at: int) -> Found | None:
    """Take the name of the test, the line of it that failed, and what pytest says about it.

    Where the test failed in a function that it called, both lines are taken: that of the test and the innermost.
    """
    name: list[int] = []
    entries: list[list[int]] = []  # the marked line of each function of the stack, with its place
    for index in range(at + 1, len(lines)):
        text = lines[index]
        if text.startswith(("E  ", "E\t")):
            break
        if re.match(r"_{3,} .* _{3,}$", text):
            name, entries = [index], []
        elif TRACEBACK.match(text) and (found := take_traceback(lines, index)):  # --tb=native
            return Found(REPORT, [*name, *found.lines], found.key)
        elif text.startswith(">") or _PYTEST_PLACE.match(text):
            if entries and text[0] != ">" and lines[entries[-1][0]].startswith(">"):
                entries[-1].append(index)  # the place stands below the source, and in the short form above it
            else:
                entries.append([index])
        elif entries and len(entries[-1]) == 1 and text.startswith("    ") and not lines[entries[-1][0]].startswith(">"):
            entries[-1].append(index)
        elif not name and _PYTEST_ONE_LINE.match(text):  # --tb=line
            return Found(REPORT, [index], index)
    else:
        return None
    error = index
    if not name:  # --tb=line: the place stands below, after what was captured
        place = [i for i in range(error, len(lines)) if _PYTEST_ONE_LINE.match(lines[i])]
        return Found(REPORT, [error, *place[:1]], error)
    own = [entry for entry in entries if not _is_library(lines[entry[-1]] + lines[entry[0]])]
    shown = [*own[:1], *entries[-1:]]
    taken = [*name, *(line for entry in shown for line in entry), error]
    for index in range(error + 1, len(lines)):
        text = lines[index]
        if text.startswith(("=====", "-----", "_____", "_ _ _", "!!!!!")):
            break
        if text.startswith("E ") and text[1:].strip() and len(taken) < 11:
            taken.append(index)
        elif _PYTEST_PLACE.match(text):
            taken.append(index)
            break
    return Found(REPORT, taken, error)


def take_unittest(lines: list[str], at: int) -> Found | None:
    """Take the name of the test and its traceback."""
    for index in range(at + 1, min(at + 5, len(lines))):
        if TRACEBACK.match(lines[index]) and (found := take_traceback(lines, index)):
            return Found(REPORT, [at, *found.lines], found.key)
    return None


def take_jest(lines: list[str], at: int) -> Found:
    """Take the name, the message with what was expected, the marked line of the code and the first place."""
    message: list[int] = []
    code: list[int] = []
    for index in range(at + 1, len(lines)):
        text = lines[index].strip()
        if re.match(r"● |Test Suites:|PASS |FAIL |⎯⎯", text):
            break
        if re.match(r"at |❯ ", text):
            if not _is_library(text):
                code.append(index)
                break
        elif re.match(r">? *\d+ ?\||\| +\^", text):
            if text.startswith((">", "|")):
                code.append(index)
        elif text and not code and len(message) < 6:
            message.append(index)
    return Found(REPORT, [at, *message, *code[:4]], message[0] if message else at)


def take_vitest(lines: list[str], at: int) -> Found:
    """Take the same of vitest, which marks the line of the code only with a caret below it."""
    found = take_jest(lines, at)
    caret = next((i for i in range(found.lines[-1], min(found.lines[-1] + 8, len(lines))) if lines[i].endswith("^")), 0)
    return Found(REPORT, [*found.lines, caret - 1, caret], found.key) if caret else found


def take_numbered(lines: list[str], at: int) -> Found | None:
    """Take the first of a numbered list of failures, up to its first place (mocha, rspec, minitest)."""
    first = next((i for i in range(at, min(at + 6, len(lines))) if re.match(r"\s+1\) ", lines[i])), -1)
    if first < 0:
        return None
    taken = [first]
    for index in range(first + 1, len(lines)):
        if re.match(r"\s+2\) |\d+ (?:runs|examples)", lines[index]) or (not lines[index].strip() and len(taken) > 9):
            break
        if lines[index].strip():
            taken.append(index)
        if re.match(r"\s+(?:at |# )", lines[index]):
            break
    return Found(REPORT, [*taken[:10], *taken[10:][-1:]], taken[min(2, len(taken) - 1)])


_GO_LOG = re.compile(r"\s+\S+\.go:\d+: ")


def take_go_test(lines: list[str], at: int) -> Found:
    """Take the failed test with what it logged; with -v it was logged before."""
    taken = [at]
    indent = len(lines[at]) - len(lines[at].lstrip())
    is_explained = False
    for index in range(at + 1, len(lines)):
        text = lines[index]
        if text.startswith("panic: "):
            return Found(REPORT, [at, index, *_take_go_frames(lines, index)], index)
        if len(text) - len(text.lstrip()) <= indent or ("--- FAIL" in text and is_explained) or len(taken) > 8:
            break
        is_explained = is_explained or bool(_GO_LOG.match(text))
        taken.append(index)
    if not is_explained:
        logged: list[int] = []
        for index in range(at - 1, -1, -1):
            if lines[index].startswith("---") or len(logged) == 4:
                break
            if _GO_LOG.match(lines[index]):
                logged.insert(0, index)
        taken = [*logged, *taken[:4]]
    return Found(REPORT, taken, at)


# --- stacks ------------------------------------------------------------------------------

TRACEBACK = re.compile(r"[\s|]*Traceback \(most recent call last\):")
_LIBRARY = re.compile(r"<frozen |/lib/python|/site-packages/|/dist-packages/|/importlib/|node:internal|node:async_hooks"
                      r"|\(java\.base/|\bjdk\.internal|\bsun\.reflect|node_modules/")  # fmt: skip


def _is_library(text: str) -> bool:
    return _LIBRARY.search(text) is not None


def _was_logged_as_warning(lines: list[str], at: int) -> bool:
    return at > 0 and re.search(r"\bWARN(?:ING)?\b", lines[at - 1]) is not None


def _read_traceback(lines: list[str], at: int) -> tuple[list[list[int]], list[int], int]:
    """Return the frames of the traceback at `at`, the lines of its message, and the index after it."""
    frames: list[list[int]] = []
    for index in range(at + 1, len(lines)):
        text = lines[index].lstrip(" |") if "|" in lines[at] else lines[index]
        is_frame = text.lstrip().startswith('File "')
        if is_frame and (text[0] == " " or "|" in lines[at]):
            frames.append([index])
        elif text.startswith(" ") or not text or ("|" in lines[at] and not re.match(r"[\w.]+(?:: |$)", text)):
            if frames and text.strip() and len(frames[-1]) < 3:
                frames[-1].append(index)
        else:
            message = [index]
            while message[-1] + 1 < len(lines) and len(message) < 4:
                after = lines[message[-1] + 1]
                if not after.strip() or re.match(r"\[?(?:\d{4}-\d\d|\d\d:\d\d|[A-Z]{4,8}\b)|[-=+]{4,}|\S+: |\s+[|+]", after):
                    break
                message.append(message[-1] + 1)
            return frames, message, message[-1] + 1
    return frames, [], len(lines)


def take_traceback(lines: list[str], at: int) -> Found | None:
    """Take a Python traceback: the innermost frame, that of the program itself, and the exception.

    Of a chain the last exception is what ended the program, and the first is the cause, which the last one often
    hides ("cannot load the settings"). Both are taken. Those between them mostly repeat the message of one of them.
    """
    parts: list[list[int]] = []
    key, start = at, at
    while True:
        frames, message, end = _read_traceback(lines, start)
        if not message:
            break
        own = [frame for frame in frames if not _is_library(lines[frame[0]])]
        shown = [frame for frame in frames if frame in own[-1:] or frame is frames[-1]]
        parts.append([*(line for frame in shown for line in frame), *message])
        key = message[0]
        joint = next((i for i in range(end, min(end + 3, len(lines))) if "exception" in lines[i][:80]), None)
        if joint is None or joint + 2 >= len(lines) or not TRACEBACK.match(lines[joint + 2]):
            break
        parts.append([joint])
        start = joint + 2
    if not parts:
        return None
    taken = [*parts[0], *parts[-2], *parts[-1]] if len(parts) > 2 else parts[0]
    if at and re.search(r"\bERROR\b|\bCRITICAL\b|\+-+ 1 -", lines[at - 1]):
        taken.insert(0, at - 1)
    return Found(WORDS if _was_logged_as_warning(lines, at) else CRASH, [at, *taken], key)


_FRAME = re.compile(r"\s+at ")
_CAUSE = re.compile(r"\s*(?:Caused by: |\[cause\]: )")


def take_stack(lines: list[str], at: int) -> Found | None:
    """Take a stack of Java or node: the message, its first own frames, and the last cause with its own."""
    first = next((i for i in range(at + 1, min(at + 8, len(lines))) if _FRAME.match(lines[i])), 0)
    if not first or any(TRACEBACK.match(line) for line in lines[at:first]):
        return None
    frames: list[int] = []
    cause: list[int] = []
    for index in range(first, len(lines)):
        text = lines[index]
        if _CAUSE.match(text):
            cause = [index]
        elif not text.startswith(("\t", "  ")):
            break
        elif _FRAME.match(text) and not _is_library(text) and len(cause or frames) < 3:
            (cause or frames).append(index)
    site = [i for i in range(max(0, at - 4), at) if lines[i].strip()]  # node: the place, the source and a caret
    if not (site and re.search(r"^\S*[./]\S*:\d+$", lines[site[0]]) and not lines[at - 1].strip()):
        site = [i for i in (at - 1,) if i >= 0 and re.search(r"\bERROR\b|\bSEVERE\b", lines[i])]
    rank = WORDS if _was_logged_as_warning(lines, at) else CRASH
    return Found(rank, [*site, *range(at, min(first, at + 4)), *(frames or [first]), *cause], at)


def _take_go_frames(lines: list[str], at: int) -> list[int]:
    """Take the first two frames that are not of the runtime."""
    taken: list[int] = []
    for index in range(at + 1, min(at + 60, len(lines))):
        if lines[index].startswith(("FAIL", "exit status")) or len(taken) >= 4:
            break
        above = lines[index - 1]
        if lines[index].startswith("\t") and "(" in above and not re.match(r"testing|runtime|panic|created by|\s", above):
            taken += [index - 1, index]
    return taken


def take_go_panic(lines: list[str], at: int) -> Found | None:
    """Take the message and the first own frames of a goroutine."""
    if not any(line.startswith("goroutine ") for line in lines[at : at + 12]):
        return None
    return Found(CRASH, [at, *_take_go_frames(lines, at)], at)
