"""The dump that bash writes after a command, and what the command changed.

`parse_dump` reads the dump, `apply_dump` applies what the command changed to the state that its session has by then.
A command can write its dump itself. So only declarations with literal values, quoted as bash quotes them, are taken
from it, and restoring them runs nothing. This module opens no file.
"""

from __future__ import annotations

import os

from outlast.light import frozen
from outlast.storage import functions, snapshot
from outlast.storage.snapshot import ALIAS, FUNCTION, OPTION, SHOPT, TRAP, VARIABLE, value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outlast.storage.snapshot import Key, State

_SKIPPED_TRAPS = (b"EXIT", b"SIGXFSZ")
_CHANGED_BY_BASH = (b"OLDPWD", b"SHLVL")
_UNKNOWN = b""  # the value of a variable that only the command had; equals no declaration


@frozen
class Dump:
    """The state that bash wrote after a command."""

    state: State
    complete: bool  # the state before it was restored completely
    undone: set[Key]  # what stays as it was before
    given: list[Key]  # variables that only this command got
    dropped: list[Key]  # variables that this command did not change: it did not have them, or had others of that name


def parse_dump(data: bytes, mark: str, before: State | None = None) -> Dump | None:
    """Parse what bash wrote; None if it did not write all of it.

    Bash only names functions that it restored from the snapshot. `before` is the state with their text.
    """
    parts = snapshot.split_parts(b"\n" + data, mark)
    if not mark or not parts or not parts[-1][0].startswith(b"end "):
        return None
    state: State = {}
    words: dict[bytes, list[bytes]] = {}
    bodies: dict[bytes, bytes] = {}
    listed, hidden = b"", set()
    for title, body in parts:
        kind, _, rest = title.partition(b" ")
        if kind in (b"stack", b"end", b"given", b"unchanged", b"dropped"):
            words[kind] = rest.split()
        elif kind == b"functions":
            listed = body
        elif kind == b"function":
            bodies[rest] = body
        elif kind == b"locals":
            hidden = {line.split(b" ", 2)[2].partition(b"=")[0] for line in _declare_lines(body)}
        elif kind in (b"variables", b"variable", b"aliases"):
            snapshot.add_declarations(state, title, body)
        else:
            _add_small(state, kind, rest, body)
    state = {key: line for key, value in state.items() if (line := _literal(key, value)) is not None}
    _add_functions(state, listed, bodies, before or {})
    variables = {kind: [(VARIABLE, name) for name in names] for kind, names in words.items()}
    for key in (unchanged := variables.get(b"unchanged", [])):
        state.pop(key, None)  # bash hides its value, which may be secret
    return Dump(
        state=state,
        complete=words[b"end"][1:] == [b"1"],
        undone=_find_undone(state, words, hidden),
        given=variables.get(b"given", []),
        dropped=variables.get(b"dropped", []) + unchanged,
    )


def _find_undone(state: State, words: Mapping[bytes, list[bytes]], hidden: set[bytes]) -> set[Key]:
    """Return what was not really part of the state: it belonged to the functions that the command left from."""
    left = [name for name in words.get(b"stack", []) if (FUNCTION, name) in state]
    undone = {(VARIABLE, name) for name in hidden.union(*(find_local_names(state[FUNCTION, name]) for name in left))}
    if left:
        undone |= {snapshot.POSITIONAL, *((TRAP, signal) for signal in snapshot.LATE_TRAPS)}
    if words[b"end"][:1] != [b"end"]:
        # It left by `exit`, or because of `set -e`: a DEBUG trap that did it would end every later shell.
        undone.add((TRAP, b"DEBUG"))
    return undone


def _declare_lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.startswith(b"declare -")]


_DOUBLE = r'"(?:[^"\\$`]|\\[\\"$`])*+"'
_ANSI = r"\$'(?:[^'\\]|\\.)*+'"
_VALUE = rf"(?:{_DOUBLE}|{_ANSI})"
_PLAIN = r"[A-Za-z0-9_./:,+@%^=\x80-\xff-]"
_KEY = rf"(?:{_PLAIN}(?:{_PLAIN}|[~#])*+|{_VALUE})"
_QUOTED_WORD = rf"(?:''|{_ANSI}|(?:{_PLAIN}|\\[^\n])(?:{_PLAIN}|[~#]|\\[^\n])*+)"
_NAME = r"(?!__outlast)[A-Za-z_][A-Za-z0-9_]*"
_ACTION = r"(?:'[^']*+'|\\')++"


def _array(key: str, value: str) -> str:
    return rf"\((?:\[{key}\]={value}(?: \[{key}\]={value})*+)? ?\)"


# What `declare -p`, `printf %q`, `trap -p` and `umask` print, and nothing else.
_FORMS = {
    # bash evaluates a list that is assigned to an array as one text, so no array has such a value.
    VARIABLE: rf"declare -[-cilnrtux]+ {_NAME}(?:={_VALUE})?"
    rf"|declare -[acilnrtux]+ {_NAME}(?:={_array('[0-9]+', _VALUE)})?"
    rf"|declare -[Acilnrtux]+ {_NAME}(?:={_array(_KEY, _VALUE)})?",
    ALIAS: rf"builtin alias -- (?!\$'[^=]*\\){_QUOTED_WORD}",
    TRAP: _ACTION,
    b"umask": "[0-7]{3,4}",
    b"positional": rf"{_QUOTED_WORD}(?: {_QUOTED_WORD})*+",
    b"dirs": rf"{_QUOTED_WORD}(?: {_QUOTED_WORD})*+",
}
_INTEGER = '"-?[0-9]*"'
_INTEGERS = rf"\w+(?:=(?:{_INTEGER}|{_array(_KEY, _INTEGER)}))?"
_REFERENCE = rf'\w+(?:="{_NAME}(?:\[[0-9]+\])?")?'


def _literal(key: Key, line: bytes) -> bytes | None:
    """Return a declaration that runs nothing while it is restored; None if there is none."""
    import re  # only where a command has ended

    kind, name = key
    form = _FORMS.get(kind or name)
    if form is None:
        return line if kind not in (OPTION, SHOPT) or re.fullmatch(rb"[a-z0-9_-]+", name) else None
    if not re.fullmatch(form.encode("latin-1"), line, re.S):
        return None
    if kind == VARIABLE:
        declare, attributes, rest = line.split(b" ", 2)
        # An integer's value is evaluated when it is assigned, and a reference when it is used.
        if b"i" in attributes and not re.fullmatch(_INTEGERS.encode("latin-1"), rest):
            return b" ".join((declare, attributes.replace(b"i", b"") if len(attributes) > 2 else b"--", rest))
        if b"n" in attributes and not re.fullmatch(_REFERENCE.encode(), rest):
            return None
    return line


def _add_functions(state: State, listed: bytes, bodies: Mapping[bytes, bytes], before: State) -> None:
    import re

    bodies = functions.reprint(bodies) if bodies else {}
    for line in _declare_lines(listed):
        _, flags, name = line.split(b" ", 2)
        if not re.fullmatch(rb"-f[rtx]*", flags) or re.search(rb"[\s$`'\"\\;&|<>(){}*?\[\]~#!=]", name):
            continue
        if name in bodies:
            snapshot.add_function(state, flags, name, bodies[name])
        elif (known := before.get((FUNCTION, name))) is not None:
            state[FUNCTION, name] = flags + b" " + known.partition(b" ")[2]


def _add_small(state: State, kind: bytes, rest: bytes, body: bytes) -> None:
    if kind == b"options":
        state.update(
            {(OPTION, name): b"" for name in rest.split(b":") if name and name not in snapshot.SKIPPED_OPTIONS}
        )
    elif kind == b"shopts":
        state.update({(SHOPT, name): b"" for name in rest.split(b":") if name and name not in snapshot.SKIPPED_SHOPTS})
    elif kind == b"traps":
        for action, signal in parse_traps(body):
            # Inside a function `trap - ERR` has to be done with an empty action.
            if signal not in _SKIPPED_TRAPS and not (signal in snapshot.LATE_TRAPS and action == b"''"):
                state[TRAP, signal] = action
    elif kind == b"directory" and body:
        state[snapshot.DIRECTORY] = body.removesuffix(b"\n")  # only one: its name may end with a newline
    elif kind in (b"umask", b"positional", b"dirs") and (words := body.strip(b"\n").removeprefix(b" ")):
        state[snapshot.OTHER, kind] = words  # a blank at the end may belong to the last word


def find_local_names(function: bytes) -> set[bytes]:
    """Return the names that a function declares as its own. Bash cannot list those of a caller's caller."""
    import re  # only for a command that left from inside a function

    plain = re.sub(rb"'[^']*'|\"(?:\\.|[^\"\\])*\"|\$'(?:\\.|[^'\\])*'", b"", function, flags=re.S)
    found: set[bytes] = set()
    for statement in re.findall(rb"(?:^|[\s;({&|])(?:local|declare|typeset)((?:[ \t]+[^\s;|&]+)+)", plain):
        if not re.search(rb"[ \t]-[A-Za-z]*g", statement):
            found.update(re.findall(rb"[ \t]([A-Za-z_][A-Za-z0-9_]*)(?=[=+\[\s]|$)", statement))
    return found


def parse_traps(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each action, in its quotes, and its signal from the output of `trap -p`."""
    import re

    for found in re.finditer(rf"trap -- ({_ACTION}) ([A-Z0-9+-]+)\n".encode(), text):
        yield found[1], found[2]


# --- merge -------------------------------------------------------------------------------


def apply_dump(current: State, base: State, dump: Dump, cwd: str) -> State:
    """Return `current` with what a command changed that began with `base` in the directory `cwd`."""
    # The dump has no values that the caller gave, because they may be secret: the shell compares them itself.
    start = {**base, **dict.fromkeys(dump.given, _UNKNOWN), snapshot.DIRECTORY: os.fsencode(cwd)}
    for key in dump.dropped:
        start.pop(key, None)
    end = {key: value for key, value in dump.state.items() if key not in dump.undone}
    # The command did not remove what could not be restored before it.
    kept = {key: value for key, value in start.items() if not dump.complete or key in dump.undone}
    return apply_changes(current, start, {**kept, **end})


def add_bash_defaults(state: State, start: State) -> State:
    """Return a first state with what bash sets by itself, taken from `start`."""
    own = {key: value for key, value in start.items() if key[0] in (OPTION, SHOPT) or key[1] in snapshot.SET_BY_BASH}
    return {**own, **state}


def apply_changes(current: State, start: State, end: State) -> State:
    """Return `current` with what changed between `start` and `end`."""
    state = dict(current)
    for key in start.keys() | end.keys():
        before, after = start.get(key), end.get(key)
        if before == after or _declare_the_same(key, before, after):
            continue
        if after is None:
            state.pop(key, None)
        else:
            state[key] = after
    return state


def _declare_the_same(key: Key, before: bytes | None, after: bytes | None) -> bool:
    """Return whether two different texts declare the same variable: Outlast may quote it differently than bash."""
    if key[0] != VARIABLE or before is None or after is None:
        return False
    value = value_of(before)
    return value is not None and value == value_of(after) and snapshot.flags_of(before) == snapshot.flags_of(after)


def find_changed_variables(state: State, first: State) -> dict[str, str]:
    """Return the variables that differ from those of a session's `first` state, with their values as bash quotes them.

    Variables that every bash sets or changes by itself do not count.
    """
    return {
        os.fsdecode(name): os.fsdecode(line.partition(b"=")[2])
        for (kind, name), line in sorted(apply_changes({}, first, state).items())
        if kind == VARIABLE
        and name not in _CHANGED_BY_BASH
        and (name not in snapshot.SET_BY_BASH or (kind, name) in first)
    }
