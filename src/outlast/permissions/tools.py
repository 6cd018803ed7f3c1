"""Tools with rules of their own: what in their words runs a program, loads code or writes elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.permissions import git
from outlast.permissions.getopt import Grammar, may_be_option, parse
from outlast.permissions.offence import Offence, by_table
from outlast.permissions.programs import awk_is_plain, sed_is_plain
from outlast.permissions.tooltable import TOOLS
from outlast.permissions.words import Word, names
from outlast.permissions.wrapping import base

_FIND_VALUE = names(
    "-name -iname -path -ipath -wholename -lname -regex -iregex -type -size -newer -mtime -mmin -maxdepth -mindepth "
    "-user -group -perm"
)


def _find(words: list[Word]) -> list[Offence]:
    found: list[Offence] = []
    inside = False
    for index, word in enumerate(words[1:], 1):
        if inside:
            inside = not (word.text == ";" or (word.text == "+" and words[index - 1].text == "{}"))
        elif word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            inside = True  # what it runs is judged by itself
        elif word.text in ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls"):
            found.append((index, word.text, f"{word.text} deletes or writes files"))
        elif words[index - 1].text in _FIND_VALUE and not (word.splits and word.unknown):
            continue  # a value, whatever it is
        elif word.text == "-files0-from" or may_be_option(word):
            found.append((index, "", "it may be any option"))
    return found


_SED = Grammar(
    "e:f:i::l:nrEsuz",
    "expression= file= in-place=? line-length= quiet silent regexp-extended separate unbuffered null-data "
    "posix debug sandbox "
    "follow-symlinks",
)


def _sed(words: list[Word]) -> list[Offence]:
    parsed = parse(words, 1, _SED)
    found: list[Offence] = [(index, "", "it may be any option") for index in parsed.unsure]
    scripts: list[tuple[int, str | None]] = []
    for option in parsed.options:
        if option.name in ("f", "file", "i", "in-place"):
            found.append((option.index, option.written, f"{option.written} loads a script or changes files"))
        elif option.name in ("e", "expression"):
            scripts.append((option.index, option.text))
    if not scripts and parsed.operands and not any(option.name in ("f", "file") for option in parsed.options):
        scripts.append((parsed.operands[0], words[parsed.operands[0]].value))
    if len(scripts) > 1:
        # Several scripts are one script with newlines between them.
        scripts = [
            (
                scripts[0][0],
                None if any(text is None for _, text in scripts) else "\n".join(text or "" for _, text in scripts),
            )
        ]
    for index, script in scripts:
        if script is None or not sed_is_plain(script):
            found.append((index, words[index].text, "its script may run a program or write a file"))
    return found


_AWK = Grammar(
    "f:v:F:e:i:l:E:d::D::o::p::L::W:m:",
    "file= assign= field-separator= source= include= load= exec= dump-variables=? debug=? pretty-print=? profile=? "
    "lint=? csv sandbox posix traditional re-interval characters-as-bytes bignum non-decimal-data optimize",
)
_AWK_BAD = names("""
    f i l E d D o p W file include load exec dump-variables debug pretty-print profile
""")


def _awk(words: list[Word]) -> list[Offence]:
    parsed = parse(words, 1, _AWK, first=True)
    at = parsed.operands[0] if parsed.operands else len(words)
    found: list[Offence] = [(index, "", "it may be any option") for index in parsed.unsure if index <= at]
    for option in parsed.options:
        if option.name in _AWK_BAD or (option.written.startswith("--") and option.name not in _AWK.long):
            found.append((option.index, option.written, f"{option.written} loads a program or writes a file"))
        elif option.name in ("e", "source") and not awk_is_plain(option.text if option.text is not None else "system"):
            found.append((option.index, option.written, "its program may run a command or write a file"))
    if parsed.operands and not any(
        option.name in ("f", "file", "e", "source", "E", "exec") for option in parsed.options
    ):
        program = words[at].value
        if program is None or not awk_is_plain(program):
            found.append((at, words[at].text, "its program may run a command or write a file"))
    return found


def _tar(words: list[Word]) -> list[Offence]:
    tool = TOOLS["tar"]
    if len(words) > 1 and words[1].static and re.fullmatch(r"[A-Za-z]+", words[1].text):
        # The old style: letters without a dash, their values in the words that follow.
        dashed = Word("-" + words[1].text, words[1].at, words[1].end)
        letters, values = words[1].text, 2
        found: list[Offence] = []
        for letter in letters:
            if letter in tool.bad:
                found.append((1, words[1].text, f"{letter} runs a program, loads or writes something"))
            if tool.grammar.short.get(letter) == 1 and values < len(words):
                found += _remote(words, values) if letter == "f" else []
                values += 1
        rest = [words[0], *words[values:]]
        return found + [
            (index + values - 1, written, why) for index, written, why in _tar([rest[0], *_past(rest[1:], dashed)])
        ]
    found, parsed = by_table(words, tool)
    for option in parsed.options:
        if option.name in ("f", "file"):
            text = option.text
            if text is None or ":" in text:
                found.append((option.index, "", "an archive on another machine is reached by a program"))
    return found


def _past(rest: list[Word], dashed: Word) -> list[Word]:
    """Operands of the old style are operands, even if they look like letters."""
    return [
        Word("./" + word.text, word.at, word.end) if word.static and re.fullmatch(r"[A-Za-z]+", word.text) else word
        for word in rest
    ]


def _remote(words: list[Word], index: int) -> list[Offence]:
    word = words[index]
    if not word.static or ":" in word.text:
        return [(index, "", "an archive on another machine is reached by a program")]
    return []


_FINE_SSH = re.compile(
    r"(?:stricthostkeychecking|connecttimeout|batchmode|user|port|serveraliveinterval|serveralivecountmax"
    r"|loglevel|compression|tcpkeepalive"
    r"|identitiesonly|addressfamily|preferredauthentications|passwordauthentication|connectionattempts)[ =].*",
    re.IGNORECASE,
)


def _ssh(words: list[Word]) -> list[Offence]:
    name = base(words[0].text)
    tool = TOOLS[name]
    parsed = parse(words, 1, tool.grammar, first=name == "ssh")
    end = parsed.operands[0] if parsed.operands and name == "ssh" else len(words)
    found = [(index, written, why) for index, written, why in by_table(words[: end + 1], tool)[0]]
    for option in parsed.options:
        if option.name == "o" and not _FINE_SSH.fullmatch(option.text or ""):
            found.append((option.index, option.written, "an option of ssh may run a program"))
    if name == "ssh" and parsed.operands:
        # Options may follow the host, too.
        for index in range(end + 1, len(words)):
            if not words[index].text.startswith("-"):
                break
            found.append((index, words[index].text, "an option behind the host"))
    return found


_CC_BAD = re.compile(
    r"-(?:wrapper|B.*|fplugin.*|specs.*|-specs.*|o.*|Xlinker|Wl,.*|Xclang|Xassembler|Wa,.*|Xpreprocessor|Wp,.*"
    r"|fuse-ld.*|-ld-path.*|MF.*|MD|MMD|aux-info"
    r"|save-temps.*|dump.*|d[A-Z].*|fdump.*|load|-config.*|fpass-plugin.*|T.*|-sysroot.*|isysroot|ivfsoverlay"
    r"|gcc-toolchain.*|-gcc-toolchain.*"
    r"|fprofile.*|ftest-coverage|-coverage|fmodule.*|fcallgraph.*|working-directory.*|no-canonical-prefixes"
    r"|fdebug.*|ftime.*|-output.*|-for-linker.*"
    r"|-prefix.*|-include-barrier|-write.*|fstack-usage|gsplit-dwarf|E)",
    re.DOTALL,
)


def _cc(words: list[Word]) -> list[Offence]:
    found: list[Offence] = []
    for index, word in enumerate(words[1:], 1):
        if may_be_option(word) or word.text.startswith("@"):
            found.append((index, "", "it may be any option"))
        elif word.text != "-E" and _CC_BAD.fullmatch(word.text):
            found.append((index, word.text, f"{word.text} runs a program, loads code or writes elsewhere"))
    return found


def _make(words: list[Word]) -> list[Offence]:
    found, parsed = by_table(words, TOOLS["make"])
    for option in parsed.options:
        if option.name in ("C", "directory") and not _is_below(option.text):
            found.append((option.index, option.written, "it runs the rules of another directory"))
    for index in parsed.operands:
        if "=" in words[index].text:
            found.append((index, words[index].text.partition("=")[0], "a variable changes what make runs"))
    return found


def _is_below(path: str | None) -> bool:
    return path is not None and not path.startswith(("/", "~", "-")) and ".." not in path.split("/")


def _date(words: list[Word]) -> list[Offence]:
    found, parsed = by_table(words, TOOLS["date"])
    return found + [
        (index, words[index].text, "it sets the clock")
        for index in parsed.operands
        if not words[index].lead.startswith("+")
    ]


def _kill(words: list[Word]) -> list[Offence]:
    found: list[Offence] = []
    rest = list(range(1, len(words)))
    if (
        rest
        and re.fullmatch(r"-(?:[A-Za-z0-9+]+|-signal=.*)", words[1].text)
        and words[1].text not in ("-s", "-n", "-l", "-L")
    ):
        rest = rest[1:]
    elif rest and words[1].text in ("-s", "-n", "--signal"):
        rest = rest[2:]
    for index in rest:
        text = words[index].text
        if text in ("-l", "-L", "--"):
            continue
        if (
            not words[index].static
            or not re.fullmatch(r"%?[0-9]+|[A-Z0-9]+", text)
            or text in ("0", "1")
            or re.fullmatch("0+1?", text)
        ):
            found.append((index, text if words[index].static else "", "it may end more than one process"))
    return found


def _less(words: list[Word]) -> list[Offence]:
    found, _ = by_table(words, TOOLS["less"])
    return found + [
        (index, word.text, "+ gives a command") for index, word in enumerate(words) if word.text.startswith("+")
    ]


def _npm(words: list[Word]) -> list[Offence]:
    found, parsed = by_table(words, TOOLS["npm"])
    first = parsed.operands[0] if parsed.operands else None
    if first is not None and words[first].text in _NPM_RUNS:
        wrapped = words[first].text in ("exec", "x") and any(
            word.text in ("-c", "--call") or word.text.startswith("--call=") for word in words
        )
        if not wrapped:
            found.append((first, words[first].text, f"npm {words[first].text} runs other programs"))
    return [
        one
        for one in found
        if one[2] != "it may be any option"
        or first is None
        or one[0] < first
        or words[first].text not in ("run", "test")
    ] + [(index, "", "it may be any option") for index in parsed.unsure if first is not None and index > first]


_NPM_RUNS = names("""
    exec x explore init create innit edit config set c publish unpublish login adduser token access link ln
    rebuild restart-all install-scripts docs repo bugs home
""")


def _go(words: list[Word]) -> list[Offence]:
    found: list[Offence] = []
    for index, word in enumerate(words[1:], 1):
        flag = word.text.partition("=")[0].replace("--", "-")
        if flag in (
            "-exec",
            "-toolexec",
            "-o",
            "-overlay",
            "-modfile",
            "-C",
            "-ldflags",
            "-gcflags",
            "-asmflags",
            "-vettool",
            "-pkgdir",
            "-coverprofile",
            "-cpuprofile",
            "-memprofile",
            "-blockprofile",
            "-trace",
            "-outputdir",
            "-w",
            "-u",
            "-compiler",
            "-gccgoflags",
        ):
            found.append((index, word.text.partition("=")[0], f"{flag} runs a program or writes something"))
        elif may_be_option(word):
            found.append((index, "", "it may be any option"))
    if len(words) > 1 and words[1].text in ("run", "generate", "tool", "install", "get"):
        found.append((1, words[1].text, f"go {words[1].text} runs or installs programs"))
    return found


def _sqlite(words: list[Word]) -> list[Offence]:
    found: list[Offence] = []
    for index, word in enumerate(words[1:], 1):
        if may_be_option(word) or (index > 1 and not word.static):
            found.append((index, "", "it may be any option"))
        elif (word.text.lstrip().startswith(".") and index > 1) or re.search(
            r"(?i)load_extension|writefile|edit\(|readfile|attach|\.shell|\.system", word.text
        ):
            found.append((index, word.text, "it can run a program or write a file"))
        elif word.text in ("-cmd", "-init", "--cmd", "--init", "-A", "--archive"):
            found.append((index, word.text, f"{word.text} runs commands"))
    return found


def _openssl(words: list[Word]) -> list[Offence]:
    bad = (
        "-engine",
        "-provider",
        "-provider-path",
        "-config",
        "-out",
        "-outdir",
        "-keyout",
        "-writerand",
        "-sess_out",
        "-keylogfile",
        "-CAcreateserial",
        "-signkey-out",
    )
    found: list[Offence] = []
    for index, word in enumerate(words[1:], 1):
        if may_be_option(word):
            found.append((index, "", "it may be any option"))
        elif word.text.replace("--", "-") in bad:
            found.append((index, word.text, f"{word.text} loads code or writes a file"))
    return found


_SCRIPT = Grammar("O:o:", "rcfile= init-file=")


def _shell_script(words: list[Word]) -> list[Offence]:
    """A shell whose program is a file: only a rule that spells the file covers it."""
    parsed = parse(words, 1, _SCRIPT, first=True)
    if any(option.name == "c" for option in parsed.options) or not parsed.operands:
        return []
    index = parsed.operands[0]
    return [(index, words[index].text if words[index].static else "", "what is in the script is not known")]


def _anything(words: list[Word]) -> list[Offence]:
    """Each operand and option counts: only rules that spell them cover them."""
    return [
        (index, word.text if word.static else "", "what it runs is not known")
        for index, word in enumerate(words[1:], 1)
    ]


def _jq(words: list[Word]) -> list[Offence]:
    # A program of jq runs and writes nothing, so only a file of them asks, and arguments may be what they like.
    return [one for one in by_table(words, TOOLS["jq"])[0] if one[1]]


SPECIAL: dict[str, Callable[[list[Word]], list[Offence]]] = {
    "git": git.offences,
    "jq": _jq,
    "find": _find,
    "gfind": _find,
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
    "tar": _tar,
    "ssh": _ssh,
    "scp": _ssh,
    "sftp": _ssh,
    "make": _make,
    "date": _date,
    "kill": _kill,
    "less": _less,
    "more": _less,
    "zless": _less,
    "npm": _npm,
    "go": _go,
    "sqlite3": _sqlite,
    "openssl": _openssl,
    "gcc": _cc,
    "g++": _cc,
    "cc": _cc,
    "c++": _cc,
    "clang": _cc,
    "clang++": _cc,
    "cpp": _cc,
    "tcc": _cc,
    "rustc": _cc,
    "sh": _shell_script,
    "bash": _shell_script,
    "dash": _shell_script,
    "zsh": _shell_script,
    "ksh": _shell_script,
    "fish": _shell_script,
    "run-parts": _anything,
    "expect": _anything,
    "gdb": _anything,
    "lldb": _anything,
}
