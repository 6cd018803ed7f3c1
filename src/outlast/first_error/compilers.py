"""Diagnostics of compilers, linkers and checkers."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.first_error.found import MESSAGE, REPORT, Found, Line, Opener, Reader

_DETAILS = 8  # lines after a diagnostic

_NEXT = re.compile(r": (?:fatal )?(?:error|warning|Error|Warning)\b|^(?:error|warning)\b|^\d+ errors?\b")
_NOTE = re.compile(r": note: |^note: ")
_POINTER = re.compile(r"^\s*[\^~]")
_LEADING = re.compile(r"In (?:\w+ )*(?:function|file included|instantiation|lambda)|^\s+from |required from|At global")


def _read_diagnostic(header: Line, before: list[Line]) -> Reader:
    """A line `file:line:column: error: ...` with the source below it and what led to it above."""
    lines = [header]
    for earlier in reversed(before[-3:]):
        if not _LEADING.search(earlier[1]):
            break
        lines.insert(0, earlier)
    held: Line | None = None  # not indented: source, if a pointer to a column follows
    most = len(lines) + _DETAILS
    while (line := (yield)) is not None and len(lines) < most:
        text = line[1]
        if held:
            if not _POINTER.match(text):
                break
            lines += [held, line]
            held = None
        elif not text.strip() or _NEXT.search(text):
            break
        elif text[0] in " \t" or _NOTE.search(text):
            lines.append(line)
        else:
            held = line
    return Found(REPORT, lines, header[0])


def _read_rustc(header: Line, before: list[Line]) -> Reader:
    """cargo writes `error: ` too, without a place: that is a message."""
    line = yield
    if line is None or not line[1].lstrip().startswith("--> "):
        return Found(MESSAGE, [header], header[0], after=3)
    lines = [header]
    while line is not None and line[1].strip() and len(lines) < 12:
        lines.append(line)
        line = yield
    return Found(REPORT, lines, header[0])


def _read_tsc_pretty(header: Line, before: list[Line]) -> Reader:
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 4 and not _NEXT.search(line[1]):
        if line[1].strip():
            lines.append(line)
        if "~" in line[1]:
            break
    return Found(REPORT, lines, header[0])


def _reader_of_same(pattern: str, rank: int, most: int) -> Callable[[Line, list[Line]], Reader]:
    """A reader for diagnostics of one line each: takes the next ones too."""
    same = re.compile(pattern)

    def read(header: Line, before: list[Line]) -> Reader:
        lines = [header]
        while (line := (yield)) is not None and len(lines) < most and same.search(line[1]):
            lines.append(line)
        return Found(rank, lines, header[0])

    return read


def _read_eslint(header: Line, before: list[Line]) -> Reader:
    """The name of the file stands above its first problem."""
    lines = [header]
    for earlier in reversed(before):
        if earlier[1] and not earlier[1][0].isspace():
            lines.insert(0, earlier)
            break
    while (line := (yield)) is not None and len(lines) < 5 and _ESLINT.search(line[1]):
        lines.append(line)
    return Found(REPORT, lines, header[0])


def _read_linker(header: Line, before: list[Line]) -> Reader:
    above = [line for line in before[-1:] if "in function" in line[1]]
    lines = [*above, header]
    while (line := (yield)) is not None and len(lines) < 5 and _LINKER.search(line[1]):
        lines.append(line)
    return Found(REPORT, lines, header[0])


def _read_cmake(header: Line, before: list[Line]) -> Reader:
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 12 and not line[1].startswith(("-- ", "CMake ")):
        if line[1].strip():
            lines.append(line)
    return Found(REPORT, lines, header[0])


def _read_maven(header: Line, before: list[Line]) -> Reader:
    lines = [header]
    while (line := (yield)) is not None and len(lines) < 10 and not line[1].startswith("[INFO]"):
        if line[1].startswith(("[ERROR] ->", "[ERROR] For more")):
            break
        lines.append(line)
    return Found(REPORT, lines, header[0])


def _read_ruff(place: Line, before: list[Line]) -> Reader:
    """ruff writes the rule above the place. rustc does so too, but its errors are read from there on."""
    above = before[-1:]
    if not above or not re.match(r"^[A-Z]+\d+ |^invalid-syntax", above[0][1]):
        return None
    lines = [*above, place]
    while (line := (yield)) is not None and len(lines) < 8 and re.match(r"^\s*\d* \|", line[1]):
        lines.append(line)
    return Found(MESSAGE, lines, above[0][0])


def _opener(
    needles: tuple[str, ...], pattern: str, read: Callable[[Line, list[Line]], Reader], rank: int = REPORT
) -> Opener:
    return Opener(rank, needles, re.compile(pattern), read)


_GO = r"^(?:vet: )?[^\s:]+\.go:\d+:\d+: "
_ESLINT = re.compile(r"^\s+\d+:\d+\s+error\s")
_LINKER = re.compile(
    r"undefined reference to|multiple definition of|^\S*\bld(?:\.\w+)?: (?:error: |cannot find |.*undefined symbol)"
    r"|^>>> "
)
_RULE = r"^[^\s:]+:\d+:\d+: [A-Z]+\d+ "

COMPILERS = (
    _opener((": error", ": fatal error"), r"^[^\s:(][^:(]*:\d+(?::\d+)?: (?:fatal )?error\b", _read_diagnostic),
    _opener(("error ",), r"^\S.*\(\d+(?:,\d+)?\): (?:fatal )?error [A-Z]+\d+", _read_diagnostic),
    _opener(("error TS",), r"^\S+:\d+:\d+ - error TS\d+", _read_tsc_pretty),
    _opener(("error: ", "error["), r"^error(?:\[E\d+\])?: ", _read_rustc),
    _opener((".go:",), _GO, _reader_of_same(_GO, REPORT, 4)),
    _opener(("error",), _ESLINT.pattern, _read_eslint),
    _opener(("undefined ", "multiple def", "cannot find ", "ld: error"), _LINKER.pattern, _read_linker),
    _opener(("CMake Error",), r"^CMake Error", _read_cmake),
    _opener(("[ERROR]",), r"^\[ERROR\] (?:\S+\.\w+:\[\d+,\d+\]|.*<<< (?:FAILURE|ERROR)!)", _read_maven),
    _opener((" --> ", "--> "), r"^\s*--> \S+:\d+:\d+$", _read_ruff, MESSAGE),
    _opener((".py:",), _RULE, _reader_of_same(_RULE, MESSAGE, 4), MESSAGE),
)
