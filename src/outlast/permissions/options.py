"""Options and operands that a `*` in a rule does not cover: they run a program, load code or write elsewhere."""

from __future__ import annotations

import re

from outlast.permissions.interpreters import INTERPRETERS, interpreter_offences, module_of
from outlast.permissions.offence import Offence, by_table
from outlast.permissions.patterns import Pattern
from outlast.permissions.tools import SPECIAL
from outlast.permissions.tooltable import ALIKE, TOOLS
from outlast.permissions.words import Word, names
from outlast.permissions.wrappers import LOOSE, loose_start
from outlast.permissions.wrapping import base


def offences(words: list[Word]) -> list[Offence]:
    """All of them in one simple command."""
    name = base(words[0].text)
    if name not in _SPECIFIED and name[-1:] not in _VERSION:
        return _generic(words, name)  # as most are
    name = ALIKE.get(name, name)
    found: list[Offence] = []
    start = loose_start(words)
    if start is not None:
        found += _loose(words, start)
    if special := SPECIAL.get(name):
        return found + special(words)
    if name in INTERPRETERS or (name := name.rstrip(_VERSION)) in INTERPRETERS:
        return found + interpreter_offences(words, name) + _module(words, name)
    found += [
        (1, words[1].text, f"{name} {words[1].text} runs or loads code")
        for one in _FIRST.get(name, ())
        if words[1:] and words[1].text == one
    ]
    tool = TOOLS.get(name)
    return found + (by_table(words, tool)[0] if tool else _generic(words, base(words[0].text)))


def _module(words: list[Word], name: str) -> list[Offence]:
    """`python -m pytest` has the options of pytest."""
    at = module_of(words) if name == "python" else None
    if at is None or words[at].text not in TOOLS:
        return []
    return [(index + at, written, why) for index, written, why in offences(words[at:])]


def spelled(pattern: Pattern, offence: Offence, words: list[Word]) -> bool:
    """Whether the literal part of a rule spells what offends."""
    index, written, _ = offence
    if not written:
        return False
    literal = pattern.literal_words
    if index < len(literal):
        return True
    if words[index].text in pattern.later_words:
        return True
    begun = pattern.begun_word
    return index == len(literal) and bool(begun) and begun.startswith(written) and begun != "-"


def _loose(words: list[Word], start: int) -> list[Offence]:
    for index in range(start, len(words)):
        if not words[index].text.startswith("-"):
            return [(index, words[index].text, "what it runs is not known")]
    return [(start - 1, words[start - 1].text, "what it runs is not known")]


_SUSPICIOUS = re.compile(
    r"--?(?:exec(?:ute)?|eval|pre|preload|plugins?|shell|pager|editor|output|outfile|out-file|output-file"
    r"|command|cmd|rsh|hook|require|load|load-extension"
    r"|init-script|startup|on-[a-z-]+|run-command|script-shell)(?:=.*)?|(?:EXEC|SYSTEM|exec|system):.*",
    re.DOTALL,
)


def _generic(words: list[Word], name: str) -> list[Offence]:
    """For a tool that is in no table: long options whose names say what they do."""
    if name in _PLAIN:
        return []
    return [
        (index, word.text.partition("=")[0], f"{word.text.partition('=')[0]} may run a program or write something")
        for index, word in enumerate(words)
        if _SUSPICIOUS.fullmatch(word.text)
    ]


# First operands that run or load code.
_FIRST: dict[str, tuple[str, ...]] = {
    "cargo": ("install", "login", "publish"),
    "gh": ("alias", "extension", "ext", "config", "codespace", "cs"),
    "systemctl": ("edit", "set-environment", "import-environment", "link"),
    "aws": ("configure",),
    "gem": ("install", "exec"),
    "brew": ("install", "sh", "edit", "services"),
    "pip": ("config",),
    "docker": ("build", "buildx", "plugin"),
    "yarn": ("create", "config", "plugin"),
    "pnpm": ("create", "config", "add"),
    "terraform": ("apply", "destroy", "console"),
}
_SPECIFIED = frozenset([*ALIKE, *LOOSE, *SPECIAL, *INTERPRETERS, *_FIRST, *TOOLS])
_VERSION = "0123456789."  # behind a name: python3.12, pip3
# None of their options runs or writes anything.
_PLAIN = names("""
    echo cat ls pwd grep egrep fgrep zgrep wc head tail cut tr comm join paste nl od fold fmt expand unexpand
    cksum md5sum sha1sum sha256sum sha512sum b2sum basename dirname realpath readlink stat du df which whereis
    type id whoami groups uname uptime free ps pgrep printenv sleep seq yes true false test expr factor tac rev
    column cmp hexdump strings nproc arch tty locale cal tput mkdir rmdir touch cp mv ln chmod chown tee base64
    base32 printf read cd pushd popd dirs jobs umask ulimit
""")
