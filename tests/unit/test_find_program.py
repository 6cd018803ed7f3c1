"""Programs are found where the standard library finds them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from outlast.linux.files import find_program


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
    paths = ["", f"{tmp_path}/first:{tmp_path}/second", ":", f"/nowhere:{tmp_path}/second", "second"]
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
            assert find_program(name, path) == shutil.which(name, path=path), (name, path)
