"""Select the lines that explain an error, from its first line and those around it.

A taker is given some lines and the index of the one that its rule matched. It returns the indexes of the
lines to show, or None if no error begins there after all.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.light import frozen

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

_BLANK = re.compile(r"(?:[\s│|]*|npm (?:ERR!|error)(?: \d+)?)$")
_POINTER = re.compile(r"[|\s]*[\^~]")
_NEVER = "(?!)"


def make_span_taker(
    rank: int, *, above: str = _NEVER, then: str = "", below: str = _NEVER, until: str = _NEVER, most: int = 8
) -> Taker:
    """Return a taker for the line itself and those next to it; blank lines are left out. The patterns:

    above: of the lines directly above, at most three are taken while they match. then: the next line must
    match, else this is no error. below: `most` lines below are taken while they match, or while the line after
    them points to a column of them. until: nothing is taken from the first line on that matches.
    """
    above_re, then_re, below_re, until_re = map(re.compile, (above, then, below, until))

    def take(lines: list[str], at: int) -> Found | None:
        if then and not (at + 1 < len(lines) and then_re.search(lines[at + 1])):
            return None
        first = at
        while first > max(0, at - 3) and above_re.search(lines[first - 1]):
            first -= 1
        taken = list(range(first, at + 1))
        for index in range(at + 1, len(lines)):
            is_pointed_to = index + 1 < len(lines) and _POINTER.match(lines[index + 1])
            if until_re.search(lines[index]) or not (below_re.search(lines[index]) or is_pointed_to):
                break
            if not _BLANK.match(lines[index]):
                taken.append(index)
            if len(taken) > at - first + most:
                break
        return Found(rank, taken, at)

    return take


def with_title(pattern: str, take: Taker) -> Taker:
    """Return a taker that also takes the nearest earlier line that matches `pattern`."""
    title = re.compile(pattern)

    def take_both(lines: list[str], at: int) -> Found | None:
        found = take(lines, at)
        above = next((index for index in range(at - 1, -1, -1) if title.search(lines[index])), at)
        return found and Found(found.rank, [above, *found.lines], found.key)

    return take_both


def take_jest(lines: list[str], at: int) -> Found:
    """Take the name of the test, the message, the line of the code above the caret, and the first place.

    jest prints the code before the place, vitest after it.
    """
    taken = [at]
    has_place = False
    for index in range(at + 1, len(lines)):
        text = lines[index].strip()
        if re.match(r"● |Test Suites:|PASS |FAIL |⎯⎯", text):
            break
        if re.match(r"\| +\^", text):
            taken += [index - 1, index]
            if has_place:
                break
        elif re.match(r"at |❯ ", text):
            if not is_library(text):
                taken.append(index)
                has_place = True
                if text.startswith("at "):
                    break
        elif text and not has_place and not re.match(r">? *\d+ ?\|", text) and len(taken) < 7:
            taken.append(index)
    return Found(REPORT, taken, taken[1] if len(taken) > 1 else at)


def take_numbered(lines: list[str], at: int) -> Found | None:
    """Take the first of a numbered list of failures, up to its first place (mocha, rspec, minitest)."""
    first = next((index for index in range(at, min(at + 6, len(lines))) if re.match(r"\s+1\) ", lines[index])), -1)
    if first < 0:
        return None
    taken = [first]
    for index in range(first + 1, len(lines)):
        if re.match(r"\s+2\) |\d+ (?:runs|examples)", lines[index]):
            break
        if lines[index].strip():
            taken.append(index)
        if re.match(r"\s+(?:at |# )", lines[index]):
            break
    return Found(REPORT, [*taken[:10], taken[-1]], taken[min(2, len(taken) - 1)])


_GO_LOG = re.compile(r"\s+\S+\.go:\d+: ")


def take_go_test(lines: list[str], at: int) -> Found:
    """Take the failed test with what it logged; with -v it was logged before."""
    taken = [at]
    indent = len(lines[at]) - len(lines[at].lstrip())
    is_explained = False
    for index in range(at + 1, len(lines)):
        text = lines[index]
        if text.startswith("panic: "):
            return Found(REPORT, [at, index, *take_go_frames(lines, index)], index)
        if len(text) - len(text.lstrip()) <= indent or ("--- FAIL" in text and is_explained) or len(taken) > 8:
            break
        is_explained = is_explained or bool(_GO_LOG.match(text))
        taken.append(index)
    if not is_explained:
        start = max((index for index in range(at) if lines[index].startswith("---")), default=0)
        taken = [*[index for index in range(start, at) if _GO_LOG.match(lines[index])][:4], *taken[:4]]
    return Found(REPORT, taken, at)


def take_go_frames(lines: list[str], at: int) -> list[int]:
    """Take the first two frames that are not of the runtime."""
    taken: list[int] = []
    for index in range(at + 1, len(lines)):
        if lines[index].startswith(("FAIL", "exit status")) or len(taken) >= 4:
            break
        caller = lines[index - 1]
        if lines[index].startswith("\t") and re.match(r"(?!testing|runtime|panic|created by|\s).*\(", caller):
            taken += [index - 1, index]
    return taken


def take_go_panic(lines: list[str], at: int) -> Found:
    """Take the message and the first own frames of a goroutine."""
    return Found(CRASH, [at, *take_go_frames(lines, at)], at)


_LIBRARY = re.compile(
    r"<frozen |/lib/python|/(?:site|dist)-packages/|/importlib/|node:internal|node:async_hooks|node_modules/"
    r"|\(<anonymous>\)|\(java\.base/|\bjdk\.internal|\bsun\.reflect"
)


def is_library(text: str) -> bool:
    """Whether a line of a stack is of a library, and not of the program itself."""
    return _LIBRARY.search(text) is not None


_FRAME = re.compile(r"\s+at ")
_CAUSE = re.compile(r"\s*(?:Caused by: |\[cause\]: )")


def take_stack(lines: list[str], at: int) -> Found | None:
    """Take a stack of Java or node: the message, its first own frames, and the last cause with its own."""
    first = next((index for index in range(at + 1, min(at + 8, len(lines))) if _FRAME.match(lines[index])), 0)
    if not first:
        return None
    frames: list[int] = []
    cause: list[int] = []
    for index in range(first, len(lines)):
        text = lines[index]
        if _CAUSE.match(text):
            cause = [index]
        elif not text.startswith(("\t", "  ")):
            break
        elif _FRAME.match(text) and not is_library(text) and len(cause or frames) < 3:
            (cause or frames).append(index)
    site = [index for index in range(max(0, at - 4), at) if lines[index].strip()]
    # node prints the place, the source, a caret and a blank line above the message.
    if not (site and re.search(r"^\S*[./]\S*:\d+$", lines[site[0]]) and not lines[at - 1].strip()):
        site = [at - 1] if at and re.search(r"\bERROR\b|\bSEVERE\b", lines[at - 1]) else []
    taken = [*site, *range(at, min(first, at + 4)), *(frames or [first]), *cause]
    return Found(rank_of_stack(lines, at), taken, at)


def rank_of_stack(lines: list[str], at: int) -> int:
    """Return the rank of an exception: the program went on after one that it logged as a warning."""
    return WORDS if at and re.search(r"\bWARN(?:ING)?\b", lines[at - 1]) else CRASH
