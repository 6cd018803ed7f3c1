"""All tasks of a state directory: create, find, list, remove."""

from __future__ import annotations

import errno
import os
import threading
import time
from functools import cache

from outlast.errors import (
    LIST_TASKS,
    AmbiguousTask,
    DamagedTask,
    NewerTask,
    OutlastError,
    StartFailed,
    UnknownTask,
    quote,
)
from outlast.light import replace, sqlite3
from outlast.linux.files import measure_size, remove_tree
from outlast.linux.process import Table
from outlast.storage import layout, output, removal, sessions, task_directory
from outlast.storage.index import NOTICE_DUE, NOTICE_IF_CALLER_DIED, Index, Usual
from outlast.storage.record import explain_error
from outlast.storage.sessions import Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    from outlast.storage.index import Found, Mark
    from outlast.storage.layout import Home
    from outlast.types import Launch, Task

    T = TypeVar("T")

LOOK_AT_ONCE = 200  # tasks that one start checks for having ended
CLOSED_AT_MOST = 5000  # closed tasks in the cache, about 2 KiB each
RUNS_AT_MOST = 15  # earlier runs of a command from which its usual duration is computed
LAUNCHES_AT_MOST = 64  # launches in the cache; a command may have a megabyte
LEAST_SHARE_BYTES = 32 * 1024  # of the disk: what a task may keep at least, about what one reply shows
LARGEST_PART = 4  # no task gets more than a quarter of the whole limit
SPARE_PART = 8  # an eighth of the limit is for tasks that get only the least share
OVERHEAD_BYTES = 64 * 1024  # what a task takes besides its output: its other files, and blocks that are not full
_NAMED_AT_MOST = 5


class Registry:
    """The tasks of one state directory, through one open index."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._index: Index | None = None
        self._opening = threading.Lock()
        self._launches: dict[str, Launch] = {}
        self._closed: dict[str, Task] = {}  # closed tasks do not change any more
        self._unstored: dict[str, None] = {}  # closed tasks whose final state is to be stored in the index

    @property
    def index(self) -> Index:
        with self._opening:
            if self._index is None:
                self._index = Index(f"{self.home.path}/index.sqlite", self._list_tasks)
            return self._index

    def _list_tasks(self) -> Iterator[Found]:
        """Yield the tasks for a new index, with those that are about to be published."""
        # The staged ones first: publication renames them.
        for staged in os.listdir(self.home.staging):
            try:
                launch, created = task_directory.read_launch(f"{self.home.staging}/{staged}")
            except (DamagedTask, UnknownTask):
                continue  # `reserve` has not written its launch yet, and will see that the index is new
            yield _describe(staged.partition(".")[0], launch, created)
        for task_id in os.listdir(self.home.tasks):
            try:
                yield _describe(task_id, *task_directory.read_launch(self.home.task(task_id)))
            except (DamagedTask, UnknownTask):
                yield task_id, "", 0.0, 0

    def close(self) -> None:
        try:
            self._store_closed()
        except OutlastError:
            pass  # the next process that lists the tasks will
        with self._opening:
            if self._index is not None:
                self._index.close()
                self._index = None

    # --- create --------------------------------------------------------------------------

    def stage(self, launch: Launch) -> tuple[str, str]:
        """Create a directory for a task under a new id; return its path, and the path at which it will be published.

        In a session it also gets the snapshot that its shell begins with. `reserve` finds out whether the id is taken.
        """
        task_id = f"{launch.kind}-{layout.random_token()}"
        staged = f"{self.home.staging}/{task_id}.{layout.random_token()}"
        os.mkdir(staged, 0o700)
        try:
            if launch.state:
                Sessions(self.home.sessions).link(launch.state, staged, launch.snapshot)
        except BaseException:
            remove_tree(staged)
            raise
        return staged, self.home.task(task_id)

    def reserve(self, staged: str, published: str, launch: Launch, state_limit: int) -> Launch | None:
        """Write the launch of a staged task, with its share of the disk; None if its id is taken."""
        if self._index is not None and self._index.unusable:
            self.close()  # perhaps there is space for an index on disk again
        created, task_id = time.time(), os.path.basename(published)
        try:
            file = self.index.file
            launch = replace(launch, output_limit=self._reserve_share(task_id, launch, created, state_limit))
            task_directory.write_launch(staged, launch, created)
            if file is None or file != self.index.file:
                # The index was replaced before the launch could be read. From here on a new one has the task.
                self.index.add(_describe(task_id, launch, created))
        except sqlite3.IntegrityError:
            return None  # another process prepares a task under this id
        except sqlite3.Error as error:
            raise StartFailed(f"The task cannot be prepared in {self.home.path}: {error}.") from None
        _remember(self._launches, task_id, launch, LAUNCHES_AT_MOST)
        return launch

    def _reserve_share(self, task_id: str, launch: Launch, created: float, total: int) -> int:
        """Insert a task into the index; return its share of the `total` bytes that all tasks may keep."""
        wanted = min(launch.output_limit, total // LARGEST_PART)
        least = min(wanted, LEAST_SHARE_BYTES)
        overhead = OVERHEAD_BYTES + len(launch.command) + len(launch.stdin.text or b"")
        most = total - total // SPARE_PART
        # A caller that waits for a foreground task gets its result, and needs no notice.
        notice = NOTICE_DUE if launch.background or launch.notify else NOTICE_IF_CALLER_DIED

        def fits(share: int, limit: int) -> bool:
            return self.index.reserve(task_id, launch.session, created, notice, share + overhead, limit)

        if fits(wanted, most):
            return wanted
        self._refresh_unfinished(time.time(), LOOK_AT_ONCE)  # frees what ended tasks reserved and did not use
        removal.make_room(self, wanted + overhead, least + overhead, most, total)
        smaller = max(least, min(wanted, most - overhead - self.index.kept_bytes()))
        for share in (smaller, least):
            if fits(share, total):
                return share
        raise StartFailed(
            f"The tasks in {self.home.path} take all of the {total} bytes that they may, and none of them is over; "
            "end some of them, or raise OUTLAST_STATE_LIMIT_BYTES."
        )

    def discard(self, staged: str, published: str) -> None:
        """Remove a staged task that was not published."""
        moved = f"{staged}.gone"
        try:
            # Rename first: a guard that is about to publish the directory must not publish half of it.
            os.rename(staged, moved)
        except OSError:
            moved = staged
        remove_tree(moved)
        try:
            self._forget_if_gone(os.path.basename(published))
        except OSError:
            pass  # a later listing forgets it; the caller reports why the task was not published

    # --- find ----------------------------------------------------------------------------

    def find(self, part: str, session: str | None = None) -> str:
        """Return the one id that is `part`, or contains it, among a session's tasks."""
        part = part.strip().lower()
        if not part:
            raise UnknownTask("A task id is needed.", LIST_TASKS)
        if "/" not in part and part[0] != "." and os.path.isdir(self.home.task(part)) and self.belongs(part, session):
            return part
        found = self._ids(part, session)
        if len(found) > 1:
            raise AmbiguousTask(f"{quote(part)} fits {len(found)} tasks: {_join_ids(found)}; give more of the id.")
        if found:
            return found[0]
        from difflib import get_close_matches

        # Compare only what follows the dash: the kind before it is the same in most ids.
        by_end = {one.rpartition("-")[2]: one for one in self._ids("", session, 1000)}
        near = [by_end[end] for end in get_close_matches(part.rpartition("-")[2], by_end, n=3, cutoff=0.7)]
        said = f"There is no task {quote(part)} (any more)"
        raise UnknownTask(f"{said}; near it are {_join_ids(near)}.") if near else UnknownTask(f"{said}.", LIST_TASKS)

    def _ids(self, part: str, session: str | None, most: int = -1) -> list[str]:
        return [one for one in self.index.ids(part, session, most) if os.path.isdir(self.home.task(one))]

    def belongs(self, task_id: str, session: str | None) -> bool:
        """Return whether a session may reach this task; None is the operator, who may reach all."""
        if session is None:
            return True
        try:
            return self.launch_of(task_id).session == session
        except OutlastError:  # it is damaged, or of a newer version
            row = self.index.row(task_id)
            return row is not None and row.session == session

    # --- read one ------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """Return one task as it is now."""
        closed = self._closed.get(task_id)
        if closed is not None and os.path.isdir(self.home.task(task_id)):
            return closed
        return self._read(task_id, Table, store=False)  # the caller waits for its result

    def get_cached(self, task_id: str, session: str | None) -> Task | None:
        """Return a closed task from the cache, if the session may reach it. It may have been removed."""
        task = self._closed.get(task_id)
        return task if task is not None and (session is None or session == task.session) else None

    def _read(self, task_id: str, table: Callable[[], Table], store: bool = True) -> Task:
        """Read a task from its files; store its final state in the index if it is closed, now or with `prune`."""
        directory = self.home.task(task_id)
        try:
            task, _ = task_directory.view_task(directory, self.launch_of(task_id), table)
            if task.closed and not task.children:
                if store:
                    self._store_final_state(task, directory)
                else:
                    self._unstored[task_id] = None
                _remember(self._closed, task_id, task, CLOSED_AT_MOST)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise explain_error(directory, error) from None
        return task

    def _store_final_state(self, task: Task, directory: str) -> None:
        if self._is_stored(task.task_id):
            return  # another process did
        try:
            task_directory.erase_secrets(directory)  # if the guards died before they could
            launch = self.launch_of(task.task_id)
            if launch.state and (not launch.keeps or task_directory.is_moved(directory)):
                sessions.remove_files(directory)  # there is nothing to merge into the session
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        size = measure_size(directory, sessions.TEMPORARY_FILES)
        self.index.finish(task.task_id, task.ended_at or task.started_at, size, task_directory.dump_task(task))

    def _store_closed(self) -> None:
        """Store the final states of tasks that callers waited for."""
        for task_id in list(self._unstored):
            self._unstored.pop(task_id, None)
            if not self._is_stored(task_id):  # mostly it is: the task was read because the cache had no room for it
                self._load_one(task_id, None, Table)

    def _is_stored(self, task_id: str) -> bool:
        row = self.index.row(task_id)
        return row is not None and row.view is not None

    def _refresh_unfinished(self, before: float, most: int) -> None:
        """Let the index know of tasks that ended since they were last read."""
        for task_id in self.index.sample_unfinished(before, most):
            if removal.is_removable(self.home.task(task_id)):
                self._load_one(task_id, None, Table)

    def _forget_if_gone(self, task_id: str) -> None:
        # Check in this order: publishing moves a task from the first directory to the second.
        is_staged = any(name.startswith(task_id) for name in os.listdir(self.home.staging))
        if not is_staged and not os.path.lexists(self.home.task(task_id)):
            self.index.forget(task_id)

    def launch_of(self, task_id: str) -> Launch:
        """Return what a task runs. That never changes, so it is cached."""
        launch = self._launches.get(task_id)
        if launch is None:
            launch, _ = task_directory.read_launch(self.home.task(task_id))
            _remember(self._launches, task_id, launch, LAUNCHES_AT_MOST)
        return launch

    def source(self, task_id: str, stream: str) -> output.Source:
        """Return one stream of a task's output."""
        launch = self.launch_of(task_id)
        return output.Source(self.home.task(task_id), stream, output.bound_of(launch.output_limit, launch.split))

    def line_counts(self, task: Task) -> tuple[int, int]:
        """Return how many lines of stdout and stderr are kept, counting on from the last count."""
        known = self.index.lines(task.task_id)
        try:
            limit = self.launch_of(task.task_id).output_limit
            counted = output.count_lines(os.path.dirname(task.output_file), limit, task.split, known)
        except (DamagedTask, UnknownTask, FileNotFoundError):
            return 0, 0  # removed since it was listed
        if counted != known:
            self.index.set_lines(task.task_id, counted)
        return output.sum_lines(counted, "stdout"), output.sum_lines(counted, "stderr")

    # --- read many -----------------------------------------------------------------------

    def tasks(self, session: str | None = None, page: int = -1) -> Iterator[Task]:
        """Yield all tasks (of a session), newest first, loading `page` of them at once (-1: all).

        A damaged task is left out.
        """
        last: Mark | None = None
        while True:
            marks = self.index.newest(session, last, page)
            yield from self.load(marks)
            if page < 0 or len(marks) < page:
                return
            last = marks[-1]

    def recent(self, session: str | None, since: float, most: int = -1) -> Iterator[Task]:
        """Yield tasks (of a session) that go on, and up to `most` that ended after `since`, newest first."""
        ended = 0
        for task in self.load(self.index.recent(session, since, most)):
            if not task.finished:
                yield task
            elif (task.ended_at or task.started_at) > since and ended != most:
                ended += 1
                yield task

    def load(self, marks: Sequence[Mark]) -> Iterator[Task]:
        """Yield these tasks, of which those that have ended are there; what is gone is left out."""
        table = cache(Table)  # one scan of the processes serves a whole listing
        # Taken from the cache first: a listing in another thread may empty it.
        cached = {task_id: self._closed.get(task_id) for task_id, _, ended in marks if ended is not None}
        new = [task_id for task_id, task in cached.items() if task is None]
        views = self.index.views_of(new) if new else {}
        for task_id, _, ended in marks:
            task = cached.get(task_id)
            # The end tells a task from an earlier one with the same id.
            if task is None or (task.ended_at or task.started_at) != ended:
                task = self._load_one(task_id, views.get(task_id), table)
            if task is not None:
                yield task

    def _load_one(self, task_id: str, final_state: str | None, table: Callable[[], Table]) -> Task | None:
        if final_state is not None:
            try:
                task = task_directory.load_task(final_state, self.home.task(task_id))
                _remember(self._closed, task_id, task, CLOSED_AT_MOST)
                return task
            except (TypeError, ValueError, KeyError):
                pass  # another version of Outlast wrote it: read the files
        try:
            return self._read(task_id, table)
        except UnknownTask:
            self._forget_if_gone(task_id)
        except DamagedTask:
            pass  # `clean` removes it
        return None

    def list_damaged(self) -> Iterator[str]:
        """Yield the ids of tasks whose files cannot be understood."""
        for task_id in self.index.ids():
            try:
                self._read(task_id, Table)
            except (UnknownTask, NewerTask):
                continue
            except DamagedTask:
                yield task_id

    def usual(self, command: str, session: str) -> Usual | None:
        """Return how long a command took in a session when it completed."""
        self._refresh_unfinished(time.time(), LOOK_AT_ONCE)
        durations = sorted(self.index.durations(session, command, RUNS_AT_MOST))
        return Usual(durations[len(durations) // 2], len(durations)) if durations else None

    # --- remove --------------------------------------------------------------------------

    def remove(self, task_id: str) -> bool:
        """Remove a task that has no guard and no hold; return whether it was removed."""
        return removal.remove(self, task_id)

    def prune(self, older_than_s: float, most: int = removal.AT_ONCE, session: str | None = None) -> int:
        """Remove up to `most` tasks (-1: all) that ended longer ago than that; return how many."""
        removal.sweep_staging(self.home.staging)
        self._store_closed()
        before = time.time() - older_than_s
        self._refresh_unfinished(before, most)
        return sum(self.remove(task_id) for task_id in self.index.ended_before(before, most, session))


def _remember(cached: dict[str, T], task_id: str, value: T, most: int) -> None:
    if len(cached) >= most:
        cached.clear()
    cached[task_id] = value


def _describe(task_id: str, launch: Launch, created: float) -> Found:
    return task_id, launch.session, created, launch.output_limit + OVERHEAD_BYTES


def _join_ids(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED_AT_MOST} more" if len(ids) > _NAMED_AT_MOST else ""
    return ", ".join(ids[:_NAMED_AT_MOST]) + more
