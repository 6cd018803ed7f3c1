"""The emulator and its checkpoints, without processes: any output, cut anywhere, gives the same screen."""

from __future__ import annotations

import json
import os
import time
from binascii import crc32
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.output import screen
from outlast.output.emulator import Emulator
from outlast.output.redaction import Mask
from outlast.output.screen import CHECKPOINT, Screen, compute_screen, view
from outlast.storage.output import Bound, Source

BOUND = Bound(1 << 40, 1 << 30)
SIZE = (12, 5)
NUMBER = st.sampled_from(["", "0", "1", "2", "3", "5", "9", "40", "99999999999"])
PIECES = st.one_of(
    st.sampled_from(
        ["a", "hello", "größe", "寿司", "e\u0301", "\r\n", "\n", "\r", "\t", "\b", "\x07", "\x0e", "\x0f", "\x7f"]
    ),
    st.sampled_from(
        ["\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bM", "\x1bc", "\x1bH", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b=", "\x1b>"]
    ),
    st.builds("\x1b[{}{}".format, NUMBER, st.sampled_from("ABCDEFGHJKLMPSTXZ@`abdefgmnrsu")),
    st.builds("\x1b[{};{}{}".format, NUMBER, NUMBER, st.sampled_from("Hfrm")),
    st.builds(
        "\x1b[?{}{}".format,
        st.sampled_from(["1", "5", "6", "7", "25", "47", "1047", "1049", "2004"]),
        st.sampled_from("hl"),
    ),
    st.builds("\x1b[{}{}".format, st.sampled_from(["4", "20"]), st.sampled_from("hl")),
    st.builds(
        "\x1b[{}m".format, st.sampled_from(["0", "1", "7", "31", "1;4;32", "38;5;200", "48;2;1;2;3", "39", "49"])
    ),
    st.builds(
        "\x1b]{};{}\x07".format, st.sampled_from(["0", "2", "8", "52", "4"]), st.sampled_from(["title", "?", ""])
    ),
    st.sampled_from(
        ["\x1bP$q\x1b\\", "\x1b[6n", "\x1b[c", "\x1b[>c", "\x1b]10;?\x1b\\", "\x1b_x\x1b\\", "\x1b[18t", "\x1b[8;9;9t"]
    ),
)
OUTPUT = st.lists(PIECES, max_size=30).map("".join).map(str.encode)


def fed(*parts: bytes, size: tuple[int, int] = SIZE) -> Emulator:
    emulator = Emulator(*size)
    for part in parts:
        emulator.feed(part)
    return emulator


def seen(emulator: Emulator) -> dict[str, Any]:
    return view(emulator, True, Mask(on=False)).to_page()


def source(directory: Path) -> Source:
    if not (directory / "record").exists():
        (directory / "record").write_bytes(b" " * 4096)
    return Source(str(directory), "stdout", BOUND)


def compute(directory: Path, size: tuple[int, int] = SIZE) -> Screen:
    return compute_screen(str(directory), source(directory), size, Mask(on=False))


# --- the emulator ------------------------------------------------------------------------


@given(OUTPUT, OUTPUT)
@example(b"\x1b[2;4r\x1b[?6h\x1b[2;2Hx", b"\n\n\nabc")
@example(b"\x1b[2r\x1b[?6h", b"")
@example(b"\x1b[1;31mred\x1b7\x1b[?1049hfull\x1b[3;3H", b"\x1b8x\x1b[?1049lback")
@example(b"twelve chars", b"x")
@example("寿司寿司寿司".encode(), b"x")
@settings(max_examples=200)
def test_a_dump_restores_the_state(before: bytes, after: bytes) -> None:
    original = fed(before)
    if not original.is_between_sequences:
        return
    restored = fed(original.dump())
    assert seen(restored) == seen(original)
    for emulator in (original, restored):
        emulator.feed(after)
    assert seen(restored) == seen(original)


@given(OUTPUT, st.lists(st.integers(0, 400), max_size=6))
def test_cuts_change_nothing(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert seen(fed(*(data[a:b] for a, b in pairwise(places)))) == seen(fed(data))


@given(st.lists(st.one_of(st.binary(max_size=50), PIECES.map(str.encode)), max_size=30).map(b"".join))
@settings(max_examples=300)
def test_any_bytes_make_a_screen(data: bytes) -> None:
    found = view(fed(data), True, Mask(on=False))
    assert (found.columns, len(found.rows)) == SIZE
    assert all(row.isprintable() or not row for row in found.rows)
    assert found.cursor is None or (0 <= found.cursor[0] < SIZE[1] and 0 <= found.cursor[1] < SIZE[0])
    json.dumps(found.to_page())


@pytest.mark.parametrize("start", [b"\x1b]", b"\x1b]0;", b"\x1bP", b"\x1b_", b"\x1b[", b"\x1b[1;"])
def test_an_endless_sequence_takes_little_memory_and_time(start: bytes) -> None:
    emulator = fed(start)
    began = time.monotonic()
    for _ in range(64):
        emulator.feed(b"1" * 65536)
    assert len(emulator._board.parser.buffer) < 10_000
    assert time.monotonic() - began < 20  # 4 MiB
    emulator.feed(b"\x1b\\\x18\r\x1b[2Jstill there")
    assert "still there" in "".join(view(emulator, True, Mask(on=False)).rows)


@pytest.mark.parametrize("letter", "@ABCDEFGHIJKLMPSTXZ`abcdefghlmnpqrstuvwxyz{|}~")
def test_huge_numbers_take_no_time(letter: str) -> None:
    began = time.monotonic()
    for before in ("", "?", ">", "="):
        emulator = fed(
            f"x\x1b[{before}{'9' * 30}{letter}\x1b[{before}{'9' * 30};{'9' * 30};{'9' * 30}{letter}".encode()
        )
        assert (emulator.columns, emulator.height) == SIZE
    assert time.monotonic() - began < 5


def test_a_query_is_not_answered() -> None:
    """There is nothing that an answer could go to; the emulator is made from what is on disk."""
    emulator = fed(b"\x1b[6n\x1b[c\x1b[>c\x1b]10;?\x07\x1bZ\x05")
    assert emulator._board.host.connection is None
    assert seen(emulator)["cells"] == seen(fed(b""))["cells"]


# --- checkpoints -------------------------------------------------------------------------


@given(st.lists(OUTPUT, min_size=1, max_size=5), st.sampled_from([(0, None), (1, (20, 3)), (2, (7, 9))]))
@settings(max_examples=60, deadline=None)
def test_a_screen_is_the_same_with_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], resized: tuple[int, tuple[int, int] | None]
) -> None:
    directory = tmp_path_factory.mktemp("task")
    direct, whole = Emulator(*SIZE), b""
    at, size = resized
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screen, "_CHECKPOINT_BYTES", 1)
        for number, part in enumerate(parts):
            if size is not None and number == at:
                (directory / "sizes").write_text(f"{len(whole):020} {size[0]:4}x{size[1]:4}\n")
                direct.resize(*size)
            whole += part
            direct.feed(part)
            (directory / "output").write_bytes(whole)
            found = compute(directory)
            assert found.exact
            assert found.to_page() == seen(direct)


def write_long(directory: Path, tail: bytes) -> None:
    with open(directory / "output", "wb") as file:
        for number in range(20):
            file.write(b"".join(b"line %d of page %d\r\n" % (line, number) for line in range(5000)))
        file.write(tail)


def test_a_checkpoint_saves_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_long(tmp_path, b"\x1b[?1049h\x1b[2J\x1b[Hfull\x1b]2;me\x07")
    first = compute(tmp_path)
    assert first.alternate
    assert first.title == "me"
    assert (tmp_path / CHECKPOINT).stat().st_size < 10_000
    read: list[int] = []
    original = Source.read

    def count(self: Source, cursor: int, most: int = 1 << 16) -> Any:
        piece = original(self, cursor, most)
        read.append(len(piece.data))
        return piece

    monkeypatch.setattr(Source, "read", count)
    with open(tmp_path / "output", "ab") as file:
        file.write(b" more")
    second = compute(tmp_path)
    assert sum(read) == len(" more")
    assert second.rows[0] == "full more"


def test_much_output_that_was_not_seen_is_skipped(tmp_path: Path) -> None:
    write_long(tmp_path, b"")
    began = time.monotonic()
    found = compute(tmp_path, (30, 4))
    assert time.monotonic() - began < 10
    assert found.rows == ("line 4997 of page 19", "line 4998 of page 19", "line 4999 of page 19", "")
    assert not found.exact
    write_long(tmp_path, b"\x1b[2J\x1b[Hnew" + b"." * 40)
    os.unlink(tmp_path / CHECKPOINT)
    cleared = compute(tmp_path, (30, 4))
    assert cleared.rows[0].startswith("new...")


def test_a_checkpoint_holds_also_if_much_follows(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"\x1b[?1049h\x1b[?25l\x1b[5;1Hstatus" + b"\x1b[2;1H" * 5000)
    assert compute(tmp_path).exact
    with open(tmp_path / "output", "ab") as file:
        file.write(b"\x1b[1;1Habc\x1b[2;1Hdef" * 100_000)
    found = compute(tmp_path)
    assert found.alternate
    assert found.cursor is None
    assert found.rows == ("abc", "def", "", "", "status")
    assert not found.exact


def test_the_modes_of_what_was_skipped_hold(tmp_path: Path) -> None:
    with open(tmp_path / "output", "wb") as file:
        file.write(b"\x1b[?1049h\x1b[?25l\x1b[?1h\x1b]0;editor\x07")
        file.write(b"\x1b[1;1Habc\x1b[2;1Hdef\x1b[3;1H" * 100_000)
    found = compute(tmp_path)
    assert found.alternate
    assert found.application_keys
    assert found.cursor is None
    assert found.title == "editor"
    assert found.rows[:2] == ("abc", "def")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"nonsense",
        lambda data: data[:-1],
        lambda data: data.replace(b"page", b"PAGE"),
        lambda data: data.replace(b'"offset": ', b'"offset": 99999'),
        lambda data: b"[]\n" + data,
        lambda data: b'{"offset": "1", "columns": 1, "rows": 1, "exact": true, "crc": 0}\n',
        lambda data: b'{"offset": 5, "columns": 99999, "rows": 5, "exact": true, "crc": %d}\n' % crc32(b""),
        lambda data: b"{" * 100_000,
    ],
)
def test_a_damaged_checkpoint_is_ignored(tmp_path: Path, damage: Any) -> None:
    (tmp_path / "output").write_bytes(b"".join(b"page %d\r\n" % number for number in range(5000)))
    right = compute(tmp_path)
    path = tmp_path / CHECKPOINT
    path.write_bytes(damage(path.read_bytes()))
    assert compute(tmp_path) == right


def test_a_checkpoint_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"".join(b"page %d\r\n" % number for number in range(5000)))
    (tmp_path / CHECKPOINT).mkdir()
    assert compute(tmp_path).rows[3] == "page 4999"


# --- secrets -----------------------------------------------------------------------------


def test_a_secret_is_masked_where_it_stands() -> None:
    mask = Mask(["correct horse"])
    found = view(fed(b"say \x1b[31mcorrect\x1b[0m horse now", size=(30, 2)), True, mask)
    assert found.rows[0] == "say ************* now"
    assert found.cells[0][1] == ("*******", {"fg": "ansi-1"})


def test_a_secret_that_goes_on_in_the_next_row_is_masked() -> None:
    found = view(fed(b"it is correct horse.", size=(12, 3)), True, Mask(["correct horse"]))
    assert found.rows == ("it is ******", "*******.", "")


def test_a_token_in_the_title_is_masked() -> None:
    token = "ghp_" + "a1B2" * 9
    found = view(fed(f"\x1b]2;{token}\x07{token}".encode(), size=(60, 2)), True, Mask())
    assert token not in found.title
    assert token not in found.rows[0]
    assert found.title
