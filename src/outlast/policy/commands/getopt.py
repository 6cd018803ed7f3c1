"""Options of a program, read as getopt reads them: bundled, with attached values, abbreviated, mixed with operands."""

from __future__ import annotations

from outlast.policy.bash.words import Word

NONE, NEEDED, OPTIONAL = 0, 1, 2  # whether an option takes a value


class Grammar:
    """Which options there are: `"k:s:v"`, `"kill-after= verbose"`; `::` and `=?` for values that may be missing."""

    __slots__ = ("long", "short")

    def __init__(self, short: str = "", long: str = "") -> None:
        self.short: dict[str, int] = {}
        for index, letter in enumerate(short):
            if letter != ":":
                follows = short[index + 1 : index + 3]
                self.short[letter] = OPTIONAL if follows == "::" else NEEDED if follows[:1] == ":" else NONE
        self.long: dict[str, int] = {}
        for name in long.split():
            self.long[name.rstrip("=?")] = OPTIONAL if name.endswith("=?") else NEEDED if name.endswith("=") else NONE

    def full(self, name: str) -> str:
        """The option that a written one stands for; "" if that is not certain."""
        if name in self.long:
            return name
        candidates = [one for one in self.long if one.startswith(name)]
        return candidates[0] if len(candidates) == 1 else ""


class Option:
    __slots__ = ("index", "name", "value", "written")

    def __init__(self, index: int, name: str, written: str, value: Word | str | None) -> None:
        self.index, self.name, self.written, self.value = index, name, written, value

    @property
    def text(self) -> str | None:
        """Its value, if it has one that is known."""
        return self.value.value if isinstance(self.value, Word) else self.value


class Parsed:
    __slots__ = ("operands", "options", "strange", "unsure")

    def __init__(self) -> None:
        self.options: list[Option] = []
        self.operands: list[int] = []
        self.unsure: list[int] = []  # words that may turn out to be options
        self.strange: list[int] = []  # options that the grammar does not know


def may_be_option(word: Word) -> bool:
    """Whether a word that is not static may become an option, or several words."""
    return not word.static and ((word.unknown and word.splits) or word.lead[:1] in ("", "-"))


def parse(words: list[Word], start: int, grammar: Grammar, *, first: bool = False) -> Parsed:
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
        index = _long(parsed, words, index, grammar) if text[:2] == "--" else _short(parsed, words, index, grammar)
    return parsed


def _long(parsed: Parsed, words: list[Word], index: int, grammar: Grammar) -> int:
    name, attached, value = words[index].text[2:].partition("=")
    full = grammar.full(name)
    if not full:
        parsed.strange.append(index)
    follows = not attached and grammar.long.get(full) == NEEDED and index + 1 < len(words)
    given = value if attached else _value(parsed, words, index + 1) if follows else None
    parsed.options.append(Option(index, full or name, "--" + name, given))
    return index + (2 if follows else 1)


def _short(parsed: Parsed, words: list[Word], index: int, grammar: Grammar) -> int:
    text = words[index].text
    for place, letter in enumerate(text[1:], 1):
        kind, rest = grammar.short.get(letter), text[place + 1 :]
        if kind is None:
            parsed.strange.append(index)
        follows = kind == NEEDED and not rest and index + 1 < len(words)
        given = _value(parsed, words, index + 1) if follows else rest if kind and rest else None
        parsed.options.append(Option(index, letter, "-" + letter, given))
        if kind:
            return index + (2 if follows else 1)
    return index + 1


def _value(parsed: Parsed, words: list[Word], index: int) -> Word:
    if words[index].splits and words[index].unknown:
        parsed.unsure.append(index)  # it may become two words, and the second one an option
    return words[index]
