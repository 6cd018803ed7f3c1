"""A short read is a long read that was quick: it shows the same, hides the same and ends at the same place."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast import Shell
from outlast.errors import UnknownTask
from outlast.output.reader import StreamReader
from outlast.output.redaction import OFF, Mask
from outlast.output.text_stream import Selection
from outlast.storage import record
from outlast.storage.output import Source, bound_of
from tests.conftest import eventually
from tests.secrecy import TOKENS, letters, told

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

VALUES = ("correct-horse9", "aaaaaaaa1", "pässwörd-1234")
LIMIT = 1 << 20
PLAIN = ["one\n", "two two", "\r\n", " ", "é", "日本\n", "\t", "task-12", "https://a.example/b ", "eyJ", "x" * 900]
NOT_PLAIN = ["\x1b[31m", "\x1b", "\r", "\b", "\0", "\u200b"]
PIECES = st.sampled_from([*PLAIN, *PLAIN, *PLAIN, *NOT_PLAIN, *VALUES, *(told(kind) for kind in TOKENS)])
TEXTS = st.lists(st.tuples(PIECES, st.sampled_from([1, 3, 9, 5000])), max_size=7).map(
    lambda parts: "".join(text[:size] for text, size in parts)
)


class Printed:
    """What a task printed, and how it is read."""

    def __init__(self, directory: str, data: bytes, closed: bool) -> None:
        record.reserve(directory)
        with open(os.path.join(directory, "output"), "wb") as file:
            file.write(data)
        self.task: Any = SimpleNamespace(closed=closed, output_file=os.path.join(directory, "output"))
        self.source = Source(directory, "stdout", bound_of(LIMIT, False))

    def quickly(self, place: int, mask: Mask) -> tuple[str, int] | None:
        short = StreamReader(self.source, self.task.closed, Selection(), mask, place).read_short()
        return (short.text, short.next) if short else None

    def in_the_long_way(self, place: int, mask: Mask) -> tuple[str, int]:
        stream = StreamReader(self.source, self.task.closed, Selection(), mask, place)
        piece = stream.collect(LIMIT).cut(LIMIT, "")
        return piece.text, piece.next


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.integers(0, 10_000), st.booleans(), st.integers(0, 3))
@example("xx ghp_" + letters(36, "github"), 8, True, 0)
@example("a correct-hor", 0, False, 0)
@example("a" + told("OpenAI"), 1, True, 0)
def test_it_is_what_the_long_way_finds(text: str, place: int, closed: bool, cut: int) -> None:
    data = text.encode()
    data = data[: len(data) - cut]
    place %= len(data) + 1
    mask = Mask(VALUES)
    with tempfile.TemporaryDirectory() as directory:
        printed = Printed(directory, data, closed)
        for one in (mask, OFF):
            found = printed.quickly(place, one)
            assert found is None or found == printed.in_the_long_way(place, one)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    "text", ["one\ntwo\nthree\n", "", "a task-12 of https://a.example/b, eyJ\n", "日本\r\n", "no end"]
)
def test_plain_text_is_read_quickly(text: str, closed: bool) -> None:
    data = ("x" * 999 + "\n").encode() * 500 + text.encode()
    with tempfile.TemporaryDirectory() as directory:
        place = len(data) - len(text.encode())
        found = Printed(directory, data, closed).quickly(place, Mask(VALUES))
        assert found == (text.replace("\r\n", "\n"), len(data))


@pytest.mark.parametrize("how", [{"cursor": "0"}, {"cursor": "6"}, {}, {"tail": 0}, {"new": True}, {"filter": "x"}])
@pytest.mark.parametrize(("command", "end"), [("echo hello", "6"), ("true", "0")])
def test_what_another_process_removed_is_gone(
    home: str, shell: Shell, how: dict[str, Any], command: str, end: str
) -> None:
    task = shell.run(command)
    eventually(lambda: shell.show(task.task_id).closed)
    assert shell.read(task.task_id, **how).cursor in (end, "6")
    with Shell.open(home) as another:
        assert another.clean(all_finished=True) == 1
    with pytest.raises(UnknownTask):
        shell.read(task.task_id, **how)


def test_a_secret_that_is_learnt_later_is_masked_then(shell: Shell) -> None:
    task = shell.run("echo correct-horse9")
    assert "correct-horse9" in shell.read(task.task_id, cursor="0").output
    shell.run("true", env={"MY_PASSWORD": "correct-horse9"})
    for cursor in ("0", "3"):
        assert "horse9" not in shell.read(task.task_id, cursor=cursor).output


def test_a_session_does_not_see_what_another_one_looked_at(home: str) -> None:
    with Shell.open(home, "one") as one, Shell.open(home, "two") as two:
        task = one.run("echo hello")
        assert one.read(task.task_id, cursor="0").output == "hello\n"
        two.executor.registry.get(task.task_id)  # as whoever removes old tasks does
        with pytest.raises(UnknownTask):
            two.read(task.task_id, cursor="0")
