"""Each reader's place on disk: its own, exact, whatever the reader is called."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from outlast.storage import reader_cursors
from outlast.types import START, Cursor


def save(directory: str, reader: str, cursor: Cursor) -> None:
    with reader_cursors.ReaderCursor(directory, reader) as mine:
        mine.save(cursor)


names = st.text(st.characters(), min_size=1, max_size=400)
offsets = st.integers(0, 10**18)


def test_a_reader_that_never_read_stands_at_the_start(tmp_path: Path) -> None:
    assert reader_cursors.read_cursor(str(tmp_path), "somebody") == START
    assert os.listdir(tmp_path) == [], "looking made something"


@given(names, offsets, offsets)
@example("é" * 200, 1, 2)
@example("日" * 140, 1, 2)
@example("\ud800", 1, 2)
@example("../../etc/passwd", 1, 2)
@example(".", 1, 2)
@settings(deadline=None)
def test_any_name_has_a_place_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, name: str, stdout: int, stderr: int
) -> None:
    directory = tmp_path_factory.mktemp("task")
    save(str(directory), name, Cursor(stdout, stderr))
    assert reader_cursors.read_cursor(str(directory), name) == Cursor(stdout, stderr)
    assert [path.name for path in directory.iterdir()] == ["readers"], "a name left its directory"
    assert len(list((directory / "readers").iterdir())) == 1


@given(st.lists(names, unique=True, min_size=2, max_size=8))
@example(["a b", "a%20.b", "a%20b"])
@example(["A", "a"])
@example(["x" * 151, "x" * 152])
@settings(deadline=None)
def test_two_names_never_share_a_place(tmp_path_factory: pytest.TempPathFactory, readers: list[str]) -> None:
    directory = str(tmp_path_factory.mktemp("task"))
    for number, reader in enumerate(readers):
        save(directory, reader, Cursor(number))
    assert [reader_cursors.read_cursor(directory, reader).stdout for reader in readers] == list(range(len(readers)))


@given(names)
@example("x" * 151)
@settings(deadline=None)
def test_a_name_cannot_be_made_to_look_like_another(name: str) -> None:
    """Also if somebody calls a reader what the file of another one is called."""
    file = reader_cursors._file_name(name)
    assume(file != name)
    assert reader_cursors._file_name(file) != file


def test_a_place_can_be_moved_back(tmp_path: Path) -> None:
    for place in (Cursor(10**12, 5), Cursor(7), START):
        save(str(tmp_path), "me", place)
        assert reader_cursors.read_cursor(str(tmp_path), "me") == place


def test_places_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        save(str(tmp_path), "me", Cursor(1))
    finally:
        os.umask(before)
    assert (tmp_path / "readers").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "readers").iterdir()} == {0o600}


@pytest.mark.parametrize("damage", [b"", b"12", b"x y\n", b"1 2 3\n", b"\xff\xfe\n", b"-1 0\n"])
def test_a_damaged_place_is_the_start(tmp_path: Path, damage: bytes) -> None:
    """What was read is read again; nothing is skipped."""
    save(str(tmp_path), "me", Cursor(5))
    (file,) = (tmp_path / "readers").iterdir()
    file.write_bytes(damage)
    assert reader_cursors.read_cursor(str(tmp_path), "me") == START


def test_many_who_move_one_place_leave_one_of_their_places(tmp_path: Path) -> None:
    def move(number: int) -> None:
        for _ in range(50):
            save(str(tmp_path), "me", Cursor(number, number))
            place = reader_cursors.read_cursor(str(tmp_path), "me")
            if place.stdout != place.stderr or place == START:
                problems.append(place)

    problems: list[Cursor] = []
    threads = [threading.Thread(target=move, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert len(os.listdir(tmp_path / "readers")) == 1, "something was left beside the place"


@pytest.mark.parametrize("failing", ["mkdir", "open"])
def test_a_full_disk_does_not_make_reading_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """A place that was there before is still moved; a new one is not remembered."""
    save(str(tmp_path), "old", Cursor(10**15, 10**15))
    real = getattr(os, failing)

    def full(path: str, *how: object, **more: object) -> object:
        if failing == "open" and os.path.exists(path):
            return real(path, *how, **more)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(os, failing, full)
    save(str(tmp_path), "old", Cursor(7, 8))
    save(str(tmp_path), "new", Cursor(9))
    monkeypatch.undo()
    assert reader_cursors.read_cursor(str(tmp_path), "old") == Cursor(7, 8)
    assert reader_cursors.read_cursor(str(tmp_path), "new") in (START, Cursor(9))
    assert not [name for name in os.listdir(tmp_path / "readers") if name.startswith(".")]
