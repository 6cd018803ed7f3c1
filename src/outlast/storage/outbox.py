"""The outbox: what is to be told, and what happened, in one SQLite file.

A notice gets its number in the transaction that puts it in, and is unique by task, kind and
turn: so any number of processes can find the same ending and it is told once. Who claimed it: see `claims`.

Unlike the index this cannot be made anew: that something was acknowledged stands nowhere else.
"""

from __future__ import annotations

import os
import threading
import time

from outlast.errors import StateRefused, SystemRefused
from outlast.light import frozen, json, sqlite3
from outlast.storage.database import Transaction, create_file, is_disk_full, open_database

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

DIRECTORY = "outbox"
EVERYBODY = ""  # as a session: the operator's, who is told of every task
VERSION = 1
_FILE = "outbox.sqlite"
_WAL_PAGES = 1000  # of 4 KiB; then they go into the file itself, and that waits for the disk
EVENTS_AT_MOST = 100_000
_SCHEMA = (
    """CREATE TABLE notices (
        number INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, kind TEXT NOT NULL, turn INTEGER NOT NULL,
        session TEXT NOT NULL, at REAL NOT NULL, facts TEXT NOT NULL, UNIQUE (task, kind, turn)
    )""",
    "CREATE INDEX of_session ON notices (session, number)",
    """CREATE TABLE subscribers (
        id INTEGER PRIMARY KEY, session TEXT NOT NULL, name TEXT NOT NULL, taken INTEGER NOT NULL,
        seen REAL NOT NULL, UNIQUE (session, name)
    )""",
    """CREATE TABLE claims (
        subscriber INTEGER NOT NULL, number INTEGER NOT NULL, holder TEXT NOT NULL, times INTEGER NOT NULL,
        PRIMARY KEY (subscriber, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT, type TEXT NOT NULL, session TEXT NOT NULL,
        at REAL NOT NULL, facts TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX once ON events (task, type) WHERE task IS NOT NULL",  # a call of a tool has no task here
    # How far a task's output was looked through for its patterns, and what is held back.
    "CREATE TABLE scans (task TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",
)


@frozen
class Found:
    """A notice that is to be put in: about which task, of what kind, the how-manieth of it."""

    task: str
    kind: str
    turn: int
    session: str
    at: float
    facts: Mapping[str, Any]


@frozen
class Stored:
    """A notice, or an event (then `times` is 0), as it is kept."""

    number: int
    task: str
    kind: str
    session: str
    at: float
    facts: Mapping[str, Any]
    times: int = 0  # how often it was claimed


@frozen
class Happened:
    """An event that is to be put in; of a task each type happens once."""

    task: str | None
    type: str
    session: str
    at: float
    facts: Mapping[str, Any]


class Outbox:
    """The open outbox of one state directory. Not to be carried across a fork."""

    def __init__(self, home: str) -> None:
        self.directory = os.path.join(home, DIRECTORY)
        self._one_at_a_time = threading.RLock()
        try:
            os.makedirs(self.directory, 0o700, exist_ok=True)
            self._db = self._open(os.path.join(self.directory, _FILE))
        except (OSError, sqlite3.Error) as error:
            if is_disk_full(error):
                raise self._explain_refusal(error) from None
            what = getattr(error, "strerror", None) or str(error)
            raise StateRefused(f"The outbox in {self.directory} cannot be used: {what}; move it away.") from None

    def _open(self, path: str) -> sqlite3.Connection:
        create_file(path)
        db = open_database(path, VERSION, self._create_tables)
        # Safe against the death of any process. A crash of the machine may take the last moments along: what
        # was acknowledged in them comes again, with the same number.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        return db

    def _create_tables(self, db: sqlite3.Connection, found: int) -> None:
        if found:
            raise StateRefused(f"{self.directory} was made by a newer version of Outlast; update Outlast.")
        for statement in _SCHEMA:
            db.execute(statement)

    def close(self) -> None:
        with self._one_at_a_time:
            self._db.close()

    def _explain_refusal(self, error: Exception) -> SystemRefused:
        todo = "free some space" if is_disk_full(error) else "try again"
        return SystemRefused(f"The outbox in {self.directory} cannot be used now: {error}; {todo}.")

    def at_once(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in one transaction, alone."""
        try:
            with self._one_at_a_time, Transaction(self._db) as db:
                return act(db)
        except sqlite3.Error as error:
            raise self._explain_refusal(error) from None

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with self._one_at_a_time:
                return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._explain_refusal(error) from None

    # --- what is put in ------------------------------------------------------------------

    def put(self, notices: Iterable[Found], events: Iterable[Happened] = ()) -> int:
        """Put in what is not there yet, all of it or nothing; how many notices were new."""
        notices = list(notices)
        happened = [(e.task, e.type, e.session, e.at, json.dumps(dict(e.facts))) for e in events]
        if not notices and not happened:
            return 0

        def put(db: sqlite3.Connection) -> int:
            new = _put_notices(db, notices)
            # Not OR IGNORE, which uses up a number each time.
            query = "INSERT INTO events (task, type, session, at, facts) SELECT ?1, ?2, ?3, ?4, ?5 WHERE NOT EXISTS"
            db.executemany(f"{query} (SELECT 1 FROM events WHERE task = ?1 AND type = ?2)", happened)
            return new

        return self.at_once(put)

    def add(self, one: Happened) -> None:
        """Insert an event that has no task. One statement, because a caller waits for it."""
        query = "INSERT INTO events (task, type, session, at, facts) VALUES (NULL, ?, ?, ?, ?)"
        self.query(query, one.type, one.session, one.at, json.dumps(dict(one.facts)))

    def scan_of(self, task: str) -> str:
        """How far a task was looked through, as `move_scan` left it; empty: not at all."""
        rows = self.query("SELECT state FROM scans WHERE task = ?", task)
        return str(rows[0][0]) if rows else ""

    def move_scan(self, task: str, before: str, after: str, notices: Iterable[Found]) -> bool:
        """Note how far a task was looked through, with what came of it; False if another was faster: then nothing."""

        def move(db: sqlite3.Connection) -> bool:
            row = db.execute("SELECT state FROM scans WHERE task = ?", (task,)).fetchone()
            if (row[0] if row else "") != before:
                return False
            db.execute("INSERT OR REPLACE INTO scans VALUES (?, ?)", (task, after))
            _put_notices(db, notices)
            return True

        return self.at_once(move)

    def count(self, task: str, kind: str) -> int:
        """How many notices of a kind there are about a task."""
        return int(self.query("SELECT count(*) FROM notices WHERE task = ? AND kind = ?", task, kind)[0][0])

    # --- what is looked at ---------------------------------------------------------------

    def notice(self, number: int, session: str) -> Stored | None:
        """One notice, if that session may see it."""
        rows = self.query(f"SELECT {_COLUMNS} FROM notices WHERE number = ? AND {_REACHED}", number, session, session)
        return load_row(rows[0]) if rows else None

    def newest(self, session: str, most: int) -> list[Stored]:
        """Return the latest notices, oldest first, delivered or not."""
        query = f"SELECT {_COLUMNS} FROM notices WHERE {_REACHED} ORDER BY number DESC LIMIT ?"
        return [load_row(row) for row in reversed(self.query(query, session, session, most))]

    def behind(self, session: str, number: int) -> list[Stored]:
        """The notices behind that number, in order."""
        query = f"SELECT {_COLUMNS} FROM notices WHERE number > ? AND {_REACHED} ORDER BY number"
        return [load_row(row) for row in self.query(query, number, session, session)]

    def last_notice(self) -> int:
        return int(self.query("SELECT coalesce(max(number), 0) FROM notices")[0][0])

    def events(self, session: str, after: int = 0, most: int = -1) -> list[Stored]:
        """What happened behind that number, in order."""
        query = (
            f"SELECT number, coalesce(task, ''), type, session, at, facts FROM events "
            f"WHERE number > ? AND {_REACHED} ORDER BY number LIMIT ?"
        )
        return [load_row(row) for row in self.query(query, after, session, session, most)]

    def last_event(self) -> int:
        return int(self.query("SELECT coalesce(max(number), 0) FROM events")[0][0])

    # --- what goes -----------------------------------------------------------------------

    def forget(self, older_than_s: float, is_there: Callable[[str], bool]) -> int:
        """Remove what is old, but nothing about a task that is still there: it would be found, and told, again."""
        before = time.time() - older_than_s
        if not self._has_old(before):
            return 0
        rows = self.query("SELECT DISTINCT task FROM notices WHERE at < ?", before)
        gone = [(str(row[0]),) for row in rows if not is_there(str(row[0]))]

        def forget(db: sqlite3.Connection) -> int:
            changed = db.total_changes
            query = "DELETE FROM claims WHERE number IN (SELECT number FROM notices WHERE task = ?)"
            db.executemany(query, gone)
            db.executemany("DELETE FROM notices WHERE task = ?", gone)
            db.executemany("DELETE FROM scans WHERE task = ?", gone)
            last = db.execute("SELECT coalesce(max(number), 0) FROM events").fetchone()[0]
            db.execute("DELETE FROM events WHERE at < ? OR number <= ?", (before, last - EVENTS_AT_MOST))
            return db.total_changes - changed

        return self.at_once(forget)

    def _has_old(self, before: float) -> bool:
        """A quick look: they were put in about in the order in which they happened."""
        for table in ("notices", "events"):
            if any(row[0] < before for row in self.query(f"SELECT at FROM {table} ORDER BY number LIMIT 1")):
                return True
        many = self.query("SELECT coalesce(max(number) - min(number), 0) FROM events")[0][0]
        return bool(many >= 2 * EVENTS_AT_MOST)


_COLUMNS = "number, task, kind, session, at, facts"
_REACHED = "(? = '' OR session = ?)"


def _put_notices(db: sqlite3.Connection, notices: Iterable[Found]) -> int:
    rows = [(n.task, n.kind, n.turn, n.session, n.at, json.dumps(dict(n.facts))) for n in notices]
    before = db.total_changes
    query = "INSERT INTO notices (task, kind, turn, session, at, facts) SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS"
    db.executemany(f"{query} (SELECT 1 FROM notices WHERE task = ?1 AND kind = ?2 AND turn = ?3)", rows)
    return db.total_changes - before


def load_row(row: tuple[Any, ...]) -> Stored:
    """Parse a row of `_COLUMNS`, and perhaps how often it was claimed."""
    number, task, kind, session, at, facts, *times = row
    return Stored(number, task, kind, session, at, json.loads(facts), *times)
