"""Options and operands that a `*` in a rule does not cover: those by which a tool runs a program, loads code or writes elsewhere."""

from __future__ import annotations

import re

from outlast.permissions import git
from outlast.permissions.getopt import Grammar, Parsed, may_be_option, parse
from outlast.permissions.interpreters import INTERPRETERS, interpreter_offences
from outlast.permissions.patterns import Pattern
from outlast.permissions.programs import awk_is_plain, sed_is_plain
from outlast.permissions.scan import Word
from outlast.permissions.shells import base
from outlast.permissions.tooltable import ALIKE, TOOLS, Tool
from outlast.permissions.wrappers import loose_start

Offence = tuple[int, str, str]  # the word, the option as it is written ("" if no rule can spell it), why


def offences(words: list[Word]) -> list[Offence]:
    """All of them in one simple command."""
    name = base(words[0].text)
    name = ALIKE.get(name, name)
    found: list[Offence] = []
    start = loose_start(words)
    if start is not None and name != "make":
        found += _loose(words, start)
    if special := _SPECIAL.get(name):
        return found + special(words)
    if name in INTERPRETERS or (name := name.rstrip("0123456789.")) in INTERPRETERS:
        return found + interpreter_offences(words, name)
    found += [(1, words[1].text, f"{name} {words[1].text} runs or loads code") for one in _FIRST.get(name, ()) if words[1:] and words[1].text == one]
    tool = TOOLS.get(name)
    return found + (_by_table(words, tool)[0] if tool else _generic(words))


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


def _by_table(words: list[Word], tool: Tool) -> tuple[list[Offence], Parsed]:
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


_SUSPICIOUS = re.compile(
    r"--?(?:exec(?:ute)?|eval|pre|preload|plugins?|shell|pager|editor|output|outfile|out-file|output-file|command|cmd|rsh|hook|require|load|load-extension"
    r"|init-script|startup|on-[a-z-]+|run-command|script-shell)(?:=.*)?|(?:EXEC|SYSTEM|exec|system):.*",
    re.DOTALL,
)


def _generic(words: list[Word]) -> list[Offence]:
    """For a tool that is in no table: long options whose names say what they do."""
    if base(words[0].text) in _PLAIN:
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
# None of their options runs or writes anything.
_PLAIN = frozenset(
    "echo cat ls pwd grep egrep fgrep zgrep wc head tail cut tr comm join paste nl od fold fmt expand unexpand cksum md5sum sha1sum sha256sum "
    "sha512sum b2sum basename dirname realpath readlink stat du df which whereis type id whoami groups uname uptime free ps pgrep printenv "
    "sleep seq yes true false test expr factor tac rev column cmp hexdump strings nproc arch tty locale cal tput mkdir rmdir touch cp mv ln "
    "chmod chown tee base64 base32 printf read cd pushd popd dirs jobs umask ulimit".split()
)


# --- tools with rules of their own -----------------------------------------------------------------


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
        elif word.text == "-files0-from" or may_be_option(word):
            found.append((index, "", "it may be any option"))
    return found


_SED = Grammar(
    "e:f:i::l:nrEsuz",
    "expression= file= in-place=? line-length= quiet silent regexp-extended separate unbuffered null-data posix debug sandbox "
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
_AWK_BAD = frozenset("f i l E d D o p W file include load exec dump-variables debug pretty-print profile".split())


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
    found, parsed = _by_table(words, tool)
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
    r"(?:stricthostkeychecking|connecttimeout|batchmode|user|port|serveraliveinterval|serveralivecountmax|loglevel|compression|tcpkeepalive"
    r"|identitiesonly|addressfamily|preferredauthentications|passwordauthentication|connectionattempts)[ =].*",
    re.IGNORECASE,
)


def _ssh(words: list[Word]) -> list[Offence]:
    name = base(words[0].text)
    tool = TOOLS[name]
    parsed = parse(words, 1, tool.grammar, first=name == "ssh")
    end = parsed.operands[0] if parsed.operands and name == "ssh" else len(words)
    found = [(index, written, why) for index, written, why in _by_table(words[: end + 1], tool)[0]]
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
    r"-(?:wrapper|B.*|fplugin.*|specs.*|-specs.*|o.*|Xlinker|Wl,.*|Xclang|Xassembler|Wa,.*|Xpreprocessor|Wp,.*|fuse-ld.*|-ld-path.*|MF.*|MD|MMD|aux-info"
    r"|save-temps.*|dump.*|d[A-Z].*|fdump.*|load|-config.*|fpass-plugin.*|T.*|-sysroot.*|isysroot|ivfsoverlay|gcc-toolchain.*|-gcc-toolchain.*"
    r"|fprofile.*|ftest-coverage|-coverage|fmodule.*|fcallgraph.*|working-directory.*|no-canonical-prefixes|fdebug.*|ftime.*|-output.*|-for-linker.*"
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
    found, parsed = _by_table(words, TOOLS["make"])
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
    found, parsed = _by_table(words, TOOLS["date"])
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
    found, _ = _by_table(words, TOOLS["less"])
    return found + [
        (index, word.text, "+ gives a command") for index, word in enumerate(words) if word.text.startswith("+")
    ]


def _npm(words: list[Word]) -> list[Offence]:
    found, parsed = _by_table(words, TOOLS["npm"])
    first = parsed.operands[0] if parsed.operands else None
    if first is not None and words[first].text in _NPM_RUNS:
        wrapped = words[first].text in ("exec", "x") and any(word.text.startswith(("-c", "--call")) for word in words)
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


_NPM_RUNS = frozenset(
    "exec x explore init create innit edit config set c publish unpublish login adduser token access link ln rebuild restart-all "
    "install-scripts docs repo bugs home".split()
)


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
        elif (
            word.text.lstrip().startswith(".")
            and index > 1
            or re.search(r"(?i)load_extension|writefile|edit\(|readfile|attach|\.shell|\.system", word.text)
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


def _shell_script(words: list[Word]) -> list[Offence]:
    """A shell whose program is a file: only a rule that spells the file covers it."""
    parsed = parse(words, 1, Grammar("O:o:", "rcfile= init-file="), first=True)
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


_SPECIAL = {
    "git": git.offences,
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
