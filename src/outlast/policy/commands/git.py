"""git: the commands that it runs for its options, its global options and its configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence

from outlast.policy.bash.words import Word, names, with_text
from outlast.policy.commands import sensitive_files
from outlast.policy.commands.catalog import ANY_OPTION, Analyse, RiskyArgument, by_entry, find
from outlast.policy.commands.getopt import grammar, may_be_option, parse
from outlast.policy.commands.nested import Inner, NestedCommands, ShellText, given_texts, is_static, join

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
_MERGE_TOOL = ("-x: extcmd=", "x extcmd")
_FILTERS = "tree-filter= index-filter= env-filter= parent-filter= msg-filter= commit-filter= tag-name-filter="
# Subcommands whose options give commands to a shell: their options, and those among them.
_TEXTS = {
    "rebase": ("-x: exec=", "x exec"),
    "difftool": _MERGE_TOOL,
    "mergetool": _MERGE_TOOL,
    "filter-branch": (_FILTERS, _FILTERS.replace("=", "")),
}
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


def inner_commands(words: list[Word]) -> NestedCommands | None:
    """Return the commands that a call of git runs."""
    at = subcommand(words)
    if at is None:
        return None
    name, rest = words[at].text, words[at + 1 :]
    inners: Sequence[Inner] = ()
    if name in _TEXTS:
        options, giving = _TEXTS[name]
        inners = given_texts(words, parse(words, at + 1, grammar(options)), *giving.split())
    elif name == "bisect":
        run = next((index for index, word in enumerate(rest) if word.text == "run"), len(rest))
        inners = [rest[run + 1 :]] if rest[run + 1 :] else []
    elif name == "submodule":
        inners = _foreach(rest)
    possible_code = _settings(words[1:at])
    if name == "config" and rest:
        possible_code.append(join([with_text(rest[-1], rest[-1].text.lstrip("!"))], "sh"))
    for word in rest:
        if word.text.startswith("ext::"):  # an address that is a command, like `ext::sh -c date`
            possible_code.append(join([with_text(word, word.text[5:].replace("%20", " ").replace("% ", " "))], "sh"))
    return NestedCommands(inners, possible_code=possible_code) if inners or possible_code else None


def _foreach(rest: list[Word]) -> list[ShellText]:
    at = next((index for index, word in enumerate(rest) if word.text == "foreach"), len(rest))
    command = rest[at + 1 :]
    while command and command[0].text in ("--recursive", "-q", "--quiet"):
        command = command[1:]
    return [join(command, "sh")] if command else []


def _settings(options: list[Word]) -> list[ShellText]:
    """-c alias.x='!command' and other settings that may be commands."""
    found: list[ShellText] = []
    for word in options:
        key, set_, value = word.text.removeprefix("-c").partition("=")
        if set_ and re.match(r"[a-z]+\.", key, re.IGNORECASE):
            found.append(join([with_text(word, value.removeprefix("!"))], "sh"))
    return found


def risky_arguments(words: list[Word], write: tuple[str, ...], analyse: Analyse) -> list[RiskyArgument]:
    """What in a command of git a `*` does not cover."""
    at = subcommand(words)
    end = len(words) if at is None else at
    found = _global_risks(words, end)
    if at is None:
        return found + [(index, "", ANY_OPTION) for index in range(1, end) if may_be_option(words[index])]
    name, rest = words[at].text, words[at + 1 :]
    if name == "submodule" and any(word.text == "foreach" for word in rest):
        return found  # what it runs is checked by itself
    if name == "bisect" and rest and rest[0].text == "run":
        return found
    if name == "config" and not _reads_config(rest):
        found.append((at, name, "git's configuration names programs that it runs"))
    entry = find(f"git {name}") if words[at].static else None
    if entry is None:
        return [*found, (at, name, f"git {name} runs or writes something, or is an alias")]
    return found + by_entry(words, entry, at + 1, write, analyse)


def _global_risks(words: list[Word], end: int) -> list[RiskyArgument]:
    found: list[RiskyArgument] = []
    index = 1
    while index < end:
        text = words[index].text
        if text == "-C" and index + 1 < end:
            index += 1
            path = words[index].value
            if path is None or sensitive_files.leaves(path) or ".git" in path.split("/"):
                found.append((index, words[index].text, "it works in another repository, whose settings name programs"))
        elif text not in _GLOBAL_FINE and not (len(words) == 2 and text in _GLOBAL_FLAGS):
            found.append((index, text, f"{text} changes what git runs"))
            index += text in _GLOBAL_VALUE
        index += 1
    return found


def _reads_config(rest: list[Word]) -> bool:
    """Whether `git config` only shows something, whichever version of git it is."""
    options = {word.text for word in rest if word.text.startswith("-")}
    operands = [word.text for word in rest if not word.text.startswith("-")]
    if not is_static(rest) or not options <= _CONFIG_FINE or operands[:1] == ["edit"]:
        return False
    return bool(options & _READS_CONFIG) or len(operands) < (3 if operands[:1] in (["get"], ["list"]) else 2)
