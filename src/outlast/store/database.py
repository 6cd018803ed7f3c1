"""What those share who keep something in SQLite: the form of a file, and transactions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType


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
