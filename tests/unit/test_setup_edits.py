"""JSON and TOML edited as text: nothing else changes, and taking an edit back restores every byte."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.cli import setup_edits as edits
from outlast.cli.setup_edits import Edit
from outlast.errors import Unsupported

ENTRY = {"command": "/opt/outlast", "args": ["mcp"]}
SERVER = Edit("server", "", "json", ("mcpServers", "outlast"), ENTRY)
DENY = Edit("item", "", "json", ("permissions", "deny"), "Bash")
TABLE = Edit("server", "", "toml", ("mcp_servers", "outlast"), ENTRY)
FLAG = Edit("value", "", "toml", ("features", "shell_tool"), False)

JSON_TEXTS = [
    "{}",
    "{\n}\n",
    '{"a": 1}',
    '{"a":1,}',
    '{\n  "a": 1\n}\n',
    '{\n\t"a": 1, // last\n}',
    '{\n  "a": 1 // no comma, "quoted"\n  // the end\n}\n',
    "{\n  // only a comment\n}\n",
    '{\r\n    "mcpServers": {},\r\n    "b": [1, 2]\r\n}\r\n',
    '{\n  "mcpServers": {\n    "other": {"command": "x"}, /* mine */\n  },\n  "permissions": {"deny": []}\n}\n',
    '{"mcpServers": {"a": {}}, "permissions": {"allow": ["x"], "deny": ["WebFetch"]}}',
    '{\n  "permissions": {\n    "deny": [\n      "WebFetch", // no web\n      "Read"\n    ]\n  }\n}\n',
    '// a url: "https://x"\n{"url": "http://a//b", /* { */ "é": "\\u00e9\\"}"}',
    '{"a": 1 // comment\n, "mcpServers": {"x": 1}}',
    '{"permissions": {"deny": ["a" // first\n]}}',
]
TOML_TEXTS = [
    "",
    "model = 'x'",
    "# top\nmodel = 'x'\n",
    'a = """\n[features]\nshell_tool = true\n"""\n[b] # [mcp_servers.outlast]\nc = [\n  "]", # x\n  1,\n]\n',
    "[features] # mine\nother = true\n\n[mcp_servers.other]\ncommand = 'y'\n",
    "[features]\nshell_tool = true # on\n",
    "[mcp_servers]\n[mcp_servers.a]\ncommand = 'y'\n# the end\n",
    "[[list]]\na = 1\r\n[[list]]\na = 2\r\n",
    "[features]",
]


def there_and_back(text: str, *wanted: Edit) -> str:
    """Apply the edits, check what the text says then, and take them back."""
    records = []
    for edit in wanted:
        assert not edit.is_done(text)
        text, record = edits.apply(edit, text)
        assert edit.is_done(text)
        records.append(json.loads(json.dumps(record)))  # as the file of records keeps it
    for record in reversed(records):
        assert edits.is_still_there(record, text)
        text = edits.revert(record, text)
    return text


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_json_is_as_before(text: str) -> None:
    assert there_and_back(text, SERVER, DENY) == text
    assert there_and_back(text, DENY, SERVER) == text


@pytest.mark.parametrize("text", TOML_TEXTS)
def test_toml_is_as_before(text: str) -> None:
    assert there_and_back(text, TABLE, FLAG) == text
    assert there_and_back(text, FLAG, TABLE) == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["mcpServers", "permissions", "a", "b"]), VALUES, max_size=4), st.data())
def test_any_json_is_as_before_or_refused(data: dict[str, Any], draw: st.DataObject) -> None:
    indent = draw.draw(st.sampled_from([None, 1, 4, "\t"]))
    text = json.dumps(data, indent=indent, ensure_ascii=draw.draw(st.booleans()))
    try:
        after = there_and_back(text, SERVER, DENY)
    except Unsupported:
        bad = [data.get("mcpServers", {}), data.get("permissions", {})]
        assert not all(isinstance(one, dict) for one in bad) or not isinstance(bad[1].get("deny", []), list)
    else:
        assert after == text


def test_what_is_added_looks_like_the_rest() -> None:
    text, _ = edits.apply(SERVER, '{\n    "a": {"b": 1} // mine\n}\n')
    assert text == (
        '{\n    "mcpServers": {\n        "outlast": {\n'
        '            "command": "/opt/outlast",\n            "args": [\n                "mcp"\n            ]\n'
        '        }\n    },\n    "a": {"b": 1} // mine\n}\n'
    )
    assert edits.apply(FLAG, "[features]\na = true\n")[0] == "[features]\nshell_tool = false\na = true\n"
    assert edits.apply(FLAG, "[features]\nshell_tool=true # x\n")[0] == "[features]\nshell_tool=false # x\n"


def test_a_replaced_entry_comes_back() -> None:
    for edit, text in (
        (SERVER, '{"mcpServers": {"outlast": {"command": "mine" /* keep */}, "b": {}}}'),
        (TABLE, "[mcp_servers.outlast] # keep\ncommand = 'mine'\n\n[mcp_servers.outlast.env]\nA = 'b'\n\n[z]\na = 1\n"),
    ):
        changed, record = edits.apply(edit, text)
        assert edit.is_done(changed)
        assert "keep" not in changed
        assert edits.revert(record, changed) == text


@pytest.mark.parametrize("indent", [None, 1, 2])
@pytest.mark.parametrize("text", JSON_TEXTS)
def test_it_is_taken_back_where_the_client_wrote_the_file_anew(text: str, indent: int | None) -> None:
    changed, server = edits.apply(SERVER, text)
    changed, denial = edits.apply(DENY, changed)
    data = edits.parse("json", changed, "")
    data.setdefault("mcpServers", {})["new"] = {"command": "x"}
    for record in (server, denial):
        changed = edits.revert(record, json.dumps(data, indent=indent))
        data = edits.parse("json", changed, "")
    before = edits.parse("json", text, "")
    before.setdefault("mcpServers", {})["new"] = {"command": "x"}
    assert data == before


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            '{\n  "a": 1, // one\n  // ours\n  "mcpServers": {"outlast": {"command": "x"}}\n}',
            '{\n  "a": 1 // one\n  // ours\n}',
        ),
        ('{"mcpServers": {"b": 1, "outlast": {}, /* c */ "d": 2}}', '{"mcpServers": {"b": 1,  /* c */ "d": 2}}'),
        ('{"mcpServers": {"b": 1, "outlast": {}, },}', '{"mcpServers": {"b": 1,  },}'),
        ('{"mcpServers": {"outlast": {} // x\n}, "b": 1}', '{ "b": 1}'),
    ],
)
def test_an_entry_is_removed_however_it_is_written(text: str, left: str) -> None:
    record = {**edits.record_of_foreign_entry(SERVER), "existed": 0}
    assert edits.revert(record, text) == left


def test_tables_that_the_client_added_below_ours_go_with_it() -> None:
    changed, record = edits.apply(TABLE, "a = 1\n")
    changed += "\n[mcp_servers.outlast.tools.bash]\napproval_mode = 'approve'\n"
    assert edits.is_still_there(record, changed)
    assert tomllib.loads(edits.revert(record, changed)) == {"a": 1}
    changed = changed.replace("command", "# mine\ncommand").replace("\n\n[mcp", "\n# next\n[b]\nc = 1\n\n[mcp", 1)
    assert edits.revert(record, changed) == "a = 1\n# next\n[b]\nc = 1\n\n"


def test_a_switch_is_taken_back_where_more_stands_beside_it() -> None:
    changed, record = edits.apply(FLAG, "a = 1\n")
    assert edits.revert(record, changed + "b = 2\n") == "a = 1\n\n[features]\nb = 2\n"
    assert edits.revert(record, changed.replace("false", "false # why")) == "a = 1\n\n[features]\n"


def test_an_update_keeps_what_was_added() -> None:
    moved = {**ENTRY, "command": "/new/outlast"}
    for edit, text, added in (
        (SERVER, '{\n  "a": 1 // x\n}\n', ('"/opt/outlast",', '"/opt/outlast", "env": {"A": "b"},')),
        (TABLE, "# x\n", ("args", 'env = { A = "b" }\nargs')),
    ):
        changed, record = edits.apply(edit, text)
        new = Edit("server", "", edit.format, edit.path, moved)
        changed, record = edits.update(new, record, changed.replace(*added))
        assert new.current(changed) == {**moved, "env": {"A": "b"}}
        assert edits.parse(edit.format, edits.revert(record, changed), "") == edits.parse(edit.format, text, "")


@pytest.mark.parametrize(
    "text", ["{", "[]", "{'a': 1}", '{"a" 1}', '{"a": 1} x', '{"a": 1 "b": 2}', "{,}", '{"a": }', "{" * 5000, "x"]
)
def test_no_json(text: str) -> None:
    with pytest.raises(Unsupported):
        edits.parse("json", text, "file")


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (SERVER, '{"mcpServers": []}'),
        (DENY, '{"permissions": {"deny": "Bash"}}'),
        (TABLE, "mcp_servers = { a = { command = 'x' } }\n"),
        (TABLE, "[mcp_servers]\noutlast = { command = 'x' }\n"),
        (FLAG, "features = { a = true }\n"),
        (TABLE, "a = \n"),
    ],
)
def test_what_cannot_be_edited_is_refused(edit: Edit, text: str) -> None:
    with pytest.raises(Unsupported):
        edits.apply(edit, text)
