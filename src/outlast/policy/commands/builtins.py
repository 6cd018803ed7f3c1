"""bash's own commands: which need no rule, and which cannot be analysed whatever a rule says."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.policy.bash.simple_commands import DECLARING
from outlast.policy.bash.variables import alters_execution, is_run, is_safe
from outlast.policy.bash.words import NUMBER, NUMERIC, Word, names
from outlast.policy.commands.getopt import Grammar, grammar, parse

NEUTRAL = names(": true false break continue return exit wait [ test")  # they need no rule
_BINARY = NUMERIC | frozenset(["=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", "-a", "-o"])
_UNARY = re.compile(r"-[abcdefghknoprstuwxzGLNOS]")
_OTHERS = """
    . alias bg bind builtin caller cd command compgen complete compopt dirs disown echo enable eval exec fc fg getopts
    hash help history jobs kill let logout mapfile popd printf pushd pwd read readarray set shift shopt source suspend
    times trap type ulimit umask unalias unset
"""
BUILTINS = DECLARING | NEUTRAL | names(_OTHERS)
# Why; the static text that would be evaluated, if there is one; and whether a command may hide behind it, or the values
# of variables are evaluated, or it sets variables of unknown names.
Doubt = tuple[str, str, str]
HIDES, EVALUATES, NAMES = "hides", "evaluates", "names"
_COMPUTED = re.compile(r"(?:.*/)?(?:stdin|fd/[0-9]+|[0-9]+)")
_CHANGES = "runs something or changes what later commands mean"
_READ_ANEW = "it changes how later commands are read"
_RUNS_AGAIN = ("it runs commands of the history again", "", HIDES)
_SWITCHES = ("it changes which policy checks a nested command", "", HIDES)
Check = Callable[[list[Word]], Doubt | None]


def is_known(name: str) -> bool:
    """Whether there is anything to say about a name here."""
    return name in CHECKS or name in NEUTRAL


def _test(words: list[Word]) -> Doubt | None:
    """Why a test may evaluate something; None if it only looks."""
    operands = words[1:-1] if words[0].text == "[" and words[-1].text == "]" else words[1:]
    for index, word in enumerate(operands):
        follows = operands[index + 1] if index + 1 < len(operands) else None
        before = operands[index - 1] if index else None
        if word.static and word.text in ("-v", "-R"):
            return "-v evaluates a subscript", follows.text if follows else "", EVALUATES
        if word.static and word.text in NUMERIC:
            for side in (before, follows):
                if side is None or not (side.static and NUMBER.fullmatch(side.text)):
                    return "arithmetic over variables evaluates their values", side.text if side else "", ""
        if not word.static and not _is_operand(word, before, follows, len(operands)):
            return "what is tested is not known", "", ""
    return None


def _is_operand(word: Word, before: Word | None, follows: Word | None, count: int) -> bool:
    """Whether a word that is not static can only be a value between operators."""
    if word.splits and word.unknown:
        return False
    if count == 1 or (word.lead and word.lead[0] not in "-!("):
        return True
    if before is not None and before.static and (_UNARY.fullmatch(before.text) or before.text in _BINARY):
        return True
    return follows is not None and follows.static and follows.text in _BINARY


def _source(words: list[Word]) -> Doubt:
    file = next((word for word in words[1:] if word.text != "--"), None)
    return "it runs the commands of a file", "", HIDES if file and is_computed(file) else ""


def is_computed(word: Word) -> bool:
    """Whether a file name stands for a descriptor, from whatever directory, or for a substitution."""
    return word.lead.startswith(("/dev/fd/", "/proc/")) or (not word.glob and bool(_COMPUTED.fullmatch(word.text)))


def _never(words: list[Word]) -> Doubt | None:
    if len(words) == 1:
        return None
    loads = words[0].text in ("bind", "enable") and any(word.text[:2] in ("-f", "-x") for word in words[1:])
    text = "\n".join(word.text for word in words[1:] if " " in word.text)
    return "it changes what later commands mean", text, HIDES if loads else ""


def _with(letters: str, options: str, kind: str = "", why: str = _CHANGES) -> Check:
    known = grammar(f"-{options}")

    def check(words: list[Word]) -> Doubt | None:
        parsed = parse(words, 1, known)
        if parsed.unsure:
            return "it may be any option", "", kind
        for option in parsed.options:
            if option.name in letters:
                return f"-{option.name} {why}", option.text or "", kind
        return None

    return check


_DECLARED = grammar("-aAfFgiIlnrtuxp")
_MAPPED = grammar("-C:c:d:n:O:s:tu:")
_READ = grammar("-a:d:i:n:N:p:t:u:ers")
_UNSET, _WAIT, _NO_OPTIONS = grammar("-fvn"), grammar("-fnp:"), grammar("")


def _declares(words: list[Word]) -> Doubt | None:
    parsed = parse(words, 1, _DECLARED, first=True)
    names = [words[index] for index in parsed.operands]
    given = {option.name for option in parsed.options}
    if given & {"n", "i"}:
        targets = [word.text.partition("=")[2] for word in names] if "n" in given else []
        kind = HIDES if any(map(is_run, targets)) else EVALUATES
        return "it evaluates what it assigns", " ".join(word.text for word in names), kind
    if any(option.name in "fFp" for option in parsed.options) and words[0].text != "export":
        return None
    for word in names:
        name, _, value = word.text.partition("=")
        name = name.rstrip("+")
        if "[" in name:
            return "a subscript is evaluated as arithmetic", word.text, EVALUATES
        if value.startswith("(") or (given & {"a", "A"} and word.unknown and value):
            return "it evaluates what it assigns", value, HIDES if word.unknown else ""
        if not (word.static and is_safe(name)):
            known = word.lead.startswith(name)
            return f"it sets {name}" if known else "what it sets is not known", "", "" if known else NAMES
    return None


def _names(words: list[Word], known: Grammar, skip: int = 0) -> Doubt | None:
    parsed = parse(words, 1, known, first=True)
    if parsed.unsure:
        return "what it sets is not known", "", NAMES
    named = [words[index] for index in parsed.operands[skip:]]
    named += [option.value for option in parsed.options if option.name in "a" and isinstance(option.value, Word)]
    for word in named:
        if "[" in word.text:
            kind = HIDES if is_run(word.text.partition("[")[0]) else EVALUATES
            return "a subscript is evaluated as arithmetic", word.text, kind
        if not word.static:
            return "what it sets is not known", "", NAMES
        if alters_execution(word.text):
            return f"it sets {word.text}", "", HIDES if is_run(word.text) and words[0].text != "unset" else ""
    return None


def _wait(words: list[Word]) -> Doubt | None:
    for option in parse(words, 1, _WAIT, first=True).options:
        if option.name == "p":
            name = option.text or ""
            return "it sets a variable", name, HIDES if is_run(name) else EVALUATES
    for word in words[1:]:  # `$!` is only ever a number
        if re.match("-.*p", word.text) if word.static else word.source.strip('"') not in ("$!", "${!}"):
            return "it sets a variable", "", ""
    return None


def _mapfile(words: list[Word]) -> Doubt | None:
    options = parse(words, 1, _MAPPED, first=True).options
    for option in options:
        if option.name == "C":
            return "-C runs something for each line", option.text or "", ""
    for option in options:
        if option.name in "cnOsu" and not (option.text or "").isdigit():
            return "a number is evaluated as arithmetic", option.text or "", EVALUATES
    return _names(words, _MAPPED)


def _printf(words: list[Word]) -> Doubt | None:
    if len(words) > 1 and (
        words[1].text.startswith("-v") or (not words[1].static and words[1].lead[:1] in ("", "-") and words[1].splits)
    ):
        attached = words[1].text[2:]
        word = words[1] if attached or len(words) < 3 else words[2]
        name = attached or word.text
        kind = HIDES if is_run(name.partition("[")[0]) else EVALUATES if "[" in name else "" if word.static else NAMES
        return "it sets a variable", name, kind
    return None


def _let(words: list[Word]) -> Doubt | None:
    for word in words[1:]:
        if not (word.static and re.fullmatch(r"[0-9+*/%<>=!&|^~?:,() -]+", word.text)):
            return "arithmetic over variables evaluates their values", word.text, EVALUATES
    return None


_QUIET_SET = re.compile(r"[-+][euxvfC]+|[-+][euxvfC]*o|--?")
_QUIET_NAMES = names("pipefail errexit nounset xtrace verbose noglob noclobber")


def _set(words: list[Word]) -> Doubt | None:
    named = False  # the next word is the name of an option
    for word in words[1:]:
        if word.text in ("--", "-") and not named:
            return None
        fine = word.text in _QUIET_NAMES if named else word.text[:1] not in "-+" or _QUIET_SET.fullmatch(word.text)
        if not (word.static and fine):
            return _READ_ANEW, "", ""
        named = not named and word.text[:1] in "-+" and word.text.endswith("o")
    return None


CHECKS: dict[str, Check] = {
    **dict.fromkeys(names(". source suspend logout"), _source),
    **dict.fromkeys(names("bind complete compopt enable unalias"), _never),
    **dict.fromkeys(names("mapfile readarray"), _mapfile),
    **dict.fromkeys(names("[ test"), _test),
    **dict.fromkeys(DECLARING, _declares),
    "compgen": _with("CFWXP", "A:C:F:G:P:S:W:X:o:abcdefgjksuv"),
    "fc": lambda words: None if [word.text for word in words[1:2]] == ["-l"] else _RUNS_AGAIN,
    "getopts": lambda words: _names(words, _NO_OPTIONS, 1),
    "hash": _with("p", "p:dltr"),
    "history": _with("psarwnc", "acd:nprsw", HIDES),
    "jobs": _with("x", "lnprs"),
    "let": _let,
    "printf": _printf,
    "read": lambda words: _names(words, _READ),
    "set": _set,
    "shopt": _with("su", "supqo", why=_READ_ANEW[3:]),
    "unset": lambda words: _SWITCHES if any(one.text[:8] == "OUTLAST_" for one in words[1:]) else _names(words, _UNSET),
    "wait": _wait,
}
