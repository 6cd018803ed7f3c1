"""Finds in JSON, with or without comments, the pieces of text that an edit replaces.

`json` reports no positions, and VS Code, Cursor and Gemini CLI allow comments and trailing commas. So these are
replaced by blanks, which keeps all positions, and the rest is walked through with the decoder of `json`.
"""

from __future__ import annotations

import json
import re

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    Piece = tuple[int, int, str]  # text[start:end] is replaced by the string

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf'((?:{_STRING}|[^\s{{\[,"])\s*),(?=\s*[}}\]])|{_STRING}', re.DOTALL)
_BLANKS = re.compile(r"\s*")
_decode = json.JSONDecoder().raw_decode


@frozen
class Part:
    """A member of an object, or an item of an array (then without a key)."""

    key: str | None
    start: int
    value_start: int
    end: int
    value: Any


def parse(text: str) -> dict[str, Any]:
    """Return what the text says; ValueError or RecursionError if it is no JSON object."""
    data = json.loads(_plain(text)) if text.strip() else {}
    if not isinstance(data, dict):
        raise ValueError("it holds no object")
    return data


def _plain(text: str) -> str:
    """The text with blanks instead of comments and trailing commas."""
    try:
        json.loads(text)
        return text
    except ValueError:
        text = _COMMENT.sub(lambda found: found[1] or re.sub(r"\S", " ", found[0]), text)
        return _TRAILING_COMMA.sub(lambda found: f"{found[1]} " if found[1] else found[0], text)


def _skip(plain: str, at: int) -> int:
    found = _BLANKS.match(plain, at)
    return found.end() if found else at


def _parts(plain: str, at: int) -> Iterator[Part]:
    """The parts of the object or array at a position of a valid text."""
    is_object = plain[at] == "{"
    at = _skip(plain, at + 1)
    while plain[at] not in "}]":
        start, key = at, None
        if is_object:
            key, end = _decode(plain, at)
            at = _skip(plain, _skip(plain, end) + 1)
        value, end = _decode(plain, at)
        yield Part(key, start, at, end, value)
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)


def _member(plain: str, at: int, key: str) -> Part | None:
    """The member of an object that counts: parsers take the last one of a repeated key."""
    found = [part for part in (_parts(plain, at) if plain[at] == "{" else ()) if part.key == key]
    return found[-1] if found else None


# --- adding --------------------------------------------------------------------------------


def pieces_for_value(text: str, path: Sequence[str], value: Any) -> Iterator[Piece]:
    """The piece that sets the value at a path; objects on the way are made."""
    if not text.strip():
        _, _, inside = next(pieces_for_value("{}", path, value))
        yield 0, len(text), f"{{{inside}}}\n"
        return
    plain = _plain(text)
    at, end = _skip(plain, 0), len(text)
    for depth, key in enumerate(path):
        if plain[at] != "{":
            return
        part = _member(plain, at, key)
        if part is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            yield _insertion(text, plain, at, f"{json.dumps(key)}: ", value)
            return
        at, end = part.value_start, part.end
    yield at, end, _dump(text, plain, _indent_of(text, at), value)


def pieces_for_item(text: str, path: Sequence[str], item: Any) -> Iterator[Piece]:
    """The piece that adds an item to the array at a path; the array is made if there is none."""
    found = _find(_plain(text), path) if text.strip() else None
    if found is None:
        yield from pieces_for_value(text, path, [item])
    elif isinstance(found.value, list):
        yield _insertion(text, _plain(text), found.value_start, "", item)


def _find(plain: str, path: Sequence[str]) -> Part | None:
    at, part = _skip(plain, 0), None
    for key in path:
        part = _member(plain, at, key)
        if part is None:
            return None
        at = part.value_start
    return part


def _insertion(text: str, plain: str, at: int, lead: str, value: Any) -> Piece:
    """The piece that makes a value the first part of the object or array at a position."""
    first = next(_parts(plain, at), None)
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indent_of(text, at)
    if first and "\n" not in text[at : first.start]:
        return first.start, first.start, f"{lead}{json.dumps(value, ensure_ascii=False)}, "
    if not first and "\n" not in text.strip() and at != _skip(plain, 0):
        return at + 1, at + 1, lead + json.dumps(value, ensure_ascii=False)
    indent = _indent_of(text, first.start) if first else outer + _unit(text, plain)
    behind = "," if first else newline + outer if "\n" not in text[at : plain.index(_closing(plain, at), at)] else ""
    return at + 1, at + 1, newline + indent + lead + _dump(text, plain, indent, value) + behind


def _closing(plain: str, at: int) -> str:
    return "}" if plain[at] == "{" else "]"


def _indent_of(text: str, at: int) -> str:
    """The blanks that the line of a position begins with."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, plain: str) -> str:
    """What the file indents one level with."""
    root = _skip(plain, 0)
    first = next(_parts(plain, root), None)
    return (_indent_of(text, first.start) if first and "\n" in text[root : first.start] else "") or "  "


def _dump(text: str, plain: str, indent: str, value: Any) -> str:
    """A value as the file would write it, below an indentation."""
    if "\n" not in text.strip() and next(_parts(plain, _skip(plain, 0)), None):
        return json.dumps(value, ensure_ascii=False)
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text, plain))
    return written.replace("\n", ("\r\n" if "\r\n" in text else "\n") + indent)


# --- removing ------------------------------------------------------------------------------


def removals(text: str, path: Sequence[str], existed: int, value: Any, is_item: bool, old: str) -> Iterator[str]:
    """The text with what is at a path removed, or replaced by `old`, however it is written.

    Objects of the path that did not exist before (`existed` is how many did) go with it if they are empty then.
    """
    plain = _plain(text)
    found = _find(plain, path)
    if found is None:
        return
    if existed == len(path) and not is_item:
        yield text[: found.value_start] + old + text[found.end :]
        return
    if is_item and (existed == len(path) or len(found.value) > 1):
        yield _cut(
            text, plain, found.value_start, next(p for p in _parts(plain, found.value_start) if p.value == value)
        )
        return
    depth = len(path)
    while depth > existed + 1 and len(_value_at(plain, path[: depth - 1])) == 1:
        depth -= 1
    parent = _find(plain, path[: depth - 1])
    at = parent.value_start if parent else _skip(plain, 0)
    part = _member(plain, at, path[depth - 1])
    assert part is not None
    yield _cut(text, plain, at, part)


def _value_at(plain: str, path: Sequence[str]) -> Any:
    part = _find(plain, path)
    return part.value if part else None


def _cut(text: str, plain: str, at: int, part: Part) -> str:
    """Remove one part of an object or array, with a comma, and with its lines if nothing else stands there."""
    before = [one for one in _parts(plain, at) if one.end < part.start]
    comma = _skip(text, part.end)
    end = comma + 1 if text[comma] == "," else part.end
    head = text[: part.start]
    line = head.rstrip(" \t")
    if line.endswith("\n") and re.match(r"[ \t]*\r?\n", text[end:]):
        head = line.removesuffix("\n").removesuffix("\r")
    if end == part.end and before:
        comma = plain.index(",", before[-1].end)
        head = head[:comma] + head[comma + 1 :]
    return head + text[end:]
