"""Plain words of a verb, parsed without argparse: to load that takes longer than most verbs do.

What is taken here is taken as argparse takes it. Whatever is not plain (help, `--option=value`,
a word that begins with `-` and is no option, anything that is wrong) is left to it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from typing import Any

    from outlast.cli.options import Argument, Parser

REST = "..."  # all words from the first one on that is no option, as argparse's REMAINDER


if not TYPE_CHECKING:

    class Namespace:
        """What was asked for, under the names that argparse gives."""

        def __init__(self, **values):
            self.__dict__.update(values)


def quickly(parser: Parser, words: Sequence[str]) -> Namespace | None:
    """What these words ask for; None if that takes argparse to find out."""
    options = {name: one for one in parser.arguments for name in one.names if one.is_option}
    found: dict[str, Any] = {one.dest: one.default for one in parser.arguments}
    groups: list[int] = []
    plain: list[str] = []
    left = iter(words)
    for word in left:
        if word not in options:
            if word[:1] == "-" and word != "-":
                return None
            if parser.takes_the_rest:
                plain = [word, *left]
                break
            plain.append(word)
            continue
        one = options[word]
        if (one.group and one.group in groups) or not _take(one, left, found):
            return None
        groups.append(one.group)
    placed = _place([one for one in parser.arguments if not one.is_option], plain, found)
    return Namespace(**found) if placed else None


def _take(one: Argument, left: Iterator[str], found: dict[str, Any]) -> bool:
    """Take the option, and its value from what follows."""
    action = one.how.get("action")
    if action == "store_true":
        found[one.dest] = True
        return True
    word = next(left, "-")
    if action not in (None, "append") or word[:1] == "-" or "choices" in one.how:
        return False
    try:
        value = one.how["type"](word) if "type" in one.how else word
    except Exception:  # argparse says what is wrong with it
        return False
    found[one.dest] = [*found[one.dest], value] if action else value
    return True


def _place(places: Sequence[Argument], words: list[str], found: dict[str, Any]) -> bool:
    """Put the words that are no options in their places."""
    for one in places:
        many = one.how.get("nargs")
        if many in (None, "?"):
            taken, words = words[:1], words[1:]
            value: Any = taken[0] if taken else one.default
        else:
            value = taken = words
            words = []
        missing = not taken and many not in ("?", "*")
        if missing or "type" in one.how or not set(taken) <= set(one.how.get("choices", taken)):
            return False
        found[one.dest] = value
    return not words
