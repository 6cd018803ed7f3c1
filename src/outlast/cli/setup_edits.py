"""The edits of `outlast setup`: each replaces one piece of a file's text, and `revert` puts the old piece back.

Texts in, texts out. Everything outside the piece stays byte for byte, comments included. Each changed text is parsed
and compared with the one before; a piece that changes anything but the value at its path is not used. So the
search for the piece may be simple: a wrong guess is noticed, and if no guess is right the file is refused.
"""

from __future__ import annotations

import copy
import re

from outlast.cli import setup_json
from outlast.errors import Unsupported
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Literal

    Record = dict[str, Any]
    Piece = tuple[int, int, str]  # text[start:end] is replaced by the string


@frozen
class Edit:
    """One change to one file: a server's entry, an item of a list, or one value."""

    what: Literal["server", "item", "value"]
    file: str
    format: Literal["json", "toml"]
    path: tuple[str, ...]
    value: Any

    def current(self, text: str) -> Any:
        """Return what the text has at the path; None if nothing."""
        return lookup(parse(self.format, text, self.file), self.path)

    def is_done(self, text: str) -> bool:
        """Return whether the text already says what the edit would make it say."""
        return _has(self.what, self.value, self.current(text))


def parse(kind: str, text: str, file: str) -> dict[str, Any]:
    """Return what a file says; an empty dictionary if it is empty."""
    try:
        if kind == "json":
            return setup_json.parse(text)
        import tomllib

        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"{file} cannot be edited ({error}); it was not changed.") from None


def lookup(data: Any, path: Sequence[str]) -> Any:
    """Return the value at a path; None if there is none."""
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _has(what: str, value: Any, found: Any) -> bool:
    if what == "item":
        return isinstance(found, list) and value in found
    return starts_same(found, value) if what == "server" else bool(found == value)


def starts_same(found: Any, wanted: Mapping[str, Any]) -> bool:
    """Return whether an entry starts the same program with the same arguments and at least these variables."""
    if not isinstance(found, dict):
        return False
    env = found.get("env") or {}
    return (
        found.get("command") == wanted["command"]
        and found.get("args", []) == wanted["args"]
        and isinstance(env, dict)
        and wanted.get("env", {}).items() <= env.items()
    )


# --- applying ------------------------------------------------------------------------------


def apply(edit: Edit, text: str) -> tuple[str, Record]:
    """Return the text with the edit, and the record with which `revert` takes it back."""
    data = parse(edit.format, text, edit.file)
    pieces = _pieces_of_toml(edit, text) if edit.format == "toml" else _pieces_of_json(edit, text)
    for start, end, new in pieces:
        changed = text[:start] + new + text[end:]
        after = _parse_file(edit.format, changed)
        if after is not None and _is_same_elsewhere(edit.path, data, after) and edit.is_done(changed):
            return changed, {
                **{name: getattr(edit, name) for name in ("what", "file", "format", "value")},
                "path": list(edit.path),
                "existed": sum(lookup(data, edit.path[:depth]) is not None for depth in range(1, len(edit.path) + 1)),
                "old": text[start:end],
                "new": new,
            }
    raise _cannot_edit(edit.file, edit.path)


def update(edit: Edit, record: Record, text: str) -> tuple[str, Record]:
    """As `apply`, where an older edit of ours is in the text; what was added to that entry since then stays."""
    value = {**edit.current(text), **edit.value}
    changed, made = apply(Edit(edit.what, edit.file, edit.format, edit.path, value), revert(record, text))
    return changed, {**record, **made}


def _pieces_of_json(edit: Edit, text: str) -> Iterator[Piece]:
    if edit.what == "item":
        yield from setup_json.pieces_for_item(text, edit.path, edit.value)
    else:
        yield from setup_json.pieces_for_value(text, edit.path, edit.value)


def _pieces_of_toml(edit: Edit, text: str) -> Iterator[Piece]:
    newline = "\r\n" if "\r\n" in text else "\n"
    if edit.what == "server":
        if edit.current(text) is not None:
            yield from ((start, end, _table(edit.path, edit.value, newline)) for start, end in _tables(text, edit.path))
            return
        table, values = edit.path, edit.value
    else:
        *path, key = edit.path
        written = _toml(edit.value)
        yield from ((*found.span(2), written) for found in _assignment(edit.path).finditer(text))
        for header in re.finditer(rf"^[ \t]*\[[ \t]*{_build_key_pattern(path)}[ \t]*\][^\n]*(\n?)", text, re.MULTILINE):
            line = f"{key} = {written}"
            yield header.end(), header.end(), line + newline if header[1] else newline + line
        table, values = tuple(path), {key: edit.value}
    lead = "" if not text or text.endswith(("\n\n", "\n\r\n")) else newline if text.endswith("\n") else newline * 2
    yield len(text), len(text), lead + _table(table, values, newline)


def _parse_file(kind: str, text: str) -> dict[str, Any] | None:
    try:
        return parse(kind, text, "")
    except Unsupported:
        return None


def _is_same_elsewhere(path: Sequence[str], one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two texts say the same but for the value at the path, and empty objects around it."""
    return _without(path, one) == _without(path, other)


def _without(path: Sequence[str], data: dict[str, Any]) -> dict[str, Any]:
    if path[0] not in data:
        return data
    rest, inner = {key: value for key, value in data.items() if key != path[0]}, data[path[0]]
    if len(path) == 1:
        return rest
    inner = _without(path[1:], inner) if isinstance(inner, dict) else inner
    return {**rest, path[0]: inner} if inner != {} else rest


def _cannot_edit(file: str, path: Sequence[str]) -> Unsupported:
    where = ".".join(path)
    return Unsupported(
        f"{file} cannot be edited ({where} is written in a way that Outlast does not edit); edit it by hand."
    )


# --- taking back ---------------------------------------------------------------------------


def is_still_there(record: Record, text: str) -> bool:
    """Return whether the text still says what the edit of this record made it say."""
    value = {**record["value"], "env": {}} if record["what"] == "server" else record["value"]
    return _has(record["what"], value, _find_value(record, text))


def is_replaced(record: Record, text: str) -> bool:
    """Return whether the entry of this record is there, but starts something else now."""
    return record["what"] == "server" and _find_value(record, text) is not None


def _find_value(record: Record, text: str) -> Any:
    return lookup(parse(record["format"], text, record["file"]), record["path"])


def record_of_foreign_entry(edit: Edit) -> Record:
    """Return a record that removes an entry which `outlast setup` did not make."""
    names = {name: getattr(edit, name) for name in ("what", "file", "format", "value")}
    return {**names, "path": list(edit.path), "existed": len(edit.path) - 1, "old": "", "new": ""}


def revert(record: Record, text: str) -> str:
    """Return the text without the edit of this record.

    Where the piece still is as it was written, the old one takes its place, and the text is as before. If the client
    or a person rewrote it, the value is looked for.
    """
    path, data = record["path"], parse(record["format"], text, record["file"])
    for reverted in _list_reverted_texts(record, text):
        after = _parse_file(record["format"], reverted)
        if after is None or not _is_same_elsewhere(path, data, after):
            continue
        found, left = lookup(data, path), lookup(after, path)
        if record["what"] == "item":
            rest = copy.copy(found)
            rest.remove(record["value"])
            if (left or []) == rest:
                return reverted
        elif left != found and (left is not None) == _replaced_a_value(record):
            return reverted
    raise _cannot_edit(record["file"], path)


def _replaced_a_value(record: Record) -> bool:
    return bool(record["existed"] == len(record["path"]))


def _list_reverted_texts(record: Record, text: str) -> Iterator[str]:
    """The texts without the edit that come into question, the most exact first."""
    path, old, new = record["path"], record["old"], record["new"]
    at = text.find(new) if new else -1
    while at >= 0:
        yield text[:at] + old + text[at + len(new) :]
        at = text.find(new, at + 1)
    if record["format"] == "json":
        yield from setup_json.removals(text, path, record["existed"], record["value"], record["what"] == "item", old)
    elif record["what"] == "server":
        yield _cut(text, list(_tables(text, path)), old)
    else:
        for found in _assignment(path).finditer(text):
            if _replaced_a_value(record):
                yield text[: found.start(2)] + old + text[found.end(2) :]
            yield _cut(text, [found.span()])


def _cut(text: str, spans: Sequence[tuple[int, int]], instead: str = "") -> str:
    """Return the text without these spans; `instead` takes the place of the first one."""
    for number, (start, end) in reversed(list(enumerate(spans))):
        text = text[:start] + (instead if number == 0 else "") + text[end:]
    return text


# --- TOML ----------------------------------------------------------------------------------


def _build_key_pattern(path: Sequence[str]) -> str:
    """A regular expression for a dotted key."""
    return r"[ \t]*\.[ \t]*".join(map(re.escape, path))


def _assignment(path: Sequence[str]) -> re.Pattern[str]:
    """Finds the line of a boolean key, by its last name or by its whole path; group 2 is the value."""
    return re.compile(
        rf"^([ \t]*(?:{_build_key_pattern(path[:-1])}\.)?{path[-1]}[ \t]*=[ \t]*)(true|false)[^\n]*\n?", re.MULTILINE
    )


def _tables(text: str, path: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where a table and the tables below it stand, without the comments and blank lines behind them."""
    header = rf"[ \t]*\[+[ \t]*{_build_key_pattern(path)}[ \t]*[\].]"
    for found in re.finditer(rf"^{header}.*?(?=^(?!{header})[ \t]*\[|\Z)", text, re.MULTILINE | re.DOTALL):
        yield found.start(), found.start() + len(re.sub(r"(?<=\n)([ \t\r]*(#[^\n]*)?\n)*\Z", "", found[0]))


def _table(path: Sequence[str], values: Mapping[str, Any], newline: str) -> str:
    lines = [f"[{'.'.join(path)}]", *(f"{_key(name)} = {_toml(value)}" for name, value in values.items())]
    return "".join(line + newline for line in lines)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    import json

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    # JSON is TOML for texts, numbers, booleans and arrays of them, but for the DEL character.
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")
