"""What it costs to tell: a notice from the end of a task to its acknowledgement, and an event."""

from __future__ import annotations

import os
import sqlite3
import time

from bench.measure import Timing, Turn, in_turns, timed
from bench.peers import Ours, Raw
from bench.rows import Goal, Race, Row
from outlast import Shell

_AT_ONCE = 20  # notices that are told in one go
_PATIENCE_S = 30.0


def _over(shell: Shell, count: int) -> None:
    """So many tasks that ended, and whose guards have left."""
    for task in [shell.start("true") for _ in range(count)]:
        shell.wait(task.task_id, timeout=_PATIENCE_S)
        deadline = time.monotonic() + _PATIENCE_S
        while not shell.executor.has_reached(task.task_id, "closed") and time.monotonic() < deadline:
            time.sleep(0.001)


def _raced(race: Race, ours: Turn, raw: Turn) -> dict[str, Timing]:
    return in_turns({Ours.name: ours, Raw.name: raw}, race.effort(), always=(Ours.name, Raw.name))


class _Database:
    """One row, one transaction: what an outbox can cost at the least."""

    def __init__(self, place: str) -> None:
        self._db = sqlite3.connect(os.path.join(place, "raw.sqlite"), isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, text TEXT)")

    def add(self) -> None:
        self._db.execute("INSERT INTO rows (text) VALUES (?)", ("x" * 500,))

    def close(self) -> None:
        self._db.close()


def notice(race: Race) -> Row:
    """Found, numbered, claimed, put into words, sealed and acknowledged; each of several that come together."""
    database = _Database(race.ours.place)
    with Shell.open(home=f"{race.ours.place}/told") as shell, shell.subscribe("bench") as subscription:

        def ours() -> float:
            _over(shell, _AT_ONCE)
            return timed(lambda: subscription.acknowledge(*subscription.take())) / _AT_ONCE

        timings = _raced(race, ours, lambda: timed(database.add))
    database.close()
    what = f"a notice, from the task's files to its acknowledgement, {_AT_ONCE} at once"
    return Row("notice", what, "one row into SQLite", timings)


def notice_wake_up(race: Race) -> Row:
    """From the last deed of the command to the moment that a subscriber has the notice of its end."""
    stamp = f"{race.ours.place}/told-stamp"
    with Shell.open(home=f"{race.ours.place}/told") as shell, shell.subscribe("bench") as subscription:
        subscription.acknowledge(*subscription.take())

        def ours() -> float:
            shell.start(f"sleep 0.05; echo $EPOCHREALTIME > {stamp}")
            taken = subscription.wait(_PATIENCE_S)
            woke = time.time()
            subscription.acknowledge(*taken)
            with open(stamp) as file:
                return woke - float(file.read())

        def raw() -> float:
            race.raw.start_and_wait(f"sleep 0.05; echo $EPOCHREALTIME > {stamp}")
            woke = time.time()
            with open(stamp) as file:
                return woke - float(file.read())

        timings = _raced(race, ours, raw)
    return Row("notice-wake-up", "a subscriber has the notice of an end", "Popen.wait", timings)


def event(race: Race) -> Row:
    """The event of a call of a tool, which is the only one that is written when it happens."""
    database = _Database(race.ours.place)
    facts = {"tool": "bash", "profile": "default", "label": "make test", "failed": False, "elapsed_ms": 3}
    with Shell.open(home=f"{race.ours.place}/told") as shell:
        board = shell.notice_board.board
        timings = _raced(race, lambda: timed(lambda: board.record_call("s", facts)), lambda: timed(database.add))
    database.close()
    return Row("event", "an event, written down", "one row into SQLite", timings, Goal(2.0))
