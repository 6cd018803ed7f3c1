"""A subscriber's side of the outbox: claim notices, acknowledge them or give them back.

A subscriber claims notices in order; `taken` is how far it has come, and what it claimed and has not
acknowledged is one row. Acknowledging removes that row. A claim names its holder: a byte in the
file `holders` that its process keeps locked. When that process is gone the kernel unlocks the byte,
and the next claim takes over what it held, number and all. Unlike a pid, a lock means the same in
every container that shares the state directory.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

from outlast.linux.files import open_regular
from outlast.storage.outbox import load_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from outlast.light import sqlite3
    from outlast.storage.outbox import Outbox, Stored

_HOLDERS = "holders"  # an empty file: only its locks matter
_FREE = ""  # as a holder: it was given back
_FLOCK = "hhqqi0q"  # struct flock, with the padding at its end
_CLAIMED = (
    "SELECT n.number, n.task, n.kind, n.session, n.at, n.facts, c.times FROM claims c JOIN notices n "
    "ON n.number = c.number WHERE c.subscriber = ? AND c.number IN ({}) ORDER BY n.number"
)


class Claims:
    """What one holder of a subscriber's name has claimed. Several, also in one process, share the work."""

    def __init__(self, outbox: Outbox, name: str, session: str, *, from_now: bool = False) -> None:
        """A new subscriber begins with the oldest notice that is kept or, `from_now`, with the next one."""
        self._outbox, self._session, self._name = outbox, session, name
        self._holder, self._lock = "none yet", -1
        self._id = outbox.at_once(lambda db: self._known(db, from_now))

    def _known(self, db: sqlite3.Connection, from_now: bool) -> int:
        which = (self._session, self._name)
        row = db.execute("SELECT id FROM subscribers WHERE session = ? AND name = ?", which).fetchone()
        if row is None:
            last = db.execute("SELECT coalesce(max(number), 0) FROM notices").fetchone()[0] if from_now else 0
            query = "INSERT INTO subscribers (session, name, taken, seen) VALUES (?, ?, ?, ?)"
            return int(db.execute(query, (*which, last, time.time())).lastrowid or 0)
        db.execute("UPDATE subscribers SET seen = ? WHERE id = ?", (time.time(), row[0]))
        return int(row[0])

    def is_any(self) -> bool:
        """Whether there is something to claim, without claiming it."""
        if self._outbox.query(*self._fresh(1)):
            return True
        holders = self._outbox.query("SELECT DISTINCT holder FROM claims WHERE subscriber = ?", self._id)
        return bool(self._dead(str(row[0]) for row in holders))

    def _fresh(self, most: int) -> tuple[Any, ...]:
        """The query for what was never claimed, and its values."""
        scope = (self._session,) if self._session else ()
        return (
            f"SELECT number FROM notices WHERE {'session = ? AND ' if scope else ''}"
            "number > (SELECT taken FROM subscribers WHERE id = ?) ORDER BY number LIMIT ?",
            *scope,
            self._id,
            most,
        )

    def take(self, most: int) -> list[Stored]:
        """Claim up to so many: first what others claimed and died with, then what is new."""
        if most < 1 or not self.is_any():
            return []
        self._become_holder()

        def take(db: sqlite3.Connection) -> list[Stored]:
            numbers = self._orphans(db, most)
            if numbers:
                query = "UPDATE claims SET holder = ?, times = times + 1 WHERE subscriber = ? AND number = ?"
                db.executemany(query, [(self._holder, self._id, number) for number in numbers])
            query, *values = self._fresh(most - len(numbers))
            fresh = [row[0] for row in db.execute(query, values)]
            db.executemany("INSERT INTO claims VALUES (?, ?, ?, 1)", [(self._id, one, self._holder) for one in fresh])
            if fresh:
                db.execute("UPDATE subscribers SET taken = ? WHERE id = ?", (fresh[-1], self._id))
            return self._load(db, [*numbers, *fresh])

        return self._outbox.at_once(take)

    def _orphans(self, db: sqlite3.Connection, most: int) -> list[int]:
        holders = db.execute("SELECT DISTINCT holder FROM claims WHERE subscriber = ?", (self._id,)).fetchall()
        numbers: list[int] = []
        for holder in self._dead([str(row[0]) for row in holders]):
            query = "SELECT number FROM claims WHERE subscriber = ? AND holder = ? ORDER BY number"
            numbers += [row[0] for row in db.execute(query, (self._id, holder))]
        return sorted(numbers)[:most]

    # --- who holds a claim -----------------------------------------------------------------

    def _open_holders(self) -> int:
        return open_regular(os.path.join(self._outbox.directory, _HOLDERS), os.O_RDWR | os.O_CREAT)

    def _become_holder(self) -> None:
        """Lock a byte of our own, before a claim names it."""
        if self._lock < 0:
            self._lock = self._open_holders()
            self._holder = str(int.from_bytes(os.urandom(7), "little"))
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, _describe_lock(self._holder))

    def _dead(self, holders: Iterable[str]) -> list[str]:
        """Return those of the holders whose process is gone, or gave back what it held."""
        fd = self._open_holders()
        try:
            return [one for one in holders if one != self._holder and not _is_locked(fd, one)]
        finally:
            os.close(fd)

    def _load(self, db: sqlite3.Connection, numbers: list[int]) -> list[Stored]:
        found = []
        for start in range(0, len(numbers), 500):
            some = numbers[start : start + 500]
            rows = db.execute(_CLAIMED.format(",".join("?" * len(some))), (self._id, *some))
            found += [load_row(row) for row in rows]
        return sorted(found, key=lambda one: one.number)

    def acknowledge(self, numbers: Iterable[int]) -> int:
        """These never come again; how many of them were still ours."""
        rows = [(self._id, number, self._holder) for number in numbers]
        if not rows:
            return 0

        def acknowledge(db: sqlite3.Connection) -> int:
            before = db.total_changes
            db.executemany("DELETE FROM claims WHERE subscriber = ? AND number = ? AND holder = ?", rows)
            return db.total_changes - before

        return self._outbox.at_once(acknowledge)

    def give_back(self) -> None:
        """Return what was claimed and not acknowledged: the next claim gets it."""
        if self._lock < 0:
            return
        query = "UPDATE claims SET holder = ? WHERE subscriber = ? AND holder = ?"
        try:
            self._outbox.at_once(lambda db: db.execute(query, (_FREE, self._id, self._holder)))
        finally:
            os.close(self._lock)
            self._lock = -1


def _describe_lock(holder: str) -> bytes:
    """Return the `struct flock` of a holder's byte: kind, whence, start, length, pid."""
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, int(holder), 1, 0)


def _is_locked(fd: int, holder: str) -> bool:
    """Return whether the byte of a holder is locked. Older versions named holders by their pid: these are gone."""
    if not holder.isdecimal():
        return False
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _describe_lock(holder))
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
