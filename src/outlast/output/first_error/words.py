"""Single lines that look like an error message, and the words that only look like one."""

from __future__ import annotations

import re

from outlast.output.first_error.takers import AFTERMATH, MESSAGE, WORDS, Found

LINES_AFTER = 3  # of a message

# Lines that only repeat that something failed. What it was stands before them.
_AFTERMATH = re.compile(
    r"^\S*make(?:\[\d+\])?: \*\*\* \[|^ninja: build stopped|^error: (?:could not compile|aborting due|test failed)"
    r"|^(?:collect2|clang(?:\+\+)?|cc1\w*): |^FAILED: |^FAILED \((?:failures|errors)=|^ERROR: failed to solve"
    r"|^npm (?:ERR!|error)|ELIFECYCLE|^error Command failed|\b(?:FAILED|ERROR|XFAIL)\s+\[ *\d+%\]$|\.\.\. FAILED$"
    r"|^=+ .*(?:failed|error).* in [\d.]+s .*=+$|^Found \d+ errors?\b|^FAIL\b|^FAILURE: Build failed|BUILD FAIL"
    r"|^[1-9]\d* errors?\b|^(?:> Task )?\S+ FAILED$|^\[ERROR\](?: (?:To see|Re-run|For more|-> \[Help|\[Help)|\s*$)"
    r"|^# fail |: Error is not recoverable|^Error: Process completed with"
)
# Lines of which no word counts: passed tests, checks of a configure script, echoed commands, source, low log levels.
_HARMLESS = re.compile(
    r"\bPASS(?:ED)?\b|\bSKIPPED\b|\.\.\. ?ok$|^\s*ok \d+|^\s*[✓✔√○]|^=== (?:RUN|PAUSE|CONT)|^#|^\+|^\$ |^> |^-- |\bok$"
    r"|^checking |^[-+]{3} |^@@ |\b(?i:warning|warn|note|info|debug|notice)\b\s*[:\]|)]|^npm warn|^Caused by: "
    r"|\b(?:WARNING|WARN|INFO|DEBUG|TRACE|NOTICE)\b|level=(?:info|debug|warn)|\"level\": ?\"(?:info|debug|warn)"
    r"|^\s*(?:(?:except|raise|throw|catch|import|from|class|def|return|if|for)\b[ (]|//|/\*|\})"
)
# Words that say that there is no error.
_DENIED = re.compile(
    r"(?i)\b(?:0|no|zero|without|any|ignor\w+|if|on)[ -](?:\w+ )?(?:errors?|failed|failures?|exceptions?)\b"
    r"|\b(?:errors?|failed|failures?|exceptions?)\b[\"']?\s*[:=]\s*(?:0\b|none\b|null\b|nil\b|false\b|\"\"|\[\])"
)
_BEGIN = r"(?:^|(?<![-./\\_=\w\"'`]))"
_END = r"(?![-/\\_=\w(\"'`]|\.\w)"
_MESSAGE_START = re.compile(
    r"(?:[\w./@+-]+: )?(?:[\w./-]+: )?\[?(?:fatal|error|panic|Fatal|Error|E)(?: \w+)?\]?: "
    r"|\[error\] |\S+: \d+: .*(?:not found|denied)$|(?:FAILED|ERROR) \S+|fatal|::error|Automatic merge failed"
    r"|[\w./-]+: .*: (?:No such file or directory|Permission denied|not found)$|[\w.$]*\w(?:Error|Exception): "
    r"|(?:PHP )?(?:Fatal|Parse) error: "
)
# Each alternative begins with a letter, so that the engine can skip to it. What must not precede it is checked after.
_MESSAGE_INSIDE = re.compile(
    "|".join(
        rf"{level}(?<![-./\\_=\w\"'`]{level}){_END}" for level in ("ERROR", "FATAL", "CRITICAL", "SEVERE", "PANIC")
    )
    + r"|level\"?[=:] ?\"?(?:error|fatal|panic|critical)|line \d+: .{0,200}(?:not found|denied|error|fault)"
    r"|Assertion .{1,200} failed\.$|Segmentation fault\b|syntax error\b(?<=: syntax error)"
)
_WORDS = re.compile(
    rf"(?i:{_BEGIN}(?:error|fatal|panic|exception|traceback|failed|failure|cannot|can't|couldn't|could not|unable to"
    r"|not found|no such|no module named|denied|refused|timed out|undefined|unrecognized|unbound variable|invalid"
    r"|does not exist|segmentation fault|core dumped|killed|aborted|out of memory|syntax error|assertion"
    rf"|not in \w+ format|aborted due to|terminate called){_END})| at \S+\.p[lm] line \d+\.|: \*\*\* .*Stop\."
)


def is_message(line: str) -> bool:
    """Whether the line has the form of an error message."""
    return bool(_MESSAGE_START.match(line) or _MESSAGE_INSIDE.search(line)) and _rate(line) == MESSAGE


def take_message(lines: list[str], at: int) -> Found:
    """Take a message with a line above it and some below, up to a log line of a low level."""
    above = 2 if at > 1 and lines[at - 1].endswith(" ^") else 1  # a caret points to the source above it
    taken = list(range(max(0, at - above), at + 1)) if not lines[at].startswith("[ERROR]") else [at]
    for index in range(at + 1, len(lines)):
        if _AFTERMATH.search(lines[index]) or index - at > LINES_AFTER:
            break
        if lines[index].strip():
            taken.append(index)
    return Found(MESSAGE, taken, at)


def find_weak_message(lines: list[str]) -> Found | None:
    """Find the first line with a word such as "cannot", or else the first that says that something failed."""
    ranks = [_rate(line) for line in lines]
    for rank in (MESSAGE, WORDS, AFTERMATH):
        if rank in ranks:
            at = ranks.index(rank)
            above = 5 if rank == AFTERMATH else 1  # the reason stands above it, in words that we do not know
            below = 1 if rank == AFTERMATH else 1 + LINES_AFTER
            return Found(rank, list(range(max(0, at - above), min(at + below, len(lines)))), at)
    return None


def _rate(line: str) -> int:
    if _AFTERMATH.search(line):
        return AFTERMATH
    if _HARMLESS.search(line):
        return 0
    line = _DENIED.sub(" ", line)
    if _MESSAGE_START.match(line) or _MESSAGE_INSIDE.search(line):
        return MESSAGE
    return WORDS if _WORDS.search(line) else 0
