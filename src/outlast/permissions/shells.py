"""Shells, and the shape of what a wrapper runs: words, or a text that a shell reads."""

from __future__ import annotations

from outlast.permissions.getopt import Grammar, Option, parse
from outlast.permissions.scan import Word

SHELLS = frozenset("sh bash dash ash zsh ksh mksh fish rbash rksh yash csh tcsh posh lksh pwsh xonsh nu elvish".split())
_LIKE_BASH = frozenset(["bash", "rbash"])
_LIKE_SH = frozenset(["sh", "dash", "ash"])


class Run:
    """A command given as words."""

    __slots__ = ("words",)

    def __init__(self, words: list[Word]) -> None:
        self.words = words


class Code:
    """A command given as a text for a shell. `known`: all of it is static."""

    __slots__ = ("known", "shell", "text")

    def __init__(self, text: str, shell: str, known: bool) -> None:
        self.text, self.shell, self.known = text, shell, known


Inner = Run | Code


class Wrapped:
    """What a wrapper runs. `doubt`: why its own words cannot be read; `suffixes`: from which word on any may begin a command."""

    __slots__ = ("doubt", "hides", "inners", "suffixes", "suspects", "transparent")

    def __init__(
        self,
        inners: list[Inner] | list[Run] | list[Code],
        *,
        transparent: bool = False,
        doubt: str = "",
        hides: bool = False,
        suffixes: int = 0,
        suspects: list[Code] | None = None,
    ) -> None:
        self.inners: list[Inner] = list(inners)
        self.suspects = suspects or []  # texts that may be run: nothing denied may be in them
        self.transparent, self.doubt, self.hides, self.suffixes = transparent, doubt, hides, suffixes


def base(name: str) -> str:
    """The base name of a program."""
    return name.rpartition("/")[2]


def joined(words: list[Word], shell: str) -> Code:
    """A text that is put together from words with blanks between them."""
    text = " ".join(word.text for word in words)
    return Code(text, shell, all(word.static for word in words))


def words_inside(text: str) -> list[Word]:
    """The words of a text that is split as a shell does it."""
    from outlast.permissions.syntax import read

    commands = read(text).commands
    words = commands[0].words if len(commands) == 1 else []
    return [*words] if words or not text.strip() else [Word(part, 0, 0) for part in text.split()]


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
_QUIET_NAMES = frozenset("pipefail errexit nounset xtrace noglob verbose noclobber errtrace nolog".split())


def code_of_shell(words: list[Word], name: str, bodies: list[str]) -> Wrapped:
    """What a shell is told to run: -c TEXT, a script, or its standard input."""
    if plus := [word for word in words[1:] if word.text.startswith("+")]:
        words = [word for word in words if word not in plus]
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
        return Wrapped([], doubt=doubt)  # a script: `options` says whether a rule spells it
    texts = [Code(body, shell, False) for body in bodies]
    return Wrapped(texts, doubt="its program comes from its input", hides=True)


def _is_quiet(option: Option) -> bool:
    if option.name == "o":
        return option.text in _QUIET_NAMES
    return option.name in _QUIET
