"""A subscriber's side of the outbox: it claims notices, and acknowledges or returns them."""

from __future__ import annotations

import os
import time

from outlast.linux import process
from outlast.storage.outbox import Stored
from outlast.types import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from typing import Any

    from outlast.storage.outbox import Outbox

_FREE = ""  # as a holder: who had it gave it back
_CLAIMED = (
    "SELECT n.number, n.task, n.kind, n.session, n.at, n.facts, c.times FROM claims c JOIN notices n "
    "ON n.number = c.number WHERE c.subscriber = ? AND c.number IN ({}) ORDER BY n.number"
)


class Claims:
    """What one holder of a subscriber's name has claimed. Several, also in one process, share the work."""

    def __init__(self, outbox: Outbox, name: str, session: str, *, from_now: bool = False) -> None:
        """A new subscriber begins with the oldest notice that is kept or, `from_now`, with the next one."""
        self._outbox, self._session, self._name = outbox, session, name
        who = process.identity(os.getpid())
        self._holder = f"{who.pid} {who.tick} {who.boot} {os.urandom(4).hex()}"
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
        if self._outbox.found(*self._fresh(1)):
            return True
        holders = self._outbox.found("SELECT DISTINCT holder FROM claims WHERE subscriber = ?", self._id)
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
            return self._loaded(db, [*numbers, *fresh])

        return self._outbox.at_once(take)

    def _orphans(self, db: sqlite3.Connection, most: int) -> list[int]:
        holders = db.execute("SELECT DISTINCT holder FROM claims WHERE subscriber = ?", (self._id,)).fetchall()
        numbers: list[int] = []
        for holder in self._dead([str(row[0]) for row in holders]):
            query = "SELECT number FROM claims WHERE subscriber = ? AND holder = ? ORDER BY number"
            numbers += [row[0] for row in db.execute(query, (self._id, holder))]
        return sorted(numbers)[:most]

    def _dead(self, holders: Iterable[str]) -> list[str]:
        return [holder for holder in holders if holder != self._holder and not _is_alive(holder)]

    def _loaded(self, db: sqlite3.Connection, numbers: list[int]) -> list[Stored]:
        import json

        found = []
        for start in range(0, len(numbers), 500):
            some = numbers[start : start + 500]
            rows = db.execute(_CLAIMED.format(",".join("?" * len(some))), (self._id, *some)).fetchall()
            found += [Stored(one, task, kind, of, at, json.loads(said), n) for one, task, kind, of, at, said, n in rows]
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
        """What we claimed and did not acknowledge comes again, to whoever claims next."""
        query = "UPDATE claims SET holder = ? WHERE subscriber = ? AND holder = ?"
        self._outbox.at_once(lambda db: db.execute(query, (_FREE, self._id, self._holder)))


def _is_alive(holder: str) -> bool:
    try:
        pid, tick, boot, _ = holder.split()
        return process.is_alive(Identity(int(pid), int(tick), boot))
    except ValueError:
        return False
