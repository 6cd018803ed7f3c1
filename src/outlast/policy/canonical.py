"""The texts by which rules and people know a command."""

from __future__ import annotations

import re

from outlast.policy.bash.words import Word, quote_word
from outlast.policy.commands import git
from outlast.policy.commands.nested import base
from outlast.policy.patterns import UNKNOWN

ORDINARY_NAME = re.compile(r"[A-Za-z0-9_./+-]+")
_MOST_OPTIONS = 32
_UNSEEN = re.compile(r"[\s\x00-\x1f]")
_AT_HOME = re.compile(
    r"(?:\$OUTLAST_HOME|\$\{OUTLAST_HOME\}|\$HOME|\$\{HOME(?::?\?[^}]*)?\}"
    r"|(?:/home/|~)(?:\$\{?(?:USER|LOGNAME)\}?|\$\((?:whoami|id -un)\)|`whoami`))(?:/[^$`]*)?"
)
# `$X/*` is the root if there is no X, and `$X/etc` is /etc.
_PERHAPS_ROOT = re.compile(rf"(?:~?/)?{UNKNOWN}+/(?:[*.?/]*|(?:boot|etc|home|root|usr|var)/?)|~?/{UNKNOWN}+")


def as_written(words: list[Word]) -> str:
    """The words as a person wrote them."""
    return " ".join([word.source if word.unknown else word.shape or word.canonical for word in words])


def canonical(words: list[Word]) -> str:
    """The text that patterns are compared with."""
    return " ".join([word.shape or word.canonical for word in words])


def as_expected(word: Word) -> str | None:
    """What a hazard is shown: patterns and tildes as written, and of all variables only $HOME (and $USER in /home)."""
    if not word.unknown:
        return word.text
    source = re.sub(r'"|(?<=\{HOME)[:?%#/][^}]*', "", word.source)
    if _AT_HOME.fullmatch(source):
        return source
    return word.text if _PERHAPS_ROOT.fullmatch(word.text) else None


def open_ended(word: Word) -> Word:
    """A word that is expanded, as what it certainly begins with and something unknown."""
    if word.static:
        return word
    changed = Word(word.lead.rstrip("~") + UNKNOWN, word.at, word.end)
    changed.unknown = True
    return changed


def is_plain_name(name: str) -> bool:
    """Return whether a program has a name that stands for itself in canonical text."""
    return ORDINARY_NAME.fullmatch(name) is not None or (
        name.isascii() and bool(name) and not name.startswith("%") and "!" not in name and not _UNSEEN.search(name)
    )


def deny_candidates(words: list[Word]) -> list[str]:
    """The texts by which a deny rule may know a command: as written, by the base name, without options before."""
    name = words[0]
    if name.unknown or name.glob:
        tail = base(name.text)
        if "/" not in name.text or UNKNOWN in tail or re.search(r"[*?\[{]", tail):
            return []
        return [f"{quote_word(tail)} {canonical(words[1:])}".rstrip()]
    rest = canonical(words)
    candidates = [rest]
    tail = base(name.text)
    if tail != name.text:
        candidates.append(quote_word(tail) + rest[len(quote_word(name.text)) :])
    candidates += [f"{tail} {canonical(words[index:])}" for index in _behind_options(words, tail == "git")]
    return candidates


def _behind_options(words: list[Word], is_git: bool) -> list[int]:
    """Where a subcommand may stand that has options before it: `git -C sub push` is `git push`."""
    found, places = [], {1}
    for index in range(1, min(len(words), _MOST_OPTIONS)):
        if index not in places:
            continue
        text = words[index].text
        if index > 1:
            found.append(index)
        if text.startswith("-"):
            takes = git.takes_value(text) if is_git else None  # None: who knows
            places |= {index + 2 if takes else index + 1} if takes is not None else {index + 1, index + 2}
    return found
