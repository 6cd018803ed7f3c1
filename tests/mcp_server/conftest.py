"""A state directory and a directory to work in, for servers that the tests start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell
from tests.conftest import end_all


@pytest.fixture
def place(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The state directory; whatever still runs at the end is ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAST_HOME", home)
    monkeypatch.delenv("OUTLAST_SESSION", raising=False)
    yield home
    with Shell.open(home=home, operator=True) as shell:
        end_all(shell)
