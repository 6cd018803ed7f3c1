"""git: the commands it runs for its options, and the options that run, load or write."""

from __future__ import annotations

import re

from outlast.permissions.getopt import may_be_option
from outlast.permissions.words import Word, names
from outlast.permissions.wrapping import Code, Inner, Run, Wrapped, joined

_GLOBAL_VALUE = frozenset(
    [
        "-C",
        "-c",
        "--git-dir",
        "--work-tree",
        "--namespace",
        "--exec-path",
        "--config-env",
        "--super-prefix",
        "--attr-source",
    ]
)
_GLOBAL_BAD = ("-c", "--config-env", "--exec-path=", "--git-dir", "--work-tree", "--attr-source")
# Sub-commands that are git's own and run nothing that the options do not name.
_KNOWN = names("""
    add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout cherry cherry-pick clean clone column commit commit-graph commit-tree config
    count-objects describe diff diff-files diff-index diff-tree difftool fast-export fetch for-each-ref
    format-patch fsck gc grep hash-object help index-pack init interpret-trailers log ls-files ls-remote ls-tree
    mailinfo mailsplit merge merge-base merge-file merge-index merge-tree mv name-rev notes pack-objects
    pack-refs patch-id prune pull push range-diff read-tree rebase reflog remote repack replace request-pull
    rerere reset restore rev-list rev-parse revert rm shortlog show show-branch show-index show-ref
    sparse-checkout stash status stripspace submodule switch symbolic-ref tag unpack-file update-index
    update-ref update-server-info var verify-commit verify-pack verify-tag version whatchanged worktree
    write-tree
""")
# These run programs or hand over configuration that does, whatever their options.
_RUNS = names("""
    difftool mergetool filter-branch hook daemon instaweb web--browse gui citool credential send-email svn p4
    cvsimport cvsserver archimport quiltimport shell http-backend maintenance remote-ext remote-fd remote-http
    upload-pack receive-pack upload-archive imap-send for-each-repo merge-index
""")
# Long options that run, load or write, wherever they stand; abbreviations count.
_BAD_LONG = (
    "upload-pack",
    "receive-pack",
    "exec",
    "exec-path",
    "output",
    "output-directory",
    "ext-diff",
    "open-files-in-pager",
    "extcmd",
    "template",
    "config",
    "config-env",
    "separate-git-dir",
    "git-dir",
    "work-tree",
    "remote",
    "smtp-server",
    "sendmail-cmd",
    "tool",
    "gui",
    "textconv",
    "filters",
    "editor",
    "server-option",
    "reference",
    "reference-if-able",
    "use-mailmap-file",
    "run",
    "strategy",
    "gpg-program",
    "upload-archive",
    "export-marks",
    "web",
)
# Not bad, although they begin like one that is.
_FINE = frozenset(
    [
        "text",
        "remote",
        "remotes",
        "exec-batch",
        "re",
        "edit",
        "reference",
        "server-option",
        "strategy-option",
        "filter",
        "tool-help",
        "out",
        "refs",
        "ref",
    ]
)
_BAD_SHORT = {
    "clone": "uc",
    "ls-remote": "u",
    "rebase": "xs",
    "difftool": "xt",
    "grep": "O",
    "format-patch": "o",
    "archive": "o",
    "merge": "s",
    "pull": "s",
    "bugreport": "o",
    "diagnose": "o",
}
_SHORT_VALUE = {
    "clone": "bjo",
    "log": "nSGLOI",
    "show": "nSGLO",
    "diff": "SGLOUI",
    "commit": "mFcCtu",
    "grep": "efABCmO",
    "rebase": "XCs",
    "branch": "u",
    "tag": "mFun",
    "merge": "mFXs",
    "checkout": "bB",
    "switch": "cC",
    "push": "o",
    "blame": "LSC",
    "stash": "m",
    "fetch": "jo",
    "pull": "sX",
}
_READS_CONFIG = frozenset(
    [
        "--get",
        "--get-all",
        "--get-regexp",
        "--list",
        "-l",
        "get",
        "list",
        "--get-urlmatch",
        "--get-color",
        "--get-colorbool",
    ]
)


def subcommand(words: list[Word]) -> int | None:
    """Where the sub-command stands; None if there is none or it is not certain."""
    index = 1
    while index < len(words):
        text = words[index].text
        if may_be_option(words[index]):
            return None
        if not text.startswith("-"):
            return index
        index += 2 if text in _GLOBAL_VALUE else 1
    return None


def normalised(words: list[Word]) -> list[Word] | None:
    """The same without options before the sub-command; None if there are none."""
    at = subcommand(words)
    return [words[0], *words[at:]] if at is not None and at > 1 else None


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


def offences(words: list[Word]) -> list[tuple[int, str, str]]:
    """(word, what is written, why) for each option or operand that a `*` does not cover."""
    at = subcommand(words)
    end = len(words) if at is None else at
    found = [
        (index, words[index].text, "it changes what git runs")
        for index in range(1, end)
        if words[index].text.startswith(_GLOBAL_BAD)
    ]
    if at is None:
        return found + [(index, "", "it may be any option") for index in range(1, end) if may_be_option(words[index])]
    name = words[at].text
    if name in _RUNS or name not in _KNOWN:
        found.append((at, name, f"git {name} runs other programs" if name in _RUNS else f"git {name} may be an alias"))
    if name == "config" and not any(word.text in _READS_CONFIG for word in words[at:]) and len(words) - at > 2:
        found.append((at, name, "git's configuration names programs that it runs"))
    if name == "submodule" and any(word.text == "foreach" for word in words[at:]):
        return found  # what it runs is judged by itself
    if name == "bisect" and any(word.text == "run" for word in words[at + 1 :]):
        return found
    return found + _sub_offences(words, at, name)


def _sub_offences(words: list[Word], at: int, name: str) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    skip = False
    for index in range(at + 1, len(words)):
        word = words[index]
        text = word.text
        if skip:
            skip = False
            if word.splits and word.unknown:
                found.append((index, "", "it may be any option"))
            continue
        if may_be_option(word):
            found.append((index, "", "it may be any option"))
        elif text == "--":
            break
        elif text.startswith("--"):
            if why := _bad_long(text, name):
                found.append((index, text.partition("=")[0], why))
        elif text.startswith("-") and len(text) > 1:
            skip = _short_option(found, index, text, name)
        elif re.match(r"[A-Za-z][A-Za-z0-9+.]*::", text) or re.match(r"\w+://-", text):
            found.append((index, text, "its address runs a program"))
    return found


def _bad_long(text: str, name: str) -> str:
    option = text[2:].partition("=")[0]
    if option in _FINE and not (name == "archive" and option == "remote"):
        return ""
    if name == "rebase" and option and "exec".startswith(option):
        return ""  # what it runs is judged by itself
    if option and any(bad == option or (bad.startswith(option) and len(option) > 2) for bad in _BAD_LONG):
        return f"--{option} runs a program, loads or writes something"
    return ""


def _short_option(found: list[tuple[int, str, str]], index: int, text: str, name: str) -> bool:
    """Whether the value of the option is the next word."""
    for place, letter in enumerate(text[1:], 1):
        if letter in _BAD_SHORT.get(name, "") and not (name == "rebase" and letter == "x"):
            found.append((index, text[: place + 1], f"-{letter} runs a program or writes elsewhere"))
            return False
        if name == "rebase" and letter == "x":
            return place == len(text) - 1
        if letter in _SHORT_VALUE.get(name, ""):
            return place == len(text) - 1
    return False
