"""Interpreters and editors: whether their program comes from the standard input."""

from __future__ import annotations

from outlast.permissions.getopt import Grammar, may_be_option, parse
from outlast.permissions.words import Word, names

_EDITORS = names("""
    vim vi view nvim ex gvim vimdiff rvim rview nano pico micro hx helix kak joe ne emacs emacsclient xemacs ed red
""")
_INTERPRETERS = _EDITORS | names("""
    python pypy node nodejs perl ruby jruby php lua luajit deno bun tsx Rscript R julia tclsh wish ghc runghc
    runhaskell osascript swift scala erl elixir iex groovy guile sbcl clisp racket octave gnuplot ipython ipython3 irb
    pry jjs jshell java kotlin kotlinc crystal nim dart ocaml coffee ts-node raku dc m4 bpython ptpython bc maxima gp
    sage spark-shell pyspark scheme chicken csi gsi janet fennel sqlplus mongosh mongo redis-cli ansible
    ansible-playbook cscript
""")
# Editors and calculators that read commands from their standard input, whatever file they are given.
_READS_COMMANDS = names("ed red ex vi vim view nvim rvim rview dc gnuplot mongosh mongo sqlplus")
_READS_STATEMENTS = names("sqlite3 mysql mariadb psql sqlplus redis-cli ftp lftp sftp telnet gdb lldb")
_OPTIONS = Grammar("c:m:e:E:r:p:f:W:X:I:F:l:", "eval= print= run= file= execute=")
_GIVEN = names("c m e E r p f eval print run file execute version help V h v i")  # a program, or none is needed


def module_of(words: list[Word]) -> int | None:
    """Where `python -m MODULE` names its module."""
    for index, word in enumerate(words[1:-1], 1):
        if word.text == "-m":
            return index + 1
        if not word.text.startswith("-"):
            return None
    return None


def may_read_program(name: str) -> bool:
    """Whether there is anything that makes a program take commands from its standard input."""
    return name in _READS_STATEMENTS or name in _INTERPRETERS or name.rstrip("0123456789.") in _INTERPRETERS


def reads_program(words: list[Word], name: str, fed: bool) -> bool:
    """Whether an interpreter takes its program from the standard input."""
    if fed and name in _READS_STATEMENTS:
        return True
    short = name if name in _INTERPRETERS else name.rstrip("0123456789.")
    if short not in _INTERPRETERS:
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
