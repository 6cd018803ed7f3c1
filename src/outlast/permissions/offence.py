"""What offends: a word of a command that a `*` in a rule does not cover, and the table that says so for most tools."""

from __future__ import annotations

from outlast.permissions.getopt import Parsed, parse
from outlast.permissions.tooltable import Tool
from outlast.permissions.words import Word

Offence = tuple[int, str, str]  # the word, the option as it is written ("" if no rule can spell it), why
ANY_OPTION = "it may be any option"


def by_table(words: list[Word], tool: Tool) -> tuple[list[Offence], Parsed]:
    parsed = parse(words, 1, tool.grammar)
    found: list[Offence] = [(index, "", "it may be any option") for index in parsed.unsure]
    for option in parsed.options:
        long = option.written.startswith("--")
        is_bad = option.name in tool.bad and (long or len(option.name) == 1)
        if is_bad or (long and _abbreviates(option.written[2:], tool)):
            found.append((option.index, option.written, f"{option.written} runs a program, loads or writes something"))
    # Some tools know long options with one dash.
    for index in range(1, len(words)):
        text = words[index].text
        if len(text) > 2 and text[0] == "-" and text[1:] in tool.bad:
            found.append((index, text, f"{text} runs a program, loads or writes something"))
    if 0 <= tool.most < len(parsed.operands):
        index = parsed.operands[tool.most]
        found.append((index, words[index].text, f"{words[index].text} is written or set"))
    return found, parsed


def _abbreviates(name: str, tool: Tool) -> bool:
    return name not in tool.grammar.long and any(len(bad) > 1 and bad.startswith(name) for bad in tool.bad)
