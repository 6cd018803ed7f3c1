"""The dashboard as text: words, widths, colours. Golden: `tests/golden/dashboard*.txt`."""

from __future__ import annotations

import pytest

from outlast.display.table import EMPTY, columns, dashboard, fit, in_order, minutes
from outlast.light import replace
from outlast.types import Task
from tests.cli import agreed

A_TASK = Task(
    task_id="bash-00000001",
    kind="bash",
    category="bash",
    status="running",
    reason=None,
    exit_code=None,
    signal=None,
    pipe_status=None,
    ended_by=None,
    error=None,
    command="npm run dev",
    description="",
    session="default",
    cwd="/",
    shell="/bin/bash",
    executor="local",
    pid=1,
    pgid=1,
    started_at=0.0,
    ended_at=None,
    elapsed_ms=0,
    cpu_ms=None,
    limit=None,
    resources=None,
    sandbox=None,
    children=(),
    like=None,
    split=False,
    tty=None,
    closed=False,
    parent="",
    background=True,
    metadata=None,
    output_file="/output",
    name="",
    waits_for=(),
    held_back=(),
)
FIVE = [
    replace(A_TASK, elapsed_ms=12_999),
    replace(A_TASK, task_id="bash-00000002", status="pending", description="waits for a place"),
    replace(
        A_TASK,
        task_id="agent-0000003",
        kind="agent",
        status="completed",
        description="日本語 e\u0301",
        elapsed_ms=184_000,
    ),
    replace(
        A_TASK, task_id="bash-00000004", status="failed", command="a\n\x1b[31mb " + "c" * 100, elapsed_ms=4_500_000
    ),
    replace(A_TASK, task_id="bash-00000005", status="killed", executor="ssh"),
]


@pytest.mark.parametrize(("name", "colour"), [("dashboard.txt", False), ("dashboard_colour.txt", True)])
def test_the_dashboard(name: str, colour: bool) -> None:
    text = dashboard(FIVE, 80, colour)
    assert text == agreed(name, text)


def test_every_line_fits_the_screen() -> None:
    for width in (60, 80, 200):
        assert all(columns(line) <= width for line in dashboard(FIVE, width, colour=False).splitlines())


def test_ten_rows_and_how_many_more() -> None:
    def lines(count: int) -> list[str]:
        return dashboard([replace(A_TASK, status="completed")] * count, 80, colour=False).splitlines()

    assert len(lines(10)) == 11
    assert lines(11)[11:] == ["... and 1 more tasks"]
    assert lines(35)[11:] == ["... and 25 more tasks"]


def test_all_that_have_not_ended_have_a_row() -> None:
    lines = dashboard([A_TASK] * 15 + [replace(A_TASK, status="completed")] * 3, 80, colour=False).splitlines()
    assert lines[16:] == ["... and 3 more tasks"]


@pytest.mark.parametrize(("room", "rows", "more"), [(20, 15, 0), (16, 15, 0), (15, 13, 2), (5, 3, 12), (1, 1, 14)])
def test_no_more_lines_than_there_is_room(room: int, rows: int, more: int) -> None:
    lines = dashboard([A_TASK] * 15, 80, colour=False, room=room).splitlines()
    assert lines[rows + 1 :] == ([f"... and {more} more tasks"] if more else [])


def test_the_order() -> None:
    done = [replace(A_TASK, task_id=f"bash-{number}", status="failed") for number in range(4)]
    waits = replace(A_TASK, task_id="waits", status="pending")
    runs = replace(A_TASK, task_id="runs")
    found = in_order([done[0], waits, *done[1:3], runs, done[3]], lambda task: task in (done[1], done[3]))
    assert found == [runs, waits, done[1], done[3], done[0], done[2]]


def test_no_tasks() -> None:
    assert dashboard([], 80, colour=True) == f"{EMPTY}\n" == "No tasks found\n"


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0m 0s"), (999, "0m 0s"), (61_000, "1m 1s"), (4_500_000, "75m 0s"), (-5, "0m 0s")]
)
def test_times(milliseconds: int, text: str) -> None:
    assert minutes(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "wide"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("●…", 2), ("a\u200db", 2), ("각", 2)]
)
def test_columns(text: str, wide: int) -> None:
    assert columns(text) == wide


@pytest.mark.parametrize(
    ("text", "size", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("ab cd", 4, "ab…"),
        ("ab", 0, ""),
    ],
)
def test_cutting(text: str, size: int, cut: str) -> None:
    assert fit(text, size) == cut
