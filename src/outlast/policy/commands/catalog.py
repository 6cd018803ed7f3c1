"""What is known about programs: the entries of `commands.toml`, and what in a command no entry names as safe.

An entry is read when its program is judged for the first time: reading all of them would take longer than checking.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache

from outlast.policy.bash.words import Word
from outlast.policy.commands import sensitive_files
from outlast.policy.commands.getopt import grammar, may_be_option

RiskyArgument = tuple[int, str, str]  # the word, the option as it is written ("" if no rule can spell it), why
Analyse = Callable[[list[Word], tuple[str, ...]], list[RiskyArgument]]
ANY_OPTION = "it may be any option"
_ENTRY = re.compile(r'^"?([^"=\n#]+?)"? = \{ (?:also = (?:"""([^"]*)"""|"([^"]*)"))?', re.MULTILINE)
# A package of a registry: no path, no archive, no address.
_PACKAGE = re.compile(
    r"(?!.*\.(?:tgz|tar|gz|whl|zip|xz|bz2|txt)\b)(?:@[\w.-]+/)?[A-Za-z0-9_][\w.-]*(?:\[[\w,-]+\])?(?:[@=<>~!^]+[\w.*+^~<>=!,-]*)?"
)
_REMOTE = re.compile(r"(?:https?|ssh|git)://\w.*|[\w.-]+@[\w.-]+:\w.*|\w[\w.-]*|\.")
_TREES = frozenset(["-r", "-R", "-a", "--recursive", "--archive"])
_WHY = {
    "run": "what is in {} is not known",
    "none": "what {} does there is not known",
    "package": "{} is no plain name of a package",
    "remote": "{} is no remote and no plain address",
    "command": "what it runs is not known",
}


class Entry:
    """What one program, or one of its subcommands, may be given."""

    def __init__(self, key: str, said: dict[str, object], common: str, subs: bool) -> None:
        def pattern(name: str) -> re.Pattern[str] | None:
            return re.compile(str(said[name]).replace("\n", ""), re.DOTALL) if name in said else None

        self.key, self.subs = key, subs
        self.dash = bool(said.get("dash"))
        self.options = grammar(f"{said.get('options', '')} {common}", self.dash)
        self.flags, self.match, self.behind = pattern("flags"), pattern("match"), pattern("behind")
        self.values = {name: re.compile(text, re.DOTALL) for name, text in dict(said.get("values", {})).items()}  # type: ignore[call-overload]
        self.kinds = str(said.get("operands", "read")).split()
        self.verbs = frozenset(str(said.get("verbs", "")).split())
        self.stops, self.free = bool(said.get("stops")) or subs, bool(said.get("free"))
        self.plain = "*" in self.options


@cache
def _index() -> tuple[dict[str, str], dict[str, str], frozenset[str]]:
    """The text of each entry, the entry of each name, and the entries with subcommands."""
    with open(os.path.join(os.path.dirname(__file__), "commands.toml"), encoding="utf-8") as file:
        text = file.read()
    entries = list(_ENTRY.finditer(text))
    ends = [*(one.start() for one in entries[1:]), len(text)]
    found = {one[1]: text[one.start() : end] for one, end in zip(entries, ends, strict=True)}
    names = {key: key for key in found}
    for one in entries:
        above = one[1].rpartition(" ")[0]
        names |= {f"{above} {name}".lstrip(): one[1] for name in (one[2] or one[3] or "").split()}
    return found, names, frozenset(name.rpartition(" ")[0] for name in names)


def all_names() -> dict[str, str]:
    """Every name with the entry that it has."""
    return _index()[1]


@cache
def find(name: str) -> Entry | None:
    """The entry of a program, or of `program subcommand`."""
    found, names, above = _index()
    key = names.get(name)
    if key is None:
        short = name.rstrip("0123456789.")  # python3.12
        return find(short) if short and short != name else None
    if key != name:
        return find(key)
    said, root = _read_entry(key), key.partition(" ")[0]
    shared = said if root == key else _read_entry(root) if root in found else {}
    said = {**said, "values": {**shared.get("values", {}), **said.get("values", {})}}  # type: ignore[dict-item]
    return Entry(key, said, str(shared.get("common", "")), key in above)


def _read_entry(key: str) -> dict[str, object]:
    import tomllib

    said: dict[str, object] = tomllib.loads(_index()[0][key])[key]
    return said


# --- a command by its entry --------------------------------------------------------------


class Reading:
    """The options and operands of a command, as its entry sees them."""

    def __init__(self, words: list[Word], entry: Entry, start: int, write: tuple[str, ...]) -> None:
        self.words, self.entry, self.write = words, entry, write
        self.found: list[RiskyArgument] = []
        self.operands: list[int] = []
        self.given: list[tuple[int, str, str | None]] = []  # the options, with their values if they are known
        self.doubtful = False  # the option before takes a value or not: unknown
        self.trusted = False  # the option before is asked about and gives the program: what follows are its arguments
        self._read(start)

    def say(self, index: int, written: str, why: str) -> None:
        self.found.append((index, written, why))

    def _read(self, start: int) -> None:
        words, entry, index = self.words, self.entry, start
        while index < len(words) and not self.trusted:
            word, text = words[index], words[index].text
            if may_be_option(word):
                if not entry.free:
                    self.say(index, "", ANY_OPTION)
                self.operands.append(index)
                index += 1
            elif text == "--" and not self.doubtful:
                self._behind(index)
                return
            elif text[:1] != "-" or text == "-":
                self.doubtful = False
                if entry.stops:
                    self.operands += range(index, len(words))
                    return
                self.operands.append(index)
                index += 1
            else:
                self.doubtful = False
                index = self._option(index, text)

    def _behind(self, at: int) -> None:
        rest = range(at + 1, len(self.words))
        before = self.words[at - 1].text
        for index in rest:
            text = self.words[index].text
            if self.entry.behind:
                if not self.entry.behind.fullmatch(text):
                    self.say(index, text, f"what {text} does behind -- is not known")
            elif text[:1] == "-" and before[:1] == "-" and "=" not in before and not self.entry.plain:
                self.say(index, "", ANY_OPTION)  # if the option before takes a value, after all
        if not self.entry.behind:
            self.operands += rest

    def _option(self, index: int, text: str) -> int:
        name, attached, value = text.partition("=")
        options = self.entry.options
        if self.entry.flags and self.entry.flags.fullmatch(text):
            return index + 1
        if name in options and (text[:2] == "--" or len(name) > 2 or self.entry.dash):
            if attached and not options[name]:
                return self._unknown(index, name, f"{name} takes no value")
            return self._value(index, name, value if attached else None)
        if text[:2] == "--" or self.entry.dash:
            return self._unknown(index, name, f"{name} is not known to be safe", not attached)
        for place, letter in enumerate(text[1:], 1):
            mark = options.get(f"-{letter}")
            if mark is None and not self.entry.plain:
                return self._unknown(index, f"-{letter}", f"-{letter} is not known to be safe", place == len(text) - 1)
            if mark:
                return self._value(index, f"-{letter}", text[place + 1 :] or None)
            self.given.append((index, f"-{letter}", None))
        return index + 1

    def _unknown(self, index: int, written: str, why: str, doubtful: bool = False) -> int:
        if self.entry.plain:
            return index + 1
        self.doubtful = doubtful
        self.trusted = self.entry.stops and not self.entry.subs
        self.say(index, written, why)
        return index + 1

    def _value(self, index: int, name: str, attached: str | None) -> int:
        """An option that may have a value; returns where the next word stands."""
        mark, values = self.entry.options[name], self.entry.values
        follows = mark not in ("", "::") and attached is None and index + 1 < len(self.words)
        word = self.words[index + 1] if follows else None
        value = attached if word is None else word.value
        if mark == "!":
            self.say(index, name, f"{name} runs, loads or writes something")
            self.trusted = self.entry.stops and not self.entry.subs
        elif mark == ">" and not sensitive_files.may_write(value, self.write):
            self.say(index, name, f"{name} writes a file")
        self.given.append((index, name, value))
        if (safe := values.get(name.lstrip("-"))) and not safe.fullmatch(value or ""):
            self.say(index, name, f"{name} {value or ''} is not known to be safe")
        if word is not None and word.splits:
            self.say(index + 1, "", ANY_OPTION)
        elif word is not None and word.static and re.match(r"-[^\d\s]", word.text) and mark != "!":
            self.say(index + 1, word.text, f"{word.text} may be an option")
        return index + (1 if word is None else 2)


def read_words(words: list[Word], name: str, write: tuple[str, ...]) -> Reading:
    """The words of a tool that has an entry."""
    entry = find(name)
    assert entry is not None
    return Reading(words, entry, 1, write)


def by_entry(
    words: list[Word], entry: Entry, start: int, write: tuple[str, ...], analyse: Analyse
) -> list[RiskyArgument]:
    """What in a command its entry does not name as safe; `analyse` judges a command among its operands."""
    if entry.plain and entry.kinds == ["read"] and not (entry.verbs or entry.match or entry.subs):
        return []
    reading = Reading(words, entry, start, write)
    found, operands = reading.found, reading.operands
    if not operands or reading.trusted:
        return found
    if entry.subs:
        return found + _by_subcommand(words, entry, operands[0], write, analyse)
    if entry.verbs:
        at = operands.pop(0)
        if words[at].text not in entry.verbs:
            found.append((at, words[at].text, f"{words[at].text} is not known to be safe"))
    if entry.kinds == ["target"]:
        return found + _targets(words, operands, write) + _recursive(words, reading)
    for number, index in enumerate(operands):
        kind = entry.kinds[min(number, len(entry.kinds) - 1)]
        found += _operand(words, index, kind, entry, write, analyse)
        if kind == "command":
            break
    return found


def _by_subcommand(
    words: list[Word], entry: Entry, at: int, write: tuple[str, ...], analyse: Analyse
) -> list[RiskyArgument]:
    name = words[at].text
    sub = find(f"{entry.key} {name}") if words[at].static else None
    if sub is None:
        return [(at, name if words[at].static else "", f"{entry.key} {name} is not known to be safe")]
    return by_entry(words, sub, at + 1, write, analyse)


def _operand(
    words: list[Word], index: int, kind: str, entry: Entry, write: tuple[str, ...], analyse: Analyse
) -> list[RiskyArgument]:
    word = words[index]
    text, written = word.text, word.text if word.static else ""
    if entry.match and not entry.match.fullmatch(text):
        return [(index, written, f"{text} is not known to be safe")]
    if kind == "command":
        inner = [(index + at, spelled, why) for at, spelled, why in analyse(words[index:], write)]
        return [(index, written, _WHY[kind]), *inner]
    if kind in ("target", "output"):
        why = sensitive_files.runs_later(word.value) if kind == "target" else f"it writes {text}"
        return [(index, written, why)] if why and not sensitive_files.may_write(word.value, write) else []
    safe = {"package": _PACKAGE, "remote": _REMOTE}.get(kind)
    if kind == "read" or (safe and word.static and safe.fullmatch(text)):
        return []
    return [(index, written, _WHY[kind].format(text))]


def _recursive(words: list[Word], reading: Reading) -> list[RiskyArgument]:
    """A whole tree may hold any file: not into this directory, or one that is not below it."""
    trees = any(name in _TREES for _, name, _ in reading.given)
    path = words[reading.operands[-1]].value
    if (
        not trees
        or path is None
        or len(reading.operands) < 2
        or not (path.rstrip("/") == "." or sensitive_files.leaves(path))
    ):
        return []
    return [(reading.operands[-1], path, "what is in the tree that it copies is not known")]


def _targets(words: list[Word], operands: list[int], write: tuple[str, ...]) -> list[RiskyArgument]:
    """Files that are written: copies keep the kind of file that they are copies of."""
    name = words[0].text.rpartition("/")[2]
    *sources, last = operands
    copies = name in ("cp", "mv", "install", "rsync", "scp") and bool(sources)
    values = [words[index].value for index in sources] if copies else []
    found: list[RiskyArgument] = []
    for index in operands:
        path = words[index].value
        written = path.rpartition("/")[2] if copies and index != last and path else path  # into a directory
        is_source = copies and index != last and sensitive_files.names_file(words[last].value)
        why = "" if is_source else sensitive_files.runs_later(written, values)
        if not why and name == "ln" and path and sensitive_files.leaves(path):
            why = f"{path} is outside, and what is written there is not known"
        if why and not sensitive_files.may_write(path, write):
            found.append((index, words[index].text if words[index].static else "", why))
    return found
