"""bash's own commands: which need no rule, and which cannot be analysed whatever a rule says."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.permissions.getopt import Grammar, parse
from outlast.permissions.variables import is_harmless, steers
from outlast.permissions.words import Word, names

_NEUTRAL = frozenset([":", "true", "false", "break", "continue", "return", "exit", "wait"])
_NUMERIC = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])
_BINARY = _NUMERIC | frozenset(["=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", "-a", "-o"])
_NUMBER = re.compile(r"[-+]?[0-9]+")
_UNARY = re.compile(r"-[abcdefghknoprstuwxzGLNOS]")
DECLARING = frozenset(["declare", "typeset", "local", "export", "readonly"])
BUILTINS = (
    DECLARING
    | _NEUTRAL
    | names("""
    . [ alias bg bind builtin caller cd command compgen complete compopt dirs disown echo enable eval exec fc fg
    getopts hash help history jobs kill let logout mapfile popd printf pushd pwd read readarray set shift shopt
    source suspend test times trap type ulimit umask unalias unset
""")
)
Doubt = tuple[str, str]  # why; the static text that would be evaluated, if there is one
Check = Callable[[list[Word]], Doubt | None]


def is_known(name: str) -> bool:
    """Whether there is anything to say about a name here."""
    return name in _CHECKS or name in _NEUTRAL


def is_neutral(words: list[Word]) -> bool:
    name = words[0].text
    if name == "wait":
        return not any(_may_set(word) for word in words[1:])
    return name in _NEUTRAL or (name in ("[", "test") and test_doubt(words) is None)


def _may_set(word: Word) -> bool:
    """Whether `wait` may be told to set a variable (-p); `$!` is only ever a number."""
    if not word.static:
        return word.source not in ("$!", '"$!"', "${!}", '"${!}"')
    return word.text.startswith("-") and "p" in word.text


def test_doubt(words: list[Word]) -> Doubt | None:
    """Why a test may evaluate something; None if it only looks."""
    operands = words[1:-1] if words[0].text == "[" and words[-1].text == "]" else words[1:]
    for index, word in enumerate(operands):
        follows = operands[index + 1] if index + 1 < len(operands) else None
        before = operands[index - 1] if index else None
        if word.static and word.text in ("-v", "-R"):
            return "-v evaluates a subscript", follows.text if follows else ""
        if word.static and word.text in _NUMERIC:
            for side in (before, follows):
                if side is None or not (side.static and _NUMBER.fullmatch(side.text)):
                    return "arithmetic over variables evaluates their values", side.text if side else ""
        if not word.static and not _is_operand(word, before, follows, len(operands)):
            return "what is tested is not known", ""
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


def doubt(words: list[Word]) -> Doubt | None:
    """Why a builtin cannot be analysed, whatever rule there is."""
    check = _CHECKS.get(words[0].text)
    return check(words) if check else None


def _source(words: list[Word]) -> Doubt:
    return "it runs the commands of a file", ""


def reads_computed(words: list[Word]) -> bool:
    """Whether `source` reads what was made just now, and not a file that somebody wrote."""
    return words[0].text in ("source", ".") and len(words) > 1 and is_computed(words[1])


def is_computed(word: Word) -> bool:
    """Whether a file name stands for the standard input or for a substitution."""
    return word.lead.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/")) and (word.unknown or word.static)


def _never(words: list[Word]) -> Doubt | None:
    if len(words) == 1:
        return None
    return "it changes what later commands mean", "\n".join(word.text for word in words[1:] if " " in word.text)


def _with(letters: str, grammar: str) -> Check:
    known = Grammar(grammar)

    def check(words: list[Word]) -> Doubt | None:
        parsed = parse(words, 1, known)
        if parsed.unsure:
            return "it may be any option", ""
        for option in parsed.options:
            if option.name in letters:
                return f"-{option.name} runs something or changes what later commands mean", option.text or ""
        return None

    return check


_DECLARED = Grammar("aAfFgiIlnrtuxp")
_MAPPED = Grammar("C:c:d:n:O:s:tu:")
_READ = Grammar("a:d:i:n:N:p:t:u:ers")
_UNSET = Grammar("fvn")
_NO_OPTIONS = Grammar()


def _declares(words: list[Word]) -> Doubt | None:
    parsed = parse(words, 1, _DECLARED)
    names = [words[index] for index in parsed.operands]
    if any(option.name in "ni" for option in parsed.options):
        return "it evaluates what it assigns", " ".join(word.text for word in names)
    if any(option.name in "fFp" for option in parsed.options) and words[0].text != "export":
        return None
    for word in names:
        name = word.text.partition("=")[0].rstrip("+")
        if "[" in word.text.partition("=")[0]:
            return "a subscript is evaluated as arithmetic", word.text
        if not (word.static and is_harmless(name)):
            return f"it sets {name}" if word.lead.startswith(name) else "what it sets is not known", ""
    return None


def _names(words: list[Word], grammar: Grammar, skip: int = 0) -> Doubt | None:
    parsed = parse(words, 1, grammar)
    if parsed.unsure:
        return "what it sets is not known", ""
    named = [words[index] for index in parsed.operands[skip:]]
    named += [option.value for option in parsed.options if option.name in "a" and isinstance(option.value, Word)]
    for word in named:
        if "[" in word.text:
            return "a subscript is evaluated as arithmetic", word.text
        if not word.static or steers(word.text):
            return f"it sets {word.text}" if word.static else "what it sets is not known", ""
    return None


def _read(words: list[Word]) -> Doubt | None:
    return _names(words, _READ)


def _unset(words: list[Word]) -> Doubt | None:
    return _names(words, _UNSET)


def _getopts(words: list[Word]) -> Doubt | None:
    return _names(words, _NO_OPTIONS, 1)


def _mapfile(words: list[Word]) -> Doubt | None:
    parsed = parse(words, 1, _MAPPED)
    callbacks = [option for option in parsed.options if option.name == "C"]
    if callbacks:
        return "-C runs something for each line", callbacks[0].text or ""
    return _names(words, _MAPPED)


def _printf(words: list[Word]) -> Doubt | None:
    if len(words) > 1 and (
        words[1].text.startswith("-v") or (not words[1].static and words[1].lead[:1] in ("", "-") and words[1].splits)
    ):
        value = words[1].text[2:] or (words[2].text if len(words) > 2 else "")
        return "it sets a variable", value
    return None


def _let(words: list[Word]) -> Doubt | None:
    for word in words[1:]:
        if not (word.static and re.fullmatch(r"[0-9+*/%<>=!&|^~?:,() -]+", word.text)):
            return "arithmetic over variables evaluates their values", word.text
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
            return "it changes how later commands are read", ""
        named = not named and word.text[:1] in "-+" and word.text.endswith("o")
    return None


def _shopt(words: list[Word]) -> Doubt | None:
    if any(not word.static or (word.text.startswith("-") and set(word.text[1:]) & set("su")) for word in words[1:]):
        return "it changes how later commands are read", ""
    return None


def _fc(words: list[Word]) -> Doubt | None:
    return None if len(words) > 1 and words[1].text == "-l" else ("it runs commands of the history again", "")


_CHECKS: dict[str, Check] = {
    ".": _source,
    "source": _source,
    "bind": _never,
    "complete": _never,
    "compopt": _never,
    "enable": _never,
    "fc": _fc,
    "suspend": _source,
    "compgen": _with("CFWXP", "A:C:F:G:P:S:W:X:o:abcdefgjksuv"),
    "hash": _with("p", "p:dltr"),
    "jobs": _with("x", "lnprs"),
    "history": _with("psarwnc", "acd:nprsw"),
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "read": _read,
    "unset": _unset,
    "getopts": _getopts,
    "printf": _printf,
    "let": _let,
    "set": _set,
    "shopt": _shopt,
    **dict.fromkeys(DECLARING, _declares),
    "[": test_doubt,
    "test": test_doubt,
    "unalias": _never,
    "logout": _source,
}
