"""Options and operands that a `*` in a rule does not cover: what the catalogue does not know to be safe."""

from __future__ import annotations

import re

from outlast.permissions import git, tools
from outlast.permissions.builtins import BUILTINS
from outlast.permissions.catalog import Offence, by_entry, find
from outlast.permissions.interpreters import module_of
from outlast.permissions.patterns import Pattern
from outlast.permissions.words import Word
from outlast.permissions.wrappers import is_wrapper, loose_start
from outlast.permissions.wrapping import base

_COUNT = re.compile(r"""(-[a-zA-Z]|--[a-z-]+=)?"?(?:\$\(nproc\)|`nproc`)"?""")


def offences(words: list[Word], write: tuple[str, ...] = ()) -> list[Offence]:
    """All of them in one simple command."""
    name = base(words[0].text)
    words = [_counted(word) if word.unknown else word for word in words]
    if name == "git":
        return git.offences(words, write)
    if analyse := tools.ANALYSERS.get(name):
        return analyse(words, write)
    entry = find(name)
    if entry is None:
        start = loose_start(words)
        return [] if start is None else _loose(words, start)
    found = by_entry(words, entry, 1, write)
    at = module_of(words) if entry.key == "python" else None
    if at is not None and find(words[at].text):  # `python -m pytest` has the options of pytest
        found += [(index + at, written, why) for index, written, why in offences(words[at:], write)]
    return found


def _loose(words: list[Word], start: int) -> list[Offence]:
    for index in range(start, len(words)):
        if not words[index].text.startswith("-"):
            return [(index, words[index].text, "what it runs is not known")]
    return [(start - 1, words[start - 1].text, "what it runs is not known")]


def _counted(word: Word) -> Word:
    """`-j$(nproc)` is a number, whichever."""
    match = _COUNT.fullmatch(word.source)
    return Word(f"{match[1] or ''}8", word.at, word.end) if match else word


def is_known(name: str) -> bool:
    """Whether anything is known about what the arguments of a program do."""
    name = base(name)
    return name == "git" or name in tools.ANALYSERS or name in BUILTINS or is_wrapper(name) or find(name) is not None


def spelled(pattern: Pattern, offence: Offence, words: list[Word]) -> bool:
    """Whether the literal part of a rule spells what offends."""
    index, written, _ = offence
    if not written:
        return False
    literal = pattern.literal_words
    if index < len(literal):
        return True
    if words[index].text in pattern.later_words:
        return True
    begun = pattern.begun_word
    return index == len(literal) and bool(begun) and begun.startswith(written) and begun != "-"
