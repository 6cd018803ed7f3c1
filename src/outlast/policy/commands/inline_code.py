"""Commands inside a program that an argument holds in another language: `python3 -c 'os.system("rm -rf /")'`. Pure.

The program is not parsed. Its string literals are what it could run or remove, so policies that allow by default look
at those.
"""

from __future__ import annotations

import re

from outlast.policy.bash.words import Word, names, table
from outlast.policy.commands.interpreters import may_read_program
from outlast.policy.commands.nested import base

_LITERAL = re.compile(
    r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|`([^`]*)`|(?:\bq[qxw]?|%[xw])\s?[{(\[/|]([^})\]/|]*)[})\]/|]",
    re.DOTALL,
)
_REMOVES = re.compile(r"rmtree|unlink|remove|rmdir|rm_rf?|rmSync|rimraf|shutil\.move|truncate|chmod|rename")
_WRITTEN = re.compile(
    r"open\s*\(\s*['\"](/[^'\"]+)['\"]\s*,\s*(?:mode\s*=\s*)?['\"][wax]|File\w*\(\s*['\"](/[^'\"]+)['\"]\s*,|['\"](/[^'\"]+)['\"]\s*\)\.write_"
    r"|>\s*['\"]?(?:['\"],\s*['\"])?(/[\w./-]+)|\bw ?(/\S+)"
    r"|(?:copy\w*|rename|move|replace)\s*\([^,]*,\s*['\"](/[^'\"]+)"
)
_ALL_OF_HOME = re.compile(
    r"(?:rmtree|rmSync|rm_rf?|remove_tree)\s*\(?\s*[^,)]*(?:HOME['\"\])}]*|home\(\)|homedir\(\))\s*(?:[,);]|\Z)"
)
# sed's `e`, an editor's `!`, and options that take a command: `--checkpoint-action=exec=rm`.
_RUNS = re.compile(
    r"(?:\A|[;{0-9/$])e(?:[ \t]+|\\\n)([^\n;]+)|\A[:+]?[ \t]*!(.+)|exec=(.+)|\A\.(?:shell|system)\s+(.+)"
    r"|\b(?:spawn|exec) (.+)|\bs([/|,#])[^\n]*?\6([^\n]+?)\6\w*e|\b(?:EXEC|SYSTEM|exec|system):(.+)"
    r"|\Ascripts\.[^=]+=(.+)",
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
