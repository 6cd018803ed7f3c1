"""All tasks of a state directory: make, find, list, remove."""

from __future__ import annotations

import os
import sqlite3
import time

from outlast import process
from outlast.errors import AmbiguousTask, DamagedTask, StartFailed, UnknownTask
from outlast.frozen import replaced
from outlast.store import launchfile, output, view
from outlast.store.index import Index
from outlast.store.status import is_watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.model import Launch, Task
    from outlast.store.home import Home

LEAST_SHARE_BYTES = 1 << 20  # what a task may keep even when the whole state directory is full
PRUNE_AT_ONCE = 20  # what one start removes at most: nobody waits for somebody else's clean-up
_STALE_S = 3600.0  # a staged directory this old is nobody's work in progress
_NAMED_AT_MOST = 5


class Registry:
    """The tasks of one state directory, through one open index."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._index: Index | None = None
        self._table: process.Table | None = None

    @property
    def index(self) -> Index:
        if self._index is None:
            self._index = Index(self.home.index)
            if self._index.fresh:
                self._rebuild(self._index)
        return self._index

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    # --- make ----------------------------------------------------------------------------

    def stage(self, launch: Launch, state_limit: int) -> tuple[str, str]:
        """Prepare a directory for a task under a new id: where it is now, and where it will be published."""
        task_id = f"{launch.kind}-{_token()}"
        created = time.time()
        try:
            share = self._share(task_id, launch, created, state_limit)
            staged = os.path.join(self.home.staging, f"{task_id}.{_token()}")
            os.mkdir(staged, 0o700)
            launchfile.write(staged, replaced(launch, output_limit=share), created)
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StartFailed(f"The task cannot be prepared in {self.home.path}: {reason}.") from None
        return staged, self.home.task(task_id)

    def _share(self, task_id: str, launch: Launch, created: float, total: int) -> int:
        wanted = launch.output_limit
        if self.index.kept_bytes() + wanted > total:
            self._make_room(wanted, total)
        return self.index.reserve(task_id, launch.session, created, wanted, LEAST_SHARE_BYTES, total)

    def _make_room(self, wanted: int, total: int) -> None:
        """Take back what tasks reserved and did not use; then remove what ended longest ago."""
        for task_id in self.index.unfinished(time.time()):
            self._settle_quietly(task_id)
        for task_id in self.index.ended_before(time.time(), PRUNE_AT_ONCE):
            if self.index.kept_bytes() + wanted <= total:
                return
            self.remove(task_id)

    def discard(self, staged: str, published: str) -> None:
        """Take back a staged task that was never published."""
        _remove_tree(staged)
        self.index.forget(os.path.basename(published))

    # --- find ----------------------------------------------------------------------------

    def find(self, part: str, session: str | None = None) -> str:
        """The one id that `part` is, or is a part of, among a session's tasks."""
        part = part.strip().lower()
        if not part:
            raise UnknownTask("A task id is needed; `outlast ps` lists them.")
        if "/" not in part and os.path.isdir(self.home.task(part)) and self._belongs(part, session):
            return part
        found = [one for one in self.index.ids(part, session) if os.path.isdir(self.home.task(one))]
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousTask(f"'{part}' fits {len(found)} tasks: {_named(found)}; give more of the id.")
        raise UnknownTask(self._unknown(part, session))

    def _belongs(self, task_id: str, session: str | None) -> bool:
        if session is None:
            return True
        row = self.index.row(task_id)
        return row is not None and row.session == session

    def _unknown(self, part: str, session: str | None) -> str:
        from difflib import get_close_matches

        near = get_close_matches(part, self.index.ids(session=session)[:1000], n=3, cutoff=0.5)
        hint = f"near it are {_named(near)}" if near else "`outlast ps --all` lists them"
        return f"There is no task '{part}' (any more); {hint}."

    # --- look ----------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """One task as it is now."""
        self._table = None
        return self._settle(task_id)

    def tasks(self, session: str | None = None) -> Iterator[Task]:
        """All tasks (of a session), newest first. One that is damaged is left out, and does not harm the others."""
        self._table = None
        for row in self.index.rows(session):
            if row.view is not None:
                try:
                    yield view.load(row.view)
                    continue
                except (TypeError, ValueError, KeyError):
                    pass  # written by another version: look at the files
            try:
                yield self._settle(row.id)
            except UnknownTask:
                if row.created < time.time() - _STALE_S:
                    self.index.forget(row.id)
            except DamagedTask:
                continue

    def damaged(self) -> Iterator[str]:
        """The ids of tasks whose own files cannot be understood."""
        for task_id in self.index.ids():
            try:
                self._settle(task_id)
            except UnknownTask:
                continue
            except DamagedTask:
                yield task_id

    def _settle(self, task_id: str) -> Task:
        """The task as it is now; if nothing about it can change any more, the index is told."""
        directory = self.home.task(task_id)
        try:
            task = view.view(directory, self._processes)
        except (OSError, KeyError, TypeError, ValueError):
            if not os.path.isdir(directory):
                raise UnknownTask(f"There is no task '{task_id}' any more; `outlast ps --all` lists them.") from None
            raise DamagedTask(f"The files of {task_id} are damaged; `outlast clean` removes it.") from None
        if task.closed:
            ended = task.ended_at or task.started_at
            self.index.finish(task_id, ended, _size(directory), view.dump(task))
        return task

    def _settle_quietly(self, task_id: str) -> None:
        try:
            self._settle(task_id)
        except (UnknownTask, DamagedTask):
            pass  # being prepared this moment, or for `clean` to remove

    def _processes(self) -> process.Table:
        # One look at the process table serves a whole listing.
        if self._table is None:
            self._table = process.Table()
        return self._table

    def line_counts(self, task: Task) -> tuple[int, int]:
        """How many lines of stdout and stderr are kept; counts on from the last count."""
        known = self.index.lines(task.task_id)
        directory = os.path.dirname(task.output_file)
        launch, _ = launchfile.read(directory)
        counted = output.count_lines(directory, launch.output_limit, launch.split, known)
        if counted != known:
            self.index.set_lines(task.task_id, counted)
        sums = dict.fromkeys(output.FILES, 0)
        for file, (_, lines) in counted.items():
            sums[output.stream_of(file)] += lines
        return sums["stdout"], sums["stderr"]

    # --- remove --------------------------------------------------------------------------

    def remove(self, task_id: str) -> bool:
        """Remove a task that nobody watches; whether it was there."""
        directory = self.home.task(task_id)
        try:
            if is_watched(directory):
                return False
        except FileNotFoundError:
            pass  # not a whole task; remove what there is
        # Renamed first: nobody ever sees half a task.
        aside = os.path.join(self.home.staging, f"{task_id}.{_token()}")
        try:
            os.rename(directory, aside)
        except FileNotFoundError:
            return False
        finally:
            self.index.forget(task_id)
        _remove_tree(aside)
        return True

    def prune(self, older_than_s: float, most: int = PRUNE_AT_ONCE, session: str | None = None) -> int:
        """Remove up to `most` tasks (-1: all) that ended longer ago than that; how many."""
        before = time.time() - older_than_s
        for task_id in self.index.unfinished(before, most):
            self._settle_quietly(task_id)  # nobody may have looked at it since it ended
        old = self.index.ended_before(before, most, session)
        return sum(self.remove(task_id) for task_id in old)

    def sweep(self) -> None:
        """Remove what died while it was being prepared or removed."""
        with os.scandir(self.home.staging) as entries:
            for entry in entries:
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE_S:
                        _remove_tree(entry.path)
                except FileNotFoundError:
                    continue

    def _rebuild(self, index: Index) -> None:
        rows = []
        for task_id in os.listdir(self.home.tasks):
            try:
                launch, created = launchfile.read(self.home.task(task_id))
            except DamagedTask:
                rows.append((task_id, "", 0.0, 0))
            else:
                rows.append((task_id, launch.session, created, launch.output_limit))
        index.enter(rows)


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED_AT_MOST} more" if len(ids) > _NAMED_AT_MOST else ""
    return ", ".join(ids[:_NAMED_AT_MOST]) + more


def _size(directory: str) -> int:
    """What a task takes on disk."""
    with os.scandir(directory) as entries:
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries)


def _token() -> str:
    return os.urandom(4).hex()


def _remove_tree(directory: str) -> None:
    from shutil import rmtree  # 4 ms that a plain `ps` need not pay

    rmtree(directory, ignore_errors=True)
