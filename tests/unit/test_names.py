"""Locks that are held for a moment, and names."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from outlast.linux.files import FileLock
from outlast.storage.name_lock import NameLock


def opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_free(path: Path) -> bool:
    fd = opened(str(path))
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def test_what_was_forked_meanwhile_does_not_hold_on(tmp_path):
    gate, opener = os.pipe()
    with FileLock(opened(str(tmp_path / "lock"))):
        assert not is_free(tmp_path / "lock")
        child = os.fork()
        if child == 0:
            os.close(opener)
            os.read(gate, 1)
            os._exit(0)
    assert is_free(tmp_path / "lock")
    os.close(opener)
    os.close(gate)
    os.waitpid(child, 0)


def test_a_name_that_was_removed_while_somebody_waited_for_it_is_made_anew(tmp_path):
    path = str(tmp_path / "name")
    waiting = NameLock(path, opened)
    with NameLock(path, opened) as first:
        first.assign("bash-1")
        os.unlink(path)
    with waiting as second:
        assert second.task_id == ""
        second.assign("bash-2")
    with NameLock(path, opened) as third:
        assert third.task_id == "bash-2"
