"""The output on disk, whatever is written, dropped for want of space or interrupted."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.storage import output, record
from outlast.storage.output import FILES, SEGMENTS, Source, bound_of, count_lines
from outlast.types import Slice
from tests.guard_files import Sink

LEAST_LIMIT = 1024  # the smallest that the settings allow
# What the command prints: no two places look alike, and a line has some 30 bytes.
PRINTED = random.Random(7).randbytes(1 << 17).translate(bytes(10 if n < 8 else 97 + n % 26 for n in range(256)))

limits = st.integers(LEAST_LIMIT, 3 * LEAST_LIMIT)
writes = st.tuples(st.just("write"), st.integers(1, 2 * LEAST_LIMIT))
drops = st.tuples(st.just("drop"), st.integers(1, 300))
restarts = st.sampled_from([("restart", 0), ("restart with room", 0)])
histories = st.lists(st.one_of(writes, writes, drops, restarts), max_size=20)


class Printing:
    """What a pump does with the sink of one stream, and what that must have left on disk."""

    def __init__(self, limit: int, stream: str = "stdout", split: bool = False) -> None:
        self.limit, self.stream, self.bound = limit, stream, bound_of(limit, split)
        self.sink = Sink(stream, self.bound)
        self.source = Source(os.getcwd(), stream, self.bound)
        self.total = 0
        self.lost = 0  # for want of space, not for the bound
        self.since_drop = 0
        self.first_drop: int | None = None

    def do(self, step: str, size: int) -> None:
        match step:
            case "write":
                self.write(size)
            case "drop":
                self.drop(size)
            case "restart with room":
                self.sink.room()  # killed just after it moved on to a new file
                self.restart()
            case _:
                self.restart()

    def write(self, size: int) -> None:
        end = self.total + size
        while self.total < end:
            piece = PRINTED[self.total : min(end, self.total + self.sink.room())]
            assert os.pwrite(self.sink.fd, piece, self.sink.offset - self.sink.start) == len(piece)
            self.sink.wrote(len(piece))
            self.total += len(piece)
            assert on_disk() <= self.limit, "more than the bound, if only for a moment"
        self.since_drop += size

    def drop(self, size: int) -> None:
        self.sink.dropped(size)
        position = record.read(".").get("position", {})
        record.write("position", {**position, self.stream: self.sink.offset}, ".")
        self.first_drop = self.total if self.first_drop is None else self.first_drop
        self.total += size
        self.lost += size
        self.since_drop = 0

    def restart(self) -> None:
        """Another supervisor takes over, with nobody to tell it anything."""
        os.close(self.sink.fd)
        self.sink = Sink(self.stream, self.bound, record.read(".").get("position", {}).get(self.stream, 0))

    def read(self, cursor: int = 0, most: int = 1 << 16) -> list[Slice]:
        """Piece by piece, until there is nothing more."""
        pieces: list[Slice] = []
        while True:
            piece = self.source.read(cursor, most)
            if piece.next == cursor:
                return pieces
            pieces.append(piece)
            cursor = piece.next

    def kept(self) -> bytes:
        return b"".join(piece.data for piece in self.read())


def on_disk() -> int:
    return sum(entry.stat().st_size for entry in os.scandir() if entry.name.split(".")[0] in FILES.values())


@contextlib.contextmanager
def task_directory() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="outlast-test-") as path, contextlib.chdir(path):
        record.reserve(".")
        yield


@contextlib.contextmanager
def printing(limit: int, history: list[tuple[str, int]] = []) -> Iterator[Printing]:  # noqa: B006
    with task_directory():
        made = Printing(limit)
        for step, size in history:
            made.do(step, size)
        yield made
        os.close(made.sink.fd)


@given(limit=limits, history=histories, cursor=st.integers(0, 5000), most=st.integers(1, 3000))
@example(limit=1024, history=[("write", 600), ("drop", 7)], cursor=0, most=100)
@example(limit=1024, history=[("drop", 7), ("restart", 0), ("write", 1)], cursor=0, most=100)
@settings(deadline=None)
def test_what_is_read_piecewise_and_what_was_dropped_add_up(
    limit: int, history: list[tuple[str, int]], cursor: int, most: int
) -> None:
    with printing(limit, history) as made:
        place = cursor = min(cursor, made.total)
        for piece in made.read(cursor, most):
            assert piece.start == place + piece.dropped
            assert piece.data == PRINTED[piece.start : piece.next]
            assert len(piece.data) <= most
            place = piece.next
        assert place == made.total == made.source.end()
        # Repeatable: a lost reply loses nothing.
        assert made.read(cursor, most) == made.read(cursor, most)


@given(limit=limits, history=histories)
@settings(deadline=None)
def test_the_head_and_the_newest_are_kept(limit: int, history: list[tuple[str, int]]) -> None:
    with printing(limit, history) as made:
        bound, kept = made.bound, made.kept()
        head = min(bound.head, made.total if made.first_drop is None else made.first_drop)
        assert kept[:head] == PRINTED[:head]
        newest = min(made.since_drop, (SEGMENTS - 1) * bound.segment)
        assert kept.endswith(PRINTED[made.total - newest : made.total])
        if not made.lost:
            assert kept == PRINTED[:head] + PRINTED[made.total - (len(kept) - head) : made.total]


@given(limit=limits, history=histories)
@settings(deadline=None)
def test_a_new_sink_goes_on_where_the_files_end(limit: int, history: list[tuple[str, int]]) -> None:
    with printing(limit, [step for step in history if step[0] != "restart with room"]) as made:
        interrupted = made.read()
    with printing(limit, [step for step in history if "restart" not in step[0]]) as made:
        assert made.read() == interrupted


@given(limit=limits, history=histories, lines=st.integers(0, 200))
@example(limit=1024, history=[("write", 1024), ("drop", 5), ("restart with room", 0)], lines=3)
@settings(deadline=None)
def test_the_tail_is_the_last_lines_of_what_is_kept(limit: int, history: list[tuple[str, int]], lines: int) -> None:
    with printing(limit, history) as made:
        tail = b"".join(piece.data for piece in made.read(made.source.tail(lines)))
        assert tail == b"".join(made.kept().splitlines(keepends=True)[-lines:] if lines else [])


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"unfinished"])
@pytest.mark.parametrize("size", [output._READ_BYTES - 1, output._READ_BYTES, output._READ_BYTES * 2 + 5])
def test_the_tail_does_not_depend_on_where_the_reads_are_cut(ending: bytes, size: int) -> None:
    with task_directory():
        data = b"x" * 10 + b"\n" + b"y" * size + b"\n" + b"z\n" * 10 + ending
        with open("output", "wb") as file:
            file.write(data)
        source = Source(".", "stdout", bound_of(10 * size, False))
        for lines in range(15):
            wanted = b"".join(data.splitlines(keepends=True)[-lines:] if lines else [])
            assert data[source.tail(lines) :] == wanted, lines


def test_the_tail_of_what_there_was_at_some_moment() -> None:
    """What is printed after the look does not push out what was seen."""
    with printing(4096) as made:
        made.write(1000)
        end = made.source.end()
        made.write(500)
        wanted = PRINTED[:1000].splitlines(keepends=True)[-3:]
        assert PRINTED[made.source.tail(3, end) : end] == b"".join(wanted)


@given(limit=limits, history=histories, looks=st.sets(st.integers(0, 20)))
@settings(deadline=None)
def test_lines_are_counted_on_from_the_last_count(limit: int, history: list[tuple[str, int]], looks: set[int]) -> None:
    with task_directory():
        made = Printing(limit)
        known: dict[str, list[int]] = {}
        for number, (step, size) in enumerate(history):
            made.do(step, size)
            if number in looks:
                known = count_lines(".", limit, False, known)
        counted = count_lines(".", limit, False, known)
        assert counted == count_lines(".", limit, False, {})
        assert sum(lines for _, lines in counted.values()) == made.kept().count(b"\n")
        os.close(made.sink.fd)


@given(
    limit=limits, sizes=st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(1, 2000)), max_size=15)
)
@settings(deadline=None)
def test_two_streams_share_one_bound(limit: int, sizes: list[tuple[str, int]]) -> None:
    with task_directory():
        both = {stream: Printing(limit, stream, split=True) for stream in FILES}
        for stream, size in sizes:
            both[stream].write(size)
        for stream, made in both.items():
            assert all(piece.stream == stream and piece.data for piece in made.read())
            assert sum(piece.dropped + len(piece.data) for piece in made.read()) == made.total
            os.close(made.sink.fd)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("limit", [1024, 1025, 4097, 65536, 100_000_000])
def test_a_layout_fits_into_its_bound_and_wastes_little(limit: int, split: bool) -> None:
    bound = bound_of(limit, split)
    most = (bound.head + SEGMENTS * bound.segment + output.NOTE_BYTES) * (1 + split)
    assert 0.75 * limit <= most <= limit
    assert bound.segment > 0


def test_ordinary_tools_see_head_note_and_tail_in_order() -> None:
    """`cat output*` is what was printed, with a line where something is missing."""
    with printing(2048, [("write", 5000)]) as made:
        files = sorted(name for name in os.listdir() if name.startswith("output"))
        text = b"".join(open(name, "rb").read() for name in files)
        bound = made.bound
        note = text[bound.head : bound.head + output.NOTE_BYTES].strip()
        assert text.startswith(PRINTED[: bound.head])
        assert note.startswith(b"[outlast: ")
        assert b"output.NUMBER" in note
        assert text.endswith(b"\n" + PRINTED[5000 - (len(made.kept()) - bound.head) : 5000])
        assert note not in made.kept()


def test_a_file_that_is_not_output_is_not_read() -> None:
    with printing(2048, [("write", 100)]) as made:
        for name in ("output.log", "output.", "output.1.bak", "outputs", "stderr.5", "output.²"):
            with open(name, "w") as file:
                file.write("nothing to do with it")
        assert made.kept() == PRINTED[:100]


def test_planted_links_are_not_followed() -> None:
    with task_directory(), tempfile.NamedTemporaryFile() as elsewhere:
        os.symlink(elsewhere.name, "output")
        with pytest.raises(OSError, match="symbolic links"):
            Sink("stdout", bound_of(2048, False))


def test_output_is_private_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        with printing(1024, [("write", 2000)]):
            modes = {os.stat(name).st_mode & 0o777 for name in os.listdir() if name.startswith("output")}
            assert modes == {0o600}
    finally:
        os.umask(before)


def test_reading_while_the_middle_rolls_away() -> None:
    """Every byte that a reader gets is right and none comes twice, however far the writer is ahead."""
    with printing(1024) as made:
        problems: list[str] = []
        done = threading.Event()

        def read_on() -> None:
            try:
                read_to_the_end()
            except Exception as error:
                problems.append(repr(error))

        def read_to_the_end() -> None:
            place = 0
            while True:
                last = done.is_set()
                for piece in made.source.chunks(place):
                    if piece.start != place + piece.dropped or piece.data != PRINTED[piece.start : piece.next]:
                        problems.append(f"at {place}: {piece.start} +{piece.dropped}")
                    place = piece.next
                if last:
                    break
            if place != len(PRINTED):
                problems.append(f"stopped at {place}")

        readers = [threading.Thread(target=read_on) for _ in range(3)]
        for reader in readers:
            reader.start()
        while made.total < len(PRINTED):
            made.write(min(37, len(PRINTED) - made.total))
        done.set()
        for reader in readers:
            reader.join(60)
        assert problems == []
