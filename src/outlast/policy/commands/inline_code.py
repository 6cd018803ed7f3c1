"""Interpreters and editors: where their program comes from, and which commands it holds. Pure.

The program is not parsed. Its string literals are what it could run or remove, so policies that allow by default look
at those.
"""

from __future__ import annotations

import re

from outlast.policy.bash.words import Word, names, table
from outlast.policy.commands.catalog import all_names
from outlast.policy.commands.getopt import grammar, may_be_option, parse
from outlast.policy.commands.nested import base

_EDITORS = names("""
    vim vi view nvim ex gvim vimdiff rvim rview nano pico micro hx helix kak joe ne emacs emacsclient xemacs ed red
""")
# Editors and calculators that read commands from their standard input, whatever file they are given.
_READS_COMMANDS = names("ed red ex vi vim view nvim rvim rview dc gnuplot mongosh mongo sqlplus")
_READS_STATEMENTS = names("sqlite3 mysql mariadb psql sqlplus redis-cli ftp lftp sftp telnet gdb lldb")
_OPTIONS = grammar("-c:m:e:E:r:p:f:W:X:I:F:l: eval= print= run= file= execute=")
_GIVEN = names("c m e E r p f eval print run file execute version help V h v i")  # a program, or none is needed


def may_read_program(name: str) -> bool:
    """Whether there is anything that makes a program take commands from its standard input."""
    return name in _READS_STATEMENTS or _interpreter(name) != ""


def _interpreter(name: str) -> str:
    """The name without its version, if it is that of an interpreter or an editor."""
    known = all_names()
    short = name if name in known else name.rstrip("0123456789.")
    return short if short == "bun" or known.get(short) in ("perl", "python", "node") else ""


def reads_program(words: list[Word], name: str, fed: bool) -> bool:
    """Whether an interpreter takes its program from the standard input."""
    if fed and name in _READS_STATEMENTS:
        return True
    short = _interpreter(name)
    if not short or short in (".", "source"):
        return False
    if (short in _READS_COMMANDS and fed) or short in ("ed", "red", "dc"):
        return True
    if short in _EDITORS or short in ("java", "osascript"):
        return False
    parsed = parse(words, 1, _OPTIONS, first=True)
    if parsed.operands and words[parsed.operands[0]].text != "-":
        return words[parsed.operands[0]].text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
    if any(may_be_option(word) for word in words[1:]):
        return False
    return not {option.name for option in parsed.options} & _GIVEN


# --- commands inside a program, like `python3 -c 'os.system("rm -rf /")'` -----------------

_LITERAL = re.compile(
    r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|`([^`]*)`|(?:\bq[qxw]?|%[xw])\s?[{(\[/|]([^})\]/|]*)[})\]/|]",
    re.DOTALL,
)
_REMOVES = re.compile(r"rmtree|unlink|remove|rmdir|rm_rf?|rmSync|rimraf|shutil\.move|truncate|chmod|rename")
_WRITTEN = re.compile(
    r"open\s*\(\s*['\"](/[^'\"]+)['\"]\s*,\s*(?:mode\s*=\s*)?['\"][wax]|File\w*\(\s*['\"](/[^'\"]+)['\"]\s*,|['\"](/[^'\"]+)['\"]\s*\)\.write_"
    r"|>\s*['\"]?(?:['\"],\s*['\"])?(/[\w./-]+)|\bw ?(/\S+)"
    r"|(?:copy\w*|rename|move|replace)\s*\([^,(]*,\s*['\"](/[^'\"]+)"
)
_ALL_OF_HOME = re.compile(
    r"(?:rmtree|rmSync|rmdirSync|rm_rf?|remove_tree)\s*\(?\s*[^,;\n]{0,80}?"
    r"(?:HOME['\"\])}]*|home\(\)|homedir\(\)|Dir\.home)\s*(?:[,);]|\Z)"
)
# sed's `e`, an editor's `!`, and options that take a command: `--checkpoint-action=exec=rm`.
_RUNS = re.compile(
    r"(?:\A|[;{0-9/$])e(?:[ \t]+|\\\n)([^\n;]+)|\A[:+]?[ \t]*!(.+)|exec=(.+)|\A\.(?:shell|system)\s+(.+)"
    r"|\b(?:spawn|exec) (.+)|\bs([/|,#])(?:\\.|(?!\6)[^\\\n])*+\6((?:\\.|(?!\6)[^\\\n])++)\6\w*e"
    r"|\b(?:EXEC|SYSTEM|exec|system):(.+)|\Ascripts\.[^=]+=(.+)",
    re.DOTALL,
)
_CALLS = re.compile(r"(?:\brun|call|Popen|check_output|exec\w*|spawn\w*|system)\s*\(?\s*\[?(.*)", re.DOTALL)
_COMMAND_OPTIONS = table("""
    tar gtar bsdtar: -I --use-compress-program --to-command -F --info-script --new-volume-script --rsh-command
    rsync: -e --rsh --rsync-path; sort: --compress-program; split: --filter; zip: -TT --unzip-command
    rg: --pre --hostname-bin; make gmake: --eval -E; scp sftp: -S; man: -P --pager; bat batcat delta ag ack: --pager
    git: --upload-pack --receive-pack --exec -O --open-files-in-pager --smtp-server --sendmail-cmd -u
    pip pip3: --editor --python; npm: --script-shell; go: -exec -toolexec -vettool; cargo: --config; ansible: -a
    apt apt-get: -o; gcc g++ cc c++ clang clang++: -wrapper; rustc: -C; rustdoc: --test-runtool; just: --command --shell
    gdb lldb: -ex --eval-command -iex -o; psql mysql mariadb: -c -e; vim vi nvim ex view less more: -c --cmd
""")  # whose values are commands
# `key="command"`, `shell command`, `:!command`.
_BEFORE_COMMAND = re.compile(r"""[^ ]*=["']?|:?!|\\!|(?:shell|system)\s+""")
PROGRAMS = names("awk gawk mawk nawk sed gsed")
_TAKES_COMMANDS = names("git tar gtar bsdtar socat less more npm pnpm")
_MOST = 32


def inline_commands(words: list[Word], bodies: list[str]) -> list[str]:
    """The texts in the arguments and the input of a command that may be command lines."""
    name = base(words[0].text)
    is_program = may_read_program(name) or name in PROGRAMS
    found = _values(words, _COMMAND_OPTIONS.get(name, frozenset()))
    for text in [*(word.text for word in words[1:]), *(bodies if is_program else ())]:
        if is_program:
            literals = _literals(text)
            found += [one for one in (*literals, "".join(literals)) if " " in one]
            if call := _CALLS.search(text):
                found.append(" ".join(_literals(call[1])))
            if _REMOVES.search(text):
                found += [f"rm -rf {one}" for one in literals if re.fullmatch(r"[/~][\w./*~-]*", one)]
            found += [f"rm -rf {one}" for one in re.findall(r"unlink\s*(?:glob\s*)?<([^>\n]+)>", text)]
            if _ALL_OF_HOME.search(text):
                found.append("rm -rf ~")
            found += [f"tee {path}" for match in _WRITTEN.finditer(text) for path in match.groups() if path]
        if (is_program or name in _TAKES_COMMANDS) and (run := _RUNS.search(text)):
            found += [one for one in run.groups() if one and len(one) > 1]
    return found[:_MOST]


def _values(words: list[Word], options: frozenset[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(words if options else ()):
        name, attached, value = word.text.partition("=")
        if word.text[:2] in options and len(word.text) > 2:
            attached, value, name = "=", word.text[2:], word.text[:2]
        if name in options:
            value = value if attached else next((one.text for one in words[index + 1 : index + 2]), "")
            found += [value, _BEFORE_COMMAND.sub("", value).rstrip("\"'").replace(",", " ")]
    return found


def _literals(text: str) -> list[str]:
    return [next((one for one in match.groups() if one), "") for match in _LITERAL.finditer(text)]
