"""All tasks of a state directory: make, find, list, remove."""

from __future__ import annotations

import errno
import os
import threading
import time

from outlast.errors import (
    AmbiguousTask,
    DamagedTask,
    NewerTask,
    OutlastError,
    SessionBusy,
    StartFailed,
    UnknownTask,
    named,
)
from outlast.frozen import replaced
from outlast.light import sqlite3
from outlast.linux import process
from outlast.storage import launchfile, output, sessions, view
from outlast.storage.hold import is_held, lock_for_removal, unlock_and_close
from outlast.storage.index import Index, New
from outlast.storage.queue import Queue
from outlast.storage.staging import token
from outlast.storage.status import is_damage, is_pending, is_watched, trouble
from outlast.types import Usual

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.storage.home import Home
    from outlast.storage.index import Entry, Mark
    from outlast.types import Launch, Task

LEAST_SHARE_BYTES = 32 * 1024  # what a task may keep at least: about what one reply shows
LARGEST_PART = 4  # no task gets more than a quarter of the whole bound
SPARE_PART = 8  # of the whole bound an eighth is for those that get only the least
BESIDE_BYTES = 64 * 1024  # what a task takes besides its output: its other files, and blocks that are not full
PRUNE_AT_ONCE = 20  # what one start removes at most: nobody waits for somebody else's clean-up
LOOK_AGAIN_S = 0.25  # after a look in vain
LOOK_AT_ONCE = 200  # how many tasks one start looks at, to see whether they are over
KNOWN_AT_MOST = 5000  # finished tasks that a host remembers from one listing to the next, about 2 KiB each
RUNS_AT_MOST = 15  # of a command, from which it is told how long it usually takes
LAUNCHES_AT_MOST = 64  # what tasks run that were just looked at; a command may have a megabyte
_STALE_S = 3600.0  # a staged directory this old is nobody's work in progress
_NAMED_AT_MOST = 5
_NONE = (None, None)


class Registry:
    """The tasks of one state directory, through one open index."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._index: Index | None = None
        self._opening = threading.Lock()
        self._table: process.Table | None = None
        self._known: dict[str, tuple[Mark, Task]] = {}
        self._launches: dict[str, Launch] = {}
        self._over: dict[str, Task] = {}  # that were just looked at
        self._sources: dict[tuple[str, str], output.Source] = {}  # of what is closed
        self._look_again_at = 0.0  # whether some are over, when none was

    @property
    def index(self) -> Index:
        with self._opening:
            if self._index is None:
                self._index = Index(self.home.index, self._on_disk)
            return self._index

    def close(self) -> None:
        with self._opening:
            if self._index is not None:
                self._index.close()
                self._index = None

    # --- make ----------------------------------------------------------------------------

    def enter(self, staged: str, published: str, launch: Launch, state_limit: int) -> tuple[Entry, Launch] | None:
        """Write down what a staged task is to run, with its share of the disk; None if its id is taken."""
        if self._index is not None and self._index.makeshift:
            self.close()  # perhaps there is space for a real one again
        created = time.time()
        try:
            share = self._share(os.path.basename(published), launch, created, state_limit)
            entered = replaced(launch, output_limit=share)
            launchfile.write(staged, entered, created)
            self.remember(os.path.basename(published), entered)
        except sqlite3.IntegrityError:
            return None  # somebody is just preparing a task under this id
        except sqlite3.Error as error:
            raise StartFailed(f"The task cannot be prepared in {self.home.path}: {error}.") from None
        return self.index.file, entered

    def _share(self, task_id: str, launch: Launch, created: float, total: int) -> int:
        """Enter the task and its share of what all may keep."""
        wanted = min(launch.output_limit, total // LARGEST_PART)
        least = min(wanted, LEAST_SHARE_BYTES)
        beside = BESIDE_BYTES + len(launch.command) + len(launch.stdin.text or b"")
        most = total - total // SPARE_PART

        def all_of_it(taken: int) -> int:
            return wanted if taken + wanted + beside <= most else 0

        def what_fits(taken: int) -> int:
            fits = max(least, min(wanted, most - taken - beside))
            return fits if taken + fits + beside <= total else 0

        # Who waits for a foreground task gets its result, so nobody has to be told of it.
        new = New(task_id, launch.session, created, untold=1 if launch.background or launch.notify else 2)
        found = self.index.reserve(new, all_of_it, beside)
        if not found:
            self._make_room(wanted + beside, least + beside, total)
            found = self.index.reserve(new, what_fits, beside)
        if not found:
            raise StartFailed(
                f"The tasks in {self.home.path} take all of the {total} bytes that they may, and none of them is over; "
                "end some of them, or raise OUTLAST_STATE_LIMIT_BYTES."
            )
        return found

    def _make_room(self, wanted: int, least: int, total: int) -> None:
        """Take back what tasks reserved and did not use; then remove what ended longest ago."""
        most = total - total // SPARE_PART
        taken = self.index.kept_bytes()
        if taken + wanted <= most:
            return
        # With thousands that run, each start would look at hundreds of them in vain.
        if taken + least > total or time.monotonic() >= self._look_again_at:
            self._settle_some()
        taken, over = self.index.kept_bytes(), self.index.finished_bytes()
        for number, task_id in enumerate(self.index.ended_before(time.time(), -1)):
            # What running tasks might keep is only a promise: for that, nobody's finished task goes
            # while it can be made smaller. What finished ones do keep may be up to half of all.
            enough = over <= total // 2 or number >= PRUNE_AT_ONCE
            if taken + wanted <= most or (enough and taken + least <= total):
                return
            row = self.index.row(task_id)
            self.remove(task_id)
            freed = row.kept_bytes if row and self.index.row(task_id) is None else 0
            taken, over = taken - freed, over - freed

    def _settle_some(self) -> None:
        ended = [one for one in self.index.unfinished_sample(LOOK_AT_ONCE) if not self._is_watched(one)]
        for task_id in ended:
            self._settle_quietly(task_id)
        if not ended:
            self._look_again_at = time.monotonic() + LOOK_AGAIN_S

    def confirm(self, task_id: str, entry: Entry | None = None) -> None:
        """Enter a task that was just published once more, if the index was made anew since its `entry`."""
        try:
            if entry is not None and entry == self.index.file:
                return
            if self.index.row(task_id) is None:
                self.index.enter([self._as_row(task_id)])
        except (OSError, OutlastError, sqlite3.Error):
            pass  # it runs, and the caller must learn its id

    def discard(self, staged: str, published: str, entered: bool = True) -> None:
        """Take back a staged task that was never published."""
        aside = f"{staged}.gone"
        try:
            # Renamed first: its supervisor may be about to publish it, and must not publish the half of it.
            os.rename(staged, aside)
        except OSError:
            aside = staged
        _remove_tree(aside)
        if not entered:
            return  # a row under this id is another's
        self.index.forget(os.path.basename(published))
        if os.path.isdir(published):
            self.confirm(os.path.basename(published))  # another's; or ours, published at the last moment

    # --- find ----------------------------------------------------------------------------

    def find(self, part: str, session: str | None = None) -> str:
        """The one id that `part` is, or is a part of, among a session's tasks."""
        part = part.strip().lower()
        if not part:
            raise UnknownTask("A task id is needed; `outlast ps` lists them.")
        if "/" not in part and part[0] != "." and os.path.isdir(self.home.task(part)) and self.belongs(part, session):
            return part
        found = [one for one in self.index.ids(part, session) if os.path.isdir(self.home.task(one))]
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousTask(f"{named(part)} fits {len(found)} tasks: {_named(found)}; give more of the id.")
        raise UnknownTask(self._unknown(part, session))

    def belongs(self, task_id: str, session: str | None) -> bool:
        """Whether a session reaches this task; nobody (None) is the operator."""
        if session is None:
            return True
        try:
            return self.launch_of(task_id).session == session
        except OutlastError:
            # Damaged, or of a newer version: the index may know.
            row = self.index.row(task_id)
            return row is not None and row.session == session

    def _unknown(self, part: str, session: str | None) -> str:
        from difflib import get_close_matches

        known = [one for one in self.index.ids(session=session)[:1000] if os.path.isdir(self.home.task(one))]
        # The kind before the dash is the same in most ids, so it would make any two of them look alike.
        ends = {one.rpartition("-")[2]: one for one in known}
        near = [ends[end] for end in get_close_matches(part.rpartition("-")[2], ends, n=3, cutoff=0.7)]
        hint = f"near it are {_named(near)}" if near else "`outlast ps --all` lists them"
        return f"There is no task {named(part)} (any more); {hint}."

    # --- look ----------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """One task as it is now."""
        over = self._over.get(task_id)
        if over is not None and os.path.isdir(self.home.task(task_id)):
            return over  # nothing about it can change any more, but that it is removed
        self._table = None
        return self._settle(task_id)

    def over(self, task_id: str, session: str | None) -> Task | None:
        """A task that was seen to be over, if this is one that the session reaches; it may have been removed."""
        task = self._over.get(task_id)
        return task if task is not None and (session is None or session == task.session) else None

    def source(self, task_id: str, stream: str, closed: bool = False) -> output.Source:
        """One stream of a task's output. Of one that is `closed`, what was found is known the next time."""
        key = (task_id, stream)
        source = self._sources.get(key) if closed else None
        if source is None:
            launch = self.launch_of(task_id)
            bound = output.bound_of(launch.output_limit, launch.split)
            source = output.Source(self.home.task(task_id), stream, bound)
            if closed:
                source.close()
                if len(self._sources) >= LAUNCHES_AT_MOST:
                    self._sources.clear()
                self._sources[key] = source
        return source

    def tasks(self, session: str | None = None, page: int = -1) -> Iterator[Task]:
        """All tasks (of a session), newest first; so many are looked up at once (-1: all).

        One that is damaged is left out, and does not harm the others.
        """
        self._table = None
        last: Mark | None = None
        while True:
            marks = self.index.newest(session, last, page)
            yield from self._seen(marks)
            if page < 0 or len(marks) < page:
                return
            last = marks[-1]

    def recent(self, session: str | None, since: float, most: int = -1) -> Iterator[Task]:
        """Tasks (of a session) that go on, and so many of those that ended after that moment, newest first."""
        self._table = None
        ended = 0
        for task in self._seen(self.index.recent(session, since, most)):
            if not task.finished:
                yield task
            elif (task.ended_at or task.started_at) > since and ended != most:
                ended += 1
                yield task

    def _seen(self, marks: list[Mark]) -> Iterator[Task]:
        known = self._known
        unknown = [mark[0] for mark in marks if mark[2] is not None and known.get(mark[0], _NONE)[0] != mark]
        views = self.index.views_of(unknown) if unknown else {}
        for mark in marks:
            found = known.get(mark[0], _NONE)
            task = found[1] if found[0] == mark else self._looked_up(mark, views.get(mark[0]))
            if task is not None:
                yield task

    def _looked_up(self, mark: Mark, text: str | None) -> Task | None:
        """A task that is not known: from its final state if there is one, otherwise from its files."""
        task_id = mark[0]
        if text is not None:
            try:
                return self._finished(mark, text)
            except (TypeError, ValueError, KeyError):
                pass  # written by another version: look at the files
        try:
            return self._settle(task_id)
        except UnknownTask:
            self._forget_if_gone(task_id)
        except DamagedTask:
            pass
        return None

    def _finished(self, mark: Mark, text: str) -> Task:
        """A task that does not change any more: read once, then known."""
        task = view.load(text, self.home.task(mark[0]))
        if len(self._known) >= KNOWN_AT_MOST:
            self._known.clear()
        self._known[mark[0]] = (mark, task)
        return task

    def damaged(self) -> Iterator[str]:
        """The ids of tasks whose own files cannot be understood."""
        for task_id in self.index.ids():
            try:
                self._settle(task_id)
            except (UnknownTask, NewerTask):
                continue
            except DamagedTask:
                yield task_id

    def launch_of(self, task_id: str) -> Launch:
        """What a task runs. That never changes, so it is read once."""
        launch = self._launches.get(task_id)
        if launch is None:
            launch, _ = launchfile.read(self.home.task(task_id))
            self.remember(task_id, launch)
        return launch

    def remember(self, task_id: str, launch: Launch) -> None:
        if len(self._launches) >= LAUNCHES_AT_MOST:
            self._launches.clear()
        self._launches[task_id] = launch

    def _settle(self, task_id: str) -> Task:
        """The task as it is now; if nothing about it can change any more, the index is told."""
        directory = self.home.task(task_id)
        try:
            task = view.view(directory, self.launch_of(task_id), self._processes)
            if task.closed and not task.children:
                self._tell_index(task, directory)
                self._over[task_id] = task
                if len(self._over) > LAUNCHES_AT_MOST:
                    self._over.pop(next(iter(self._over)))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise trouble(directory, error) from None
        return task

    def _tell_index(self, task: Task, directory: str) -> None:
        row = self.index.row(task.task_id)
        if row is not None and row.view is not None:
            return  # it knows
        try:
            launchfile.erase_secrets(directory)  # of one whose guards died before they could
            launch = self.launch_of(task.task_id)
            if launch.state and (not launch.keeps or sessions.is_moved(directory)):
                sessions.remove_files(directory)  # its session takes nothing over
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        self.index.finish(task.task_id, task.ended_at or task.started_at, _size(directory), view.dump(task))

    def _settle_quietly(self, task_id: str) -> None:
        try:
            self._settle(task_id)
        except UnknownTask:
            self._forget_if_gone(task_id)  # unless it is being prepared this moment
        except DamagedTask:
            pass  # for `clean` to remove

    def _is_watched(self, task_id: str) -> bool:
        try:
            return is_pending(self.home.task(task_id)) or is_watched(self.home.task(task_id))
        except (OSError, DamagedTask):
            return False

    def _forget_if_gone(self, task_id: str) -> None:
        # In this order: a task that is being published goes from the first place to the second.
        staged = any(name.startswith(task_id) for name in os.listdir(self.home.staging))
        if not staged and not os.path.lexists(self.home.task(task_id)):
            self.index.forget(task_id)

    def _processes(self) -> process.Table:
        # One look at the process table serves a whole listing.
        if self._table is None:
            self._table = process.Table()
        return self._table

    def line_counts(self, task: Task) -> tuple[int, int]:
        """How many lines of stdout and stderr are kept; counts on from the last count."""
        known = self.index.lines(task.task_id)
        directory = os.path.dirname(task.output_file)
        try:
            launch, _ = launchfile.read(directory)
            counted = output.count_lines(directory, launch.output_limit, launch.split, known)
        except (DamagedTask, UnknownTask, FileNotFoundError):
            return 0, 0  # removed since it was listed
        if counted != known:
            self.index.set_lines(task.task_id, counted)
        sums = dict.fromkeys(output.FILES, 0)
        for file, (_, lines) in counted.items():
            sums[output.stream_of(file)] += lines
        return sums["stdout"], sums["stderr"]

    def usual(self, command: str, session: str) -> Usual | None:
        """How long a command took in a session when it went well."""
        for task_id in self.index.unfinished_sample(LOOK_AT_ONCE):
            if not self._is_watched(task_id):
                self._settle_quietly(task_id)  # nobody may have looked at it since it ended
        took = []
        for text in self.index.views(session, view.said(command), RUNS_AT_MOST):
            try:
                task = view.load(text, "")
            except (TypeError, ValueError, KeyError):
                continue  # written by another version
            if task.status == "completed":
                took.append(task.elapsed_ms)
        return Usual(sorted(took)[len(took) // 2], len(took)) if took else None

    # --- remove --------------------------------------------------------------------------

    def remove(self, task_id: str) -> bool:
        """Remove a task that nobody watches or holds; whether it was removed."""
        directory = self.home.task(task_id)
        try:
            if is_pending(directory) or is_watched(directory) or is_held(directory) or launchfile.is_newer(directory):
                return False
        except (OSError, DamagedTask) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise trouble(directory, error) from None
            # Not a whole task: remove what there is.
        if not self._is_merged(task_id):
            return False
        later = None
        if self.index.is_untold(task_id):
            from outlast.storage.gathering import gather_before_removal  # hardly any task that is removed

            later = gather_before_removal(self, task_id)
        aside = os.path.join(self.home.staging, f"{task_id}.{token()}")
        try:
            Queue(self.home.path).remember_end(task_id)
        except OSError:
            return False  # on a full disk: a pending task that waits for this one would take it for failed
        try:
            if not _rename_unless_held(directory, aside):
                return False
        except FileNotFoundError:
            self.index.forget(task_id)
            return False
        self.index.forget(task_id)
        _remove_tree(aside)
        if later is not None:
            later()
        return True

    def _is_merged(self, task_id: str) -> bool:
        """Make sure that its session has what a finished task changed; False if that is not possible now."""
        if not os.path.exists(f"{self.home.task(task_id)}/{sessions.BEFORE}"):
            return True  # merged, or of no session
        try:
            launch = self.launch_of(task_id)
            if launch.state and launch.keeps:
                sessions.Sessions(self.home.sessions).merge(launch.state)
        except (OSError, SessionBusy):
            return False
        except (OutlastError, ValueError):
            pass  # the task or the snapshot is damaged
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
                    old = entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE_S
                    if old and not _is_prepared(entry.path):
                        _remove_tree(entry.path)
                except FileNotFoundError:
                    continue

    def _on_disk(self) -> Iterator[tuple[str, str, float, int]]:
        """What an index begins with: id, session, when it was made and how much it may keep."""
        return map(self._as_row, os.listdir(self.home.tasks))

    def _as_row(self, task_id: str) -> tuple[str, str, float, int]:
        try:
            launch, created = launchfile.read(self.home.task(task_id))
        except (DamagedTask, UnknownTask):
            return task_id, "", 0.0, 0
        return task_id, launch.session, created, launch.output_limit + BESIDE_BYTES


def _rename_unless_held(directory: str, aside: str) -> bool:
    """Move a task out of the way before it is removed, so that no reader sees half of it; False if it is held."""
    try:
        lock = lock_for_removal(directory)
    except OSError as error:
        if not is_damage(error):
            raise trouble(directory, error) from None
        lock = -1  # without a launch.json there is no hold
    if lock is None:
        return False
    try:
        os.rename(directory, aside)
    finally:
        if lock >= 0:
            unlock_and_close(lock)
    return True


def _is_prepared(staged: str) -> bool:
    """Whether a supervisor holds it ready for a caller that is in no hurry."""
    try:
        return is_watched(staged)
    except OSError:
        return False


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED_AT_MOST} more" if len(ids) > _NAMED_AT_MOST else ""
    return ", ".join(ids[:_NAMED_AT_MOST]) + more


def _size(directory: str) -> int:
    """What a task takes on disk, without what goes when its session is used next."""
    size = os.stat(directory).st_blocks * 512
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.name in sessions.TEMPORARY_FILES:
                    continue
                inside = entry.is_dir(follow_symlinks=False)
                size += _size(entry.path) if inside else entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue  # a reader's place that is being moved
    return size


def _remove_tree(directory: str) -> None:
    from shutil import rmtree  # 4 ms that a plain `ps` need not pay

    try:
        os.unlink(directory)  # a link that somebody planted
    except OSError:
        rmtree(directory, ignore_errors=True)
