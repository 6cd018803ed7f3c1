"""`LocalExecutor`: tasks on this machine. The caller writes a task's directory; a guard publishes and runs it."""

from __future__ import annotations

import errno
import os
import time
from functools import partial

from outlast.errors import BadInput, Hint, OutlastError, StartFailed, Unsupported
from outlast.executors.local.description import begin_items, describe, explain_refusal
from outlast.executors.local.prepared_shells import PreparedShells
from outlast.executors.local.queued import publish_pending, start_pending
from outlast.executors.local.staged_task import StagedTask
from outlast.executors.names import start_named
from outlast.guard.client import Refused, check_descriptors_left, start_guard
from outlast.light import sqlite3
from outlast.linux.files import open_regular
from outlast.storage import record, sessions, task_directory
from outlast.storage.index import NOTICE_DUE
from outlast.storage.layout import open_home
from outlast.storage.queue import Queue
from outlast.storage.registry import Registry
from outlast.storage.sessions import Sessions
from outlast.storage.task_directory import view_started
from outlast.storage.watch import Watch, wake_waiters
from outlast.types import REGISTERED, Ended, Exited, Pending, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outlast.executors.base import Phase
    from outlast.guard.client import Connection
    from outlast.linux.activity import Activity
    from outlast.settings import Settings
    from outlast.storage.name_lock import NameLock
    from outlast.storage.output import Source
    from outlast.storage.task_directory import Hold
    from outlast.types import Launch, Receipt, Task

    Publish = Callable[["StagedTask", Launch], Task]
    Create = Callable[["StagedTask", Publish], Task]

_ID_TRIES = 5
_PRUNE_EVERY_S = 0.1  # with what one prune removes, more often than tasks can be started
_BACKGROUND_CONNECTIONS = 32  # kept open; waiting for a task without a connection takes a little longer


class LocalExecutor:
    """The tasks of one state directory: see `Executor`."""

    def __init__(self, home: str, settings: Settings) -> None:
        self.registry, self._settings = Registry(open_home(home)), settings
        self._sessions = Sessions(self.registry.home.sessions)
        self._queue = Queue(self.registry.home.path)
        self.prepared = PreparedShells(self.registry, self._queue)
        self._prune_at, self._is_pruned = 0.0, False
        # To the guards of tasks that we started: one that closes tells its guard that nothing waits for the command.
        self._connections: dict[str, Connection] = {}
        self._background: list[str] = []

    def close(self) -> None:
        self.prepared.close()
        for task_id in list(self._connections):
            self._leave(task_id)
        self.registry.close()

    def _leave(self, task_id: str) -> None:
        connection = self._connections.pop(task_id, None)
        if connection is not None:
            connection.leave()

    # --- start -------------------------------------------------------------------------------

    def start(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        try:
            return start_named(self._queue, self.registry, launch, hold, partial(self._start, launch, hold))
        except OSError as error:
            raise StartFailed(f"The task cannot be prepared in {self.registry.home.path}: {error.strerror}.") from None

    def start_array(self, launches: Sequence[Launch]) -> list[Task]:
        raise Unsupported("This machine has no arrays; start the tasks one by one, or name a cluster.")

    def _start(self, launch: Launch, hold: Hold | None, name: NameLock | None = None) -> Task:
        create = partial(self._create, launch, hold, name)
        # Background tasks have a limited number of slots.
        needs_slot = launch.background and launch.max_running > 0 and launch.agent.get("format") != REGISTERED
        if not needs_slot and not launch.after:
            task = self._run(create, launch, self.prepared.take(launch))
            self._prune()  # while the command runs
            self.advance()
            return task
        self._prune()
        if launch.after:
            return self._enqueue(create, launch)
        prepared = self.prepared.take(launch)
        opened = prepared.slots if prepared else ()
        claimed = self._queue.claim_slot(launch.session, launch.max_running, opened)
        if prepared is not None and (claimed is None or claimed[1] >= len(opened)):
            prepared.close()  # its guards cannot hold this slot
            prepared = None
        if claimed is None:
            return self._enqueue(create, launch)
        slot, _ = claimed
        try:
            return self._run(create, launch, prepared, slot)
        except BaseException:
            self.advance()  # another start may have been queued because it found the slot taken
            raise
        finally:
            os.close(slot)

    def _prune(self, in_pause: bool = False) -> None:
        """Remove some expired tasks in the pause before a start, or with it; starts in succession share one step."""
        is_done, self._is_pruned = self._is_pruned and not in_pause, in_pause
        if not is_done and time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + _PRUNE_EVERY_S
            self.registry.prune(self._settings.retention_hours * 3600)

    def _create(
        self, launch: Launch, hold: Hold | None, name: NameLock | None, task: StagedTask, publish: Publish
    ) -> Task:
        """Write what a staged task runs, register the task, and publish it. Raises `Refused`.

        It is registered before it is published: the next user of its session, the process that ends its parent, a
        second start with its name and a cleaner must not see the task without that.
        """
        try:
            reserved = self.registry.reserve(task.staged, task.published, launch, self._settings.state_limit_bytes)
            if reserved is None:
                raise Refused(errno.EEXIST, "its id is taken")
            launch = reserved
            record.create_pipes(launch.command, task.staged)
            if launch.keeps:
                self._sessions.register(launch.state, task.staged)
            if launch.parent:
                task_directory.add_offspring(self.registry.home.task(launch.parent), task.task_id)
            if hold is not None:
                hold.take(task.staged)
            if name is not None:
                name.assign(task.task_id)
            return publish(task, launch)
        except BaseException:
            task.close()
            self.registry.discard(task.staged, task.published)
            raise

    def _try_ids(self, create: Create, launch: Launch, publish: Publish) -> Task:
        for _ in range(_ID_TRIES):
            try:
                return create(StagedTask(self.registry.stage(launch), launch), publish)
            except Refused as refused:
                if not refused.is_taken:
                    raise StartFailed(
                        f"The command could not be started: {explain_refusal(launch, refused)}."
                    ) from None
        hint = Hint("`outlast clean` removes finished tasks", "`Shell.clean` removes finished tasks")
        raise StartFailed("No free task id was found.", hint)

    # --- at once ---------------------------------------------------------------------------

    def _run(self, create: Create, launch: Launch, prepared: StagedTask | None, slot: int = -1) -> Task:
        """Start the task now. `slot` is the descriptor of its place among the running background tasks."""
        release = partial(self._release_command, slot=slot)
        if prepared is not None:
            try:
                return create(prepared, release)
            except (Refused, FileNotFoundError):
                pass  # the guard of the prepared shell died, and its directory was removed: start another shell
        return self._try_ids(create, launch, release)

    def _release_command(self, task: StagedTask, launch: Launch, slot: int = -1) -> Task:
        """Let the prepared shell run the command, or start a guard that does; wait until it has begun."""
        skips_dump = launch.state and not launch.keeps
        if slot >= 0:
            self._queue.label_slot(slot, launch.session, task.task_id)
        if task.connection is not None:
            if skips_dump:
                sessions.skip_dump(task.staged)
            check_descriptors_left()
            task.connection.begin(begin_items(launch))
            task.close_slots()  # its guards have them
        else:
            with describe(task.staged, task.published, launch) as description:
                description.hold(slot)
                if skips_dump:
                    sessions.skip_dump(task.staged)  # the description has opened the file: the shell restores from it
                check_descriptors_left()
                task.connection = start_guard(description.encode(), description.inherited)
        try:
            pid, started = task.connection.wait_started()
        except Refused as refused:
            # The disk decides: the guards may have published the task before both were killed.
            if not refused.is_gone or not os.path.isdir(task.published):
                raise
            pid, started = 0, time.time()
        self._connections[task.task_id] = task.connection
        if launch.background:
            self._background.append(task.task_id)
            if len(self._background) > _BACKGROUND_CONNECTIONS:
                self._leave(self._background.pop(0))
        return view_started(task.published, launch, pid or None, started)

    def has_prepared(self) -> bool:
        return self.prepared.has_any()

    def prepare(self, launch: Launch) -> bool:
        self._prune(in_pause=True)
        return self.prepared.add(launch)

    # --- from the queue --------------------------------------------------------------------

    def _enqueue(self, create: Create, launch: Launch) -> Task:
        task = self._try_ids(create, launch, partial(publish_pending, self._queue))
        self.advance()
        try:
            return self.registry.get(task.task_id)
        except (OSError, OutlastError, sqlite3.Error):
            return task  # it exists: a caller that gets an error here would start it a second time

    def advance(self) -> None:
        try:
            self._queue.advance(partial(start_pending, self._queue))
        except (OSError, OutlastError, ValueError):
            pass  # not the error of the call that came by; the next task that ends, or the next caller, tries again

    # --- look --------------------------------------------------------------------------------

    def status(self, task_id: str) -> Task:
        return self.registry.get(task_id)

    def has_reached(self, task_id: str, phase: Phase) -> bool:
        directory, connection = self.registry.home.task(task_id), self._connections.get(task_id)
        try:
            if phase == "ended" and ((connection and connection.has_ended()) or record.has_outcome(directory)):
                self._leave(task_id)
                return True
        except (OSError, ValueError):
            pass  # the full look at its status says what is wrong
        try:
            found, _, closed = record.status_of(directory)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise record.explain_error(directory, error) from None
        if isinstance(found, (Pending, Running)):
            return phase == "begun" and isinstance(found, Running)
        self._leave(task_id)
        succeeded = isinstance(found, Ended) and found.outcome == Exited(0)
        return closed or phase in ("begun", "ended") or (phase == "over" and not succeeded)

    def source(self, task_id: str, stream: str) -> Source:
        return self.registry.source(task_id, stream)

    def activity(self, task_id: str) -> Activity:
        from outlast.storage.task_activity import activity_of  # most calls are not about a task that runs

        return activity_of(self.registry.home.task(task_id))

    def explain(self, task_id: str, error: OSError) -> OutlastError:
        return record.explain_error(self.registry.home.task(task_id), error)

    def watch(self, task_id: str, ends_only: bool = False) -> Watch:
        connection = self._connections.get(task_id)
        fd = connection.fileno() if connection is not None else -1
        return Watch(self.registry.home.task(task_id), fd, ends_only)

    # --- act ---------------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes, eof: bool) -> None:
        from outlast.executors.local.stdin import send

        send(self, task_id, data, eof)

    def resize(self, task_id: str, columns: int, rows: int) -> None:
        from outlast.executors.local.stdin import resize

        resize(self, task_id, columns, rows)

    def release(self, task_id: str) -> None:
        try:
            # The session still merges what a command changed that ended before this.
            if not self.has_reached(task_id, "ended"):
                path = os.path.join(self.registry.home.task(task_id), task_directory.MOVED)
                os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
                self.registry.index.set_notice_due([task_id], NOTICE_DUE)
                # It may have ended just now, and a listener that its guards woke saw no notice to give.
                wake_waiters(f"{self.registry.home.path}/outbox")
        except OSError:
            pass  # a full disk, or the task was removed: the caller has a more important error to report

    def interrupt(self, task_id: str) -> bool:
        from outlast.executors.local.end_tasks import interrupt

        return interrupt(self, task_id)

    def fetch(self, task_id: str, paths: Sequence[str], into: str) -> None:
        raise BadInput(f"{task_id} runs on this machine: its files are here.")

    def kill(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        from outlast.executors.local.end_tasks import end_tasks

        return end_tasks(self, task_ids, grace, by, rule)
