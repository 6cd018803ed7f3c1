"""A snapshot: what a session remembers, as items and as the script that restores it.

Bash sources the script at top level to restore variables, functions, aliases, options, traps and the rest. Its
first line is a header with a checksum. Lines of `#` and a random word (the mark) separate its parts, so no value
can look like a separator. This module parses and composes snapshots; it opens no file.
"""

from __future__ import annotations

import os
from binascii import crc32

from outlast.light import frozen, json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping

    Key = tuple[str, bytes]
    State = dict[Key, bytes]

FORMAT = 1
OVERLAY = "__outlast_env_"  # prefix of a variable that only one command gets
DROPPED = "__outlast_drop"  # names of session variables that one command does not get
VARIABLE, FUNCTION, ALIAS, OPTION, SHOPT, TRAP, OTHER = "variable", "function", "alias", "option", "shopt", "trap", ""
UMASK, DIRECTORY, POSITIONAL, DIRS = (OTHER, b"umask"), (OTHER, b"directory"), (OTHER, b"positional"), (OTHER, b"dirs")

_HEAD = b"#outlast-session "
_IN_SCRIPT = (VARIABLE, FUNCTION, ALIAS)  # the other kinds are small and stand in the header
_CONVERTING = frozenset(b"iluc")  # attributes by which bash changes each value that is assigned: `declare -i`
# Variables that bash computes itself, or that belong to one command only.
_SKIPPED_VARIABLES = frozenset(
    b"BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT "
    b"BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_REMATCH BASH_SOURCE BASH_SUBSHELL "
    b"BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID "
    b"FUNCNAME GROUPS HISTCMD LINENO OUTLAST_SESSION OUTLAST_TASK_ID PIPESTATUS PPID PWD RANDOM SECONDS SHELLOPTS "
    b"SRANDOM UID _".split()
)
# Variables that a new bash sets by itself. The script unsets those that the state does not have.
SET_BY_BASH = frozenset(
    b"COLUMNS HOSTNAME HOSTTYPE IFS LINES MACHTYPE MAILCHECK OLDPWD OPTERR OPTIND OSTYPE PATH PS4 SHELL SHLVL "
    b"TERM".split()
)
_EXPORTED_BY_BASH = (b"OLDPWD", b"SHLVL")
_OPTIONS_OF_BASH = (b"braceexpand", b"hashall", b"interactive-comments")  # set in every new bash
_SKIPPED_FUNCTIONS = (b"builtin", b"unset")  # the code of session.bash could not work with them
# These would make the session unusable, or only mean something on a terminal.
SKIPPED_OPTIONS = frozenset((b"noexec", b"onecmd", b"privileged", b"restricted", b"monitor", b"history", b"notify"))
SKIPPED_SHOPTS = frozenset((b"login_shell", b"restricted_shell"))
# Set right before the command: otherwise they would trace, count or export what session.bash does.
_LATE_OPTIONS = (b"allexport", b"keyword", b"verbose", b"xtrace")
LATE_TRAPS = (b"DEBUG", b"ERR", b"RETURN")
# The dynamic loader needs them before bash reads a script.
_LOADER_VARIABLES = ((VARIABLE, b"LD_LIBRARY_PATH"), (VARIABLE, b"LD_PRELOAD"))

_CONTROL = bytes([*range(32), 127])
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"E": b"\x1b", b"f": b"\f", b"n": b"\n", b"r": b"\r"}
_ESCAPES |= {b"t": b"\t", b"v": b"\v"}


class DamagedSnapshot(ValueError):
    """A snapshot file is not what was written."""


@frozen
class Snapshot:
    """A snapshot file whose checksum is right."""

    generation: int
    task: str  # the tasks that its last merge took, separated by blanks
    mark: str
    first: bool  # made from the caller's environment; no bash has run in the session yet
    made: float
    environ: Mapping[str, str]  # what bash can pass on but not declare
    small: tuple[tuple[str, str, str], ...]
    script: bytes

    def state(self) -> State:
        """Parse its items."""
        state: State = {(kind, os.fsencode(name)): os.fsencode(value) for kind, name, value in self.small}
        for title, body in split_parts(self.script, self.mark):
            add_declarations(state, title, body)
        return state

    @property
    def directory(self) -> str:
        """Where the next command runs."""
        return next((value for kind, name, value in self.small if (kind, name) == ("", "directory")), "")


# --- parse -------------------------------------------------------------------------------


def parse(data: bytes) -> Snapshot:
    """Parse a snapshot file. Raises `DamagedSnapshot`."""
    head, _, script = data.partition(b"\n")
    if not head.startswith(_HEAD):
        raise DamagedSnapshot("it has no header")
    try:
        values = json.loads(head[len(_HEAD) :])
        if values.pop("format") > FORMAT:
            raise DamagedSnapshot("a newer version of Outlast wrote it")
        if values.pop("crc") != crc32(script):
            raise DamagedSnapshot("its checksum is wrong")
        values["small"] = tuple((str(kind), str(name), str(value)) for kind, name, value in values["small"])
        return Snapshot(script=script, **values)
    except DamagedSnapshot:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedSnapshot(f"its header makes no sense: {error}") from None


def split_parts(text: bytes, mark: str) -> list[tuple[bytes, bytes]]:
    """Split a script or a dump at its separators into titles and bodies."""
    pieces = text.split(b"\n#" + mark.encode() + b" ")[1:]
    return [(title, body) for title, _, body in (piece.partition(b"\n") for piece in pieces)]


def add_declarations(state: State, title: bytes, body: bytes) -> None:
    """Add the variables, aliases or the function of one part."""
    if title in (b"variables", b"variable"):
        # One by one, because a bash before 5.2 prints a value with a newline on two lines.
        for line in [body.removesuffix(b"\n")] if title == b"variable" else body.split(b"\n"):
            _add_variable(state, line.removeprefix(b"\\"))
    elif title == b"aliases":
        for line in filter(None, body.split(b"\n")):
            name = line.removeprefix(b"builtin alias -- ").removeprefix(b"$'").partition(b"=")[0]
            if (name := name.replace(b"\\", b"")) not in (b"{", b"}"):  # session.bash could not be parsed with them
                state[ALIAS, name] = line
    elif title.startswith(b"declare -f"):
        _, flags, name = title.split(b" ", 2)
        add_function(state, flags, name, body)


def _add_variable(state: State, line: bytes) -> None:
    if line.startswith(b"declare -"):
        name = line.split(b" ", 2)[2].partition(b"=")[0]
        if name not in _SKIPPED_VARIABLES and not name.startswith(b"__outlast"):
            state[VARIABLE, name] = line


def add_function(state: State, flags: bytes, name: bytes, body: bytes) -> None:
    """Add a function to a state, unless it is one of ours."""
    if not name.startswith(b"__outlast") and name not in _SKIPPED_FUNCTIONS and b"__outlast_" not in body:
        state[FUNCTION, name] = flags + b" " + body.rstrip(b"\n")


# --- compose -----------------------------------------------------------------------------


def compose(
    state: State, *, generation: int, task: str, made: float, environ: Mapping[str, str], first: bool = False
) -> bytes:
    """Return the snapshot file that restores `state`."""
    mark = os.urandom(8).hex()
    small = sorted(
        (kind, os.fsdecode(name), os.fsdecode(value))
        for (kind, name), value in state.items()
        if kind not in _IN_SCRIPT or _is_converted(kind, value)
    )
    # Names that bash passes on but cannot declare. Functions are items once a first bash has run.
    skipped = () if first else ("BASH_FUNC_",)
    undeclarable = {name: value for name, value in environ.items() if not (is_name(name) or name.startswith(skipped))}
    # Only what the caller gave: a library that a command names must not be loaded into the next bash.
    loader = exported_variables({key: state[key] for key in _LOADER_VARIABLES if key in state})
    loader = {name: value for name, value in loader.items() if environ.get(name) == value}
    script = _compose_script(state, mark.encode(), first)
    header = {
        "format": FORMAT,
        "generation": generation,
        "task": task,
        "mark": mark,
        "first": first,
        "made": made,
        "environ": {**undeclarable, **loader},
        "small": small,
        "crc": crc32(script),
    }
    return _HEAD + json.dumps(header).encode() + b"\n" + script


def _compose_script(state: State, mark: bytes, first: bool) -> bytes:
    separator = b"#" + mark + b" "
    items = sorted((key, value) for key, value in state.items() if key[0] in _IN_SCRIPT)
    converted = [value for (kind, _), value in items if _is_converted(kind, value)]
    posix = state.get((VARIABLE, b"POSIXLY_CORRECT"))
    elsewhere = {posix, *converted}
    lines = [b"__outlast_mark=" + mark, b"__outlast_shopts=(${BASHOPTS//:/ })", b"builtin shopt -s extglob"]
    if not first:
        # A new bash exports OLDPWD and SHLVL, and `declare -- SHLVL="2"` would not take that back.
        absent = [name for name in sorted(SET_BY_BASH) if (VARIABLE, name) not in state or name in _EXPORTED_BY_BASH]
        lines.append(b"builtin unset -v " + b" ".join(absent))
    lines.append(separator + b"variables")
    lines += [value for (kind, _), value in items if kind == VARIABLE and value not in elsewhere]
    lines.append(separator + b"converted")
    lines += [line for value in converted for line in _declare_in_two_steps(value)]
    lines.append(separator + b"aliases")
    lines += [value for (kind, _), value in items if kind == ALIAS]
    for (kind, name), value in items:
        if kind == FUNCTION:
            flags, _, body = value.partition(b" ")
            lines += [separator + b"declare " + flags + b" " + name, body]
    lines.append(separator + b"code")
    lines += _compose_code(state, first)
    if posix:  # the last one: from here on bash is in posix mode
        lines += [separator + b"variable", b"\\" + posix]
    lines += [separator + b"rest", b"__outlast_complete=1", b"__outlast_new=%d" % first, separator + b"end", b""]
    return b"\n".join(lines)


def _is_converted(kind: str, line: bytes) -> bool:
    return kind == VARIABLE and b"=" in line and not flags_of(line).isdisjoint(_CONVERTING)


def _declare_in_two_steps(line: bytes) -> tuple[bytes, bytes]:
    """Return how to restore a variable that got its attribute after its value: bash must not convert it again.

    `a=b-; declare -i a` leaves a value that `declare -i a="b-"` would refuse, which ends the shell.
    """
    _, flags, rest = line.split(b" ", 2)
    return b"declare -" + (flags.translate(None, b"-riluc") or b"-") + b" " + rest, (
        b"declare " + flags + b" " + rest.partition(b"=")[0]
    )


def _compose_code(state: State, first: bool) -> Iterator[bytes]:
    # The aliases are defined by now, and one of these lines turns expand_aliases on: the backslash prevents that
    # bash expands an alias named `builtin` (or `declare`, for POSIXLY_CORRECT).
    functions = sorted((name, value) for (kind, name), value in state.items() if kind == FUNCTION)
    for name, value in functions:
        if flags := value.split(b" ", 1)[0].lstrip(b"-f"):
            yield b"\\builtin declare -f" + flags + b" -- " + name
    if any(b"trap" in value and (b"exit" in value.lower() or b" 0" in value) for _, value in functions):
        yield b"__outlast_mentions=1"
    yield from _compose_options(state, first)
    yield from _compose_traps(state)
    if UMASK in state:
        yield b"\\builtin umask " + state[UMASK]
    if DIRS in state:
        yield b"__outlast_dirs " + state[DIRS]
    if POSITIONAL in state:
        yield b"\\builtin set -- " + state[POSITIONAL]


def _compose_options(state: State, first: bool) -> Iterator[bytes]:
    shopts = sorted(name for kind, name in state if kind == SHOPT)
    if not first:
        yield b'\\builtin shopt -u "${__outlast_shopts[@]}"'
        yield from (b"\\builtin set +o " + name for name in _OPTIONS_OF_BASH if (OPTION, name) not in state)
    if b"extglob" not in shopts:
        yield b"\\builtin shopt -u extglob"
    if shopts:
        yield b"\\builtin shopt -s " + b" ".join(shopts)
    for kind, name in sorted(state):
        if kind == OPTION and name not in _LATE_OPTIONS:
            yield b"\\builtin set -o " + name


def _compose_traps(state: State) -> Iterator[bytes]:
    late = [b"\\builtin set -o " + name for name in _LATE_OPTIONS if (OPTION, name) in state]
    for (kind, name), value in state.items():
        if kind == TRAP:
            line = b"\\builtin trap -- " + value + b" " + name
            if name in LATE_TRAPS:
                late.append(line)
                yield b"__outlast_pseudo[" + name + b"]=" + value
            else:
                yield line
    if late:
        yield b"__outlast_hot=" + quote_single(b"{ __outlast_hot=; " + b"; ".join(late) + b"; } 2>/dev/null; ")


def compose_first_state(environ: Mapping[str, str], cwd: str, umask: int) -> State:
    """Return the state of a bash that was started with these variables."""
    state: State = {(SHOPT, b"expand_aliases"): b"", UMASK: b"%04o" % umask, DIRECTORY: os.fsencode(cwd)}
    level = environ.get("SHLVL", "0")
    level = str(int(level) + 1 if level.isdecimal() else 1)
    for name, value in {**environ, "SHLVL": level}.items():
        plain = os.fsencode(name)
        if is_name(name) and plain not in _SKIPPED_VARIABLES:
            state[VARIABLE, plain] = b"declare -x " + plain + b"=" + quote(os.fsencode(value))
    for variable, kind, skipped in (("SHELLOPTS", OPTION, SKIPPED_OPTIONS), ("BASHOPTS", SHOPT, SKIPPED_SHOPTS)):
        for word in environ.get(variable, "").split(":"):
            if is_name(word.replace("-", "_")) and word.encode() not in skipped:
                state[kind, word.encode()] = b""
    return state


def exported_variables(state: State) -> dict[str, str]:
    """Return the variables that commands inherit."""
    found = {}
    for (kind, name), line in state.items():
        if kind == VARIABLE and b"x"[0] in flags_of(line) and (value := value_of(line)) is not None:
            found[os.fsdecode(name)] = os.fsdecode(value)
    return found


# --- quoting: as `declare -p` and `trap -p` print it -------------------------------------


def is_name(text: str) -> bool:
    """Return whether a variable of bash can have this name."""
    return text.isascii() and text.isidentifier()


def quote(value: bytes) -> bytes:
    """Quote a value as `declare -p` does: on one line, whatever it holds."""
    if value.translate(None, _CONTROL) == value:
        for special in (b"\\", b'"', b"$", b"`"):  # the backslash first
            value = value.replace(special, b"\\" + special)
        return b'"' + value + b'"'
    value = value.replace(b"\\", b"\\\\").replace(b"'", b"\\'")
    return b"$'" + b"".join(b"\\%03o" % one if one in _CONTROL else bytes((one,)) for one in value) + b"'"


def quote_single(text: bytes) -> bytes:
    """Quote a text for bash."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def flags_of(line: bytes) -> set[int]:
    """Return the attributes of a `declare` line."""
    return set(line.split(b" ", 2)[1].strip(b"-"))


def value_of(line: bytes) -> bytes | None:
    """Return the value that a `declare` line gives to a variable; None if it gives none, or an array."""
    import re  # most merges compare no values

    text = line.partition(b"=")[2]
    if text.startswith(b'"') and text.endswith(b'"'):
        return re.sub(rb'\\([\\"$`])', rb"\1", text[1:-1])
    if text.startswith(b"$'") and text.endswith(b"'"):
        return re.sub(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", _unescape, text[2:-1], flags=re.S)
    return None


def unquote_words(line: bytes) -> list[str]:
    """Return the words of a line that bash printed with `%q`, or with `trap -p`."""
    import re

    found = []
    for word in re.findall(rb"(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|\\.|[^\s'\\])+", line, re.S):
        text = value_of(b"=" + word) if word.startswith(b"$'") else None
        plain = re.sub(rb"'([^']*)'|\\(.)", lambda part: part[1] if part[2] is None else part[2], word, flags=re.S)
        found.append(os.fsdecode(plain if text is None else text))
    return found


def _unescape(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code[0] in b"01234567":
        return bytes((int(code, 8) & 255,))
    if code[:1] == b"x" and len(code) > 1:
        return bytes((int(code[1:], 16),))
    return _ESCAPES.get(code, code)
