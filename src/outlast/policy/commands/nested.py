"""The shape of what a wrapper runs: words, or a text that a shell reads."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.light import frozen
from outlast.policy.bash.words import Word, with_text
from outlast.policy.commands.getopt import Parsed
from outlast.policy.patterns import UNKNOWN


@frozen
class ShellText:
    """A command given as a text for a shell. `known`: all of it is static."""

    text: str
    shell: str
    known: bool
    parameters: tuple[Word, ...] = ()  # $0, $1 and so on


Inner = list[Word] | ShellText  # a command given as words, or as a text


@frozen
class NestedCommands:
    """What a wrapper runs.

    `doubt` says why its own words cannot be read, `hides` that anything may be behind that; from word `suffixes` on
    (0: none) any word may begin a command.
    """

    inners: Sequence[Inner]
    transparent: bool = False
    doubt: str = ""
    hides: bool = False
    suffixes: int = 0
    possible_code: Sequence[ShellText] = ()  # texts that may be run: nothing denied may be in them
    directory: str | None = ""  # where it runs, if that is not here; None: nobody knows


def base(name: str) -> str:
    """The base name of a program."""
    return name.rpartition("/")[2]


def joined(words: list[Word], shell: str) -> ShellText:
    """A text that is put together from words with blanks between them."""
    return ShellText(" ".join([word.text for word in words]), shell, is_static(words))


def given_texts(words: list[Word], parsed: Parsed, *names: str) -> list[ShellText]:
    """The texts that options of these names give to a shell."""
    values = [one.value for one in parsed.options if one.name in names and one.value is not None]
    return [joined([one if isinstance(one, Word) else Word(one, words[0].at, words[0].end)], "sh") for one in values]


def is_static(words: list[Word]) -> bool:
    for word in words:  # noqa: SIM110, a generator takes twice the time, and this is asked of every command
        if word.unknown or word.glob:
            return False
    return True


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
    changed = with_text(word, word.text.replace(mark, UNKNOWN))
    changed.unknown, changed.lead = True, word.lead.partition(mark)[0]
    return changed


def exec_ranges(words: list[Word]) -> list[tuple[int, int]]:
    """Where `find` is given commands: from each `-exec` to what ends it."""
    found, start = [], 0
    for index, word in enumerate(words):
        if not start and word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            start = index
        elif start and (word.text == ";" or (word.text == "+" and words[index - 1].text == "{}")):
            found.append((start, index))
            start = 0
    return [*found, (start, len(words))] if start else found
