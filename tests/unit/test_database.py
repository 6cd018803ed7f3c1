"""Files of SQLite: made by many at once, and with their locks left alone."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.storage import database
from outlast.storage.index import Index

_AT_ONCE = 16


def opened_at_once(path: Path) -> list[int]:
    """The exit codes of processes that all open an index when the gate opens."""
    gate, opener = os.pipe()
    children = []
    for _ in range(_AT_ONCE):
        if (child := os.fork()) == 0:
            os.close(opener)
            os.read(gate, 1)
            os._exit(1 if Index(str(path), list).unusable else 0)
        children.append(child)
    os.close(gate)
    os.close(opener)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_many_make_a_file_at_once_and_none_is_told_that_it_is_locked(tmp_path):
    for turn in range(40):
        assert opened_at_once(tmp_path / f"{turn}.db") == [0] * _AT_ONCE


def test_a_second_look_at_a_file_does_not_end_the_locks_of_the_first(tmp_path):
    path = str(tmp_path / "x.db")
    first, second = Index(path, list), Index(path, list)
    first.newest()
    # Another process comes and goes: as the last one it would take the log along.
    program = "import sys; from outlast.storage.index import Index; i = Index(sys.argv[1], list); i.newest(); i.close()"
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=30)
    assert os.path.exists(path + "-wal")
    first.close()
    second.close()


def test_a_file_is_made_for_its_owner_only(tmp_path):
    mask = os.umask(0)
    try:
        found = database.create_file(str(tmp_path / "x.db"))
    finally:
        os.umask(mask)
    assert stat.S_IMODE(found.st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_what_is_not_a_file_is_not_opened(tmp_path, kind):
    path = tmp_path / "x.db"
    path.symlink_to(tmp_path / "elsewhere.db") if kind == "link" else path.mkdir()
    with pytest.raises(OSError, match=r"x\.db is not a file of its own; remove it"):
        database.create_file(str(path))
    assert not (tmp_path / "elsewhere.db").exists()


def test_readers_and_a_writer_do_not_wait_for_each_other(tmp_path):
    path = str(tmp_path / "x.db")
    Index(path, list).close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()
