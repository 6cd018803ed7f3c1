"""A cache of what would take too long to read from every task's directory, in one SQLite file.

Every fact in here can be read from the directories. A process that finds the file missing, damaged or made by another
version replaces it. A row is written before its task is published, so no task is ever missing; a row without a
directory is ignored.
"""

from __future__ import annotations

import errno
import os
import threading

from outlast.light import frozen, json, sqlite3
from outlast.storage.database import IN_MEMORY, create_file, open_database

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    FileId = tuple[int, int] | None
    """The device and inode of an index file; None if it is not the one that other processes open."""
    Found = tuple[str, str, float, int]
    """A task as it is found on disk: its id, its session, when it was created, and the bytes that it may keep."""
    Mark = tuple[str, float, float | None]
    """A task as a listing finds it: its id, when it was created and, once it is closed, when it ended."""

NOTICE_DUE, NOTICE_IF_CALLER_DIED = 1, 2  # in the column `untold`
_VERSION = 5
_SCHEMA = (
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY, session TEXT NOT NULL, created REAL NOT NULL,
        kept_bytes INTEGER NOT NULL,  -- what it may keep while it runs, what it does keep once closed
        untold INTEGER NOT NULL,      -- 1: a notice may be due; 2: only if its caller died; 0: none is
        ended REAL, view TEXT,        -- set once it is closed: then nothing about it changes
        lines TEXT                    -- how many bytes of each output file were counted, and how many lines they have
    ) WITHOUT ROWID""",
    # A covering index: a listing reads no rows, which are large.
    "CREATE INDEX newest ON tasks (created DESC, id, session, ended)",
    "CREATE INDEX unfinished ON tasks (created) WHERE ended IS NULL",
    "CREATE INDEX untold ON tasks (untold, created) WHERE untold",
    "CREATE INDEX finished ON tasks (ended, kept_bytes) WHERE ended IS NOT NULL",
    # The bytes of all tasks: each start asks, so triggers keep the sum.
    "CREATE TABLE sums (kept_bytes INTEGER NOT NULL)",
    "INSERT INTO sums VALUES (0)",
    """CREATE TRIGGER entered AFTER INSERT ON tasks
        BEGIN UPDATE sums SET kept_bytes = kept_bytes + new.kept_bytes; END""",
    """CREATE TRIGGER changed AFTER UPDATE OF kept_bytes ON tasks
        BEGIN UPDATE sums SET kept_bytes = kept_bytes - old.kept_bytes + new.kept_bytes; END""",
    """CREATE TRIGGER forgotten AFTER DELETE ON tasks
        BEGIN UPDATE sums SET kept_bytes = kept_bytes - old.kept_bytes; END""",
)
_INSERT_FOUND = "INSERT OR IGNORE INTO tasks (id, session, created, kept_bytes, untold) VALUES (?, ?, ?, ?, 1)"
# SQLITE_ERROR: a statement does not fit the tables, because another version made them while we had the file open.
_USELESS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WAL_PAGES = 100  # of 4 KiB, then they go into the index itself: its log takes less than half a megabyte


@frozen
class Usual:
    """How long a command took when it went well: the middle of its latest runs."""

    elapsed_ms: int
    runs: int


@frozen
class Row:
    """One task in the index; `view` is its final state as JSON, once it is closed."""

    session: str
    kept_bytes: int
    view: str | None


class Index:
    """The open index of one state directory. Do not carry it across a fork."""

    def __init__(self, path: str, list_tasks: Callable[[], Iterable[Found]]) -> None:
        """`list_tasks` reads the tasks for a new index from disk."""
        self._path, self._list_tasks = path, list_tasks
        self.unusable: str | None = None  # why the index is only in memory, if it is
        # Threads share the connection, and a transaction must not contain what another thread writes.
        self._lock = threading.RLock()
        self._file: FileId = None
        self._db = self._open()

    # --- open, repair --------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            try:
                return self._open_file()
            except sqlite3.DatabaseError as error:
                if not _is_useless(error):
                    raise
            self._unlink()
            return self._open_file()
        except (OSError, sqlite3.DatabaseError) as error:
            # A full disk, or a read-only one. Tasks can still be found, listed and read: from their directories.
            self.unusable = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._file = None
            return open_database(IN_MEMORY, _VERSION, self._create_tables)

    def _open_file(self) -> sqlite3.Connection:
        if not os.access(os.path.dirname(self._path), os.W_OK):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self._path)
        found = create_file(self._path)
        self._file = (found.st_dev, found.st_ino)
        db = open_database(self._path, _VERSION, self._create_tables)
        db.execute("PRAGMA synchronous = OFF")  # after a crash of the machine the index can be rebuilt
        db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        return db

    def _create_tables(self, db: sqlite3.Connection, version: int) -> None:
        """Create the tables with the tasks that are on disk."""
        if version:
            # Not in this file: a process of that version that has it open would fail at its next statement. If the
            # file is replaced, that process opens the new one.
            raise _OtherVersion(f"version {version} of Outlast made this index")
        for statement in _SCHEMA:
            db.execute(statement)
        db.executemany(_INSERT_FOUND, self._list_tasks())

    def _unlink(self) -> None:
        if self.file != self._file:
            return  # another process replaced it already
        for suffix in ("-wal", "-shm", ""):
            if os.path.lexists(self._path + suffix):
                os.unlink(self._path + suffix)

    @property
    def file(self) -> FileId:
        """Which file is open, if it is the one that other processes open."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return None
        return self._file if self._file == (found.st_dev, found.st_ino) else None

    def _execute(self, statement: str, *values: object) -> tuple[list[tuple[Any, ...]], int]:
        """Return the rows of a statement, and how many it changed; replace a file that is gone or useless."""
        with self._lock:
            if self._file and not self.file:
                self._reopen()
            try:
                return self._execute_once(statement, values)
            except sqlite3.DatabaseError as error:
                if not self._file or not _is_useless(error):
                    raise
            self._unlink()
            self._reopen()
            return self._execute_once(statement, values)

    def _execute_once(self, statement: str, values: Iterable[object]) -> tuple[list[tuple[Any, ...]], int]:
        cursor = self._db.execute(statement, tuple(values))
        # Fetch all rows: with a query still open, a write fails if another process wrote meanwhile.
        return cursor.fetchall(), cursor.rowcount

    def _reopen(self) -> None:
        self._db.close()
        self._db = self._open()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._execute(query, *values)[0]

    def _ids(self, where: str, *values: object) -> list[str]:
        return [str(row[0]) for row in self._query(f"SELECT id FROM tasks WHERE {where}", *values)]

    def _write(self, statement: str, *values: object) -> None:
        """Write what can be found out again: a full disk must not make looking at tasks fail."""
        try:
            self._execute(statement, *values)
        except sqlite3.OperationalError:
            pass

    # --- tasks begin and end -------------------------------------------------------------

    def reserve(self, task_id: str, session: str, created: float, notice: int, size: int, most: int) -> bool:
        """Insert a task that will be published, unless all tasks would then take more than `most` bytes.

        IntegrityError if the id is taken.
        """
        if self.unusable:
            raise sqlite3.OperationalError(self.unusable)  # no other process would see the row
        statement = (
            "INSERT INTO tasks (id, session, created, untold, kept_bytes) "
            "SELECT ?1, ?2, ?3, ?4, ?5 FROM sums WHERE kept_bytes + ?5 <= ?6"
        )
        return self._execute(statement, task_id, session, created, notice, size, most)[1] > 0

    def add(self, found: Found) -> None:
        """Insert a task that was found on disk."""
        self._write(_INSERT_FOUND, *found)

    def finish(self, task_id: str, ended: float, kept_bytes: int, view: str) -> None:
        """Store the final state of a closed task, and the bytes that it keeps."""
        statement = "UPDATE tasks SET ended = ?, kept_bytes = ?, view = ? WHERE id = ?"
        self._write(statement, ended, kept_bytes, view, task_id)

    def forget(self, task_id: str) -> None:
        self._write("DELETE FROM tasks WHERE id = ?", task_id)

    # --- queries -------------------------------------------------------------------------

    def kept_bytes(self) -> int:
        """Return the bytes of all tasks."""
        return int(self._query("SELECT kept_bytes FROM sums")[0][0])

    def finished_bytes(self) -> int:
        """Return the bytes of the closed tasks."""
        return int(self._query("SELECT total(kept_bytes) FROM tasks WHERE ended IS NOT NULL")[0][0])

    def row(self, task_id: str) -> Row | None:
        found = self._query("SELECT session, kept_bytes, view FROM tasks WHERE id = ?", task_id)
        return Row(*found[0]) if found else None

    def newest(self, session: str | None = None, after: Mark | None = None, most: int = -1) -> list[Mark]:
        """Return up to `most` tasks (of a session), newest first; those that follow `after`."""
        where, values = "session = coalesce(?, session)", list[object]([session])
        if after is not None:
            where += " AND created <= ? AND (created < ? OR id > ?)"
            values += (after[1], after[1], after[0])
        query = f"SELECT id, created, ended FROM tasks WHERE {where} ORDER BY created DESC, id LIMIT ?"
        return self._query(query, *values, most)

    def recent(self, session: str | None, since: float, most: int = -1) -> list[Mark]:
        """Return the tasks (of a session) that are not known to be closed, and the newest that ended after `since`."""
        # In the order of this index, which stops at `most`: a caller mostly has just run something.
        ended = (
            "SELECT id, created, ended FROM tasks INDEXED BY newest WHERE ended > ? AND session = coalesce(?, session) "
            "ORDER BY created DESC, id LIMIT ?"
        )
        query = (
            "SELECT id, created, ended FROM tasks WHERE ended IS NULL AND session = coalesce(?, session) "
            f"UNION ALL SELECT * FROM ({ended}) ORDER BY created DESC, id"
        )
        return self._query(query, session, since, session, most)

    def ids(self, part: str = "", session: str | None = None, most: int = -1) -> list[str]:
        """Return up to `most` ids (of a session) that contain `part`, newest first."""
        where = "instr(id, ?) AND session = coalesce(?, session) ORDER BY created DESC, id LIMIT ?"
        return self._ids(where, part, session, most)

    def sample_unfinished(self, before: float, most: int) -> list[str]:
        """Return up to `most` random tasks, created before that moment, that are not known to be closed."""
        return self._ids("created < ? AND ended IS NULL ORDER BY random() LIMIT ?", before, most)

    def ended_before(self, moment: float, most: int, session: str | None = None) -> list[str]:
        """Return closed tasks (of a session), those first that ended first."""
        where = "ended IS NOT NULL AND ended <= ? AND session = coalesce(?, session) ORDER BY ended LIMIT ?"
        return self._ids(where, moment, session, most)

    def views_of(self, ids: list[str]) -> dict[str, str]:
        """Return the final states of those of these tasks that have one."""
        query = "SELECT id, view FROM tasks WHERE view IS NOT NULL AND id IN (SELECT value FROM json_each(?))"
        return dict(self._query(query, json.dumps(ids)))

    def durations(self, session: str, command: str, most: int) -> list[int]:
        """Return how many milliseconds a command took when it completed in a session, latest first."""
        query = (
            "SELECT json_extract(view, '$.elapsed_ms') FROM tasks WHERE ended IS NOT NULL AND session = ? "
            "AND instr(view, ?) AND json_extract(view, '$.command') = ? "
            "AND json_extract(view, '$.status') = 'completed' ORDER BY ended DESC LIMIT ?"
        )
        return [int(row[0]) for row in self._query(query, session, json.dumps(command), command, most)]

    # --- notices, lines ------------------------------------------------------------------

    def with_notice_due(self, session: str | None, kinds: tuple[int, ...]) -> list[str]:
        """Return tasks (of a session) for which a notice may be due, oldest first."""
        wanted = f"untold IN ({', '.join('?' * len(kinds))})"
        return self._ids(f"untold AND {wanted} AND session = coalesce(?, session) ORDER BY created", *kinds, session)

    def set_notice_due(self, task_ids: Iterable[str], notice: int) -> None:
        """Store whether a notice may be due: 0, NOTICE_DUE or NOTICE_IF_CALLER_DIED."""
        statement = "UPDATE tasks SET untold = ? WHERE id IN (SELECT value FROM json_each(?))"
        self._write(statement, notice, json.dumps(list(task_ids)))

    def is_notice_due(self, task_id: str) -> bool:
        """Return whether a notice may be due for a task; True if that is not known."""
        found = self._query("SELECT untold FROM tasks WHERE id = ?", task_id)
        return not found or bool(found[0][0])

    def lines(self, task_id: str) -> dict[str, list[int]]:
        """Return how many bytes of each output file were counted, and how many lines they have."""
        found = self._query("SELECT lines FROM tasks WHERE id = ? AND lines IS NOT NULL", task_id)
        return dict(json.loads(found[0][0])) if found else {}

    def set_lines(self, task_id: str, counts: dict[str, list[int]]) -> None:
        self._write("UPDATE tasks SET lines = ? WHERE id = ?", json.dumps(counts), task_id)


class _OtherVersion(sqlite3.DatabaseError):
    sqlite_errorcode = sqlite3.SQLITE_ERROR


def _is_useless(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file has to be replaced."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _USELESS
