"""What the two SQLite files (index and outbox) share: how a file is opened and created, and transactions."""

from __future__ import annotations

import errno
import os
import stat

from outlast.light import sqlite3
from outlast.linux.files import FileLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

IN_MEMORY = ":memory:"
_BUSY_S = 30.0
_SQLITE_FULL = 13


def create_file(path: str) -> os.stat_result:
    """Create a private file at `path` if there is none: SQLite would use the caller's umask.

    An existing file is not opened: closing it would release all POSIX locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{os.path.basename(path)} is not a file of its own; remove it", path)
    return found


def open_database(path: str, version: int, create: Callable[[sqlite3.Connection, int], None]) -> sqlite3.Connection:
    """Open a database. `create` creates its tables; it gets the version of the present ones, 0 if there are none."""
    db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        if _read_version(db) != version:
            if path != IN_MEMORY:
                _enable_wal(db, path)
            with Transaction(db):
                if (found := _read_version(db)) != version:  # another process may just have created them
                    create(db, found)
                    db.execute(f"PRAGMA user_version = {version}")
    except BaseException:
        db.close()
        raise
    return db


def _read_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _enable_wal(db: sqlite3.Connection, path: str) -> None:
    """Let readers and a writer not wait for each other.

    Under a lock: when several processes switch at once, SQLite fails all but one without the busy timeout.
    """
    with FileLock(os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
        db.execute("PRAGMA journal_mode = WAL")


def is_disk_full(error: Exception) -> bool:
    """Return whether this error of SQLite or of the system means a full disk."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == _SQLITE_FULL


class Transaction:
    """A write transaction for the length of a `with`: committed, or rolled back after an exception."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._db.__exit__(kind, error, at)
