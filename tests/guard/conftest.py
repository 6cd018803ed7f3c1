"""Fixtures for the tests of `outlast-guard`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.harness import Launcher, find_words


@pytest.fixture(scope="session")
def guard_program() -> str:
    """OUTLAST_GUARD names another build, such as one with sanitizers, or one after the emulator that runs it."""
    return find_words()[-1]


@pytest.fixture
def launcher(tmp_path: Path, guard_program: str) -> Iterator[Launcher]:
    made = Launcher(tmp_path, guard_program)
    made.wrapper = find_words()[:-1]
    yield made
    made.close()
