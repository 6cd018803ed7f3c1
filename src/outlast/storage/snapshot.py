"""What a session remembers, as items, and the text that brings it back.

A snapshot is a script: sourced at the top level of a bash it restores variables, functions,
aliases, options, traps and the rest. Its first line is a header with a checksum. Lines
that begin with `#` and a random word part it, so no value can look like a border.

Bash dumps its state in the same parts (`executors/local/session.bash`); here the dump becomes
items, two states become the difference between them, and items become a script again.
Everything in here is pure.
"""

from __future__ import annotations

import os
from binascii import crc32

from outlast.frozen import frozen
from outlast.light import json
from outlast.storage.quoting import consists_of, is_name, quoted, single, traps, value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Key = tuple[str, bytes]
    State = dict[Key, bytes]

FORMAT = 1
OVERLAY = "__outlast_env_"  # before the name of a variable that only one call has
DROPPED = "__outlast_drop"  # names that this call does not have
VARIABLE, FUNCTION, ALIAS, OPTION, SHOPT, TRAP, OTHER = "variable", "function", "alias", "option", "shopt", "trap", ""
UMASK, DIRECTORY, POSITIONAL, DIRS = (OTHER, b"umask"), (OTHER, b"directory"), (OTHER, b"positional"), (OTHER, b"dirs")

_HEAD = b"#outlast-session "
_IN_SCRIPT = (VARIABLE, FUNCTION, ALIAS)  # the rest is small and stands in the header
# What bash makes itself, and what belongs to one command only.
_NOT_KEPT = frozenset(
    b"BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT "
    b"BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_REMATCH BASH_SOURCE BASH_SUBSHELL "
    b"BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID "
    b"FUNCNAME GROUPS HISTCMD LINENO OUTLAST_SESSION OUTLAST_TASK_ID PIPESTATUS PPID PWD RANDOM SECONDS SHELLOPTS "
    b"SRANDOM UID _".split()
)
# What a new bash gives itself; unset unless the state has it.
AT_START = frozenset(
    b"COLUMNS HOSTNAME HOSTTYPE IFS LINES MACHTYPE MAILCHECK OLDPWD OPTERR OPTIND OSTYPE PATH PS4 SHELL SHLVL "
    b"TERM".split()
)
_FUNCTIONS_NOT_KEPT = (b"builtin", b"unset")  # ours could not work beside them
# These would lock the session out, or mean something to a terminal only.
_NEVER = frozenset((b"noexec", b"onecmd", b"privileged", b"restricted", b"monitor", b"history", b"notify"))
_NEVER_SHOPT = frozenset((b"login_shell", b"restricted_shell"))
_ON_AT_START = (b"braceexpand", b"hashall", b"interactive-comments")
# Set in the last moment: they would show, or count, what is ours.
_HOT = (b"allexport", b"keyword", b"verbose", b"xtrace")
_HOT_TRAPS = (b"DEBUG", b"ERR", b"RETURN")
_PSEUDO = (b"EXIT", b"SIGXFSZ")
_TO_BASH = ("LD_LIBRARY_PATH", "LD_PRELOAD")  # what the loader needs before any script can be read

_GIVEN = b""  # stands for a value that the command has changed; equals no declaration
_WORD = b"abcdefghijklmnopqrstuvwxyz0123456789_-"  # of an option's name


class Damaged(ValueError):
    """A snapshot that is not what was written."""


@frozen
class Snapshot:
    """A snapshot that was found whole."""

    generation: int
    task: str
    mark: str
    first: bool
    made: float
    environ: Mapping[str, str]
    small: tuple[tuple[str, str, str], ...]
    script: bytes

    def state(self) -> State:
        """Its items."""
        state: State = {(kind, os.fsencode(name)): os.fsencode(value) for kind, name, value in self.small}
        for title, body in _parts(self.script, self.mark.encode()):
            _take_script(state, title, body)
        return state

    @property
    def directory(self) -> str:
        """Where the next command runs."""
        return next((value for kind, name, value in self.small if (kind, name) == ("", "directory")), "")


@frozen
class Dump:
    """What bash told of its state."""

    state: Any
    returned: bool  # the command came to its end; otherwise it left by `exit`, or because of `set -e`
    complete: bool  # the state before it was restored to its end
    hidden: Any  # names that are local in the functions which it left from
    in_function: bool
    given: Any  # names of variables that the caller gave to this command only, and that the command changed
    dropped: Any  # names whose value in the session this command neither had nor changed


# --- reading -----------------------------------------------------------------------------


def read(data: bytes) -> Snapshot:
    """A snapshot from its file; `Damaged` if it is not whole."""
    head, _, script = data.partition(b"\n")
    try:
        if not head.startswith(_HEAD):
            raise Damaged("it has no header")
        values = json.loads(head[len(_HEAD) :])
        if values.pop("format") > FORMAT:
            raise Damaged("a newer version of Outlast wrote it")
        if values.pop("crc") != crc32(script):
            raise Damaged("its checksum is wrong")
        values["small"] = tuple((str(kind), str(name), str(value)) for kind, name, value in values["small"])
        return Snapshot(script=script, **values)
    except Damaged:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"its header makes no sense: {error}") from None


def dumped(data: bytes, mark: str, before: State | None = None) -> Dump | None:
    """What bash wrote, or None if it did not come to the end of it.

    Functions that it only named are as they were `before`.
    """
    parts = _parts(b"\n" + data, mark.encode())
    if not mark or not parts or not parts[-1][0].startswith(b"end "):
        return None
    state: State = {}
    said: dict[bytes, bytes] = {}
    bodies: dict[bytes, bytes] = {}
    hidden: set[bytes] = set()
    for title, body in parts:
        kind, _, rest = title.partition(b" ")
        if kind in (b"options", b"shopts", b"traps", b"umask", b"directory", b"positional", b"dirs"):
            _take_small(state, kind, rest, body)
        elif kind in (b"stack", b"end", b"given", b"unchanged", b"dropped"):
            said[kind] = rest
        elif kind == b"locals":
            hidden.update(
                line.split(b" ", 2)[2].partition(b"=")[0] for line in body.split(b"\n") if line[:7] == b"declare"
            )
        elif kind == b"functions":
            said[kind] = body
        elif kind == b"function":
            bodies[rest] = body
        else:
            _take_script(state, title, body)
    _take_functions(state, said.get(b"functions", b""), bodies, before or {})
    unchanged = said.get(b"unchanged", b"").split()
    for name in unchanged:
        state.pop((VARIABLE, name), None)  # the shell hides its value: it may be secret
    left = [name for name in said.get(b"stack", b"").split() if (FUNCTION, name) in state]
    how = said[b"end"].split()
    return Dump(
        state=state,
        returned=how[:1] == [b"end"],
        complete=how[1:] == [b"1"],
        hidden=hidden.union(*(locals_of(state[FUNCTION, function]) for function in left)),
        in_function=bool(left),
        given={*said.get(b"given", b"").split()}.difference(unchanged),
        dropped={*said.get(b"dropped", b"").split(), *unchanged},
    )


def _parts(text: bytes, mark: bytes) -> list[tuple[bytes, bytes]]:
    pieces = text.split(b"\n#" + mark + b" ")[1:]
    return [(title, body) for title, _, body in (piece.partition(b"\n") for piece in pieces)]


def _take_script(state: State, title: bytes, body: bytes) -> None:
    if title == b"variables":
        for line in body.split(b"\n"):
            _take_variable(state, line)
    elif title == b"variable":
        _take_variable(state, body.removesuffix(b"\n"))
    elif title == b"aliases":
        for line in body.split(b"\n"):
            if line:
                state[ALIAS, line.removeprefix(b"builtin alias -- ").partition(b"=")[0]] = line
    elif title.startswith(b"declare -f"):
        _take_function(state, title, body)


def _take_variable(state: State, line: bytes) -> None:
    line = line.removeprefix(b"\\")
    if not line.startswith(b"declare -"):
        return
    name = line.split(b" ", 2)[2].partition(b"=")[0]
    if name not in _NOT_KEPT and not name.startswith(b"__outlast"):
        state[VARIABLE, name] = line


def _take_function(state: State, title: bytes, body: bytes) -> None:
    _, flags, name = title.split(b" ", 2)
    if not name.startswith(b"__outlast") and name not in _FUNCTIONS_NOT_KEPT and b"__outlast_" not in body:
        state[FUNCTION, name] = flags + b" " + body.rstrip(b"\n")


def _take_functions(state: State, listed: bytes, bodies: dict[bytes, bytes], before: State) -> None:
    for line in listed.split(b"\n"):
        if not line.startswith(b"declare -f"):
            continue
        _, flags, name = line.split(b" ", 2)
        if name in bodies:
            _take_function(state, line, bodies[name])
        elif (known := before.get((FUNCTION, name))) is not None:
            state[FUNCTION, name] = flags + b" " + known.partition(b" ")[2]


def _take_small(state: State, kind: bytes, rest: bytes, body: bytes) -> None:
    if kind == b"options":
        state.update({(OPTION, name): b"" for name in rest.split(b":") if name and name not in _NEVER})
    elif kind == b"shopts":
        state.update({(SHOPT, name): b"" for name in rest.split(b":") if name and name not in _NEVER_SHOPT})
    elif kind == b"traps":
        for action, signal in traps(body):
            # An empty one is how `trap - ERR` has to be done inside of a function.
            if signal not in _PSEUDO and not (signal in _HOT_TRAPS and action == b"''"):
                state[TRAP, signal] = action
    elif kind == b"directory" and body:
        state[DIRECTORY] = body.removesuffix(b"\n")  # exactly: it may end with one of its own
    elif words := body.strip(b"\n").removeprefix(b" "):
        state[OTHER, kind] = words  # a last blank may be part of one


def locals_of(function: bytes) -> set[bytes]:
    """Names that a function declares for itself."""
    import re  # only for a command that left from inside of a function

    plain = re.sub(rb"'[^']*'|\"(?:\\.|[^\"\\])*\"|\$'(?:\\.|[^'\\])*'", b"", function, flags=re.S)
    found: set[bytes] = set()
    for statement in re.findall(rb"(?:^|[\s;({&|])(?:local|declare|typeset)((?:[ \t]+[^\s;|&]+)+)", plain):
        if not re.search(rb"[ \t]-[A-Za-z]*g", statement):
            found.update(re.findall(rb"[ \t]([A-Za-z_][A-Za-z0-9_]*)(?=[=+\[\s]|$)", statement))
    return found


# --- merging -----------------------------------------------------------------------------


def settled(start: State, dump: Dump) -> State:
    """The state after a command, without what only seemed to be part of it."""
    state: State = dict(dump.state)
    doubtful: set[Key] = {(VARIABLE, name) for name in dump.hidden}
    if dump.in_function:
        # The words and these traps were the function's own.
        doubtful |= {POSITIONAL, *((TRAP, signal) for signal in _HOT_TRAPS)}
    if not dump.returned:
        # One that ends the shell would end every command after it.
        doubtful.add((TRAP, b"DEBUG"))
    for key in doubtful:
        state.pop(key, None)
        if key in start:
            state[key] = start[key]
    if not dump.complete:
        # What was not brought back was not removed by the command.
        state = {**start, **state}
    return state


def laid_over(start: State, dump: Dump, cwd: str) -> State:
    """The state that a command began with: that of its session, and what only this call has.

    The dump does not have the values that the caller gave, which may be secret. The shell compares them.
    """
    state = {**start, **{(VARIABLE, name): _GIVEN for name in dump.given}, DIRECTORY: os.fsencode(cwd)}
    for name in dump.dropped:
        state.pop((VARIABLE, name), None)
    return state


def grounded(current: State, start: State) -> State:
    """A first state together with what a bash begins with by itself, as `start` has it."""
    own = {key: value for key, value in start.items() if key[0] in (OPTION, SHOPT) or key[1] in AT_START}
    return {**own, **current}


def merged(current: State, start: State, end: State) -> State:
    """`current` with what changed between `start` and `end`."""
    state = dict(current)
    for key in start.keys() | end.keys():
        before, after = start.get(key), end.get(key)
        if before == after or _means_the_same(key, before, after):
            continue
        if after is None:
            state.pop(key, None)
        else:
            state[key] = after
    return state


def _means_the_same(key: Key, before: bytes | None, after: bytes | None) -> bool:
    """Whether two texts declare the same: our quotes and bash's may differ."""
    if key[0] != VARIABLE or before is None or after is None:
        return False
    one, other = value_of(before), value_of(after)
    return one is not None and one == other and _flags(before) == _flags(after)


def _flags(line: bytes) -> set[int]:
    return set(line.split(b" ", 2)[1].strip(b"-"))


# --- writing -----------------------------------------------------------------------------


def compose(
    state: State, *, generation: int, task: str, made: float, environ: Mapping[str, str], first: bool = False
) -> bytes:
    """The file that restores `state`."""
    mark = os.urandom(8).hex()
    small = sorted(
        (kind, os.fsdecode(name), os.fsdecode(value)) for (kind, name), value in state.items() if kind not in _IN_SCRIPT
    )
    script = _script(state, mark.encode(), first)
    header = {
        "format": FORMAT,
        "generation": generation,
        "task": task,
        "mark": mark,
        "first": first,
        "made": made,
        "environ": {**_odd(environ, first), **_for_the_loader(state)},
        "small": small,
        "crc": crc32(script),
    }
    return _HEAD + json.dumps(header).encode() + b"\n" + script


def again(found: Snapshot) -> bytes:
    """The same state under a mark of its own, so that nobody takes it for the other."""
    return compose(
        found.state(),
        generation=found.generation,
        task=found.task,
        made=found.made,
        environ=found.environ,
        first=found.first,
    )


def _odd(environ: Mapping[str, str], first: bool) -> dict[str, str]:
    """Names that bash passes on and cannot declare. Functions among them become the state's own at once."""
    odd = {name: value for name, value in environ.items() if not is_name(name)}
    return odd if first else {name: value for name, value in odd.items() if not name.startswith("BASH_FUNC_")}


def _for_the_loader(state: State) -> dict[str, str]:
    found = exported(state)
    return {name: found[name] for name in _TO_BASH if name in found}


def _script(state: State, mark: bytes, first: bool) -> bytes:
    border = b"\n#" + mark + b" "
    named = sorted((key, value) for key, value in state.items() if key[0] in _IN_SCRIPT)
    posix = state.get((VARIABLE, b"POSIXLY_CORRECT"))
    lines = [b"__outlast_mark=" + mark, b"__outlast_shopts=(${BASHOPTS//:/ })", b"builtin shopt -s extglob"]
    if not first:
        gone = [name for name in sorted(AT_START) if (VARIABLE, name) not in state]
        lines.append(b"builtin unset -v " + b" ".join(gone) if gone else b":")
    lines.append(border[1:] + b"variables")
    lines += [value for (kind, name), value in named if kind == VARIABLE and value is not posix]
    lines.append(border[1:] + b"aliases")
    lines += [value for (kind, _), value in named if kind == ALIAS]
    for (kind, name), value in named:
        if kind == FUNCTION:
            flags, _, body = value.partition(b" ")
            lines += [border[1:] + b"declare " + flags + b" " + name, body]
    lines.append(border[1:] + b"code")
    lines += _code(state, named, first)
    if posix:
        lines += [border[1:] + b"variable", b"\\" + posix]
    lines += [border[1:] + b"rest", b"__outlast_complete=1", b"__outlast_new=%d" % first]
    return b"\n".join([*lines, border[1:] + b"end", b""])


def _code(state: State, named: Iterable[tuple[Key, bytes]], first: bool) -> Iterable[bytes]:
    # The aliases are defined by now, and one of these lines turns expand_aliases on: a backslash keeps an alias
    # named `builtin` (or `declare`, below) out of ours.
    for (kind, name), value in named:
        flags = value.split(b" ", 1)[0].lstrip(b"-f")
        if kind == FUNCTION and flags:
            yield b"\\builtin declare -f" + flags + b" -- " + name
    if any(kind == FUNCTION and mentions_exit_trap(value) for (kind, _), value in named):
        yield b"__outlast_mentions=1"
    yield from _option_lines(state, first)
    yield from _trap_lines(state)
    if UMASK in state:
        yield b"\\builtin umask " + state[UMASK]
    if DIRS in state:
        yield b"__outlast_dirs " + state[DIRS]
    if POSITIONAL in state:
        yield b"\\builtin set -- " + state[POSITIONAL]


def _trap_lines(state: State) -> Iterable[bytes]:
    hot = [b"builtin set -o " + name for name in _HOT if (OPTION, name) in state]
    for (kind, name), value in state.items():
        if kind == TRAP:
            line = b"builtin trap -- " + value + b" " + name
            if name in _HOT_TRAPS:
                hot.append(line)
                yield b"__outlast_pseudo[" + name + b"]=" + value
            else:
                yield b"\\" + line
    if hot:
        prefix = b"{ __outlast_hot=; " + b"; ".join(b"\\" + line for line in hot) + b"; } 2>/dev/null; "
        yield b"__outlast_hot=" + single(prefix)


def _option_lines(state: State, first: bool) -> Iterable[bytes]:
    on = sorted(name for kind, name in state if kind == SHOPT)
    if not first:
        yield b'\\builtin shopt -u "${__outlast_shopts[@]}"'
        yield from (b"\\builtin set +o " + name for name in _ON_AT_START if (OPTION, name) not in state)
    if b"extglob" not in on:
        yield b"\\builtin shopt -u extglob"
    if on:
        yield b"\\builtin shopt -s " + b" ".join(on)
    for kind, name in sorted(state):
        if kind == OPTION and name not in _HOT:
            yield b"\\builtin set -o " + name


def mentions_exit_trap(text: bytes) -> bool:
    if b"trap" not in text or b"exit" in text.lower():
        return b"trap" in text
    import re

    return re.search(rb"trap.*\s0", text) is not None


# --- the first state of a session, and the one of a shell that is not bash ---------------------


def beginning(environ: Mapping[str, str], cwd: str, umask: int) -> State:
    """The state of a bash that was started with these variables."""
    state: State = {(SHOPT, b"expand_aliases"): b"", UMASK: b"%04o" % umask, DIRECTORY: os.fsencode(cwd)}
    for name, value in environ.items():
        plain = os.fsencode(name)
        if is_name(name) and plain not in _NOT_KEPT:
            state[VARIABLE, plain] = _exported(plain, os.fsencode(value))
    level = environ.get("SHLVL", "0")
    state[VARIABLE, b"SHLVL"] = _exported(b"SHLVL", b"%d" % (int(level) + 1 if level.isdecimal() else 1))
    for variable, kind, never in (("SHELLOPTS", OPTION, _NEVER), ("BASHOPTS", SHOPT, _NEVER_SHOPT)):
        for word in os.fsencode(environ.get(variable, "")).split(b":"):
            if consists_of(word, _WORD) and word not in never:
                state[kind, word] = b""
    return state


def exported(state: State) -> dict[str, str]:
    """The variables that the state's commands get."""
    found = {}
    for (kind, name), line in state.items():
        if kind == VARIABLE and 120 in _flags(line) and (value := value_of(line)) is not None:
            found[os.fsdecode(name)] = os.fsdecode(value)
    return found


def _exported(name: bytes, value: bytes) -> bytes:
    return b"declare -x " + name + b"=" + quoted(value)
