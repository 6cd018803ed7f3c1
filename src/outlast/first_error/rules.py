"""The formats that are known: how an error begins, and which lines explain it."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.first_error import takers
from outlast.first_error.takers import CRASH, MESSAGE, REPORT, Found, Taker, take_span
from outlast.first_error.words import LINES_AFTER, is_message, take_message
from outlast.frozen import frozen


@frozen
class Rule:
    """How the first line of an error looks, and which lines to take from there on."""

    rank: int  # the highest that it can find
    needles: tuple[bytes, ...]  # in lower case; one of them is in every line that begins an error
    matches: Callable[[str], object]
    take: Taker
    below: int  # how many lines below the first one `take` can use


def _rule(rank: int, needles: str, head: str, take: Taker, below: int = 30) -> Rule:
    return Rule(rank, tuple(one.encode() for one in needles.split("|")), re.compile(head).search, take, below)


_LONG = 400  # lines: a test function above its assertion, or a stack
_PLACE = r"^(?:[^\s:]*[./][^\s:]*|<\w+>):\d+"
_NEXT = r": (?:fatal )?(?:error|warning|Error|Warning)\b|^(?:error|warning)\b|^\d+ errors?\b"
_GO = r"^(?:vet: )?[^\s:]+\.go:\d+:\d+: "
_LINKER = r"undefined reference to|multiple definition of|\bld(?:\.\w+)?: (?:error: |cannot find |.*undefined symbol)|^>>> "
_EXCEPTION = r"(?:[\w$]+[.:]{1,2})*(?:[A-Z]\w*)?(?:Error|Exception)\b(?: \[\w+\])?(?:: |:?$)"
_LINT = r"^\S+\.\w+:\d+:\d+: [A-Z]+\d+:? "
_ESLINT = r"^\s+\d+:\d+\s+error\s"


def _take_ruff(lines: list[str], at: int) -> Found | None:
    """ruff writes the rule above the place. rustc does so too, but its errors begin with "error"."""
    if not at or not re.match(r"[A-Z]+\d+ |invalid-syntax", lines[at - 1]):
        return None
    found = take_span(below=r"^\s*\d* \|", most=5)(lines, at)
    return found and Found(REPORT, [at - 1, *found.lines], at - 1)


def _take_ansible(lines: list[str], at: int) -> Found | None:
    if at + 1 < len(lines) and lines[at + 1].startswith("...ignoring"):
        return None
    return take_span(title=r"^TASK \[", below="^ ", most=6)(lines, at)


# The first rule that matches a line and takes it is used.
RULES: tuple[Rule, ...] = (
    # test runners
    _rule(REPORT, "failures =|errors =", r"^={3,} (?:FAILURES|ERRORS) ={3,}$", takers.take_pytest, _LONG),
    _rule(REPORT, "error: |fail: ", r"^(?:ERROR|FAIL): \S+ \(", takers.take_unittest, _LONG),
    _rule(REPORT, "\1", r"^\s*● (?!Console|\w+ Warning)", takers.take_jest, 100),
    _rule(REPORT, "fail ", r"^\s*FAIL\s+\S.*(?: > |\[ .* \]$)", takers.take_vitest, 100),
    _rule(REPORT, " failing|failures:|failure:|error:", r"^\s+\d+ failing$|^Failures:$|^\s+1\) (?:Failure|Error):$",
          takers.take_numbered, 60),
    _rule(REPORT, "--- fail", r"^\s*--- FAIL: ", takers.take_go_test, 60),
    _rule(REPORT, "not ok ", r"^\s*not ok \d+(?!.*# (?i:skip|todo))",
          take_span(below="^  |^$", until=r"^\s*(?:\.\.\.|stack: \|-)$", most=11)),
    _rule(REPORT, " failed", r"^\S.* > .* FAILED$", take_span(then=r"^\s+\S", below=r"^\s", most=5)),  # gradle
    # compilers, linkers, checkers
    _rule(REPORT, "error", _PLACE + r"(?::\d+)?:? (?:fatal )?error\b",
          take_span(above=r": (?:In|At) |^In file|^\s+from |required from", below=r"^\s|: note: ", until=_NEXT, most=7)),
    _rule(REPORT, "error", r"^\S.*\(\d+(?:,\d+)*\): (?:fatal )?error [A-Z]+\d+", take_span(below=r"^\s+\S", most=4)),
    _rule(REPORT, "error", r"^\S+:\d+:\d+ - error TS\d+", take_span(below="", until=r"^\s+\S+:\d+:\d+ - |^\S+:\d+:\d+ - ", most=3)),
    _rule(REPORT, "error", r"^error(?:\[E\d+\])?: ", take_span(then=r"^\s*--> ", below=r"\S", most=9)),
    _rule(REPORT, ".go:", _GO, take_span(above="^# ", below=_GO + r"|^\t", most=4)),
    _rule(REPORT, "error", _ESLINT, take_span(title=r"^\S", below=_ESLINT, most=3)),
    _rule(REPORT, "undefined reference|multiple definition of|ld: cannot find|error: undefined symbol", _LINKER,
          take_span(above="in function", below=_LINKER, most=4)),
    _rule(REPORT, "cmake error", r"^CMake Error", take_span(below=r"^\s|^$", most=7)),
    _rule(REPORT, "[error]", r"^\[ERROR\] (?:\S+\.\w+:\[\d+,\d+\]|.*<<< (?:FAILURE|ERROR)!)",
          take_span(below="", until=r"^\[INFO\]|^\[ERROR\] (?:->|For more)", most=8)),
    _rule(REPORT, ".py:", r"^\s*--> \S+:\d+:\d+$", _take_ruff),
    _rule(REPORT, ".py:", _LINT, take_span(below=_LINT, most=3)),
    _rule(REPORT, "(error)", r"\^-* SC\d+ \(error\)", take_span(title=r"^In .* line \d+:$", above="", most=0)),
    _rule(REPORT, "error in ", r"^ERROR in \S", take_span(below=r"\S", most=7)),  # webpack
    _rule(REPORT, "[error]", r"^\W+ \[ERROR\] \S", take_span(below=r"^\s|^$", most=5)),  # esbuild
    # infrastructure
    _rule(REPORT, "error: ", r"^│ Error: ", take_span(below="^│", most=9)),  # terraform
    _rule(REPORT, "fatal: [", r"^fatal: \[[^\]]+\]: ", _take_ansible),
    _rule(CRASH, "failure: build", r"^FAILURE: Build failed", take_span(CRASH, below="", until=r"^\* Try", most=6)),  # gradle
    # exceptions and panics
    _rule(CRASH, "traceback (most", r"^[\s|]*Traceback \(most recent", takers.take_traceback, _LONG),
    _rule(CRASH, "error|exception",
          rf'^\s*(?:Exception in thread "[^"]*" |Unhandled exception\. |Uncaught )?{_EXCEPTION}', takers.take_stack, _LONG),
    _rule(CRASH, "error: ", r"^(?:Syntax|Indentation|Tab)Error: ", take_span(CRASH, above="^  ", below=r"(?!)")),
    _rule(CRASH, "panic: |fatal error: ", r"^(?:panic|fatal error): ", takers.take_go_panic, 80),
    _rule(CRASH, " panicked at ", r"^thread '.*' .*panicked at ",
          take_span(CRASH, below=r"\S", until="^(?:stack backtrace:|note: |----)", most=8)),
    _rule(CRASH, "error)|exception)", r"^\S+:\d+:in .*\([A-Z][\w:]*\)$", take_span(CRASH, below=r"^\s+(?:\d+: )?from ", most=4)),
    _rule(CRASH, "error: ", r"ERROR: \w+Sanitizer|: runtime error: ", take_span(CRASH, below=r"\S", most=4)),
    _rule(CRASH, "fatal error:  uncaught", r"^(?:PHP )?Fatal error:  Uncaught ", take_span(CRASH, below=r"^(?:Stack trace|#\d|  thrown)", most=5)),
    _rule(CRASH, "stack traceback:", r"^stack traceback:$", take_span(CRASH, above=r"^\S", below=r"^\t", most=3)),  # lua
    # everything else
    Rule(MESSAGE,
         (b"error", b"fatal", b"critical", b"severe", b"panic", b"fail", b"command not found", b"no such file",
          b"permission denied", b"exception", b"segmentation fault"),
         is_message, take_message, LINES_AFTER),
)  # fmt: skip
