"""What would take too long to read off every task's directory, in one SQLite file.

Only a help: each fact in here can be read off the directories, and whoever finds the
file missing or damaged makes it anew. A row is written before its task is published,
so that no task is ever missing; a row without a directory is nothing.
"""

from __future__ import annotations

import os
import threading

from outlast.frozen import frozen
from outlast.light import sqlite3
from outlast.storage.database import AtOnce, is_read_only, log_ahead, made, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    T = TypeVar("T")
    Entry = tuple[int, int]
    """Which index a task was entered in."""
    Mark = tuple[str, float, float | None]
    """A task as a listing finds it: its id, when it was made and, once it is closed, when it ended."""

_SCHEMA = (
    "DROP TABLE IF EXISTS tasks",
    "DROP TABLE IF EXISTS lines",
    "DROP TABLE IF EXISTS sums",
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY, session TEXT NOT NULL, created REAL NOT NULL,
        kept_bytes INTEGER NOT NULL,  -- what it may keep while it runs, what it does keep once closed
        ended REAL, view TEXT,        -- set once it is closed: nothing about it changes any more
        untold INTEGER NOT NULL       -- 1: somebody may have to be told of it; 2: only if its caller died; 0: no more
    ) WITHOUT ROWID""",
    # With all that a listing needs to know: it then reads no row, and a row is large.
    "CREATE INDEX newest ON tasks (created DESC, id, session, ended)",
    "CREATE INDEX unfinished ON tasks (created) WHERE ended IS NULL",
    "CREATE INDEX untold ON tasks (untold, created) WHERE untold",
    "CREATE INDEX finished ON tasks (ended) WHERE ended IS NOT NULL",
    """CREATE TABLE lines (
        id TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, lines INTEGER NOT NULL, PRIMARY KEY (id, file)
    ) WITHOUT ROWID""",
    # What all tasks keep, and the finished ones among them: every start asks, however many there are.
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
_KEPT_BYTES = "SELECT kept_bytes FROM sums"
_VERSION = 4
_ROW = "id, session, created, kept_bytes, ended, view"
_ENTER = "INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, NULL, NULL, 1)"
_BUSY_S = 10.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_AT_ONCE = 500  # values of one query
_WAL_PAGES = 100  # of 4 KiB, then they go into the index itself: its log takes less than half a megabyte


@frozen
class New:
    """A task that is about to be published."""

    id: str
    session: str
    created: float
    untold: int


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

    def __init__(self, path: str, on_disk: Callable[[], Iterable[tuple[str, str, float, int]]]) -> None:
        """`on_disk` finds the tasks that a new index begins with: id, session, when made, bytes."""
        self._path, self._on_disk = path, on_disk
        self.makeshift: str | None = None  # why it is only in memory, if it is
        # Threads share the connection. A transaction must not take in what another thread writes; and
        # who waits for SQLite's own lock can keep the interpreter from the thread that would free it.
        self._one_at_a_time = threading.RLock()
        self._file: tuple[int, int] | None = None  # which file is open, if it is one
        self._read_only = False
        self._db = self._open_or_make_do()

    def _open_or_make_do(self) -> sqlite3.Connection:
        try:
            self._read_only = is_read_only(os.path.dirname(self._path))
            return self._open_to_read() if self._read_only else self._open_or_renew()
        except (OSError, sqlite3.DatabaseError) as error:
            # A full disk, mostly. Tasks can still be found, listed and read: from their directories.
            self.makeshift = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._file = None
            return self._open(":memory:")

    def _open_to_read(self) -> sqlite3.Connection:
        """Where nothing can be written; an index that cannot be used as it is counts as none."""
        found = os.stat(self._path, follow_symlinks=False)
        # Without a log no process has it open for writing, and SQLite must not try to make one.
        how = "mode=ro" if os.path.exists(self._path + "-wal") else "immutable=1"
        name = self._path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        db = sqlite3.connect(
            f"file:{name}?{how}", timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            if version(db) != _VERSION:
                raise sqlite3.OperationalError("the index is of another version")
        except BaseException:
            db.close()
            raise
        self._file = (found.st_dev, found.st_ino)
        return db

    def _open_or_renew(self) -> sqlite3.Connection:
        try:
            return self._open_file()
        except sqlite3.DatabaseError as error:
            # Not for any other reason: others may have it open, and would go on in a file that is gone.
            if not _is_damage(error):
                raise
        self._unlink()
        return self._open_file()

    def _unlink(self) -> None:
        if self._read_only or not self._is_current():
            return  # it cannot be removed, or another process made it anew already
        for ending in ("-wal", "-shm", ""):
            if os.path.lexists(self._path + ending):
                os.unlink(self._path + ending)

    def _open_file(self) -> sqlite3.Connection:
        found = made(self._path)
        self._file = (found.st_dev, found.st_ino)
        return self._open(self._path)

    def _is_current(self) -> bool:
        """Whether the file that we have open is the one that others open."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return self._file == (found.st_dev, found.st_ino)

    @property
    def file(self) -> Entry:
        """Which file is open, if it is the one that others open."""
        return self._file if self._file and self._is_current() else (0, 0)

    def _sound(self, act: Callable[[], T]) -> T:
        """Do it; if the file is gone or turns out to be damaged, with a new one."""
        with self._one_at_a_time:
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
        self._db = self._open_or_make_do()

    def _open(self, name: str) -> sqlite3.Connection:
        db = sqlite3.connect(name, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            if version(db) != _VERSION:
                if self._file:
                    log_ahead(db, name)
                self._begin_anew(db)
            db.execute("PRAGMA synchronous = OFF")  # a crash of the machine costs the index, which can be rebuilt
            db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        except BaseException:
            db.close()
            raise
        return db

    def _begin_anew(self, db: sqlite3.Connection) -> None:
        """With what is on disk: all of it or not at all, and only once, whoever else is about to."""
        with AtOnce(db):
            if version(db) != _VERSION:
                for statement in _SCHEMA:
                    db.execute(statement)
                db.executemany(_ENTER, self._on_disk())
                db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        with self._one_at_a_time:
            self._db.close()

    def reserve(self, new: New, share: Callable[[int], int], beside: int) -> int:
        """Enter a task that will be published, with its share of what is left; 0 if there is none.

        `share` is told how much all tasks take, and `beside` is what this one takes besides its output.
        """
        return self._sound(lambda: self._reserve(new, share, beside))

    def _reserve(self, new: New, share: Callable[[int], int], beside: int) -> int:
        if self.makeshift:
            raise sqlite3.OperationalError(self.makeshift)  # nobody else would learn of it
        with AtOnce(self._db) as db:
            may_keep = share(int(db.execute(_KEPT_BYTES).fetchone()[0]))
            if may_keep:
                # Refused if the id is taken: the row of another task must not be touched.
                row = (new.id, new.session, new.created, may_keep + beside, new.untold)
                db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, NULL, NULL, ?)", row)
        return may_keep

    def finished_bytes(self) -> int:
        return int(self._found("SELECT finished_bytes FROM sums")[0][0])

    def enter(self, rows: Iterable[tuple[str, str, float, int]]) -> None:
        """Enter tasks that were found on disk."""
        self._note(_ENTER, *rows)

    def _note(self, query: str, *rows: tuple[object, ...]) -> None:
        """Write down what can be found out again: a full disk must not make looking at tasks fail."""
        try:
            self._sound(lambda: self._db.executemany(query, rows))
        except sqlite3.OperationalError:
            pass

    def _found(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        # All at once: what is written while a query is still open fails if somebody else wrote meanwhile.
        return self._sound(lambda: self._db.execute(query, values).fetchall())

    def kept_bytes(self) -> int:
        return int(self._found(_KEPT_BYTES)[0][0])

    def finish(self, task_id: str, ended: float, kept_bytes: int, view: str) -> None:
        """Nothing about this task changes any more."""
        self.finish_all([(task_id, ended, kept_bytes, view)])

    def finish_all(self, rows: Iterable[tuple[str, float, int, str]]) -> None:
        """Nothing about these tasks changes any more: id, when it ended, the bytes it keeps, its final state."""
        query = "UPDATE tasks SET ended = ?, kept_bytes = ?, view = ? WHERE id = ?"
        self._note(query, *((ended, kept_bytes, view, task_id) for task_id, ended, kept_bytes, view in rows))

    def forget(self, task_id: str) -> None:
        self._note("DELETE FROM tasks WHERE id = ?", (task_id,))
        self._note("DELETE FROM lines WHERE id = ?", (task_id,))

    def newest(self, session: str | None = None, after: Mark | None = None, most: int = -1) -> list[Mark]:
        """So many tasks (of a session), newest first; those that follow `after`."""
        where, values = "session = coalesce(?, session)", list[object]([session])
        if after is not None:
            where += " AND created <= ? AND (created < ? OR id > ?)"
            values += (after[1], after[1], after[0])
        query = f"SELECT id, created, ended FROM tasks WHERE {where} ORDER BY created DESC, id LIMIT ?"
        return self._found(query, *values, most)

    def recent(self, session: str | None, since: float, most: int = -1) -> list[Mark]:
        """Tasks (of a session) that were not seen to be over, and the newest that ended after that moment."""
        # In the order of this index, which stops at `most`: who asks has mostly just run something.
        ended = (
            "SELECT id, created, ended FROM tasks INDEXED BY newest WHERE ended > ? AND session = coalesce(?, session) "
            "ORDER BY created DESC, id LIMIT ?"
        )
        query = (
            "SELECT id, created, ended FROM tasks WHERE ended IS NULL AND session = coalesce(?, session) "
            f"UNION ALL SELECT * FROM ({ended}) ORDER BY created DESC, id"
        )
        return self._found(query, session, since, session, most)

    def views_of(self, ids: list[str]) -> dict[str, str]:
        """The final states of these tasks, of those that have one."""
        found: dict[str, str] = {}
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            query = f"SELECT id, view FROM tasks WHERE view IS NOT NULL AND id IN ({', '.join('?' * len(some))})"
            found.update(self._found(query, *some))
        return found

    def row(self, task_id: str) -> Row | None:
        found = self._found(f"SELECT {_ROW} FROM tasks WHERE id = ?", task_id)
        return Row(*found[0]) if found else None

    def ids(self, part: str = "", session: str | None = None) -> list[str]:
        """The ids that contain `part`, newest first."""
        where, values = ("AND session = ?", [session]) if session is not None else ("", [])
        query = f"SELECT id FROM tasks WHERE instr(id, ?) {where} ORDER BY created DESC, id"
        return [str(row[0]) for row in self._found(query, part, *values)]

    def unfinished(self, before: float, most: int = -1) -> list[str]:
        """Tasks made before that moment which were not seen to be over, oldest first."""
        query = "SELECT id FROM tasks WHERE created < ? AND ended IS NULL ORDER BY created LIMIT ?"
        return [str(row[0]) for row in self._found(query, before, most)]

    def unfinished_sample(self, most: int) -> list[str]:
        """Some of the tasks that were not seen to be over; all, if there are not more."""
        query = "SELECT id FROM tasks WHERE ended IS NULL ORDER BY random() LIMIT ?"
        return [str(row[0]) for row in self._found(query, most)]

    def ended_before(self, moment: float, most: int, session: str | None = None) -> list[str]:
        """Finished tasks (of a session) whose end is longest ago."""
        query = (
            "SELECT id FROM tasks WHERE ended IS NOT NULL AND ended <= ? AND session = coalesce(?, session) "
            "ORDER BY ended LIMIT ?"
        )
        return [str(row[0]) for row in self._found(query, moment, session, most)]

    def views(self, session: str, part: str, most: int) -> list[str]:
        """The final states that contain `part`, of a session's tasks, latest first."""
        query = (
            "SELECT view FROM tasks WHERE ended IS NOT NULL AND session = ? AND instr(view, ?) "
            "ORDER BY ended DESC LIMIT ?"
        )
        return [str(row[0]) for row in self._found(query, session, part, most)]

    def untold(self, session: str | None, kinds: tuple[int, ...], most: int = -1) -> list[str]:
        """Tasks (of a session) of which somebody may have to be told, oldest first."""
        marks = ", ".join("?" * len(kinds))
        query = (
            f"SELECT id FROM tasks WHERE untold AND untold IN ({marks}) AND session = coalesce(?, session) "
            "ORDER BY created LIMIT ?"
        )
        return [str(row[0]) for row in self._found(query, *kinds, session, most)]

    def set_untold(self, task_ids: Iterable[str], untold: int) -> None:
        """Note whether there is something to be told of them."""
        ids = list(task_ids)
        if ids:  # in one statement, which is one transaction
            self._note(f"UPDATE tasks SET untold = ? WHERE id IN ({', '.join('?' * len(ids))})", (untold, *ids))

    def is_untold(self, task_id: str) -> bool:
        """Whether somebody may have to be told of a task; also if that is not known."""
        found = self._found("SELECT untold FROM tasks WHERE id = ?", task_id)
        return not found or bool(found[0][0])

    def lines(self, task_id: str) -> dict[str, tuple[int, int]]:
        """How far each file of a task was counted, and how many lines that were."""
        query = "SELECT file, size, lines FROM lines WHERE id = ?"
        return {row[0]: (row[1], row[2]) for row in self._found(query, task_id)}

    def set_lines(self, task_id: str, counts: dict[str, tuple[int, int]]) -> None:
        self._note("DELETE FROM lines WHERE id = ?", (task_id,))  # also of files that rolled away
        rows = [(task_id, file, size, lines) for file, (size, lines) in counts.items()]
        self._note("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?)", *rows)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
