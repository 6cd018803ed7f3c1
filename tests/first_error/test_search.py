"""How the search behaves: ranks, misleading words, large outputs, and any text at all."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.output import first_error
from outlast.output.first_error import Excerpt, FirstError
from outlast.output.first_error.layout import make_excerpt

OUTPUTS = [path.read_bytes().decode() for path in sorted((Path(__file__).parent / "outputs").glob("*.txt"))]
MAX_LINES, MAX_CHARS, LINE_CHARS = 12, 1500, 300


def search(pieces: Iterable[str]) -> Excerpt | None:
    error = FirstError()
    for piece in pieces:
        error.feed(piece)
    return error.finish()


# --- what is no error ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "0 errors",
        "Finished with 0 errors and no failures",
        "error_handler.py ok",
        "no failures",
        "tests/test_cart.py::test_error PASSED [ 12%]",
        "test tests::test_error_path ... ok",
        "test_failure (tests.T.test_failure) ... ok",
        "ok 3 - handles an error",
        "  ✓ reports an error (2 ms)",
        "--- PASS: TestErrorHandling (0.00s)",
        "=== RUN   TestPanic",
        "gcc -c src/error.c -o build/error.o -Werror",
        "copying lib/errors/fatal.py",
        "checking for error_at_line... yes",
        "-- Looking for strerror - found",
        "2026-11-18 10:00:00 INFO worker: retry after error, attempt 1",
        "2026-11-18 10:00:00 WARN worker: request failed",
        "level=info msg=started errors=0",
        '{"level":"info","msg":"failed: 0"}',
        "errors: 0, failures: 0",
        "error: none",
        "error: 0 of 12 checks",
        "rsync finished without error",
        "mirror: no error",
        "Tests run: 12, Failures: 0, Errors: 0, Skipped: 1",
        "Downloading error-stack-parser-2.1.4.tgz",
        "if (error) throw error;",
        "● nginx.service - A high performance web server",
    ],
)
def test_line_that_names_no_error(line: str):
    assert search([f"start\n{line}\ndone\n"]) is None
    excerpt = search([f"start\n{line}\n" * 50 + "fatal: disk quota exceeded\n"])
    assert excerpt is not None
    assert "fatal: disk quota exceeded" in excerpt.lines


def test_nothing_is_found_in_nothing():
    assert search([]) is None
    assert search(["", "\n"]) is None


# --- which of several errors ---------------------------------------------------------------


def test_report_of_a_compiler_is_preferred_to_an_earlier_message_and_ends_the_search():
    error = FirstError()
    error.feed("ERROR: cache is cold\n" + "main.c:1:2: error: expected ';'\n" + "filler\n" * 20000)
    assert error.is_final
    excerpt = error.finish()
    assert excerpt is not None
    assert excerpt.lines == ("main.c:1:2: error: expected ';'",)
    assert excerpt.line_number == 2


def test_first_of_two_reports_is_the_answer():
    excerpt = search(["a.c:1:2: error: one\n", "b.c:1:2: error: two\n"])
    assert excerpt is not None
    assert excerpt.lines == ("a.c:1:2: error: one",)


def test_lines_of_an_error_may_arrive_later_than_its_beginning():
    error = FirstError()
    with mock.patch.object(first_error, "BLOCK", 16):
        error.feed("=================================== FAILURES ===================================\n")
        assert not error.is_final
        error.feed("_____ test_x _____\n\n>   assert 1 == 2\n")
        assert not error.is_final
        error.feed("E   assert 1 == 2\n\ntest_x.py:3: AssertionError\n")
    excerpt = error.finish()
    assert excerpt is not None
    assert excerpt.lines[-1] == "test_x.py:3: AssertionError"


@pytest.mark.parametrize("prefix", ["#12 0.345 ", "web_1  | ", "2026-11-18T10:00:00.1234567Z "])
def test_what_a_container_or_a_ci_system_writes_before_each_line_is_ignored(prefix: str):
    text = "".join(
        f"{prefix}{line}\n" for line in ("start", "main.c:6:5: error: no", "    6 |  x", "      |  ^", "next")
    )
    excerpt = search([text])
    assert excerpt is not None
    assert excerpt.line_number == 2
    assert [line.removeprefix(prefix) for line in excerpt.lines] == text.replace(prefix, "").split("\n")[1:4]


def test_line_that_a_progress_bar_overwrote_is_not_shown():
    excerpt = search(["10% error: old\r50%\rfatal: no space\r\n"])
    assert excerpt is not None
    assert excerpt.lines == ("fatal: no space",)


def test_long_line_is_cut_around_its_error():
    excerpt = search([f'{{"time":1,"payload":"{"x" * 1000}","level":"error","text":"no route"}}\n'])
    assert excerpt is not None
    (line,) = excerpt.lines
    assert '"level":"error"' in line
    assert len(line) <= LINE_CHARS


def test_letters_that_grow_when_made_small_do_not_shift_the_search():
    excerpt = search(["İ" * 300 + "\nfatal: disk quota exceeded\ndone\n"])
    assert excerpt is not None
    assert "fatal: disk quota exceeded" in excerpt.lines


def test_lines_far_from_the_error_are_left_out_first():
    excerpt = make_excerpt([(number, f"line {number}") for number in range(1, 40)], key=20)
    assert len(excerpt.lines) == MAX_LINES
    assert "line 20" in excerpt.lines
    assert excerpt.line_number == int(excerpt.lines[0].removeprefix("line "))


def test_lines_between_which_others_were_left_out_are_marked():
    assert make_excerpt([(3, "a"), (5, "b"), (8, "c")], key=5) == Excerpt(("a", "b", "...", "c"), 3)


# --- large outputs -------------------------------------------------------------------------


def make_log(size: int) -> Iterable[str]:
    """Pieces of a log without an error, of `size` characters together."""
    choose = random.Random(7)
    words = ["request", "handled", "in", "ms", "0 errors", "users", "cache", "failed=0", "test_error", "order"]
    lines = [
        f"2026-11-18 10:00:00 {choose.choice(['INFO', 'WARN'])} {' '.join(choose.choices(words, k=8))}\n"
        for _ in range(500)
    ]
    piece = "".join(lines)
    for _ in range(size // len(piece)):
        yield piece


def make_log_with_one_error(size: int) -> Iterable[str]:
    yield from make_log(size // 2)
    yield "2026-11-18 10:00:01 ERROR payment provider is gone\n"
    yield from make_log(size // 2)


def test_single_error_in_a_log_of_50_mb_is_found():
    excerpt = search(make_log_with_one_error(50_000_000))
    assert excerpt is not None
    assert "2026-11-18 10:00:01 ERROR payment provider is gone" in excerpt.lines
    assert len(excerpt.lines) <= 5


def test_log_is_searched_in_bounded_memory():
    tracemalloc.start()
    try:
        assert search(make_log_with_one_error(10_000_000)) is not None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_line_without_an_end_is_read_in_bounded_memory():
    tracemalloc.start()
    try:
        assert search("x" * 1000 for _ in range(20_000)) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_weak_message_is_looked_for_at_the_end():
    excerpt = search(["cannot open the old cache\n", "compiling\n" * 1000, "cannot open the new cache\n"])
    assert excerpt is not None
    assert "cannot open the new cache" in excerpt.lines


# --- any text ------------------------------------------------------------------------------

LINES = st.sampled_from([line for output in OUTPUTS for line in output.split("\n")])
PARTS = st.one_of(
    st.sampled_from(OUTPUTS),
    st.lists(LINES, max_size=30).map(lambda lines: "\n".join([*lines, ""])),
    st.text(max_size=200),
    st.sampled_from(["error ", "\r", "\n", "●", "İ", "ſ", "FAIL ", "Traceback (most recent call last):\n", "x" * 9000]),
    st.sampled_from(["filler\n" * 500, "E   \n" * 450]),
)
TEXTS = st.lists(PARTS, max_size=6).map("".join)


@given(TEXTS, st.lists(st.integers(0, 20_000), max_size=12), st.sampled_from([1, 50, 1000, 1 << 17]))
def test_answer_does_not_depend_on_how_the_text_is_cut(text: str, cuts: list[int], block: int):
    whole = search([text])
    bounds = [0, *sorted(cuts), len(text)]
    # A small block makes the search begin again at many places, as in a large output.
    with mock.patch.object(first_error, "BLOCK", block):
        in_pieces = search(text[start:end] for start, end in pairwise(bounds) if start < end)
    assert in_pieces == whole


@given(TEXTS)
def test_excerpt_is_bounded(text: str):
    excerpt = search([text])
    if excerpt is None:
        return
    assert 1 <= len(excerpt.lines) <= MAX_LINES
    assert sum(len(line) + 1 for line in excerpt.lines) <= MAX_CHARS
    assert all(len(line) <= LINE_CHARS and "\n" not in line for line in excerpt.lines)
    assert 1 <= excerpt.line_number <= text.count("\n") + 1
