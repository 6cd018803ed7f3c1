"""The record: slots that do not touch each other, in space that is there from the start."""

from __future__ import annotations

import json
import os
import threading
from binascii import crc32
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.errors import DamagedTask
from outlast.storage import record
from outlast.types import Exited, NeverStarted, Signalled

SLOTS = sorted(record.SLOTS)
LARGEST = max(size for _, size in record.SLOTS.values())


@pytest.fixture
def directory(tmp_path: Path) -> str:
    record.reserve(str(tmp_path))
    return str(tmp_path)


def page(directory: str) -> bytes:
    return Path(directory, record.NAME).read_bytes()


def fitting(slot: str, byte: str = "x", more: int = 0) -> dict[str, str]:
    """The longest text that a slot takes, or so much more: its line holds a checksum, a blank, an object, a newline."""
    return {"t": byte * (record.SLOTS[slot][1] - len('12345678 {"t":""}\n') + more)}


def test_the_slots_fill_the_page_without_gap_or_overlap() -> None:
    at = 0
    for start, size in record.SLOTS.values():
        assert start == at
        at += size
    assert at == record.SIZE


def test_a_new_record_is_empty_private_and_takes_its_whole_space(directory: str) -> None:
    found = os.stat(os.path.join(directory, record.NAME))
    assert record.read(directory) == {}
    assert found.st_size == record.SIZE
    assert found.st_blocks * 512 >= record.SIZE
    assert found.st_mode & 0o777 == 0o600


def test_a_record_is_made_once(directory: str) -> None:
    with pytest.raises(FileExistsError):
        record.reserve(directory)


@pytest.mark.parametrize("slot", SLOTS)
def test_a_slot_takes_what_fits_and_refuses_one_byte_more(directory: str, slot: str) -> None:
    record.write(slot, fitting(slot), directory)
    assert record.read(directory) == {slot: fitting(slot)}
    with pytest.raises(ValueError, match=slot):
        record.write(slot, fitting(slot, more=1), directory)
    assert record.read(directory) == {slot: fitting(slot)}, "a refused write changed something"


@given(st.lists(st.tuples(st.sampled_from(SLOTS), st.integers(0, LARGEST), st.sampled_from("xé \n\0")), max_size=12))
@settings(deadline=None)
def test_writing_one_slot_never_changes_another(tmp_path_factory: pytest.TempPathFactory, writes: list) -> None:
    directory = str(tmp_path_factory.mktemp("record"))
    record.reserve(directory)
    model: dict[str, object] = {}
    for slot, length, char in writes:
        value = {"text": char * length}
        try:
            record.write(slot, value, directory)
        except ValueError:
            assert len(json.dumps(value, separators=(",", ":"))) > record.SLOTS[slot][1] - 10
        else:
            model[slot] = value
        assert record.read(directory) == model
        assert len(page(directory)) == record.SIZE


def test_a_shorter_value_leaves_nothing_of_a_longer_one(directory: str) -> None:
    record.write("ending", fitting("ending"), directory)
    record.write("ending", {}, directory)
    assert record.read(directory) == {"ending": {}}
    assert b"x" not in page(directory)


def test_each_slot_is_a_line_that_people_can_read(directory: str) -> None:
    for slot in SLOTS:
        record.write(slot, {"slot": slot}, directory)
    lines = page(directory).decode().splitlines()
    assert [json.loads(line.split(" ", 1)[1]) for line in lines] == [{"slot": slot} for slot in record.SLOTS]


def test_a_record_as_it_was_reserved_but_not_yet_blanked_is_empty() -> None:
    assert record.parse(b"\0" * record.SIZE) == {}


@given(st.data())
@settings(deadline=None)
def test_half_a_write_is_noticed(data: st.DataObject) -> None:
    """A page that has the first part of the new bytes and the rest of the old ones is refused, or is whole."""
    slot = data.draw(st.sampled_from(SLOTS))
    texts = st.text("abc}", max_size=record.SLOTS[slot][1] - 20)
    before, after = _line(slot, data.draw(texts)), _line(slot, data.draw(texts))
    cut = data.draw(st.integers(0, len(after)))
    torn = after[:cut] + before[cut:]
    start, size = record.SLOTS[slot]
    whole = (b" " * start + torn).ljust(record.SIZE)
    try:
        found = record.parse(whole)
    except ValueError:
        assert torn not in (before, after)
    else:
        assert found == {slot: json.loads(torn[9:])}
        assert torn in (before, after)
    assert len(torn) == size


def _line(slot: str, text: str) -> bytes:
    value = json.dumps({"t": text}, separators=(",", ":")).encode()
    return (b"%08x %s" % (crc32(value), value)).ljust(record.SLOTS[slot][1] - 1) + b"\n"


@pytest.mark.parametrize("size", [0, 1, record.SIZE - 1, record.SIZE + 1])
def test_a_record_of_another_size_is_damaged(directory: str, size: int) -> None:
    with open(os.path.join(directory, record.NAME), "r+b") as file:
        file.truncate(size)
    if size > record.SIZE:
        assert record.read(directory) == {}  # only its page counts
        return
    with pytest.raises(DamagedTask, match=os.path.basename(directory)):
        record.read(directory)


def test_a_damaged_slot_is_refused_after_some_looks(directory: str) -> None:
    record.write("code", {"exit": 3}, directory)
    with open(os.path.join(directory, record.NAME), "r+b") as file:
        file.seek(record.SLOTS["code"][0] + 12)
        file.write(b"#")
    with pytest.raises(DamagedTask):
        record.read(directory)


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b" " * record.SIZE)
    (tmp_path / record.NAME).symlink_to(elsewhere)
    for deed in (lambda: record.write("code", {}, str(tmp_path)), lambda: record.read(str(tmp_path))):
        with pytest.raises(OSError, match="symbolic links"):
            deed()


def test_reading_during_rewrites_sees_only_whole_values(directory: str) -> None:
    """Two writers rewrite a slot each as fast as they can; a reader sees their values, never a mixture."""
    stop = threading.Event()
    values = {slot: [fitting(slot, byte) for byte in "ab"] for slot in ("guards", "outcome")}

    def rewrite(slot: str) -> None:
        while not stop.is_set():
            for value in values[slot]:
                record.write(slot, value, directory)

    for slot in values:
        record.write(slot, values[slot][0], directory)
    writers = [threading.Thread(target=rewrite, args=(slot,)) for slot in values]
    for writer in writers:
        writer.start()
    try:
        for _ in range(2000):
            found = record.read(directory)
            assert all(found[slot] in values[slot] for slot in values)
    finally:
        stop.set()
        for writer in writers:
            writer.join(30)


def test_a_torn_read_is_tried_again(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record.write("code", {"exit": 3}, directory)
    before = page(directory)
    record.write("code", {"exit": 200}, directory)
    after = page(directory)
    middle = record.SLOTS["code"][0] + 12
    reads = [after[:middle] + before[middle:]] * 3 + [after]
    monkeypatch.setattr(os, "pread", lambda *_: reads.pop(0))
    assert record.read(directory) == {"code": {"exit": 200}}
    assert reads == []


# --- what status puts into it ------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ({"exit": 0, "cpu": 1.25}, Exited(0)),
        ({"exit": 255, "cpu": None}, Exited(255)),
        ({"signal": 9, "cpu": 0.5}, Signalled(9)),
        ({"spawn": "why"}, NeverStarted("why")),
    ],
)
def test_the_outcome_is_what_the_code_says(
    directory: str, code: dict[str, object], outcome: Exited | Signalled | NeverStarted
) -> None:
    record.write("code", code, directory)
    assert record.parse_outcome(record.read(directory)["code"]) == outcome


@pytest.mark.parametrize("why", ["No such file: /" + "日本語" * 100, '"\\' * 200, "\0\n" * 100, "x" * 5000])
def test_any_reason_for_not_starting_fits(directory: str, why: str) -> None:
    """Otherwise a command that never started would seem to have ended with a code of its own."""
    record.write_never_started(why, 1.0, directory)
    found = record.parse_outcome(record.read(directory)["code"])
    assert isinstance(found, NeverStarted)
    assert why.startswith(found.why)
    assert found.why


def test_the_position_of_any_output_fits(directory: str) -> None:
    most = 10**15  # a petabyte
    record.write("position", {"stdout": most, "stderr": most}, directory)
    assert record.read(directory)["position"] == {"stdout": most, "stderr": most}


def test_the_first_who_asks_for_the_end_stays(directory: str) -> None:
    record.write_ending("kill", "é" * 1000, 1.0, directory)
    record.write_ending("limit", "second", 2.0, directory)
    assert record.read(directory)["ending"]["by"] == "kill"
