"""Interpreters and editors: code in options, code in files, code on the standard input."""

from __future__ import annotations

import re

from outlast.permissions.getopt import Grammar, may_be_option, parse
from outlast.permissions.words import Word, names


class Language:
    """`bad`: options that run or load code; `fine`: options that need no program at all."""

    __slots__ = ("bad", "fine", "grammar")

    def __init__(self, short: str, long: str, bad: str, fine: str = "V h v version help") -> None:
        self.grammar = Grammar(short, long)
        self.bad = frozenset(bad.split())
        self.fine = frozenset(fine.split())


_PYTHON = Language(
    "c:m:W:X:Q:", "check-hash-based-pycs=", "c m i", "V VV h version help help-env help-xoptions help-all ?"
)
_NODE = Language(
    "e:p:r:C:",
    "eval= print= require= import= loader= experimental-loader= env-file= conditions= input-type= title= run=",
    "e p r i eval print require import loader experimental-loader env-file env-file-if-exists interactive run "
    "test inspect inspect-brk "
    "openssl-config snapshot-blob build-snapshot experimental-default-type diagnostic-dir redirect-warnings "
    "report-directory icu-data-dir",
    "v h version help v8-options",
)
_PERL = Language("e:E:I:M:m:F:x::i::0::l::C::D:", "", "e E I M m i x n p d D s a F", "v V h ? version help")
_RUBY = Language(
    "e:r:I:C:E:F:W::x::i::0::S:",
    "require= encoding= external-encoding= internal-encoding=",
    "e r I C i x n p a S F s require",
    "v h version help copyright",
)
_PHP = Language(
    "c:d:f:r:B:R:F:E:S:t:z:",
    "php-ini= define= file= run= process-begin= process-code= process-file= process-end= server= docroot= "
    "zend-extension=",
    "c d f r B R F E S t z a php-ini define file run process-begin process-code process-file process-end "
    "server zend-extension interactive",
    "v i m h version info modules help ini",
)
_LUA = Language("e:l:", "", "e l i", "v")
_EDITOR = Language(
    "c:S:s:u:U:T:w:W:i:t:",
    "cmd= remote-send= remote-expr= startuptime= listen= server=",
    "c S s u U w W t q e E cmd remote-send remote-expr remote "
    "remote-silent startuptime servername listen server headless luamod",
    "version h help",
)
_EMACS = Language(
    "e:f:l:L:u:q",
    "eval= execute= funcall= load= directory= user= script= batch",
    "e f l L u eval execute funcall load directory script batch x insert init-directory",
    "version help",
)
_OTHER = Language(
    "e:c:f:l:r:",
    "eval= expression= file= load= require= command=",
    "e c f l r E i m p x eval expression file load require command execute",
)

_VISUAL = names("vim vi view nvim ex gvim vimdiff rvim rview nano pico micro hx helix kak joe ne")
_MORE = names("""
    deno bun tsx Rscript R julia tclsh wish ghc runghc runhaskell osascript swift scala erl elixir iex groovy
    guile sbcl clisp racket octave gnuplot ipython ipython3 irb pry jjs jshell java kotlin kotlinc crystal nim
    dart ocaml coffee ts-node raku dc ed red m4 bpython ptpython bc maxima gp sage spark-shell pyspark scheme
    chicken csi gsi janet fennel sqlplus mongosh mongo redis-cli ansible ansible-playbook cscript source .
""")
INTERPRETERS: dict[str, Language] = {
    "python": _PYTHON,
    "pypy": _PYTHON,
    "node": _NODE,
    "nodejs": _NODE,
    "perl": _PERL,
    "ruby": _RUBY,
    "jruby": _RUBY,
    "php": _PHP,
    "lua": _LUA,
    "luajit": _LUA,
    **dict.fromkeys(_VISUAL, _EDITOR),
    **dict.fromkeys(["emacs", "emacsclient", "xemacs"], _EMACS),
    **dict.fromkeys(_MORE, _OTHER),
}

# Editors and calculators that read commands from their standard input, whatever file they are given.
_READS_COMMANDS = names("ed red ex vi vim view nvim rvim rview dc gnuplot mongosh mongo sqlplus")
_READS_STATEMENTS = names("sqlite3 mysql mariadb psql sqlplus redis-cli ftp lftp sftp telnet gdb lldb")
_EDITORS = _VISUAL | names("emacs emacsclient xemacs ed red")


_PROGRAM = names("c m e E eval print p r run")  # options whose value is the program: what follows are its arguments


def module_of(words: list[Word]) -> int | None:
    """Where `python -m MODULE` names its module."""
    for index, word in enumerate(words[1:-1], 1):
        if word.text == "-m":
            return index + 1
        if not word.text.startswith("-"):
            return None
    return None


def interpreter_offences(words: list[Word], name: str) -> list[tuple[int, str, str]]:
    language = INTERPRETERS[name]
    parsed = parse(words, 1, language.grammar, first=True)
    end = parsed.operands[0] if parsed.operands else len(words)
    found = [(index, "", "it may be any option") for index in parsed.unsure if index <= end]
    for option in parsed.options:
        if option.name in language.bad or (option.written.startswith("--") and _abbreviates(option.name, language)):
            found.append((option.index, option.written, f"{option.written} runs or loads code"))
    if name in _EDITORS:
        found += [
            (index, word.text, "it gives a command") for index, word in enumerate(words) if word.text.startswith("+")
        ]
        found += [
            (index, word.text, "it gives a command")
            for index, word in enumerate(words[1:], 1)
            if re.match(r"-[cSsuU]|--cmd|--?e", word.text)
        ]
    elif parsed.operands and not any(option.name in _PROGRAM for option in parsed.options):
        word = words[end]
        found.append((end, word.text if word.static else "", "what is in the program is not known"))
    return found


def _abbreviates(name: str, language: Language) -> bool:
    return name not in language.fine and any(len(bad) > 1 and bad.startswith(name) for bad in language.bad)


def may_read_program(name: str) -> bool:
    """Whether there is anything that makes a program take commands from its standard input."""
    return name in _READS_STATEMENTS or name in INTERPRETERS or name.rstrip("0123456789.") in INTERPRETERS


def reads_program(words: list[Word], name: str, fed: bool) -> bool:
    """Whether an interpreter takes its program from the standard input."""
    if fed and name in _READS_STATEMENTS:
        return True
    short = name if name in INTERPRETERS else name.rstrip("0123456789.")
    if short not in INTERPRETERS or short in (".", "source"):
        return False
    if (short in _READS_COMMANDS and fed) or short in ("ed", "red", "dc"):
        return True
    if short in _EDITORS or short in ("java", "osascript"):
        return False
    language = INTERPRETERS[short]
    parsed = parse(words, 1, language.grammar, first=True)
    if parsed.operands and words[parsed.operands[0]].text != "-":
        return words[parsed.operands[0]].text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
    if any(may_be_option(word) for word in words[1:]):
        return False
    given = {option.name for option in parsed.options}
    return not given & (language.bad | language.fine)
