"""The light JSON does what the standard library's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import light

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_it_writes_and_reads_what_the_standard_library_does(value: object) -> None:
    text = light.json.dumps(value)
    assert text == json.dumps(value, separators=(",", ":"))
    assert light.json.loads(text) == light.json.loads(f" {text}\n".encode()) == value


@pytest.mark.parametrize("text", ["", "{", '{"a" 1}', '"\\q"', "[1,]", "nul", "1 2", '{"a": "\n"}'])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    """Also in a process that has not loaded `json`."""
    with pytest.raises(ValueError, match=r"."):
        light.json.loads(text)
    code = f"from outlast.light import json\ntry: json.loads({text!r})\nexcept ValueError: print('wrong')"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(light.__file__))}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert out.stdout == "wrong\n", out.stderr


def test_what_cannot_be_written_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="set"):
        light.json.dumps({"a": {1}})
