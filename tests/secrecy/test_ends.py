"""Both ends of a long output are what they would be if all of it had been read."""

from __future__ import annotations

import re
import tempfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outlast import Shell
from outlast.output import cleaner, reader, text_stream
from outlast.output.cleaner import Cleaner
from outlast.output.reader import Part, StreamReader
from outlast.output.redaction import Mask
from outlast.output.text_stream import Selection
from outlast.types import Cursor
from tests.conftest import eventually
from tests.secrecy import TOKENS, key_block, told
from tests.secrecy.test_short_reads import VALUES, Printed

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

BUDGET = 300
MARKER = re.compile(r"\[\.\.\. the middle of [\d,]+ bytes left out.*\.\.\.\]\n")
PLAIN = ["one\n", "two two", "\r\n", " ", "é", "日本\n", "\t", "task-12 ", "x" * 40, "y" * 700]
MOVING = ["\x1b[31m", "\x1b", "\r", "\b", "\0", "\x1b[5D", "\x1b[K", "\x1b]0;title\a", "\x1b]0;", "50%\r51%\r"]
SECRETS = [*(token for token in map(told, TOKENS) if len(token) < 500), key_block(lines=6)]
PIECES = st.sampled_from([*PLAIN, *PLAIN, *MOVING, *VALUES, *SECRETS])
LONG = st.tuples(st.lists(PIECES, min_size=1, max_size=12), st.integers(1, 60), st.lists(PIECES, max_size=6)).map(
    lambda parts: ("".join(parts[0]) * parts[1])[:12_000] + "".join(parts[2])
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes so small that little text is much."""
    for name, size in {"MUCH": 5000, "MOST": 9000, "_CONTEXT": 2500, "_LINE": 200, "LINE_LIMIT": 900}.items():
        monkeypatch.setattr(reader, name, size)
    monkeypatch.setattr(text_stream, "LOOK_BACK", 1000)
    monkeypatch.setattr(cleaner, "LINE_LIMIT", 900)
    monkeypatch.setattr(cleaner, "SLICE_BYTES", 256)
    for module in (cleaner, text_stream):
        monkeypatch.setattr(module, "STRING_LIMIT", 300)


def read(printed: Printed, place: int, budget: int) -> Part:
    selection, mask = Selection(cursor=Cursor(place)), Mask(VALUES)
    stream = StreamReader(printed.source, printed.task.closed, selection, mask, place)
    return stream.collect(budget).cut(budget, "the rest")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LONG, st.integers(0, 3000), st.booleans())
@example("a line\n" * 900, 0, True)
@example("x" * 9000, 5, True)
@example("x" * 6000 + "y\n" * 600, 0, True)
@example("x" * 7000 + "\r" + "y" * 800, 0, True)
@example("x" * 8000 + "\rz" + "y" * 400, 0, True)
@example("a line\n" * 900 + told("GitHub")[:-5], 0, False)
@example("a line\n" * 800 + key_block(lines=6) + "\n" + "a line\n" * 30, 0, True)
@pytest.mark.usefixtures("small")
def test_they_are_the_ends_of_the_whole(printed: str, place: int, closed: bool) -> None:
    data = printed.encode()
    place %= len(data) + 1
    with tempfile.TemporaryDirectory() as directory:
        task = Printed(directory, data, closed)
        found, whole = read(task, place, BUDGET), read(task, place, 1 << 20)
        assert found.next == whole.next
        assert len(found.text) <= BUDGET
        if marker := MARKER.search(found.text):
            head, tail = found.text[: marker.start()], found.text[marker.end() :]
            assert whole.text.startswith(head.removesuffix("\n"))
            assert whole.text.endswith(tail)
            assert head
            assert tail


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("printed", ["a line\n" * 3000, "x" * 20_000, "日本語\n" * 2000, "x" * 9000 + "é\n" * 3000])
def test_the_middle_is_not_looked_at(printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = []
    really = Cleaner.feed

    def feed(self: Cleaner, data: bytes) -> str:
        cleaned.append(len(data))
        return really(self, data)

    monkeypatch.setattr(Cleaner, "feed", feed)
    monkeypatch.setattr("outlast.storage.output._READ_BYTES", 500)
    with tempfile.TemporaryDirectory() as directory:
        found = read(Printed(directory, printed.encode(), True), 0, BUDGET)
    assert MARKER.search(found.text)
    assert sum(cleaned) < len(printed.encode()) / 2


def size_of(marker: str) -> int:
    return int(re.sub(r"\D", "", marker.partition("bytes")[0]))


@pytest.mark.parametrize("limit", [None, 9_000_000])
def test_a_task_that_printed_much(home: str, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit:
        monkeypatch.setenv("OUTLAST_OUTPUT_LIMIT_BYTES", str(limit))
    with Shell.open(home) as shell:
        task = shell.start("seq 1500000")
        shell.wait(task.task_id)
        eventually(lambda: shell.show(task.task_id).closed)
        result = shell.read(task.task_id)
        head, tail = MARKER.split(result.output)
        assert head.startswith("1\n2\n3\n")
        assert tail.endswith("1499999\n1500000\n")
        assert result.truncated
        whole = len("".join(f"{n}\n" for n in range(1, 1_500_001)))
        assert result.cursor == str(whole)
        assert size_of(MARKER.findall(result.output)[0]) == whole - result.dropped_bytes
        assert bool(result.dropped_bytes) is bool(limit)
