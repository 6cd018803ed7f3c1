"""Executors whose other side rings no bell: a thread looks at what is followed, less often while nothing happens."""

from __future__ import annotations

import threading
import time

from outlast.errors import OutlastError, Unsupported
from outlast.executors.remote import RemoteExecutor, Unreachable
from outlast.guard.client import Refused
from outlast.linux.files import unlock_and_close
from outlast.storage import mirror

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from outlast.settings import Settings
    from outlast.storage.registry import Registry

FASTEST_S = 0.05
_FAILURES = (OSError, OutlastError, ValueError)
_SLOWER = 1.2  # each pause after a look that found nothing new, up to a second


class PollingExecutor(RemoteExecutor):
    """A subclass brings one mirror up to date at a time."""

    slowest_s = 1.0

    def __init__(self, name: str, table: Mapping[str, Any], registry: Registry, settings: Settings) -> None:
        super().__init__(name, table, registry, settings)
        self._followed: dict[str, int] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def update_one(self, task_id: str) -> bool:
        """Bring the mirror of a task that was started up to date; returns whether anything is new.

        What it raises becomes the task's problem.
        """
        raise NotImplementedError

    def settle_start(self, task_id: str) -> None:
        """Find out what became of a start whose answer is missing, or ask for it again; this process has its lock.

        Raises `Refused` if there is no task and will be none, `Unreachable` if that is not known.
        """
        raise NotImplementedError

    def gather(self, task_ids: Sequence[str]) -> None:
        """Get at once what `update_one` needs for each of these tasks. What it raises becomes the problem of all."""

    def update(self, task_ids: Sequence[str], patience: float | None = None) -> None:
        self._look_at(task_ids)

    def _look_at(self, task_ids: Iterable[str]) -> bool:
        """Bring mirrors up to date; returns whether anything is new."""
        changing, began = [task_id for task_id in task_ids if self._can_change(task_id)], time.monotonic()
        try:
            self.gather(changing)
        except _FAILURES as error:
            self._note_failure(changing, error, began)
            return False
        return sum([self._try_update(task_id) for task_id in changing]) > 0

    def _try_update(self, task_id: str) -> bool:
        began = time.monotonic()
        if self.is_silent(task_id):
            return False
        try:
            return self.look_at(task_id)
        except _FAILURES as error:
            self._note_failure([task_id], error, began)
            return False

    def look_at(self, task_id: str) -> bool:
        """Bring a mirror up to date, or settle the start of its task; returns whether anything is new."""
        near = self.near(task_id)
        if mirror.is_confirmed(near):
            return self.update_one(task_id)
        if (lock := mirror.lock_start(near)) is not None:  # otherwise another process settles it
            try:
                if not mirror.is_confirmed(near):
                    self.settle_start(task_id)
            except Refused as refused:
                mirror.end_unstarted(near, refused.reason)
            finally:
                unlock_and_close(lock)
        return True

    def _note_failure(self, task_ids: Sequence[str], error: Exception, began: float) -> None:
        problem = (error.message if isinstance(error, OutlastError) else str(error)).rstrip(".")
        for task_id in task_ids:
            self.note_problem(task_id, problem)
        if isinstance(error, Unreachable):
            self.note_silence(problem, time.monotonic() - began)

    def await_closed(self, task_id: str, patience: float) -> bool:
        """Look until the task is closed, or so many seconds; returns whether it is."""
        deadline = time.monotonic() + patience
        while self._can_change(task_id):
            if time.monotonic() > deadline:
                return False
            self.update([task_id])
            time.sleep(FASTEST_S)
        return True

    # --- follow ------------------------------------------------------------------------------

    def follow(self, task_id: str) -> None:
        with self._changed:
            self._followed[task_id] = self._followed.get(task_id, 0) + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow_all, name=f"outlast-{self.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def unfollow(self, task_id: str) -> None:
        with self._changed:
            self._followed[task_id] = self._followed.get(task_id, 0) - 1
            if self._followed[task_id] <= 0:
                del self._followed[task_id]

    def _follow_all(self) -> None:
        pause, known = FASTEST_S, set[str]()
        while True:
            with self._changed:
                if not self._followed:
                    self._thread = None
                    return
                followed = set(self._followed)
            pause = FASTEST_S if followed - known else min(self.slowest_s, pause * _SLOWER)
            known = followed
            if self._look_at(followed):
                pause = FASTEST_S
            with self._changed:
                # A task that came during the look is looked at now: its notify found no thread that waits.
                if self._followed and not self._followed.keys() - followed:
                    self._changed.wait(pause)

    # --- files -------------------------------------------------------------------------------

    no_files = ""  # why there is nothing to copy

    def copy_there(self, paths: Sequence[str], directory: str) -> None:
        raise Unsupported(self.no_files.format(self.name))

    def copy_here(self, paths: Sequence[str], directory: str, into: str) -> None:
        raise Unsupported(self.no_files.format(self.name))

    def close(self) -> None:
        with self._changed:
            self._followed.clear()
            self._changed.notify_all()
