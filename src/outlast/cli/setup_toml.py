"""Edits TOML as text: bytes that an edit does not concern, comments included, stay as they are.

`tomllib` reads but neither writes nor reports positions, so a scanner finds where each header and each
key stands. It trusts that `tomllib` has accepted the text. An edit that this way of writing does not
allow (a table that is written inline) makes a text that `tomllib` refuses or reads differently; callers
compare what a text says before and after.
"""

from __future__ import annotations

import json
import re
import tomllib

from outlast.cli.setup_json import Unreadable
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"""+|\'\'\'.*?\'\'\'+|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@frozen
class Line:
    """A header or a key: its whole lines are text[start:end], its value is text[value:value_end]."""

    table: tuple[str, ...]
    key: tuple[str, ...]  # empty for a header
    start: int
    end: int
    value: int = 0
    value_end: int = 0


# --- reading -------------------------------------------------------------------------------


def parse(text: str) -> dict[str, Any]:
    """What the text says."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(str(error)) from None


def lines(text: str) -> Iterator[Line]:
    """The headers and keys of a text, in order."""
    table: tuple[str, ...] = ()
    at = 0
    while at < len(text):
        start = at
        at = _end(text, start)
        said = text[start:at].strip()
        if not said or said.startswith("#"):
            continue
        if said.startswith("["):
            closing = _end(text, start, stop="]")
            name = text[start:closing].strip().strip("[]")
            table = _path(name)
            yield Line(table, (), start, at)
        else:
            equals = _end(text, start, stop="=")
            value = equals + 1 + len(text[equals + 1 :]) - len(text[equals + 1 :].lstrip(" \t"))
            yield Line(table, _path(text[start:equals]), start, at, value, _value_end(text, value, at))


def _path(key: str) -> tuple[str, ...]:
    """The parts of a dotted key."""
    found: Any = tomllib.loads(f"{key} = 0")
    path = []
    while isinstance(found, dict):
        [(name, found)] = found.items()
        path.append(name)
    return tuple(path)


def _end(text: str, at: int, stop: str = "") -> int:
    """The end of the statement at a position, with its line end; or the place of `stop` outside of strings."""
    depth = 0
    while at < len(text):
        if stop and text[at] == stop:
            return at
        if found := _STRING.match(text, at):
            at = found.end()
            continue
        depth += (text[at] in "[{") - (text[at] in "]}")
        at += 1
        if text[at - 1] == "\n" and depth <= 0 and not stop:
            return at
    return at


def _value_end(text: str, at: int, end: int) -> int:
    """Where a value ends: before the white space, and the comment if there is one."""
    last = at
    while at < end:
        found = _STRING.match(text, at)
        if found and text[at] == "#":
            at = found.end()
            continue
        at = found.end() if found else at + 1
        if not text[at - 1].isspace():
            last = at
    return last


# --- changing ------------------------------------------------------------------------------


def lead(text: str) -> str:
    """What separates a new table from the text before it."""
    newline = _newline(text)
    if not text or text.endswith(("\n\n", "\n\r\n")):
        return ""
    return newline if text.endswith("\n") else newline * 2


def add_table(text: str, path: Sequence[str], values: Mapping[str, Any]) -> str:
    """Append a table at the end of the text."""
    newline = _newline(text)
    block = [f"[{'.'.join(map(_key, path))}]", *(f"{_key(name)} = {dumped(value)}" for name, value in values.items())]
    return text + lead(text) + "".join(line + newline for line in block)


def tables(text: str, path: Sequence[str]) -> list[tuple[int, int]]:
    """Where a table and the tables below it stand."""
    found: list[tuple[int, int]] = []
    inside = False
    for line in lines(text):
        if not line.key:
            inside = line.table[: len(path)] == tuple(path)
            if inside and found and not text[found[-1][1] : line.start].strip():
                found[-1] = (found[-1][0], line.end)  # only blank lines between the two
            elif inside:
                found.append((line.start, line.end))
        elif inside:
            found[-1] = (found[-1][0], line.end)
    return found


def raw_tables(text: str, path: Sequence[str]) -> str:
    """The text of a table and of the tables below it."""
    return "".join(text[start:end] for start, end in tables(text, path))


def drop_tables(text: str, path: Sequence[str], before: str = "", instead: str = "") -> str:
    """Remove a table and the tables below it, and `before`, which was put in front of it; `instead` takes its place."""
    spans = tables(text, path)
    for number, (start, end) in reversed(list(enumerate(spans))):
        head = text[:start]
        if number == 0:
            head = (head.removesuffix(before) if not instead else head) + instead
        text = head + text[end:]
    return text


def find(text: str, table: Sequence[str], key: str) -> Line | None:
    """Where a key of a table stands."""
    wanted = (*table, key)
    return next((line for line in lines(text) if line.key and (*line.table, *line.key) == wanted), None)


def put_value(text: str, table: Sequence[str], key: str, value: str) -> str:
    """Set a key of a table to a value, which is given as TOML writes it."""
    if line := find(text, table, key):
        return text[: line.value] + value + text[line.value_end :]
    for line in lines(text):
        if not line.key and line.table == tuple(table):
            if not text[: line.end].endswith("\n"):  # the header is the last line, and has no end
                return f"{text}{_newline(text)}{_key(key)} = {value}"
            return f"{text[: line.end]}{_key(key)} = {value}{_newline(text)}{text[line.end :]}"
    newline = _newline(text)
    return f"{text}{lead(text)}[{'.'.join(map(_key, table))}]{newline}{_key(key)} = {value}{newline}"


def drop_value(text: str, table: Sequence[str], key: str) -> str:
    """Remove a key of a table, with its line."""
    line = find(text, table, key)
    if line is None:
        return text
    head = text[: line.start] if text[: line.end].endswith("\n") else text[: line.start].removesuffix(_newline(text))
    return head + text[line.end :]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else dumped(name)


def dumped(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {dumped(one)}" for name, one in value.items()) + " }"
    # Of texts, booleans and arrays of them JSON is TOML, but for a surrogate pair and the DEL character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
