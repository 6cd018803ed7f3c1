"""Commands inside a program that an argument holds in another language: `python3 -c 'os.system("rm -rf /")'`. Pure.

The program is not parsed. Its string literals are what it could run or remove, so policies that allow by default look
at those.
"""

from __future__ import annotations

import re

from outlast.policy.bash.words import Word, names
from outlast.policy.commands.interpreters import may_read_program
from outlast.policy.commands.nested import base

_LITERAL = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|`([^`]*)`", re.DOTALL)
_REMOVES = re.compile(r"rmtree|unlink|remove|rmdir|rm_rf?|rmSync|rimraf|shutil\.move|truncate|chmod|rename")
# sed's `e`, an editor's `!`, and options that take a command: `--checkpoint-action=exec=rm`.
_RUNS = re.compile(
    r"(?:\A|[;{0-9/$])e[ \t]+([^\n;]+)|\A:?[ \t]*!(.+)|exec=(.+)|\A\.(?:shell|system)\s+(.+)|\bspawn (.+)", re.DOTALL
)
_CALLS = re.compile(r"(?:\brun|call|Popen|check_output|exec\w*|spawn\w*|system)\s*\(?\s*\[?(.*)", re.DOTALL)
_COMMAND_OPTIONS = {  # whose values are commands
    "tar": names("-I --use-compress-program --to-command -F --info-script --new-volume-script --rsh-command"),
    "rsync": names("-e --rsh --rsync-path"),
    "sort": names("--compress-program"),
    "split": names("--filter"),
    "zip": names("-TT --unzip-command"),
    "rg": names("--pre --hostname-bin"),
    "make": names("--eval -E"),
}
_PROGRAMS = names("awk gawk mawk nawk sed gsed")
_TAKES_COMMANDS = names("git tar gtar bsdtar")
_MOST = 32


def inline_commands(words: list[Word], bodies: list[str]) -> list[str]:
    """The texts in the arguments and the input of a command that may be command lines."""
    name = base(words[0].text)
    is_program = may_read_program(name) or name in _PROGRAMS
    found = _values(words, _COMMAND_OPTIONS.get(name, frozenset()))
    for text in [*(word.text for word in words[1:]), *(bodies if is_program else ())]:
        if is_program and ('"' in text or "'" in text or "`" in text):
            literals = _literals(text)
            found += [one for one in literals if " " in one]
            if call := _CALLS.search(text):
                found.append(" ".join(_literals(call[1])))
            if _REMOVES.search(text):
                found += [f"rm -rf {one}" for one in literals if re.fullmatch(r"[/~][\w./*~-]*", one)]
        if (is_program or name in _TAKES_COMMANDS) and (run := _RUNS.search(text)):
            found.append(next(one for one in run.groups() if one))
    return found[:_MOST]


def _values(words: list[Word], options: frozenset[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(words if options else ()):
        name, attached, value = word.text.partition("=")
        if name in options:
            found += [value] if attached else [one.text for one in words[index + 1 : index + 2]]
    return found


def _literals(text: str) -> list[str]:
    return [next((one for one in match.groups() if one), "") for match in _LITERAL.finditer(text)]
