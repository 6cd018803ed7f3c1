"""The formats that are known: how an error begins, and which lines explain it."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.light import frozen
from outlast.output.first_error import python, takers
from outlast.output.first_error.takers import CRASH, MESSAGE, REPORT, Found, Taker, make_span_taker, with_title
from outlast.output.first_error.words import LINES_AFTER, is_message, take_message


@frozen
class Rule:
    """How the first line of an error looks, and which lines to take from there on."""

    rank: int  # the highest that it can find
    # In lower case; a line that contains none of them is not tried. Each costs time for all text: a rule without
    # needles is tried only on the last lines of the output.
    needles: tuple[bytes, ...]
    matches: Callable[[str], object]
    take: Taker
    below: int  # how many lines below the first one `take` can use
    soon: re.Pattern[str] | None = None  # is found in the next lines; saves reading them all for many lines in vain


def _rule(rank: int, needles: str, head: str, take: Taker, below: int = 30, soon: str = "") -> Rule:
    encoded = tuple(one.encode() for one in needles.split("|") if one)
    return Rule(rank, encoded, re.compile(head).search, take, below, re.compile(soon) if soon else None)


def _span(rank: int, needles: str, head: str, *, most: int = 8, soon: str = "", **patterns: str) -> Rule:
    return _rule(rank, needles, head, make_span_taker(rank, most=most, **patterns), soon=soon)


_LONG = 400  # lines: a test function above its assertion, or a stack
_PLACE = r"^(?::\w+)?(?:(?=[^\s:]*[./])[^\s:]+|<\w+>):\d+"  # gradle prints ":compileJava" on the same line
_NEXT = r": (?:fatal )?(?:error|warning|Error|Warning)\b|^(?:error|warning)\b|^\d+ errors?\b"
_GO = r"^(?:vet: )?[^\s:]+\.go:\d+:\d+: "
_LINKER = r"undefined reference to"
_LINKER_RARE = r"multiple definition of|\bld(?:\.\w+)?: (?:error: |cannot find )"
_LINT = r"^\S+\.py:\d+:\d+: [A-Z]+\d+:? "
_ESLINT = r"^\s+\d+:\d+\s+error\s"
_NPM = r"^npm (?:ERR!|error)"
_EXCEPTION = (
    r'^\s*(?:Exception in thread "[^"]*" |Unhandled exception\. |Uncaught )?'
    r"(?:[\w$]+[.:]{1,2})*(?:[A-Z]\w*)?(?:Error|Exception)\b(?: \[\w+\])?(?:: |:?$)"
)
_take_ruff_code = make_span_taker(REPORT, above=".", below=r"^\s*\d* \|", most=5)
_take_ansible_task = with_title(r"^TASK \[", make_span_taker(REPORT))


def _take_ruff(lines: list[str], at: int) -> Found | None:
    """ruff writes the rule above the place. rustc does so too, but its errors begin with "error"."""
    if not at or not re.match(r"[A-Z]+\d+ |invalid-syntax", lines[at - 1]):
        return None
    found = _take_ruff_code(lines[at - 1 :], 1)
    return found and Found(REPORT, [index + at - 1 for index in found.lines], at - 1)


def _take_ansible(lines: list[str], at: int) -> Found | None:
    return None if "...ignoring" in lines[at + 1 : at + 2] else _take_ansible_task(lines, at)


# The first rule that matches a line and takes it is used.
RULES: tuple[Rule, ...] = (
    # --- test runners
    _rule(REPORT, "failures =|errors =", r"^={3,} (?:FAILURES|ERRORS) ={3,}$", python.take_pytest, _LONG),
    _rule(REPORT, "error: |fail: ", r"^(?:ERROR|FAIL): \S+ \(", python.take_unittest, _LONG, r"Traceback \("),
    _rule(REPORT, "\1", r"^  ● \S", takers.take_jest, 100),
    _rule(REPORT, "fail ", r"^\s*FAIL +\S.*(?: > |\[ \S+ \]$)", takers.take_jest, 100),  # vitest
    _rule(REPORT, "", r"^  1\) .*─{3,}$", takers.take_jest, 100),  # playwright
    _rule(REPORT, " failing|failures:", r"^\s+\d+ failing$|^Failures:$", takers.take_numbered, 60),  # mocha, rspec
    _rule(REPORT, "failure:|error:", r"^\s+1\) (?:Failure|Error):$", takers.take_numbered, 60),  # minitest
    _rule(REPORT, "--- fail", r"^\s*--- FAIL: ", takers.take_go_test, 80),
    _span(REPORT, "not ok ", r"^\s*not ok \d+(?!.*# (?i:skip|todo))",  # TAP
          below="^  |^$", until=r"^\s*(?:\.\.\.|stack: \|-)$", most=11),
    _span(REPORT, " failed", r"^\S.* > .* FAILED$", then=r"^\s+\S", below=r"^\s", most=5),  # gradle
    _span(REPORT, "failed example:", r"^Failed example:", above="^File", below="", until=r"^\*\*\*"),  # doctest
    _span(MESSAGE, "***failed|***exception", r"\*\*\*(?:Failed|Exception)", below=r"\S"),  # ctest
    # --- compilers, linkers, checkers
    _span(REPORT, "error", _PLACE + r"(?::\d+)?:? (?:fatal )?error\b",  # gcc, clang, javac, mypy
          above=r": (?:In|At) |^In file|^\s+from |required from", below=r"^\s|: note: ", until=_NEXT, most=7),
    _span(REPORT, "error", r"^\S.*\(\d+(?:,\d+)*\): (?:fatal )?error [A-Z]+\d+", below=r"^\s+\S", most=4),  # tsc
    _span(REPORT, "error", r"^\s*\S+:\d+:\d+ - error(?: TS\d+)?: ",  # tsc --pretty, pyright
          below="", until=r"^\s*\S+:\d+:\d+ - |^\d+ error", most=3),
    _span(REPORT, "error", r"^error(?:\[E\d+\])?: ", then=r"^\s*--> ", below=r"\S", most=9, soon=r"--> "),  # rustc
    _span(REPORT, ".go:", _GO, above="^# ", below=_GO + r"|^\t", most=3),
    _rule(REPORT, "error", _ESLINT, with_title(r"^\S", make_span_taker(REPORT, below=_ESLINT, most=2))),
    _span(REPORT, "undefined reference", _LINKER, above="in function", below=_LINKER, most=3),
    _span(REPORT, "", _LINKER_RARE, above="in function", below=_LINKER_RARE + "|^>>> ", most=3),
    _span(REPORT, "cmake error", r"^CMake Error", below=r"^\s|^$", most=7),
    _span(REPORT, "[error]", r"^\[ERROR\] (?:\S+\.\w+:\[\d+,\d+\]|.*<<< (?:FAILURE|ERROR)!)",  # maven
          below="", until=r"^\[INFO\]|^\[ERROR\] (?:->|For more)", most=7),
    _rule(REPORT, ".py:", r"^\s*--> \S+\.py:\d+:\d+$", _take_ruff),
    _span(REPORT, ".py:", _LINT, below=_LINT, most=3),  # flake8, pylint, ruff
    _span(REPORT, "(error)", r"\^-* SC\d+ \(error\)", above=r"\S"),  # shellcheck
    _span(REPORT, "error in ", r"^ERROR in \S", below=r"\S", most=7),  # webpack
    _span(REPORT, "error during build", r"^error during build:", below="", until=r"^\s+at "),  # vite
    _span(REPORT, "[error]", r"^\W+ \[ERROR\] \S", below=r"^\s|^$", most=5),  # esbuild
    _rule(REPORT, "", r"^  × \S", with_title(r"━{3,}$", make_span_taker(REPORT, then=r"^\s*$", below=r"^\s|^$",
                                                                    until="^  i ", most=5))),  # biome
    # --- package managers and infrastructure
    _span(CRASH, "error: ", r"^(?:│ )?Error: ",  # terraform
          then="^│?$", below="", until="^(?:│ )?Error: |^╵", soon=r"\n│?\s*\n"),
    _span(CRASH, "failure: build", r"^FAILURE: Build failed", below="", until=r"^\* Try", most=6),  # gradle
    _span(MESSAGE, "",
          _NPM + r" (?!code (?:ELIFECYCLE|\d)|errno|Lifecycle|command|path |workspace |A complete)",
          below=_NPM, until="A complete log|For a full report|Note that|Clean install", most=9),
    _rule(REPORT, "fatal: [", r"^fatal: \[[^\]]+\]: ", _take_ansible),
    # --- exceptions and panics
    _rule(CRASH, "traceback (most", r"^[\s|]*Traceback \(most recent call last\):", python.take_traceback, _LONG),
    _rule(CRASH, "error|exception", _EXCEPTION, takers.take_stack, _LONG, r"\s+at "),
    _span(CRASH, "error: ", r"^(?:Syntax|Indentation|Tab)Error: ", above="^  "),
    _rule(CRASH, "panic: |fatal error: ", r"^(?:panic|fatal error): ", takers.take_go_panic, 80, "goroutine "),
    _span(CRASH, " panicked at ", r"^thread '.*' .*panicked at ",
          below=r"\S", until="^(?:stack backtrace:|note: |----)"),  # rust
    _span(CRASH, "", r"^\S+:\d+:in .*\((?:[\w:]*(?:Error|Exception)|Errno::\w+)\)$",  # ruby
          below=r"^\s+(?:\d+: )?from ", most=4),
    _span(CRASH, "error: ", r"ERROR: \w+Sanitizer|: runtime error: ", below=r"\S", most=4),
    _span(CRASH, "fatal error: ", r"^(?:PHP )?Fatal error: +Uncaught ", below=r"^Stack trace|^#\d|^  thrown", most=5),
    _span(CRASH, "", r"^stack traceback:$", above=r"^\S", below=r"^\t", most=3),  # lua
    # --- everything else
    Rule(MESSAGE,
         (b"error", b"fatal", b"critical", b"severe", b"panic", b"fail", b"command not found", b"no such file",
          b"permission denied", b"exception", b"segmentation fault"),
         is_message, take_message, LINES_AFTER),
)  # fmt: skip
