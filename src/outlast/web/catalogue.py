"""All tasks in short, kept up to date by event: to filter, sort and count them without reading 10,000 directories."""

from __future__ import annotations

import os
import threading

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from outlast.shell.shell import Shell
    from outlast.storage.index import Mark
    from outlast.types import Task

_PAGE = 500
_TEXT = 500  # characters of each text that a search looks at
_BY_STATUS = {"running": 0, "pending": 1}


@frozen
class Entry:
    """One task in short."""

    task_id: str
    session: str
    kind: str
    status: str
    category: str
    parent: str
    started_at: float
    ended_at: float | None
    elapsed_ms: int
    closed: bool
    command: str
    text: str

    @property
    def is_over(self) -> bool:
        return self.status not in ("pending", "running")


def describe(task: Task) -> Entry:
    """Return what the page lists of a task."""
    texts = (task.task_id, task.command[:_TEXT], task.description[:_TEXT], task.name, task.session, task.category)
    return Entry(
        **{name: getattr(task, name) for name in Entry.__match_args__ if name not in ("text", "command")},
        command=task.command[:_TEXT],
        text="\n".join(texts).lower(),
    )


_ORDERS: dict[str, tuple[Any, bool]] = {
    "newest": (lambda one: one.started_at, True),
    "oldest": (lambda one: one.started_at, False),
    "runtime": (lambda one: one.elapsed_ms, True),
    "status": (lambda one: (_BY_STATUS.get(one.status, 2), -one.started_at), False),
    "command": (lambda one: one.command, False),
    "session": (lambda one: (one.session, -one.started_at), False),
}
ORDERS = tuple(_ORDERS)
_STATUSES = {"error": ("failed",), "cancelled": ("killed",), "active": ("pending", "running")}


class Catalogue:
    """The tasks of one state directory. Threads may use it side by side."""

    def __init__(self, shell: Shell) -> None:
        self._shell, self._lock = shell, threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._started: dict[str, set[str]] = {}  # by the task that they were started from inside of
        self._seen_at = 0

    def load(self) -> None:
        """Read all tasks."""
        self._seen_at = self._changed_at()
        for task in self._shell.reader.redacted_tasks(_PAGE):
            self._put(describe(task))

    def _put(self, entry: Entry) -> None:
        with self._lock:
            self._entries[entry.task_id] = entry
            if entry.parent:
                self._started.setdefault(entry.parent, set()).add(entry.task_id)

    def refresh(self, task_ids: Iterable[str]) -> tuple[list[Task], list[str]]:
        """Look at these tasks again; return them, and the ids of those that are gone."""
        wanted = list(task_ids)
        home = self._shell.executor.registry.home
        marks = [self._mark(task_id) for task_id in wanted if os.path.isdir(home.task(task_id))]
        found = {task.task_id: task for task in self._shell.reader.look_at_all(marks)}
        for task in found.values():
            self._put(describe(task))
        gone = [task_id for task_id in wanted if task_id not in found]
        self.remove(gone)
        return list(found.values()), gone

    def _mark(self, task_id: str) -> Mark:
        entry = self._entries.get(task_id)
        if entry is None or not entry.closed:
            return task_id, 0.0, None
        return task_id, entry.started_at, entry.ended_at or entry.started_at

    def remove(self, task_ids: Iterable[str]) -> None:
        with self._lock:
            for task_id in task_ids:
                entry = self._entries.pop(task_id, None)
                if entry is not None and entry.parent in self._started:
                    self._started[entry.parent].discard(task_id)

    def find_removed(self) -> list[str]:
        """Return the tasks that are not there any more; cheap while no task came or went."""
        if (changed := self._changed_at()) == self._seen_at:
            return []
        self._seen_at = changed
        there = set(os.listdir(self._shell.executor.registry.home.tasks))
        return [task_id for task_id in list(self._entries) if task_id not in there]

    def _changed_at(self) -> int:
        return os.stat(self._shell.executor.registry.home.tasks).st_mtime_ns

    # --- queries ---------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def get(self, task_id: str) -> Entry | None:
        return self._entries.get(task_id)

    def running(self) -> list[str]:
        """Return the ids of the tasks that run, newest first."""
        found = [one for one in self.entries() if one.status == "running"]
        return [one.task_id for one in sorted(found, key=lambda one: -one.started_at)]

    def list_unsettled(self) -> list[str]:
        """Return the ids of the tasks that have ended and may have left processes behind."""
        return [one.task_id for one in self.entries() if one.is_over and not one.closed]

    def started_in(self, task_id: str) -> list[str]:
        with self._lock:
            return sorted(self._started.get(task_id, ()))

    def select(
        self, *, status: str = "", session: str = "", kind: str = "", q: str = "", sort: str = "newest"
    ) -> list[str]:
        """Return the ids of the tasks that fit, in order."""
        statuses, words = _STATUSES.get(status, (status,)), q.lower().split()
        fitting = [
            one
            for one in self.entries()
            if (not status or one.status in statuses)
            and (not session or one.session == session)
            and (not kind or kind in (one.kind, one.category))
            and all(word in one.text for word in words)
        ]
        key, is_reversed = _ORDERS[sort]
        return [one.task_id for one in sorted(fitting, key=key, reverse=is_reversed)]
