"""The fuzzer in its short form, and in its full size with `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.policy.fuzz import Cage, cage_works, fuzz


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    cage = Cage(tmp_path)
    if not cage_works(cage):
        pytest.skip("bubblewrap cannot make a sandbox here")
    return cage


def test_nothing_that_is_allowed_runs_what_is_denied(cage: Cage) -> None:
    ran, escaped = fuzz([cage], 400, seed=1)
    assert ran > 30
    assert escaped == []


@pytest.mark.soak
def test_nothing_that_is_allowed_runs_what_is_denied_in_full(cage: Cage) -> None:
    ran, escaped = fuzz([cage], 100_000, seed=2)
    assert ran > 5_000
    assert escaped == []
