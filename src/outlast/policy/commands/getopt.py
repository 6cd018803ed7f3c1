"""Options of a program, read as getopt reads them: bundled, with attached values, abbreviated, mixed with operands."""

from __future__ import annotations

import re
from functools import cache

from outlast.policy.bash.words import Word

_LETTER = re.compile(r"(.)(::|[:>!]?)")
_LONG = re.compile(r"(.+?)(=\?|[=>!]?)")
_MARKS = {"=": ":", "=?": "::"}
# What follows each option: "" nothing, ":" a value, "::" perhaps one, ">" a file, "!" one that asks
Grammar = dict[str, str]


@cache
def grammar(text: str, dash: bool = False) -> Grammar:
    """The options of a text like `-k:s:v kill-after= verbose`; `dash`: long ones may have one dash, too."""
    found: Grammar = {}
    for word in text.split():
        if word == "*":
            found["*"] = ""
        elif word[0] == "-":
            found |= {f"-{letter}": mark for letter, mark in _LETTER.findall(word[1:])}
        elif match := _LONG.fullmatch(word):
            found |= dict.fromkeys(
                [f"--{match[1]}", *([f"-{match[1]}"] if dash else ())], _MARKS.get(match[2], match[2])
            )
    return found


def _full_name(name: str, known: Grammar) -> str:
    """The long option that a written one stands for; "" if that is not certain."""
    candidates = [name] if name in known else [one for one in known if one.startswith(name)]
    return candidates[0] if len(candidates) == 1 else ""


class Option:
    """One option of a command, with its value."""

    def __init__(self, index: int, name: str, written: str, value: Word | str | None) -> None:
        self.index, self.name, self.written, self.value = index, name, written, value

    @property
    def text(self) -> str | None:
        """Its value, if it has one that is known."""
        return self.value.value if isinstance(self.value, Word) else self.value


class Parsed:
    """The options and the operands of a command."""

    def __init__(self) -> None:
        self.options: list[Option] = []
        self.operands: list[int] = []
        self.unsure: list[int] = []  # words that may turn out to be options
        self.strange: list[int] = []  # options that the grammar does not know


def may_be_option(word: Word) -> bool:
    """Whether a word that is not static may become an option, or several words."""
    return not word.static and ((word.unknown and word.splits) or word.lead[:1] in ("", "-"))


def parse(words: list[Word], start: int, known: Grammar, *, first: bool = False) -> Parsed:
    """Options and operands from `start` on. `first`: stop at the first operand; the rest are operands too."""
    parsed, index = Parsed(), start
    while index < len(words):
        word = words[index]
        if may_be_option(word):
            parsed.unsure.append(index)
            parsed.operands.append(index)
            index += 1
            continue
        text = word.text
        if text == "--":
            parsed.operands += range(index + 1, len(words))
            break
        if text[:1] != "-" or text == "-":
            if first:
                parsed.operands += range(index, len(words))
                break
            parsed.operands.append(index)
            index += 1
            continue
        index = _long(parsed, words, index, known) if text[:2] == "--" else _short(parsed, words, index, known)
    return parsed


def _long(parsed: Parsed, words: list[Word], index: int, known: Grammar) -> int:
    name, attached, value = words[index].text.partition("=")
    full = _full_name(name, known)
    if not full:
        parsed.strange.append(index)
    follows = not attached and known.get(full) == ":" and index + 1 < len(words)
    given = value if attached else _value(parsed, words, index + 1) if follows else None
    parsed.options.append(Option(index, (full or name)[2:], name, given))
    return index + (2 if follows else 1)


def _short(parsed: Parsed, words: list[Word], index: int, known: Grammar) -> int:
    text = words[index].text
    for place, letter in enumerate(text[1:], 1):
        kind, rest = known.get(f"-{letter}"), text[place + 1 :]
        if kind is None:
            parsed.strange.append(index)
        follows = kind == ":" and not rest and index + 1 < len(words)
        given = _value(parsed, words, index + 1) if follows else rest if kind and rest else None
        parsed.options.append(Option(index, letter, "-" + letter, given))
        if kind:
            return index + (2 if follows else 1)
    return index + 1


def _value(parsed: Parsed, words: list[Word], index: int) -> Word:
    if words[index].splits and words[index].unknown:
        parsed.unsure.append(index)  # it may become two words, and the second one an option
    return words[index]
