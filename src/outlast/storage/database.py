"""What those share who keep something in SQLite: the making and the form of a file, and transactions."""

from __future__ import annotations

import errno
import os
import stat

from outlast.storage.locks import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType

_SQLITE_FULL = 13


def made(path: str) -> os.stat_result:
    """The file at `path`, which is made if there is none: by us with our mode, as SQLite would use the caller's umask.

    One that is there is not opened: closing it would end the locks of all that this process has open of it.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{os.path.basename(path)} is not a file of its own; remove it", path)
    return found


def is_read_only(directory: str) -> bool:
    """Whether nothing can be written there: its file system is mounted read-only, or its mode forbids it."""
    return not os.access(directory, os.W_OK)


def log_ahead(db: sqlite3.Connection, path: str) -> None:
    """Let readers and a writer not wait for each other.

    One process at a time: of several that switch at once SQLite tells all but one that the file is locked, without
    waiting as it was told to.
    """
    with Held(os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
        db.execute("PRAGMA journal_mode = WAL")


def is_no_space(error: Exception) -> bool:
    """Whether this error of SQLite or of the system means a full disk."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == _SQLITE_FULL


def version(db: sqlite3.Connection) -> int:
    """Which form it has; 0 if it is new."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


class AtOnce:
    """All that is done inside of this is done alone, and all of it or nothing."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
