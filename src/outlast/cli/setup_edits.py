"""What `outlast setup` changes in a file, as values: each edit can be applied, recognized again and taken back.

Pure: texts in, texts out. A record says what an edit found, so that taking it back restores exactly that.
"""

from __future__ import annotations

import copy

from outlast.cli import setup_json, setup_toml
from outlast.cli.setup_json import Unreadable
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    Record = dict[str, Any]

_EMPTY_OBJECT = "{}\n"


@frozen
class Edit:
    """One change to one file: a server's entry, an item of a list, or one value."""

    what: Literal["server", "item", "value"]
    file: str
    format: Literal["json", "toml"]
    path: tuple[str, ...]
    value: Any

    def current(self, text: str) -> Any:
        """What the text has at the path; None if nothing."""
        return lookup(parse(self.format, text), self.path)

    def is_done(self, text: str) -> bool:
        """Whether the text already says what the edit would make it say."""
        found = self.current(text)
        if self.what == "item":
            return isinstance(found, list) and self.value in found
        if self.what == "value":
            return bool(found == self.value)
        return starts_same(found, self.value)


def parse(kind: str, text: str) -> dict[str, Any]:
    """What a file says; nothing if it is empty."""
    if not text.strip():
        return {}
    return setup_json.parse(text) if kind == "json" else setup_toml.parse(text)


def lookup(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def starts_same(found: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether an entry starts the same program with the same arguments, and with at least these variables."""
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
    """The text with the edit, and the record that takes it back."""
    base = text if text.strip() or edit.format == "toml" else _EMPTY_OBJECT
    data = parse(edit.format, base)
    existing = sum(lookup(data, edit.path[:depth]) is not None for depth in range(1, len(edit.path) + 1))
    record: Record = {"what": edit.what, "format": edit.format, "path": list(edit.path), "value": edit.value}
    if edit.format == "json":
        changed, found = _apply_json(edit, base, existing)
    else:
        changed, found = _apply_toml(edit, base, existing)
    _check(edit, changed, _with_edit(edit, data))
    return changed, {**record, "keep": existing, **found}


def _apply_json(edit: Edit, text: str, existing: int) -> tuple[str, Record]:
    inner = setup_json.inner_of(text, edit.path)
    if edit.what == "item":
        return setup_json.add_item(text, edit.path, edit.value), {"inner": inner}
    before = setup_json.raw(text, edit.path)
    return setup_json.put(text, edit.path, edit.value), {"inner": inner, "before": before}


def _apply_toml(edit: Edit, text: str, existing: int) -> tuple[str, Record]:
    if edit.what == "value":
        *table, key = edit.path
        line = setup_toml.find(text, table, key)
        before = text[line.value : line.value_end] if line else None
        written = "true" if edit.value else "false"
        return setup_toml.put_value(text, table, key, written), {"before": before, "lead": setup_toml.lead(text)}
    if existing < len(edit.path):
        return setup_toml.add_table(text, edit.path, edit.value), {"before": None, "lead": setup_toml.lead(text)}
    before = setup_toml.raw_tables(text, edit.path)
    block = setup_toml.add_table("", edit.path, edit.value)
    return setup_toml.drop_tables(text, edit.path, instead=block), {"before": before, "lead": ""}


def update(edit: Edit, text: str) -> str:
    """The text with the program of our own entry changed; what was added to the entry since then stays."""
    data = parse(edit.format, text)
    entry = lookup(data, edit.path)
    for key, value in edit.value.items():
        if value == entry.get(key):
            continue
        if edit.format == "json":
            text = setup_json.put(text, (*edit.path, key), value)
        else:
            text = setup_toml.put_value(text, edit.path, key, setup_toml.dumped(value))
        entry[key] = value
    _check(edit, text, data)
    return text


def _with_edit(edit: Edit, data: dict[str, Any]) -> dict[str, Any]:
    expected = copy.deepcopy(data)
    at = expected
    for key in edit.path[:-1]:
        at = at.setdefault(key, {})
        if not isinstance(at, dict):
            raise Unreadable(f"{key} is not a table of names and values")
    last = edit.path[-1]
    at[last] = [*at.get(last, []), edit.value] if edit.what == "item" else edit.value
    return expected


def _check(edit: Edit, text: str, expected: dict[str, Any]) -> None:
    """Refuse an edit that would change more or less than it should."""
    try:
        is_right = parse(edit.format, text) == expected
    except Unreadable:
        is_right = False
    if not is_right:
        raise Unreadable(f"{'.'.join(edit.path)} is written in a way that Outlast does not edit")


# --- taking back ---------------------------------------------------------------------------


def is_still_there(record: Record, text: str) -> bool:
    """Whether the text still says what the edit of this record made it say."""
    found = lookup(parse(record["format"], text), record["path"])
    if record["what"] == "server":
        return starts_same(found, {**record["value"], "env": {}})
    if record["what"] == "item":
        return isinstance(found, list) and record["value"] in found
    return bool(found == record["value"])


def is_replaced(record: Record, text: str) -> bool:
    """Whether the entry of this record is there, but starts something else now."""
    return record["what"] == "server" and lookup(parse(record["format"], text), record["path"]) is not None


def revert(record: Record, text: str) -> str:
    """The text without the edit of this record, which is still there."""
    path, before = record["path"], record.get("before")
    if record["format"] == "toml":
        return _revert_toml(record, text)
    if record["what"] == "item":
        return setup_json.drop_item(text, path, record["value"], record["keep"], record["inner"])
    if before is not None:
        return setup_json.put_raw(text, path, before)
    return setup_json.drop(text, path, record["keep"], record["inner"])


def _revert_toml(record: Record, text: str) -> str:
    path, before = record["path"], record["before"]
    if record["what"] == "server":
        return setup_toml.drop_tables(text, path, before=record["lead"], instead=before or "")
    *table, key = path
    if before is not None:
        return setup_toml.put_value(text, table, key, before)
    text = setup_toml.drop_value(text, table, key)
    if record["keep"] < len(table) and not lookup(parse("toml", text), table):
        return setup_toml.drop_tables(text, table, before=record["lead"])
    return text


def record_of_stranger(edit: Edit) -> Record:
    """A record that removes an entry which `outlast setup` did not make."""
    whole = {"keep": len(edit.path) - 1, "inner": "", "before": None, "lead": ""}
    return {"what": edit.what, "format": edit.format, "path": list(edit.path), "value": edit.value, **whole}


def is_blank(kind: str, text: str) -> bool:
    """Whether nothing is left in a file, not even a comment."""
    return not (text.strip().removeprefix("{").removesuffix("}").strip() if kind == "json" else text.strip())
