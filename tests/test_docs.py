"""Every example in the documentation is run, and shows what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.conftest import Cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^(`{3,})(console|python)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)  # more ticks if it has some


def blocks(kind: str) -> list[ParameterSet]:
    found = []
    for page in PAGES:
        for number, block in enumerate(_BLOCK.finditer(page.read_text()), 1):
            if block[2] == kind:
                found.append(pytest.param(block[3], id=f"{page.stem}-{number}"))
    return found


def steps(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    assert not parts[0], "a console block starts with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def looks_like(expected: str, printed: str) -> bool:
    """Whether it is the same where `...` stands for anything within a line."""
    pattern = ".*".join(map(re.escape, expected.split("...")))
    return re.fullmatch(pattern, printed) is not None


@pytest.fixture
def bash(cli: Cli, tmp_path: Path) -> subprocess.Popen[str]:
    """A bash whose `outlast` is ours."""
    program = tmp_path / "outlast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m outlast "$@"\n')
    program.chmod(0o755)
    env = {**cli.env, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.Popen(
        ["bash", "--norc", "--noprofile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        text=True,
    )


@pytest.mark.parametrize("block", blocks("console"))
def test_console_examples_print_what_they_say(block: str, bash: subprocess.Popen[str]):
    assert bash.stdin is not None
    end = "=== end of step ==="
    for command, _ in steps(block):
        bash.stdin.write(f"{command}\necho '{end}'\n")
    printed, _ = bash.communicate(timeout=60)
    for (command, expected), shown in zip(steps(block), printed.split(f"{end}\n"), strict=False):
        assert looks_like(expected, shown), f"$ {command}\n--- expected\n{expected}--- printed\n{shown}"


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run(block: str, cli: Cli, tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        env=cli.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr


def test_there_are_examples():
    assert len(blocks("console")) >= 5
    assert len(blocks("python")) >= 5
