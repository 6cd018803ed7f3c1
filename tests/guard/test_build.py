"""How the guard is built: without warnings, and again when a C file changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import guard_build as build
from outlast.guard.client import find_guard


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warnings(tmp_path: Path, compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    build.build(str(tmp_path / "guard"), [compiler], [*build.FLAGS, *build.WARNINGS, "-Werror"])
    assert subprocess.run([tmp_path / "guard", "--version"], capture_output=True).stdout == b"outlast-guard 1\n"


def test_a_changed_source_makes_the_program_stale(tmp_path: Path) -> None:
    output = tmp_path / "guard"
    assert build.is_stale(str(output), str(tmp_path))
    (tmp_path / "one.c").write_text("int main(void) { return 3; }\n")
    build.build(str(output), ["cc"], build.FLAGS, str(tmp_path))
    assert not build.is_stale(str(output), str(tmp_path))
    later = os.stat(output).st_mtime_ns + 1
    (tmp_path / "one.h").touch()
    os.utime(tmp_path / "one.h", ns=(later, later))
    assert build.is_stale(str(output), str(tmp_path))


def test_a_source_that_does_not_compile_says_so_and_keeps_the_old_program(tmp_path: Path) -> None:
    output = tmp_path / "guard"
    output.write_text("old")
    (tmp_path / "one.c").write_text("nonsense\n")
    with pytest.raises(build.BuildError, match=r"one\.c"):
        build.build(str(output), ["cc"], build.FLAGS, str(tmp_path))
    assert output.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["guard", "one.c"]


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert build.find_compiler() is None


def test_the_program_is_static() -> None:
    """So it runs where there is another libc, or none."""
    data = Path(find_guard()).read_bytes()
    assert data[:4] == b"\x7fELF"
    assert b"/ld-linux" not in data
    assert b"/ld-musl" not in data


def test_the_sources_stay_small() -> None:
    sizes = {os.path.basename(path): len(Path(path).read_text().splitlines()) for path in build.find_inputs()}
    far = sizes.pop("far.c")  # no part of what runs beside a task
    assert sum(sizes.values()) <= 2370
    assert far <= 850
