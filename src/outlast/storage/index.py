"""A cache of what would take too long to read from every task's directory, in one SQLite file.

Every fact in here can be read from the directories, and a process that finds the file missing or damaged creates it
anew. A row is written before its task is published, so no task is ever missing; a row without a directory is ignored.
"""

from __future__ import annotations

import os
import threading

from outlast.light import frozen, sqlite3
from outlast.storage.database import Transaction, create_file, enable_wal, read_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")
    FileId = tuple[int, int]
    """The device and inode of an index file."""
    Mark = tuple[str, float, float | None]
    """A task as a listing finds it: its id, when it was created and, once it is closed, when it ended."""

NOTICE_DUE, NOTICE_IF_CALLER_DIED = 1, 2  # in the column `untold`
_SCHEMA = (
    "DROP TABLE IF EXISTS tasks",
    "DROP TABLE IF EXISTS lines",
    "DROP TABLE IF EXISTS sums",
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY, session TEXT NOT NULL, created REAL NOT NULL,
        kept_bytes INTEGER NOT NULL,  -- what it may keep while it runs, what it does keep once closed
        ended REAL, view TEXT,        -- set once it is closed: then nothing about it changes
        untold INTEGER NOT NULL       -- 1: a notice may be due; 2: only if its caller died; 0: none is
    ) WITHOUT ROWID""",
    # A covering index: a listing reads no rows, which are large.
    "CREATE INDEX newest ON tasks (created DESC, id, session, ended)",
    "CREATE INDEX unfinished ON tasks (created) WHERE ended IS NULL",
    "CREATE INDEX untold ON tasks (untold, created) WHERE untold",
    "CREATE INDEX finished ON tasks (ended) WHERE ended IS NOT NULL",
    """CREATE TABLE lines (
        id TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, lines INTEGER NOT NULL, PRIMARY KEY (id, file)
    ) WITHOUT ROWID""",
    # The bytes of all tasks, and of the finished ones: each start asks, so triggers keep the sums.
    "CREATE TABLE sums (kept_bytes INTEGER NOT NULL, finished_bytes INTEGER NOT NULL)",
    "INSERT INTO sums VALUES (0, 0)",
    """CREATE TRIGGER entered AFTER INSERT ON tasks BEGIN
        UPDATE sums SET kept_bytes = kept_bytes + new.kept_bytes,
            finished_bytes = finished_bytes + iif(new.ended IS NULL, 0, new.kept_bytes);
    END""",
    """CREATE TRIGGER changed AFTER UPDATE ON tasks BEGIN
        UPDATE sums SET kept_bytes = kept_bytes - old.kept_bytes + new.kept_bytes,
            finished_bytes = finished_bytes - iif(old.ended IS NULL, 0, old.kept_bytes)
                + iif(new.ended IS NULL, 0, new.kept_bytes);
    END""",
    """CREATE TRIGGER forgotten AFTER DELETE ON tasks BEGIN
        UPDATE sums SET kept_bytes = kept_bytes - old.kept_bytes,
            finished_bytes = finished_bytes - iif(old.ended IS NULL, 0, old.kept_bytes);
    END""",
)
_VERSION = 4
_INSERT_FOUND = "INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, NULL, NULL, 1)"
_BUSY_S = 10.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_VALUES_AT_ONCE = 500  # of one query
_WAL_PAGES = 100  # of 4 KiB, then they go into the index itself: its log takes less than half a megabyte


@frozen
class Row:
    """One task in the index; `view` is its final state as JSON, once it is closed."""

    id: str
    session: str
    created: float
    kept_bytes: int
    ended: float | None
    view: str | None


class Index:
    """The open index of one state directory. Do not carry it across a fork."""

    def __init__(self, path: str, list_tasks: Callable[[], Iterable[tuple[str, str, float, int]]]) -> None:
        """`list_tasks` reads the tasks for a new index from disk: id, session, when created, bytes."""
        self._path, self._list_tasks = path, list_tasks
        self.unusable: str | None = None  # why the index is only in memory, if it is
        # Threads share the connection, and a transaction must not contain what another thread writes.
        self._lock = threading.RLock()
        self._file: FileId | None = None
        self._read_only = False
        self._db = self._open()

    # --- open, repair --------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            self._read_only = not os.access(os.path.dirname(self._path), os.W_OK)
            if self._read_only:
                return self._open_read_only()
            try:
                return self._open_writable()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
            self._unlink()
            return self._open_writable()
        except (OSError, sqlite3.DatabaseError) as error:
            # Mostly a full disk. Tasks can still be found, listed and read: from their directories.
            self.unusable = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._file = None
            return self._connect(":memory:")

    def _open_read_only(self) -> sqlite3.Connection:
        found = os.stat(self._path, follow_symlinks=False)
        # Without a log no process has it open for writing, and SQLite must not try to create one.
        how = "mode=ro" if os.path.exists(self._path + "-wal") else "immutable=1"
        name = self._path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        db = _connect(f"file:{name}?{how}")
        try:
            if read_version(db) != _VERSION:
                raise sqlite3.OperationalError("the index is of another version")
        except BaseException:
            db.close()
            raise
        self._file = (found.st_dev, found.st_ino)
        return db

    def _open_writable(self) -> sqlite3.Connection:
        found = create_file(self._path)
        self._file = (found.st_dev, found.st_ino)
        return self._connect(self._path)

    def _connect(self, name: str) -> sqlite3.Connection:
        db = _connect(name)
        try:
            if read_version(db) != _VERSION:
                if self._file:
                    enable_wal(db, name)
                self._create_tables(db)
            db.execute("PRAGMA synchronous = OFF")  # after a crash of the machine the index can be rebuilt
            db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        except BaseException:
            db.close()
            raise
        return db

    def _create_tables(self, db: sqlite3.Connection) -> None:
        """Create the tables with the tasks that are on disk, in one transaction, unless another process just did."""
        with Transaction(db):
            if read_version(db) != _VERSION:
                for statement in _SCHEMA:
                    db.execute(statement)
                db.executemany(_INSERT_FOUND, self._list_tasks())
                db.execute(f"PRAGMA user_version = {_VERSION}")

    def _unlink(self) -> None:
        if self._read_only or not self._is_current():
            return  # it cannot be removed, or another process replaced it already
        for suffix in ("-wal", "-shm", ""):
            if os.path.lexists(self._path + suffix):
                os.unlink(self._path + suffix)

    def _is_current(self) -> bool:
        """Return whether our open file is the one that other processes open."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return self._file == (found.st_dev, found.st_ino)

    @property
    def file(self) -> FileId:
        """Which file is open, if it is the one that other processes open."""
        return self._file if self._file and self._is_current() else (0, 0)

    def _run(self, act: Callable[[], T]) -> T:
        """Use the database; if the file is gone or turns out to be damaged, use a new one."""
        with self._lock:
            if self._file and not self._is_current():
                self._reopen()
            try:
                return act()
            except sqlite3.DatabaseError as error:
                if not self._file or not _is_damage(error):
                    raise
            self._unlink()
            self._reopen()
            return act()

    def _reopen(self) -> None:
        self._db.close()
        self._db = self._open()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        # Fetch all rows: with a query still open, a write fails if another process wrote meanwhile.
        return self._run(lambda: self._db.execute(query, values).fetchall())

    def _query_ids(self, query: str, *values: object) -> list[str]:
        return [str(row[0]) for row in self._query(query, *values)]

    def _write(self, query: str, *rows: tuple[object, ...]) -> None:
        """Write what can be found out again: a full disk must not make looking at tasks fail."""
        try:
            self._run(lambda: self._db.executemany(query, rows))
        except sqlite3.OperationalError:
            pass

    # --- tasks begin and end -------------------------------------------------------------

    def reserve(self, row: Row, notice: int, choose_share: Callable[[int], int]) -> int:
        """Insert a task that will be published, with its share of the disk space; 0 if there is none left.

        `choose_share` gets the bytes that all tasks take. `row.kept_bytes` is what it takes besides its output.
        IntegrityError if the id is taken.
        """

        def insert() -> int:
            if self.unusable:
                raise sqlite3.OperationalError(self.unusable)  # no other process would see the row
            with Transaction(self._db) as db:
                share = choose_share(int(db.execute("SELECT kept_bytes FROM sums").fetchone()[0]))
                if share:
                    values = (row.id, row.session, row.created, row.kept_bytes + share, row.ended, row.view, notice)
                    db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            return share

        return self._run(insert)

    def add(self, rows: Iterable[tuple[str, str, float, int]]) -> None:
        """Insert tasks that were found on disk."""
        self._write(_INSERT_FOUND, *rows)

    def finish(self, task_id: str, ended: float, kept_bytes: int, view: str) -> None:
        """Store the final state of a closed task, and the bytes that it keeps."""
        query = "UPDATE tasks SET ended = ?, kept_bytes = ?, view = ? WHERE id = ?"
        self._write(query, (ended, kept_bytes, view, task_id))

    def forget(self, task_id: str) -> None:
        self._write("DELETE FROM tasks WHERE id = ?", (task_id,))
        self._write("DELETE FROM lines WHERE id = ?", (task_id,))

    # --- queries -------------------------------------------------------------------------

    def sums(self) -> tuple[int, int]:
        """Return the bytes of all tasks, and of the finished ones among them."""
        kept, finished = self._query("SELECT kept_bytes, finished_bytes FROM sums")[0]
        return int(kept), int(finished)

    def row(self, task_id: str) -> Row | None:
        found = self._query("SELECT id, session, created, kept_bytes, ended, view FROM tasks WHERE id = ?", task_id)
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

    def ids(self, part: str = "", session: str | None = None) -> list[str]:
        """Return the ids (of a session) that contain `part`, newest first."""
        query = "SELECT id FROM tasks WHERE instr(id, ?) AND session = coalesce(?, session) ORDER BY created DESC, id"
        return self._query_ids(query, part, session)

    def unfinished(self, before: float, most: int = -1) -> list[str]:
        """Return tasks created before that moment that are not known to be closed, oldest first."""
        query = "SELECT id FROM tasks WHERE created < ? AND ended IS NULL ORDER BY created LIMIT ?"
        return self._query_ids(query, before, most)

    def unfinished_sample(self, most: int) -> list[str]:
        """Return up to `most` random tasks that are not known to be closed."""
        return self._query_ids("SELECT id FROM tasks WHERE ended IS NULL ORDER BY random() LIMIT ?", most)

    def ended_before(self, moment: float, most: int, session: str | None = None) -> list[str]:
        """Return closed tasks (of a session), those first that ended first."""
        query = (
            "SELECT id FROM tasks WHERE ended IS NOT NULL AND ended <= ? AND session = coalesce(?, session) "
            "ORDER BY ended LIMIT ?"
        )
        return self._query_ids(query, moment, session, most)

    def views_of(self, ids: list[str]) -> dict[str, str]:
        """Return the final states of those of these tasks that have one."""
        found: dict[str, str] = {}
        for start in range(0, len(ids), _VALUES_AT_ONCE):
            some = ids[start : start + _VALUES_AT_ONCE]
            query = f"SELECT id, view FROM tasks WHERE view IS NOT NULL AND id IN ({', '.join('?' * len(some))})"
            found.update(self._query(query, *some))
        return found

    def views_with(self, session: str, part: str, most: int) -> list[str]:
        """Return the final states that contain `part`, of a session's tasks, latest first."""
        query = (
            "SELECT view FROM tasks WHERE ended IS NOT NULL AND session = ? AND instr(view, ?) "
            "ORDER BY ended DESC LIMIT ?"
        )
        return self._query_ids(query, session, part, most)

    # --- notices, counted lines ----------------------------------------------------------

    def with_notice_due(self, session: str | None, kinds: tuple[int, ...]) -> list[str]:
        """Return tasks (of a session) for which a notice may be due, oldest first."""
        query = (
            f"SELECT id FROM tasks WHERE untold AND untold IN ({', '.join('?' * len(kinds))}) "
            "AND session = coalesce(?, session) ORDER BY created"
        )
        return self._query_ids(query, *kinds, session)

    def set_notice_due(self, task_ids: Iterable[str], notice: int) -> None:
        """Store whether a notice may be due: 0, NOTICE_DUE or NOTICE_IF_CALLER_DIED."""
        ids = list(task_ids)
        if ids:
            self._write(f"UPDATE tasks SET untold = ? WHERE id IN ({', '.join('?' * len(ids))})", (notice, *ids))

    def is_notice_due(self, task_id: str) -> bool:
        """Return whether a notice may be due for a task; True if that is not known."""
        found = self._query("SELECT untold FROM tasks WHERE id = ?", task_id)
        return not found or bool(found[0][0])

    def lines(self, task_id: str) -> dict[str, tuple[int, int]]:
        """Return how many bytes of each output file were counted, and how many lines they have."""
        query = "SELECT file, size, lines FROM lines WHERE id = ?"
        return {row[0]: (row[1], row[2]) for row in self._query(query, task_id)}

    def set_lines(self, task_id: str, counts: dict[str, tuple[int, int]]) -> None:
        self._write("DELETE FROM lines WHERE id = ?", (task_id,))  # also of segments that are gone
        rows = [(task_id, file, size, lines) for file, (size, lines) in counts.items()]
        self._write("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?)", *rows)


def _connect(name: str) -> sqlite3.Connection:
    uri = name.startswith("file:")
    return sqlite3.connect(name, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=uri)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
