"""Edits JSON as text, with or without comments: bytes that an edit does not concern stay as they are.

Each function takes a whole text and returns a whole text. Positions come from a small scanner, because
`json` reports none and VS Code, Cursor and Gemini CLI allow comments and trailing commas.
"""

from __future__ import annotations

import json
import re

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_BLANKS = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_COMMENT = re.compile(r'^(?:[^"/\n]|"(?:[^"\\\n]|\\.)*"|/(?!/))*//[^\n]*$')
_DECODER = json.JSONDecoder()


class Unreadable(ValueError):
    """The text is not JSON, or not of the shape that the edit needs."""


@frozen
class Part:
    """One member of an object or one item of an array; `comma` is the position of the comma behind it."""

    key: str | None
    start: int
    node: Node
    comma: int | None


@frozen
class Node:
    """A value and where it stands; `parts` is None for anything but an object or an array."""

    value: Any
    start: int
    end: int
    parts: tuple[Part, ...] | None = None

    def find(self, key: str) -> Part | None:
        """The member that counts: parsers take the last one of a repeated key."""
        return next((part for part in reversed(self.parts or ()) if part.key == key), None)


# --- reading -------------------------------------------------------------------------------


def scan(text: str) -> Node:
    """The root object of a text, with positions."""
    try:
        root = _value(text, _skip(text, 0))
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    if _skip(text, root.end) != len(text):
        raise _wrong(text, root.end, "more follows after the end")
    if not isinstance(root.value, dict):
        raise Unreadable("it holds no object")
    return root


def parse(text: str) -> dict[str, Any]:
    """What the text says."""
    value: dict[str, Any] = scan(text).value
    return value


def raw(text: str, path: Sequence[str]) -> str | None:
    """The text of the value at a path; None if there is none."""
    node = scan(text)
    for key in path:
        part = node.find(key)
        if part is None:
            return None
        node = part.node
    return text[node.start : node.end]


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _wrong(text: str, at: int, what: str) -> Unreadable:
    return Unreadable(f"line {text.count(chr(10), 0, at) + 1}: {what}")


def _value(text: str, at: int) -> Node:
    opening = text[at : at + 1]
    if opening and opening in "{[":
        return _container(text, at, "}" if opening == "{" else "]")
    return _scalar(text, at)


def _scalar(text: str, at: int) -> Node:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except ValueError:
        raise _wrong(text, at, "a value is expected here") from None
    return Node(value, at, end)


def _container(text: str, start: int, closing: str) -> Node:
    parts: list[Part] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        if parts and parts[-1].comma is None:
            raise _wrong(text, at, f"a comma or {closing} is expected here")
        part = _part(text, at, closing == "}")
        parts.append(part)
        at = _skip(text, part.node.end if part.comma is None else part.comma + 1)
    made = {part.key: part.node.value for part in parts} if closing == "}" else [part.node.value for part in parts]
    return Node(made, start, at + 1, tuple(parts))


def _part(text: str, at: int, has_key: bool) -> Part:
    key, value_at = None, at
    if has_key:
        name = _scalar(text, at)
        colon = _skip(text, name.end)
        if not isinstance(name.value, str) or text[colon : colon + 1] != ":":
            raise _wrong(text, at, "a name and a colon are expected here")
        key, value_at = name.value, _skip(text, colon + 1)
    node = _value(text, value_at)
    behind = _skip(text, node.end)
    return Part(key, at, node, behind if text[behind : behind + 1] == "," else None)


# --- changing ------------------------------------------------------------------------------


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at a path; objects on the way are created."""
    root = node = scan(text)
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise Unreadable(f"{'.'.join(path[:depth])} is not an object")
        part = node.find(key)
        if part is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _insert(text, root, node, f"{json.dumps(key, ensure_ascii=False)}: ", value)
        node = part.node
    return text[: node.start] + _dumped(text, root, node.start, value) + text[node.end :]


def put_raw(text: str, path: Sequence[str], old: str) -> str:
    """Put back the text that a value had."""
    node = _at(text, path)
    return text[: node.start] + old + text[node.end :]


def add_item(text: str, path: Sequence[str], item: str) -> str:
    """Append an item to the array at a path, which is created if it is missing."""
    if raw(text, path) is None:
        return put(text, path, [item])
    root, array = scan(text), _at(text, path)
    if not isinstance(array.value, list):
        raise Unreadable(f"{'.'.join(path)} is not an array")
    return _insert(text, root, array, "", item)


def drop(text: str, path: Sequence[str], keep: int, inner: str = "") -> str:
    """Remove the member at a path, and the objects above it that are empty then, but for the first `keep` ones.

    `inner` is what stood in the innermost object that stays, if it was empty but for white space.
    """
    return _prune(_remove_member(text, path, inner), path[:-1], keep, inner)


def drop_item(text: str, path: Sequence[str], item: str, keep: int, inner: str = "") -> str:
    """Remove the last equal item of the array at a path, and what is empty then, as `drop` does."""
    array = _at(text, path)
    numbers = [number for number, part in enumerate(array.parts or ()) if part.node.value == item]
    text = _cut(text, array, numbers[-1], inner)
    return _prune(text, path, keep, inner)


def inner_of(text: str, path: Sequence[str]) -> str:
    """The white space in the innermost object or array on a path that exists, if it holds nothing else."""
    node = scan(text)
    for key in path:
        part = node.find(key)
        if part is None:
            break
        node = part.node
    inside = text[node.start + 1 : node.end - 1]
    return inside if node.parts is not None and not inside.strip() else ""


def _prune(text: str, path: Sequence[str], keep: int, inner: str) -> str:
    for depth in range(len(path), keep, -1):
        container = _at(text, path[:depth])
        if text[container.start + 1 : container.end - 1].strip():
            break
        text = _remove_member(text, path[:depth], inner)
    return text


def _remove_member(text: str, path: Sequence[str], inner: str) -> str:
    parent = _at(text, path[:-1])
    numbers = [number for number, part in enumerate(parent.parts or ()) if part.key == path[-1]]
    return _cut(text, parent, numbers[-1], inner)


def _at(text: str, path: Sequence[str]) -> Node:
    node = scan(text)
    for key in path:
        part = node.find(key)
        if part is None:
            raise Unreadable(f"{'.'.join(path)} is missing")
        node = part.node
    return node


def _insert(text: str, root: Node, into: Node, key: str, value: Any) -> str:
    """Add a part behind the last one."""
    parts, newline = into.parts or (), _newline(text)
    closing = into.end - 1
    tail = len(text[:closing].rstrip())  # behind the last part, comma or comment
    if not _is_spread(text, root, into):
        piece = (" " if parts else "") + key + json.dumps(value, ensure_ascii=False)
        before_closing = text[tail:closing]
    else:
        indent = _indent_in(text, root, into)
        piece = newline + indent + key + _dumped(text, root, None, value, indent)
        before_closing = text[tail:closing]
        if "\n" not in before_closing and not parts:
            before_closing = newline + _indent_of(text, into.start)
    if not parts or parts[-1].comma is not None:
        piece += "," if parts else ""
        return text[:tail] + piece + before_closing + text[closing:]
    last = parts[-1].node.end
    return text[:last] + "," + text[last:tail] + piece + before_closing + text[closing:]


def _cut(text: str, container: Node, number: int, inner: str) -> str:
    """Remove one part with its comma and the white space before it."""
    parts = container.parts or ()
    part = parts[number]
    start = len(text[: part.start].rstrip())
    end = part.node.end if part.comma is None else part.comma + 1
    head, rest = text[:start], text[end:]
    if _LINE_COMMENT.match(head.rpartition("\n")[2]) and not re.match(r"[ \t]*\r?\n", rest):
        head += text[start : part.start]  # without its line end the comment would swallow the rest
    if part.comma is None and number and (comma := parts[number - 1].comma) is not None:
        head = head[:comma] + head[comma + 1 :]
    inside = head[container.start + 1 :] + rest[: container.end - 1 - end]
    if not inside.strip():
        return text[: container.start + 1] + inner + text[container.end - 1 :]
    return head + rest


# --- the look of what is added -------------------------------------------------------------


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(text: str, at: int) -> str:
    """The white space that the line of a position begins with."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _starts_line(text: str, part: Part) -> bool:
    return not text[text.rfind("\n", 0, part.start) + 1 : part.start].strip()


def _is_spread(text: str, root: Node, node: Node) -> bool:
    """Whether the parts of a container stand on lines of their own."""
    if node.parts:
        return "\n" in text[node.start : node.end]
    return node.start == root.start or "\n" in text[root.start : root.end]


def _unit(text: str, root: Node) -> str:
    """What the file indents one level with."""
    for part in root.parts or ():
        if _starts_line(text, part) and (indent := _indent_of(text, part.start)):
            return indent
    return "  "


def _indent_in(text: str, root: Node, into: Node) -> str:
    for part in reversed(into.parts or ()):
        if _starts_line(text, part):
            return _indent_of(text, part.start)
    return _indent_of(text, into.start) + _unit(text, root)


def _dumped(text: str, root: Node, at: int | None, value: Any, indent: str = "") -> str:
    """A value as the file would write it, at a position or below an indentation."""
    if at is not None:
        if "\n" not in text[root.start : root.end]:
            return json.dumps(value, ensure_ascii=False)
        indent = _indent_of(text, at)
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text, root))
    return written.replace("\n", _newline(text) + indent)
