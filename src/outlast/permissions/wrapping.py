"""The shape of what a wrapper runs: words, or a text that a shell reads; and what all wrappers share in reading it."""

from __future__ import annotations

import re

from outlast.permissions.getopt import Grammar, Parsed, parse
from outlast.permissions.patterns import UNKNOWN
from outlast.permissions.variables import is_harmless
from outlast.permissions.words import Word


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
    """What a wrapper runs.

    `doubt` says why its own words cannot be read, `hides` that anything may be behind that; from word `suffixes` on
    (0: none) any word may begin a command.
    """

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
    return Code(" ".join([word.text for word in words]), shell, is_static(words))


def words_inside(text: str) -> list[Word]:
    """The words of a text that is split as a shell does it."""
    from outlast.permissions.syntax import read

    commands = read(text).commands
    words = commands[0].words if len(commands) == 1 else []
    return [*words] if words or not text.strip() else [Word(part, 0, 0) for part in text.split()]


def is_static(words: list[Word]) -> bool:
    for word in words:  # noqa: SIM110, a generator takes twice the time, and this is asked of every command
        if word.unknown or word.glob:
            return False
    return True


def doubt_of(words: list[Word], parsed: Parsed, at: int | None) -> str:
    before = words[1 : len(words) if at is None else at]
    if parsed.strange and (at is None or parsed.strange[0] < at):
        return f"what {words[parsed.strange[0]].text.replace(UNKNOWN, '…')} means is not known"
    if not is_static(before):
        return "its own words are not static"
    return ""


_DIRECTORY = {
    "sudo": ("D", "chdir", "R", "chroot"),
    "unshare": ("w", "wd", "R", "root"),
    "systemd-run": ("working-directory", "p", "property"),
}


def opaque(words: list[Word], grammar: Grammar, operands: int) -> Wrapped:
    parsed = parse(words, 1, grammar, first=True)
    at = parsed.operands[operands] if len(parsed.operands) > operands else None
    doubt = doubt_of(words, parsed, at)
    name = base(words[0].text)
    if any(option.name in _DIRECTORY.get(name, ()) for option in parsed.options):
        doubt = doubt or "it runs in another directory"
    if at is None:
        # `sudo -i`, `chroot dir`, `unshare` alone: an interactive shell.
        silent = name in ("exec", "busybox", "toybox") and not doubt
        return Wrapped([], doubt="" if silent else doubt or "it starts a shell", suffixes=1)
    while at < len(words) - 1 and name in ("sudo", "doas") and re.match(r"[A-Za-z_]\w*=", words[at].text):
        if not (words[at].static and is_harmless(words[at].text.partition("=")[0])):
            doubt = doubt or f"it sets {words[at].text.partition('=')[0]}"
        at += 1
    return Wrapped([Run(words[at:])], doubt=doubt, suffixes=1 if doubt else 0)


def anything(after: Word) -> Word:
    """Words that only a run can tell."""
    word = Word(UNKNOWN, after.end, after.end)
    word.unknown = word.splits = True
    word.lead = ""
    return word


def replaced(word: Word, mark: str) -> Word:
    """The word with its mark replaced by something that is not known."""
    if mark not in word.text:
        return word
    changed = Word(word.text.replace(mark, UNKNOWN), word.at, word.end)
    changed.unknown = True
    changed.lead = word.lead.partition(mark)[0]
    changed.splits = word.splits
    return changed


def as_word(value: Word | str | None, words: list[Word]) -> Word:
    if isinstance(value, Word):
        return value
    return anything(words[-1]) if value is None else Word(value, words[0].at, words[0].end)
