"""TEMPORARY: to be replaced by the real judge, which has the same interface.

Splits on operators and compares; good enough to build on, not to rely on.
"""

from __future__ import annotations

import fnmatch
import re
import shlex

from outlast.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    Verdict = Literal["allow", "ask", "deny"]
    Hazard = Callable[[tuple[str | None, ...]], str | None]

_ORDER: tuple[Verdict, ...] = ("allow", "ask", "deny")
_NEUTRAL = ("true", "false", ":", "exit")
_NONE: frozenset[str] = frozenset()


@frozen
class Rules:
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    otherwise: Verdict = "ask"
    hazard: Hazard | None = None


@frozen
class Known:
    functions: frozenset[str] = _NONE
    aliases: frozenset[str] = _NONE
    variables: frozenset[str] = _NONE
    path_changed: bool = False


@frozen
class Part:
    command: str
    verdict: Verdict
    rule: str
    why: str
    depth: int
    inside: str


@frozen
class Judgement:
    verdict: Verdict
    parts: tuple[Part, ...]


def judge(
    line: str,
    rules: Rules,
    known: Known = Known(),
    *,  # noqa: B008
    shell: str = "bash",
) -> Judgement:
    parts = []
    for piece in re.split(r"\s*(?:;|&&|\|\||\||&(?!>)|\n)\s*", line):
        if piece.strip():
            parts.append(_part(piece.strip(), rules, known))
    if shell != "bash" and rules.otherwise != "allow":
        parts.append(Part(line, "ask", "", f"the line is for {shell}, not for bash", 0, ""))
    return Judgement(max((part.verdict for part in parts), key=_ORDER.index, default="allow"), tuple(parts))


def _words(text: str) -> tuple[str | None, ...]:
    try:
        return tuple(None if "$" in word else word for word in shlex.split(text))
    except ValueError:
        return (None,)


def _part(piece: str, rules: Rules, known: Known) -> Part:  # noqa: C901
    text, *targets = re.split(r"\s*[0-9]*>>?\s*", piece)
    words = _words(text)
    for denied in (words, *((">", target) for target in targets)):
        if rules.hazard and (why := rules.hazard(denied)):
            return Part(piece, "deny", "", why, 0, "")
    for pattern in rules.deny:
        if _matches(pattern, text) or _matches(pattern, text.rpartition("/")[2]):
            return Part(text, "deny", pattern, "a deny rule matches", 0, "")
    if rules.otherwise == "allow":
        return Part(text, "allow", "", "", 0, "")
    if words and words[0] in known.functions:
        return Part(text, "ask", "", f"the session has a function {words[0]}", 0, "")
    if targets and not all(target.startswith(("/dev/null", "&")) for target in targets):
        return Part(text, "ask", "", "it writes to a file", 0, "")
    for pattern in rules.allow:
        if _matches(pattern, text):
            return Part(text, "allow", pattern, "an allow rule matches", 0, "")
    if text in _NEUTRAL:
        return Part(text, "allow", "", "it does nothing", 0, "")
    return Part(text, rules.otherwise, "", "no rule matches", 0, "")


def _matches(pattern: str, text: str) -> bool:
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    plain = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatch.fnmatchcase(text, plain)
