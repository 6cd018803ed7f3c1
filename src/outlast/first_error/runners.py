"""Reports of test runners."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.first_error.crashes import TRACEBACK, read_go_frames, read_traceback
from outlast.first_error.found import REPORT, Found, Line, Opener, Reader

_MOST_LINES = 5000  # of one report: the source of a long test function comes before its error
_DETAILS = 8  # lines that say what differs

_PYTEST_HEADER = re.compile(r"^_{3,} .* _{3,}$")
_PYTEST_PLACE = re.compile(r"^\S.*:\d+: ?\w*$")
_PYTEST_FRAME = re.compile(r"^\S.*:\d+: in ")
_PYTEST_ONE_LINE = re.compile(r"^\S+:\d+: \S")
_PYTEST_ENTRY = "_ _ _ _ "
_PYTEST_END = ("=====", "-----", "_____", "!!!!!")


def _read_pytest(header: Line, before: list[Line]) -> Reader:
    """The name of the test, its own line, and the innermost line with what pytest says about it.

    Where another function raised, the test's own line (`>`) and place are shown too.
    """
    name: list[Line] = []
    own: list[Line] = []  # the first entry: the test itself
    entry: list[Line] = []  # the last lines of this entry that can explain its error
    for _ in range(_MOST_LINES):
        line = yield
        if line is None or line[1].startswith("===== short"):
            break
        text = line[1]
        if _PYTEST_HEADER.match(text):
            name, own, entry = [line], [], []
        elif TRACEBACK.match(text):  # --tb=native
            found = yield from read_traceback(line, [])
            return found and Found(REPORT, [*name, *found.lines], found.number)
        elif text.startswith(_PYTEST_ENTRY):
            own = own or entry
            entry = []
        elif text.startswith("E  "):
            return (yield from _read_pytest_error([*name, *own[-3:], *entry], line))
        elif text.startswith(">") or _PYTEST_FRAME.match(text):
            entry = [line]
        elif not name and _PYTEST_ONE_LINE.match(text):  # --tb=line
            return Found(REPORT, [line], line[0])
        elif entry and text.strip() and len(entry) < 4:
            entry.append(line)
    return None


def _read_pytest_error(lines: list[Line], first: Line) -> Reader:
    error = [first]
    while (line := (yield)) is not None and not line[1].startswith(_PYTEST_END):
        text = line[1]
        if text.startswith(("E  ", "     ")):
            if len(error) < _DETAILS:
                error.append(line)
        elif _PYTEST_PLACE.match(text) or _PYTEST_ONE_LINE.match(text):
            error.append(line)
            break
        elif text.strip():
            break
    return Found(REPORT, [*lines, *error], first[0])


def _read_unittest(header: Line, before: list[Line]) -> Reader:
    for _ in range(4):
        line = yield
        if line is None:
            return None
        if TRACEBACK.match(line[1]):
            found = yield from read_traceback(line, [])
            return found and Found(REPORT, [header, *found.lines], found.number)
    return None


_JEST_FRAME = re.compile(r"^\s*>? *\d* \|")
_JEST_MARKED = re.compile(r"^\s*(?:> *\d+ \||\| +\^)")


def _read_jest(header: Line, before: list[Line]) -> Reader:
    """The message with what was expected, the marked line of the code frame, and the first stack frame."""
    message: list[Line] = []
    code: list[Line] = []
    for _ in range(100):
        line = yield
        if line is None or line[1].lstrip().startswith(("● ", "Test Suites:", "PASS ", "FAIL ")):
            break
        text = line[1].strip()
        if text.startswith("at "):
            code.append(line)
            break
        if _JEST_FRAME.match(line[1]):
            if _JEST_MARKED.match(line[1]):
                code.append(line)
        elif text and len(message) < _DETAILS:
            message.append(line)
    number = message[0][0] if message else header[0]
    return Found(REPORT, [header, *message, *code], number)


def _read_vitest(header: Line, before: list[Line]) -> Reader:
    """The message with what was expected, the place, and the marked line of the code frame."""
    lines = [header]
    place = False
    for _ in range(60):
        line = yield
        if line is None or line[1].startswith(("⎯⎯", " FAIL ")):
            break
        text = line[1].strip()
        if text.startswith("❯"):
            place = True
        if text and (len(lines) <= _DETAILS or text.startswith("❯")):
            lines.append(line)
        if place and text.endswith("^"):
            break
    return Found(REPORT, lines, lines[1][0] if len(lines) > 1 else header[0])


_MOCHA_TEST = re.compile(r"^\s+(\d+)\) ")


def _read_mocha(header: Line, before: list[Line]) -> Reader:
    """The first test of the list of failures, to its first stack frame."""
    lines: list[Line] = []
    number = header[0]
    for _ in range(60):
        line = yield
        if line is None or ((test := _MOCHA_TEST.match(line[1])) and test[1] != "1"):
            break
        if line[1].strip() and len(lines) < 12:
            lines.append(line)
            if number == header[0] and ("rror" in line[1] or "xception" in line[1]):
                number = line[0]
        if line[1].lstrip().startswith("at "):
            break
    return Found(REPORT, lines or [header], number if lines else header[0])


_GO_LOG = re.compile(r"^\s+\S+\.go:\d+: ")


def _read_go_test(header: Line, before: list[Line]) -> Reader:
    """The failed test with what it logged; with -v it was logged before."""
    lines = [header]
    is_explained = False
    indent = len(header[1]) - len(header[1].lstrip())
    while (line := (yield)) is not None and len(lines) < 10:
        text = line[1]
        if text.startswith("panic: "):
            frames = yield from read_go_frames()
            return Found(REPORT, [*lines, line, *frames], line[0])
        inside = len(text) - len(text.lstrip()) > indent
        if not inside or ("--- FAIL" in text and is_explained):
            break
        is_explained = is_explained or bool(_GO_LOG.match(text))
        lines.append(line)
    if not is_explained:
        logged = [one for one in before if _GO_LOG.match(one[1])]
        lines = [*logged[:4], *lines[:4]]
    return Found(REPORT, lines, header[0])


def _read_cargo_test(header: Line, before: list[Line]) -> Reader:
    """The panic of the test; what the test printed before is left out."""
    printed: list[Line] = []
    panic: list[Line] = []
    for _ in range(_MOST_LINES):
        line = yield
        if line is None or line[1].startswith(("----", "failures:", "stack backtrace:", "note: ")):
            break
        if panic or " panicked at " in line[1]:
            panic.append(line)
            if len(panic) >= 10:
                break
        elif line[1].strip() and len(printed) < 6:
            printed.append(line)
    lines = panic or printed
    return Found(REPORT, [header, *lines], lines[0][0] if lines else header[0])


def _read_tap(header: Line, before: list[Line]) -> Reader:
    """The first lines of the YAML block; a stack trace at its end is left out."""
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 14:
        if not line[1].startswith("  ") or line[1].strip() in ("...", "stack: |-"):
            break
        if "duration_ms" not in line[1]:
            lines.append(line)
    return Found(REPORT, lines, header[0])


def _opener(needles: tuple[str, ...], pattern: str, read: Callable[[Line, list[Line]], Reader] -> Opener:
    return Opener(REPORT, needles, re.compile(pattern), read)


RUNNERS = (
    _opener(("FAILURES", "ERRORS"), r"^={3,} (?:FAILURES|ERRORS) ={3,}$", _read_pytest),
    _opener(("ERROR: ", "FAIL: "), r"^(?:ERROR|FAIL): \S+ \(", _read_unittest),
    _opener(("● ",), r"^\s*● (?!Console|\w+ Warning)", _read_jest),
    _opener(("FAIL ",), r"^\s*FAIL\s+\S.*(?: > |\[ .* \]$)", _read_vitest),
    _opener((" failing",), r"^\s+\d+ failing$", _read_mocha),
    _opener(("--- FAIL",), r"^\s*--- FAIL: ", _read_go_test),
    _opener((" stdout ----",), r"^---- .* stdout ----$", _read_cargo_test),
    _opener(("not ok ",), r"^\s*not ok \d+(?!.*# (?:SKIP|TODO|skip|todo))", _read_tap),
)
