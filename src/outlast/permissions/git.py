"""git: the commands that it runs for its options, its global options and its configuration."""

from __future__ import annotations

import re

from outlast.permissions import places
from outlast.permissions.catalog import ANY_OPTION, Offence, by_entry, find
from outlast.permissions.getopt import may_be_option
from outlast.permissions.words import Word, names
from outlast.permissions.wrapping import Code, Inner, Run, Wrapped, joined

_GLOBAL_VALUE = names("""
    -C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source --shallow-file
    --list-cmds
""")
_GLOBAL_FLAGS = names("""
    -p --paginate -P --no-pager --no-replace-objects --bare --literal-pathspecs --glob-pathspecs --noglob-pathspecs
    --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice --version --help -v -h --html-path --man-path
    --info-path
""")
_GLOBAL_FINE = _GLOBAL_FLAGS - names("-p --paginate --bare --help -h")
_READS_CONFIG = names("--get --get-all --get-regexp --list -l --get-urlmatch --get-color --get-colorbool")
_CONFIG_FINE = _READS_CONFIG | names("""
    --global --local --system --worktree --show-origin --show-scope --name-only --bool --int --path -z --null --all
""")


def subcommand(words: list[Word]) -> int | None:
    """Where the subcommand stands; None if there is none or it is not certain."""
    index = 1
    while index < len(words):
        text = words[index].text
        if may_be_option(words[index]):
            return None
        if not text.startswith("-"):
            return index
        index += 2 if text in _GLOBAL_VALUE else 1
    return None


def takes_value(option: str) -> bool | None:
    """Whether the next word is the value of a global option; None if that is not known."""
    return True if option in _GLOBAL_VALUE else False if option in _GLOBAL_FLAGS or "=" in option else None


def inner_commands(words: list[Word]) -> Wrapped | None:
    at = subcommand(words)
    if at is None:
        return None
    name, rest = words[at].text, words[at + 1 :]
    inners: list[Inner] = []
    if name == "rebase":
        inners = list(_texts_of(rest, "x", "--exec"))
    elif name == "bisect":
        run = next((index for index, word in enumerate(rest) if word.text == "run"), len(rest))
        inners = [Run(rest[run + 1 :])] if rest[run + 1 :] else []
    elif name == "submodule":
        inners = _foreach(rest)
    elif name in ("difftool", "mergetool"):
        inners = list(_texts_of(rest, "x", "--extcmd"))
    elif name == "filter-branch":
        inners = [
            one
            for flag in ("tree", "index", "env", "parent", "msg", "commit", "tag-name")
            for one in _texts_of(rest, "", f"--{flag}-filter")
        ]
    suspects = _settings(words[1:at])
    suspects += [_transport(word) for word in rest if word.text.startswith("ext::")]
    return Wrapped(inners, suspects=suspects) if inners or suspects else None


def _transport(word: Word) -> Code:
    """The command in an address like `ext::sh -c date`."""
    return joined([_like(word, word.text[5:].replace("%20", " ").replace("% ", " "))], "sh")


def _texts_of(words: list[Word], letter: str, long: str) -> list[Inner]:
    """The values of an option, in any of its forms."""
    found: list[Inner] = []
    for index, word in enumerate(words):
        follows = words[index + 1 : index + 2]
        flag, attached, value = word.text.partition("=")
        if len(flag) > 2 and long.startswith(flag):
            found += [joined([_like(word, value)], "sh")] if attached else [joined(follows, "sh")] if follows else []
        elif letter and (match := re.fullmatch(rf"-[a-zA-Z]*?{letter}(.*)", word.text, re.DOTALL)):
            found += [joined([_like(word, match[1])], "sh")] if match[1] else [joined(follows, "sh")] if follows else []
    return found


def _like(word: Word, text: str) -> Word:
    part = Word(text, word.at, word.end)
    part.unknown, part.glob = word.unknown, word.glob
    return part


def _foreach(rest: list[Word]) -> list[Inner]:
    at = next((index for index, word in enumerate(rest) if word.text == "foreach"), None)
    if at is None:
        return []
    command = rest[at + 1 :]
    while command and command[0].text in ("--recursive", "-q", "--quiet"):
        command = command[1:]
    return [joined(command, "sh")] if command else []


def _settings(options: list[Word]) -> list[Code]:
    """-c alias.x='!command' and other settings that may be commands."""
    found: list[Code] = []
    for word in options:
        key, set_, value = word.text.removeprefix("-c").partition("=")
        if set_ and re.match(r"[a-z]+\.", key, re.IGNORECASE):
            found.append(joined([_like(word, value.removeprefix("!"))], "sh"))
    return found


def offences(words: list[Word], write: tuple[str, ...] = ()) -> list[Offence]:
    """What in a command of git a `*` does not cover."""
    at = subcommand(words)
    end = len(words) if at is None else at
    found = _global_offences(words, end)
    if at is None:
        return found + [(index, "", ANY_OPTION) for index in range(1, end) if may_be_option(words[index])]
    name, rest = words[at].text, words[at + 1 :]
    if name == "submodule" and any(word.text == "foreach" for word in rest):
        return found  # what it runs is judged by itself
    if name == "bisect" and rest and rest[0].text == "run":
        return found
    if name == "config" and not _reads_config(rest):
        found.append((at, name, "git's configuration names programs that it runs"))
    entry = find(f"git {name}") if words[at].static else None
    if entry is None:
        return [*found, (at, name, f"git {name} runs or writes something, or is an alias")]
    return found + by_entry(words, entry, at + 1, write)


def _global_offences(words: list[Word], end: int) -> list[Offence]:
    found: list[Offence] = []
    index = 1
    while index < end:
        text = words[index].text
        if text == "-C" and index + 1 < end:
            index += 1
            path = words[index].value
            if path is None or places.leaves(path) or ".git" in path.split("/"):
                found.append((index, words[index].text, "it works in another repository, whose settings name programs"))
        elif text not in _GLOBAL_FINE and not (len(words) == 2 and text in _GLOBAL_FLAGS):
            found.append((index, text, f"{text} changes what git runs"))
            index += text in _GLOBAL_VALUE
        index += 1
    return found


def _reads_config(rest: list[Word]) -> bool:
    """Whether `git config` only shows something, whichever version of git it is."""
    options = [word.text for word in rest if word.text.startswith("-")]
    operands = [word.text for word in rest if not word.text.startswith("-")]
    if (
        not all(word.static for word in rest)
        or not all(one in _CONFIG_FINE for one in options)
        or operands[:1] == ["edit"]
    ):
        return False
    if any(one in _READS_CONFIG for one in options):
        return True
    return (operands[:1] in (["get"], ["list"]) and len(operands) < 3) or len(operands) < 2
