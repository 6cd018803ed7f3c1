"""Options and operands that a `*` in a rule does not cover: what the catalogue does not know to be safe.

Some tools have a language of their own, which no table can describe: find, sed, awk, tar, ssh, sqlite3, fd, and shells.
Their options are in the catalogue like all others; here is what the rest of their words means.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.policy.bash.words import Word
from outlast.policy.commands import git, sensitive_files
from outlast.policy.commands.builtins import BUILTINS
from outlast.policy.commands.catalog import Reading, RiskyArgument, by_entry, find, read_words
from outlast.policy.commands.getopt import grammar, parse
from outlast.policy.commands.nested import base
from outlast.policy.commands.small_languages import awk_is_plain, sed_is_plain, sql_is_plain
from outlast.policy.commands.wrappers import exec_ranges, find_inner_start, is_wrapper
from outlast.policy.patterns import Pattern

_COUNT = re.compile(r"""(-[a-zA-Z]|--[a-z-]+=)?"?(?:\$\(nproc\)|`nproc`)"?""")
_GLOB_OF_FILES = re.compile(r"[^{]*[*?\]]\.\w+")  # whatever it becomes ends like a file, so it is no option of find
_OLD_STYLE = re.compile(r"[A-Za-z]+")
_WITH_VALUE = "fXbNVHCITgFKL"  # letters of tar
_DOT_COMMAND = re.compile(r"\.(?:tables|schema|dump|indexes|indices|databases|fullschema|mode|headers)(?: [\w%.*-]+)*")


def risky_arguments(words: list[Word], write: tuple[str, ...] = ()) -> list[RiskyArgument]:
    """All of them in one simple command."""
    name = base(words[0].text)
    for at, word in enumerate(words):
        if word.unknown and (match := _COUNT.fullmatch(word.source)):  # `-j$(nproc)` is a number, whichever
            words = [*words[:at], Word(f"{match[1] or ''}8", word.at, word.end), *words[at + 1 :]]
    if name == "git":
        return git.risky_arguments(words, write, risky_arguments)
    if analyse := _ANALYSERS.get(name):
        return analyse(words, write)
    entry = find(name)
    if entry is None:
        start = find_inner_start(words)
        if start is None:
            return []
        inner = next((at for at in range(start, len(words)) if words[at].text[:1] != "-"), start - 1)
        return [(inner, words[inner].text, "what it runs is not known")]
    found = by_entry(words, entry, 1, write, risky_arguments)
    module = _module_of(words) if entry.key == "python" else None
    if module is not None and find(words[module].text):  # `python -m pytest` has the options of pytest
        found += [(index + module, written, why) for index, written, why in risky_arguments(words[module:], write)]
    return found


def _module_of(words: list[Word]) -> int | None:
    """Where `python -m MODULE` names its module."""
    for index, word in enumerate(words[1:-1], 1):
        if word.text == "-m":
            return index + 1
        if not word.text.startswith("-"):
            return None
    return None


def is_known(name: str) -> bool:
    """Whether anything is known about what the arguments of a program do."""
    name = base(name)
    return name == "git" or name in _ANALYSERS or name in BUILTINS or is_wrapper(name) or find(name) is not None


def is_spelled_out(pattern: Pattern, risky: RiskyArgument, words: list[Word]) -> bool:
    """Whether the literal part of a rule spells what offends."""
    index, written, _ = risky
    first, *later = pattern.pieces
    *literal, begun = f"{first} ".split(" ") if pattern.exact else first.split(" ")  # whole words, and a part of one
    behind = {word for piece in later for word in piece.split(" ")[1:] if word}
    if not written or index < len(literal) or words[index].text in behind:
        return bool(written)
    return index == len(literal) and begun not in ("", "-") and begun.startswith(written)


# --- tools with a language of their own --------------------------------------------------


def _find(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    """What it runs is checked by itself."""
    runs = {index for start, end in exec_ranges(words) for index in range(start, end + 1)}
    kept: list[tuple[int, Word]] = []
    for index, word in enumerate(words):
        if index not in runs:
            is_files = word.glob and not word.unknown and _GLOB_OF_FILES.fullmatch(word.text)
            kept.append((index, Word(f"./{index}", word.at, word.end) if is_files else word))
    found = read_words([word for _, word in kept], "find", write).found
    return [(kept[index][0], written, why) for index, written, why in found]


def _sed(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    reading = read_words(words, "sed", write)
    is_given = bool(_values(reading, "-f", "--file"))
    scripts = _values(reading, "-e", "--expression") or _first_operand(reading, is_given)
    # Several scripts are one script with newlines between them.
    if scripts and not sed_is_plain("\n".join("w" if text is None else text for _, text in scripts)):
        at = scripts[0][0]
        reading.say(at, words[at].text, "its script may run a program or write a file")
    return reading.found


def _awk(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    reading = read_words(words, "awk", write)
    for at, program in _values(reading, "-e", "--source") or _first_operand(reading, reading.trusted):
        if program is None or not awk_is_plain(program):
            reading.say(at, words[at].text, "its program may run a command or write a file")
    return reading.found


def _values(reading: Reading, *names: str) -> list[tuple[int, str | None]]:
    return [(index, value) for index, name, value in reading.given if name in names]


def _first_operand(reading: Reading, is_given: bool) -> list[tuple[int, str | None]]:
    """The program, unless an option has given it already."""
    return [] if is_given else [(at, reading.words[at].value) for at in reading.operands[:1]]


def _tar(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    if len(words) > 1 and words[1].static and _OLD_STYLE.fullmatch(words[1].text):
        dashed = _with_dashes(words)
        moved = [(max(1, at - len(dashed) + len(words)), written, why) for at, written, why in _tar(dashed, write)]
        return [(at, written and words[at].text, why) for at, written, why in moved]
    reading = read_words(words, "tar", write)
    given = {name for _, name, _ in reading.given}
    if given & {"-c", "--create", "-r", "--append", "-u", "--update"}:
        for at, value in _values(reading, "-f", "--file"):
            if (why := sensitive_files.runs_later(value)) and not sensitive_files.may_write(value, write):
                reading.say(at, value or "", why)
    if given & {"-x", "--extract", "--get"} and not given & {"-O", "--to-stdout"}:
        at = next(at for at, name, _ in reading.given if name in ("-x", "--extract", "--get"))
        reading.say(at, words[at].text, "which files it writes is not known")
    return reading.found


def _with_dashes(words: list[Word]) -> list[Word]:
    """The old style, `tar czf a.tgz src`: letters without a dash, their values in the words that follow."""
    values, flags, made = list(words[2:]), "-", []
    for letter in words[1].text:
        if letter in _WITH_VALUE and values:
            made += [Word(f"-{letter}", words[1].at, words[1].end), values.pop(0)]
        else:
            flags += letter
    return [words[0], Word(flags, words[1].at, words[1].end), *made, *values]


def _unzip(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    reading = read_words(words, "unzip", write)
    if reading.operands and not any(re.match(r"-[ltvZpc]", word.text) for word in words[1:]):
        reading.say(reading.operands[0], "", "which files it writes is not known")
    return reading.found


def _ssh(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    reading = read_words(words, "ssh", write)
    for index in reading.operands[1:]:
        if words[index].text[:1] != "-":  # options may follow the host, too
            break
        reading.say(index, words[index].text, "an option behind the host")
    return reading.found


def _sqlite(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    reading = read_words(words, "sqlite3", write)
    for index in reading.operands[1:]:
        text = words[index].value
        if text is None or not (_DOT_COMMAND.fullmatch(text) or sql_is_plain(text)):
            reading.say(index, text or "", "it may change data, run a program or write a file")
    return reading.found


def _fd(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    """What stands behind -x is checked by itself."""
    ends = (index for index, word in enumerate(words) if index and re.match(r"--exec|-[a-zA-Z0]*[xX]", word.text))
    return read_words(words[: next(ends, len(words))], "fd", write).found


def _shell(words: list[Word], write: tuple[str, ...]) -> list[RiskyArgument]:
    """A shell whose program is a file: only a rule that spells the file covers it."""
    parsed = parse(words, 1, grammar("-O:o: rcfile= init-file="), first=True)
    if any(option.name == "c" for option in parsed.options) or not parsed.operands:
        return []
    index = parsed.operands[0]
    return [(index, words[index].text if words[index].static else "", "what is in the script is not known")]


_ANALYSERS: dict[str, Callable[[list[Word], tuple[str, ...]], list[RiskyArgument]]] = {
    **dict.fromkeys(("find", "gfind"), _find),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("tar", "gtar"), _tar),
    **dict.fromkeys(("fd", "fdfind"), _fd),
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "mksh", "rbash", "yash"), _shell),
    "ssh": _ssh,
    "unzip": _unzip,
    "sqlite3": _sqlite,
}
