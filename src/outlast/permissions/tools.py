"""Tools with a language of their own, which no table can describe: find, sed, awk, tar, ssh, sqlite3, fd, and shells.

Their options are in the catalogue like all others; here is what the rest of their words means.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.permissions import places
from outlast.permissions.catalog import Offence, Reading, by_entry, find, read_words
from outlast.permissions.getopt import Grammar, parse
from outlast.permissions.programs import awk_is_plain, sed_is_plain, sql_is_plain
from outlast.permissions.words import Word

Write = tuple[str, ...]
_GLOB_OF_FILES = re.compile(r"[^{]*[*?\]]\.\w+")  # whatever it becomes ends like a file, so it is no option of find
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_OLD_STYLE = re.compile(r"[A-Za-z]+")
_WITH_VALUE = "fXbNVHCITgFKL"  # letters of tar
_DOT_COMMAND = re.compile(r"\.(?:tables|schema|dump|indexes|indices|databases|fullschema|mode|headers)(?: [\w%.*-]+)*")


def _find(words: list[Word], write: Write) -> list[Offence]:
    kept: list[tuple[int, Word]] = []
    runs = False  # between -exec and its end: what it runs is judged by itself
    for index, word in enumerate(words):
        if runs:
            runs = not (word.text == ";" or (word.text == "+" and words[index - 1].text == "{}"))
        elif word.text in _FIND_RUNS:
            runs = True
        else:
            is_files = word.glob and not word.unknown and _GLOB_OF_FILES.fullmatch(word.text)
            kept.append((index, Word(f"./{index}", word.at, word.end) if is_files else word))
    found = read_words([word for _, word in kept], "find", 1, write).found
    return [(kept[index][0], written, why) for index, written, why in found]


def _sed(words: list[Word], write: Write) -> list[Offence]:
    reading = read_words(words, "sed", 1, write)
    scripts = _values(reading, "-e", "--expression")
    if not scripts and reading.operands and not _values(reading, "-f", "--file"):
        at = reading.operands[0]
        scripts = [(at, words[at].value)]
    # Several scripts are one script with newlines between them.
    if scripts and not sed_is_plain("\n".join("w" if text is None else text for _, text in scripts)):
        at = scripts[0][0]
        reading.say(at, words[at].text, "its script may run a program or write a file")
    return reading.found


def _values(reading: Reading, *names: str) -> list[tuple[int, str | None]]:
    return [(index, value) for index, name, value in reading.given if name in names]


def _awk(words: list[Word], write: Write) -> list[Offence]:
    reading = read_words(words, "awk", 1, write)
    programs = _values(reading, "-e", "--source")
    if not programs and reading.operands and not reading.trusted:
        at = reading.operands[0]
        programs = [(at, words[at].value)]
    for at, program in programs:
        if program is None or not awk_is_plain(program):
            reading.say(at, words[at].text, "its program may run a command or write a file")
    return reading.found


def _tar(words: list[Word], write: Write) -> list[Offence]:
    if len(words) > 1 and words[1].static and _OLD_STYLE.fullmatch(words[1].text):
        dashed = _with_dashes(words)
        moved = [(max(1, at - len(dashed) + len(words)), written, why) for at, written, why in _tar(dashed, write)]
        return [(at, written and words[at].text, why) for at, written, why in moved]
    reading = read_words(words, "tar", 1, write)
    given = {name for _, name, _ in reading.given}
    if given & {"-c", "--create", "-r", "--append", "-u", "--update"}:
        for at, value in _values(reading, "-f", "--file"):
            if (why := places.runs_later(value)) and not places.may_write(value, write):
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


def _unzip(words: list[Word], write: Write) -> list[Offence]:
    reading = read_words(words, "unzip", 1, write)
    if reading.operands and not any(re.match(r"-[ltvZpc]", word.text) for word in words[1:]):
        reading.say(reading.operands[0], "", "which files it writes is not known")
    return reading.found


def _ssh(words: list[Word], write: Write) -> list[Offence]:
    reading = read_words(words, "ssh", 1, write)
    for index in reading.operands[1:]:
        if words[index].text[:1] != "-":  # options may follow the host, too
            break
        reading.say(index, words[index].text, "an option behind the host")
    return reading.found


def _sqlite(words: list[Word], write: Write) -> list[Offence]:
    reading = read_words(words, "sqlite3", 1, write)
    for index in reading.operands[1:]:
        text = words[index].value
        if text is None or not (_DOT_COMMAND.fullmatch(text) or sql_is_plain(text)):
            reading.say(index, text or "", "it may change data, run a program or write a file")
    return reading.found


def _fd(words: list[Word], write: Write) -> list[Offence]:
    """What stands behind -x is judged by itself."""
    ends = (index for index, word in enumerate(words) if index and re.match(r"--exec|-[a-zA-Z0]*[xX]", word.text))
    entry = find("fd")
    return by_entry(words[: next(ends, len(words))], entry) if entry else []


def _shell(words: list[Word], write: Write) -> list[Offence]:
    """A shell whose program is a file: only a rule that spells the file covers it."""
    parsed = parse(words, 1, Grammar("O:o:", "rcfile= init-file="), first=True)
    if any(option.name == "c" for option in parsed.options) or not parsed.operands:
        return []
    index = parsed.operands[0]
    return [(index, words[index].text if words[index].static else "", "what is in the script is not known")]


ANALYSERS: dict[str, Callable[[list[Word], Write], list[Offence]]] = {
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
