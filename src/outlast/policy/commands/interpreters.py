"""Interpreters and editors: whether their program comes from the standard input."""

from __future__ import annotations

from outlast.policy.bash.words import Word, names
from outlast.policy.commands.catalog import all_names
from outlast.policy.commands.getopt import Grammar, may_be_option, parse

_EDITORS = names("""
    vim vi view nvim ex gvim vimdiff rvim rview nano pico micro hx helix kak joe ne emacs emacsclient xemacs ed red
""")
# Editors and calculators that read commands from their standard input, whatever file they are given.
_READS_COMMANDS = names("ed red ex vi vim view nvim rvim rview dc gnuplot mongosh mongo sqlplus")
_READS_STATEMENTS = names("sqlite3 mysql mariadb psql sqlplus redis-cli ftp lftp sftp telnet gdb lldb")
_OPTIONS = Grammar("c:m:e:E:r:p:f:W:X:I:F:l:", "eval= print= run= file= execute=")
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
