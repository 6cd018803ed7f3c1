"""How a budget is shared between two streams, and pages that add up to the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outlast import Shell
from outlast.output.reader import share_by_need


@given(st.integers(0, 100_000), st.lists(st.integers(0, 200_000), min_size=1, max_size=3))
def test_a_budget_is_shared_by_need(budget: int, needs: list[int]) -> None:
    shares = share_by_need(budget, needs)
    assert sum(shares) <= budget
    assert all(share <= need for share, need in zip(shares, needs, strict=True))
    if sum(needs) <= budget:
        assert shares == needs
    else:
        # Nobody gets less than the equal part unless that is all it needs.
        assert all(share >= min(need, budget // len(needs)) for share, need in zip(shares, needs, strict=True))


def read_all(shell: Shell, task_id: str, most: int, **what: object) -> tuple[list[str], list[str]]:
    """Every page of a task from its start, as its two streams."""
    out, err, cursor = [], [], "0"
    for _ in range(10_000):
        page = shell.read(task_id, cursor=cursor, page=True, max_chars=most, **what)  # type: ignore[arg-type]
        assert len(page.stdout or page.output) + len(page.stderr or "") <= most
        out.append(page.output if page.stdout is None else page.stdout)
        err.append(page.stderr or "")
        if page.cursor == cursor or not page.truncated:
            return out, err
        cursor = page.cursor
    raise AssertionError("pages without an end")


def test_pages_add_up_to_the_whole(shell: Shell) -> None:
    task = shell.run("seq 5000; seq 300 >&2", split=True)
    for most in (50, 400, 12_000, 100_000):
        out, err = read_all(shell, task.task_id, most)
        assert "".join(out) == "".join(f"{n}\n" for n in range(1, 5001))
        assert "".join(err) == "".join(f"{n}\n" for n in range(1, 301))


def test_a_filter_goes_on_until_a_page_is_full(shell: Shell) -> None:
    task = shell.run("seq 200000")
    out, _ = read_all(shell, task.task_id, 1000, filter="99$")
    assert "".join(out) == "".join(f"{n}\n" for n in range(1, 200_001) if str(n).endswith("99"))
    assert len(out) < 30


def test_lines_that_are_longer_than_a_page(shell: Shell) -> None:
    task = shell.run("head -c 5000 /dev/zero | tr '\\0' x; echo; seq 100")
    out, _ = read_all(shell, task.task_id, 300)
    text = "".join(out)
    assert text.endswith("".join(f"{n}\n" for n in range(1, 101)))
    assert text.count("x") == 5000


def test_what_was_dropped_is_said_once(home: str) -> None:
    with Shell.open(home=home, defaults={"output_limit_bytes": 20_000}) as shell:
        task = shell.run("seq 100000")
        out, _ = read_all(shell, task.task_id, 3000)
    text = "".join(out)
    assert text.startswith("1\n2\n")
    assert text.endswith("100000\n")
    assert 1 <= text.count("bytes were dropped here") <= 2
