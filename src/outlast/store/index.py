"""What would take too long to read off every task's directory, in one SQLite file.

Only a help: each fact in here can be read off the directories, and whoever finds the
file missing or damaged makes it anew. A row is written before its task is published,
so that no task is ever missing; a row without a directory is nothing.
"""

from __future__ import annotations

import os
import sqlite3
import threading

from outlast.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, session TEXT NOT NULL, created REAL NOT NULL,
    kept_bytes INTEGER NOT NULL,  -- what it may keep while it runs, what it does keep once closed
    ended REAL, view TEXT         -- set once it is closed: nothing about it changes any more
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS newest ON tasks (created);
CREATE TABLE IF NOT EXISTS lines (
    id TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, lines INTEGER NOT NULL, PRIMARY KEY (id, file)
) WITHOUT ROWID;
"""
_VERSION = 1
_BUSY_S = 10.0


@frozen
class Row:
    """One task in the index; `view` is its final state as JSON, once it has one."""

    id: str
    session: str
    created: float
    kept_bytes: int
    ended: float | None
    view: str | None


class Index:
    """The open index of one state directory. Not to be carried across a fork."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.fresh = False
        # Threads share the connection, and a transaction must not take in what another thread writes.
        self._one_at_a_time = threading.Lock()
        try:
            self._db = self._open()
        except sqlite3.DatabaseError:
            for ending in ("", "-wal", "-shm"):
                if os.path.lexists(path + ending):
                    os.unlink(path + ending)
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        # Made by us with our mode: SQLite would use the caller's umask.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
                self.fresh = True
            db.execute("PRAGMA synchronous = OFF")  # a crash of the machine costs the index, which can be rebuilt
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db

    def close(self) -> None:
        self._db.close()

    def reserve(self, task_id: str, session: str, created: float, wanted: int, least: int, total: int) -> int:
        """Enter a task that will be published, and give it its share of the total; how much it may keep."""
        with self._one_at_a_time:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                share = max(min(wanted, total - self.kept_bytes()), min(wanted, least))
                row = (task_id, session, created, share)
                self._db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, NULL, NULL)", row)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        return share

    def kept_bytes(self) -> int:
        return int(self._db.execute("SELECT coalesce(sum(kept_bytes), 0) FROM tasks").fetchone()[0])

    def enter(self, rows: Iterable[tuple[str, str, float, int]]) -> None:
        """Enter tasks that were found on disk."""
        self._db.executemany("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, NULL, NULL)", rows)

    def finish(self, task_id: str, ended: float, kept_bytes: int, view: str) -> None:
        """Nothing about this task changes any more."""
        self._db.execute(
            "UPDATE tasks SET ended = ?, kept_bytes = ?, view = ? WHERE id = ?", (ended, kept_bytes, view, task_id)
        )

    def forget(self, task_id: str) -> None:
        self._db.execute("DELETE FROM tasks WHERE id = ?", (task_id,))
        self._db.execute("DELETE FROM lines WHERE id = ?", (task_id,))

    def rows(self, session: str | None = None) -> Iterator[Row]:
        """All tasks (of a session), newest first."""
        where, values = ("WHERE session = ?", (session,)) if session is not None else ("", ())
        for row in self._db.execute(f"SELECT * FROM tasks {where} ORDER BY created DESC, id", values):
            yield Row(*row)

    def row(self, task_id: str) -> Row | None:
        found = self._db.execute("SELECT * FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return Row(*found) if found else None

    def ids(self, part: str = "", session: str | None = None) -> list[str]:
        """The ids that contain `part`, newest first."""
        where, values = ("AND session = ?", [session]) if session is not None else ("", [])
        query = f"SELECT id FROM tasks WHERE instr(id, ?) {where} ORDER BY created DESC, id"
        return [str(row[0]) for row in self._db.execute(query, [part, *values])]

    def unfinished(self, before: float, most: int = -1) -> list[str]:
        """Tasks made before that moment which were not seen to be over, oldest first."""
        query = "SELECT id FROM tasks WHERE created < ? AND ended IS NULL ORDER BY created LIMIT ?"
        return [str(row[0]) for row in self._db.execute(query, (before, most))]

    def ended_before(self, moment: float, most: int, session: str | None = None) -> list[str]:
        """Finished tasks (of a session) whose end is longest ago."""
        query = "SELECT id FROM tasks WHERE ended <= ? AND session = coalesce(?, session) ORDER BY ended LIMIT ?"
        return [str(row[0]) for row in self._db.execute(query, (moment, session, most))]

    def lines(self, task_id: str) -> dict[str, tuple[int, int]]:
        """How far each file of a task was counted, and how many lines that were."""
        query = "SELECT file, size, lines FROM lines WHERE id = ?"
        return {row[0]: (row[1], row[2]) for row in self._db.execute(query, (task_id,))}

    def set_lines(self, task_id: str, counts: dict[str, tuple[int, int]]) -> None:
        rows = [(task_id, file, size, lines) for file, (size, lines) in counts.items()]
        self._db.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?)", rows)
