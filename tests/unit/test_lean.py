"""What stands in for the standard library does what that does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.lean import json as lean_json
from outlast.lean.which import which


def test_programs_are_found_where_the_standard_library_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
    (tmp_path / "first/both").write_text("")
    for program in ("second/both", "second/one"):
        (tmp_path / program).write_text("")
        (tmp_path / program).chmod(0o755)
    (tmp_path / "first/one").mkdir()
    monkeypatch.chdir(tmp_path / "second")
    paths = [None, "", f"{tmp_path}/first:{tmp_path}/second", ":", f"/nowhere:{tmp_path}/second", "second"]
    names = [
        "both",
        "one",
        "none",
        "",
        "./one",
        f"{tmp_path}/second/one",
        f"{tmp_path}/first/both",
        "bash",
        "second/one",
    ]
    for path in paths:
        for name in names:
            assert which(name, path) == shutil.which(name, path=path), (name, path)
    monkeypatch.delenv("PATH")
    assert which("bash") == shutil.which("bash")


@pytest.mark.parametrize("text", ["", "{", '{"a" 1}', '"\\q"', "[1,]", "nul", "1 2", '{"a": "\n"}'])
def test_what_is_no_json_is_an_error_of_value(text: str) -> None:
    """Also in a process that has not loaded `json`."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    code = f"from outlast.lean import json\ntry: json.loads({text!r})\nexcept ValueError: print('wrong')"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.dirname(lean_json.__file__)))}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert out.stdout == "wrong\n", out.stderr
