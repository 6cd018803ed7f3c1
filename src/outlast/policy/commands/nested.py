"""The shape of what a wrapper runs: words, or a text that a shell reads."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.light import frozen
from outlast.policy.bash.words import Word
from outlast.policy.commands.getopt import Parsed


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
    directory: str | None = ""  # where it runs, if that is not here; None: unknown


def base(name: str) -> str:
    """The base name of a program."""
    return name.rpartition("/")[2]


def join(words: list[Word], shell: str) -> ShellText:
    """A text that is put together from words with blanks between them."""
    return ShellText(" ".join([word.text for word in words]), shell, is_static(words))


def given_texts(words: list[Word], parsed: Parsed, *names: str) -> list[ShellText]:
    """The texts that options of these names give to a shell."""
    values = [one.value for one in parsed.options if one.name in names and one.value is not None]
    return [join([one if isinstance(one, Word) else Word(one, words[0].at, words[0].end)], "sh") for one in values]


def is_static(words: list[Word]) -> bool:
    """Return whether all words are known before the line runs."""
    for word in words:  # noqa: SIM110, a generator takes twice the time, and this is asked of every command
        if word.unknown or word.glob:
            return False
    return True
