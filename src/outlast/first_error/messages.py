"""Lines that look like an error message, with the lines around them."""

from __future__ import annotations

import re

from outlast.first_error.found import AFTERMATH, MESSAGE, WORDS, Found, Line, Opener

LINES_AFTER = 3

# Lines that say what a tool said before in more detail.
_AFTERMATH = re.compile(
    r"^\S*make(?:\[\d+\])?: \*\*\* \[|^ninja: build stopped|^error: (?:could not compile|aborting due|test failed)"
    r"|^(?:collect2|clang(?:\+\+)?|cc1\w*): |^FAILED: |^FAILED \((?:failures|errors)="
    r"|^npm (?:ERR!|error) (?:code ELIFECYCLE|errno|Lifecycle|command failed|Exit status|A complete log|path |workspace )"
    r"|ELIFECYCLE|^error Command failed|\b(?:FAILED|ERROR|XFAIL)\s+\[ *\d+%\]$|\.\.\. FAILED$|^=+ .* in [\d.]+s .*=+$"
    r"|^Found \d+ errors?\b|^\S+: \*\*\* .* failed$|^FAIL\b"
)
# Lines of which no word counts: passed tests, settings that a script looks for, commands that are printed, source.
_HARMLESS = re.compile(
    r"\bPASS(?:ED)?\b|\bSKIPPED\b|\.\.\. ?ok$|^\s*ok \d+|^\s*[✓✔√○]|^=== (?:RUN|PAUSE|CONT)|^#|^\+|^\$ |^> |^-- "
    r"|^checking |^[-+]{3} |^@@ |\b(?:warning|WARNING|Warning|WARN|INFO|DEBUG|TRACE|NOTICE|note|info|debug)\b\s*[:\]|]"
    r"|\b(?:WARNING|WARN|INFO|DEBUG|TRACE|NOTICE)\b|^npm warn|Warning: "
    r"|level=(?:info|debug|warn)|\"level\": ?\"(?:info|debug|warn)"
    r"|^\s*(?:(?:except|raise|throw|catch|import|from|class|def|return|if|for)\b[ (]|//|/\*|\})"
)
# Words that say that there is no error.
_DENIED = re.compile(
    r"(?i)\b(?:0|no|zero|without|any|ignor\w+|if|on)[ -](?:\w+ ){0,1}(?:errors?|failed|failures?|exceptions?)\b(?: found)?"
    r"|\b(?:errors?|failed|failures?|exceptions?)\b[\"']?\s*[:=]\s*(?:0\b|none\b|null\b|nil\b|false\b|\"\"|\[\])"
)
_BEGIN = r"(?:^|(?<![-./\\_=\w\"'`]))"
_END = r"(?![-/\\_=\w(\"'`]|\.\w)"
_MESSAGE = re.compile(
    r"^(?:[\w./@+-]+: )?(?:[\w./-]+: )?\[?(?:fatal|error|panic|Fatal|Error|E)(?: \w+)?\]?: "
    rf"|{_BEGIN}(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC){_END}|level=(?:error|fatal|panic|critical)"
    r"|\"level\": ?\"(?:error|fatal|panic|critical)\"|^npm (?:ERR!|error) "
    r"|: line \d+: |^\S+: \d+: .*(?:not found|denied)$|: \*\*\* .*Stop\.|^\* What went wrong|^(?:FAILED|ERROR) \S+"
    r"|^fatal|^::error|^terminate called|: Assertion .* failed\.$"
)
_WORDS = re.compile(
    rf"(?i:{_BEGIN}(?:error|fatal|panic|exception|traceback|failed|failure|cannot|can't|couldn't|could not|unable to"
    r"|not found|no such|no module named|denied|refused|timed out|undefined|unrecognized|unbound variable|invalid"
    r"|does not exist|segmentation fault|core dumped|killed|aborted|out of memory|syntax error|assertion|not in \w+ format"
    rf"|aborted due to){_END})"
    r"|[a-z](?:Error|Exception)(?:: |:?$)| at \S+\.p[lm] line \d+\."
)
_NEEDLES = (
    "rror", "RROR", "FATAL", "CRITICAL", "SEVERE", "PANIC", "FAIL", "ELIFECYCLE", "atal", "anic", "xception", "EXCEPTION",
    "raceback", "ailed", "ailure", "annot", "an't", "ould", "nable to", "ot found", "o such", "enied", "efused",
    "imed out", "ndefined", "nrecognized", "unbound variable", "nvalid", "oes not exist", "egmentation fault",
    "ore dumped", "illed", "borted", "ut of memory", "ssertion", "went wrong", "not in ", ".pl line", ".pm line", "Stop.",
    "terminate called", "o module named",
)  # fmt: skip


def _rate(text: str) -> int:
    if _AFTERMATH.search(text):
        return AFTERMATH
    if _HARMLESS.search(text):
        return 0
    text = _DENIED.sub(" ", text)
    if _MESSAGE.search(text):
        return MESSAGE
    return WORDS if _WORDS.search(text) else 0


def _read_message(line: Line, before: list[Line]) -> Found | None:
    rank = _rate(line[1])
    if not rank:
        return None
    if rank == AFTERMATH:  # what it is about was said before, in words that we do not know
        return Found(rank, [*before[-4:], line], line[0], after=1)
    above = [] if line[1].startswith(("npm ", "[ERROR]")) else before[-1:]
    return Found(rank, [*above, line], line[0], after=LINES_AFTER)


MESSAGES = (Opener(MESSAGE, _NEEDLES, re.compile(""), _read_message),)
