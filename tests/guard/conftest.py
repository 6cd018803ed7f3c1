"""Fixtures for the tests of `outlast-guard`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.guard.build import find_guard
from tests.guard.harness import Launcher


@pytest.fixture(scope="session")
def guard_program() -> str:
    """OUTLAST_GUARD names another build, such as one with sanitizers."""
    return os.environ.get("OUTLAST_GUARD") or find_guard()


@pytest.fixture
def launcher(tmp_path: Path, guard_program: str) -> Iterator[Launcher]:
    made = Launcher(tmp_path, guard_program)
    yield made
    made.close()
