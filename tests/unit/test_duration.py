"""One format of durations."""

from __future__ import annotations

import pytest

from outlast.display import render
from outlast.notices import words
from outlast.output.duration import duration


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        *((0, "0.0s"), (9_960, "9.9s"), (10_000, "10s"), (59_600, "59s"), (60_000, "1m 0s"), (3_599_999, "59m 59s")),
        *((3_600_000, "1h 0m"), (100_000_000, "1d 3h")),
    ],
)
def test_a_duration(milliseconds: int, shown: str) -> None:
    assert duration(milliseconds) == duration(float(milliseconds)) == shown


def test_a_table_and_a_notice_show_the_same() -> None:
    assert render.duration is words.duration is duration  # type: ignore[attr-defined]
