"""Shells: what they are told to run."""

from __future__ import annotations

from outlast.permissions.builtins import is_computed
from outlast.permissions.getopt import Grammar, Option, parse
from outlast.permissions.words import Word, names
from outlast.permissions.wrapping import Code, Wrapped

SHELLS = names("""
    sh bash dash ash zsh ksh mksh fish rbash rksh yash csh tcsh posh lksh pwsh xonsh nu elvish
""")
_LIKE_BASH = frozenset(["bash", "rbash"])
_LIKE_SH = frozenset(["sh", "dash", "ash"])


_BASH = Grammar(
    "abefhklmnptuvxBCDEHPTO:o:crisl",
    "login norc noprofile posix verbose debugger restricted rcfile= init-file= dump-strings noediting help version",
)
# What they set changes neither how a text is read nor what is loaded.
_QUIET = frozenset(
    [
        "e",
        "u",
        "x",
        "v",
        "f",
        "l",
        "login",
        "norc",
        "noprofile",
        "verbose",
        "h",
        "b",
        "m",
        "C",
        "B",
        "c",
        "help",
        "version",
        "s",
        "n",
    ]
)
_QUIET_NAMES = names("pipefail errexit nounset xtrace noglob verbose noclobber errtrace nolog")


def code_of_shell(words: list[Word], name: str, bodies: list[str]) -> Wrapped:
    """What a shell is told to run: -c TEXT, a script, or its standard input."""
    plus = any(word.text.startswith("+") for word in words[1:])
    if plus:
        words = [words[0], *(word for word in words[1:] if not word.text.startswith("+"))]
    parsed = parse(words, 1, _BASH, first=True)
    options = parsed.options
    before = words[1 : parsed.operands[0]] if parsed.operands else words[1:]
    doubt = "" if all(word.static for word in before) and not plus else "its own words cannot be read"
    doubt = doubt or next((f"{option.written} changes how it reads" for option in options if not _is_quiet(option)), "")
    shell = "bash" if name in _LIKE_BASH else "sh" if name in _LIKE_SH else name
    if any(option.name == "c" for option in options) and parsed.operands:
        text = words[parsed.operands[0]]
        return Wrapped([Code(text.text, shell, text.static)], doubt=doubt)
    if any(option.name in ("help", "version", "n") for option in options):
        return Wrapped([], doubt="" if any(option.name in ("help", "version") for option in options) else doubt)
    if parsed.operands and not any(option.name in ("s", "c") for option in options):
        script = words[parsed.operands[0]]
        if is_computed(script):
            return Wrapped([], doubt="its program is made just now", hides=True)
        return Wrapped([], doubt=doubt)  # a script: `options` says whether a rule spells it
    texts = [Code(body, shell, False) for body in bodies]
    return Wrapped(texts, doubt="its program comes from its input", hides=True)


def _is_quiet(option: Option) -> bool:
    if option.name == "o":
        return option.text in _QUIET_NAMES
    return option.name in _QUIET
