"""Starts tasks on this machine: the caller writes the task's directory, a guard publishes and runs it."""

from __future__ import annotations

import errno
import os
import time

from outlast.errors import BadInput, OutlastError, StartFailed, named
from outlast.executors.local import shell_argv
from outlast.executors.local.description import describe, describe_prepared, terms_items
from outlast.executors.local.prepared import Prepared, PreparedSlot, can_be_prepared
from outlast.frozen import frozen
from outlast.guard.client import GONE, Refused, Started, start_guard
from outlast.light import sqlite3
from outlast.storage import sessions, task_directory
from outlast.storage.queue import Queue
from outlast.storage.sessions import Sessions
from outlast.storage.task_directory import view_started
from outlast.types import REGISTERED, surroundings, terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.guard.client import Connection
    from outlast.settings import Settings
    from outlast.storage.index import FileId
    from outlast.storage.queue import Turn
    from outlast.storage.registry import Registry
    from outlast.storage.task_directory import Hold
    from outlast.types import Launch, Task

_ID_TRIES = 5
_NO_ID = "No free task id was found; `outlast clean` removes finished tasks."
_PRUNE_EVERY_S = 1.0
_FDS_TO_START = 4  # a socket pair, the launch description, /dev/null
_FDS_TO_READ = 8  # descriptors that waiting for a task and reading it take at most
_BACKGROUND_CONNECTIONS = 32  # kept open; waiting for a task without a connection takes a little longer


@frozen
class _Start:
    """What is to run, what keeps it from being removed, and what is called with its id before it is published."""

    launch: Launch
    hold: Hold | None
    give_name_to: Callable[[str], None] | None = None


class Connections:
    """Connections to the guards of tasks that this process started: all foreground ones, the latest background ones.

    A guard whose foreground caller closes the connection concludes that nothing waits for the command any more.
    """

    def __init__(self) -> None:
        self._foreground: dict[str, Connection] = {}
        self._background: dict[str, Connection] = {}

    def get(self, task_id: str) -> Connection | None:
        return self._foreground.get(task_id) or self._background.get(task_id)

    def add(self, task_id: str, connection: Connection, background: bool) -> None:
        if not background:
            self._foreground[task_id] = connection
            return
        self._background[task_id] = connection
        if len(self._background) > _BACKGROUND_CONNECTIONS:
            self.close(next(iter(self._background)))

    def close(self, task_id: str) -> None:
        """Close the connection of a task; the task is not affected."""
        connection = self._foreground.pop(task_id, None) or self._background.pop(task_id, None)
        if connection is not None:
            connection.leave()

    def close_all(self) -> None:
        for task_id in (*self._foreground, *self._background):
            self.close(task_id)


class TaskStarter:
    """Starts the tasks of one state directory, at once or from the queue."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings
        self._sessions = Sessions(registry.home.sessions)
        self._queue = Queue(registry.home.path)
        self._prepared = PreparedSlot()
        self._prune_at = 0.0
        self.connections = Connections()

    def close(self) -> None:
        self._prepared.close()
        self.connections.close_all()

    def start_or_find(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        """Start a task, or find the unfinished task of the same name. Returns it, and whether it is new."""
        try:
            if not launch.name:
                return self._start(_Start(launch, hold)), True
            with self._queue.lock_name(launch.session, launch.name) as name:
                found = self._find_named(launch, name.task_id)
                if found is None:
                    return self._start(_Start(launch, hold, name.assign)), True
                if hold is not None:
                    hold.take(self._registry.home.task(found.task_id))
                return found, False
        except OSError as error:
            raise StartFailed(f"The task cannot be prepared in {self._registry.home.path}: {error.strerror}.") from None

    def _find_named(self, launch: Launch, task_id: str) -> Task | None:
        try:
            task = self._registry.get(task_id) if task_id else None
        except OutlastError:
            return None
        if task is None or task.finished:
            return None
        if (task.command, task.cwd) != (launch.command, launch.cwd):
            raise BadInput(
                f"The name {named(launch.name)} belongs to {task_id}, which is {task.status} and is another command "
                "(or in another directory); end it, or use another name."
            )
        return task

    def _start(self, start: _Start) -> Task:
        launch = start.launch
        if not _needs_slot(launch) and not launch.after:
            task = self._run(start)
            self._prune()  # while the command runs
            self.advance_queue()
            return task
        self._prune()
        slot = None if launch.after else self._queue.claim_slot(launch.session, launch.max_running)
        if slot is None:
            return self._enqueue(start)
        try:
            return self._run(start, slot)
        except BaseException:
            self.advance_queue()  # another start may have been queued because it found the slot taken
            raise
        finally:
            os.close(slot)

    def _prune(self) -> None:
        """Remove some expired tasks; starts in quick succession share one such step."""
        now = time.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE_EVERY_S
            self._registry.prune(self._settings.retention_hours * 3600)

    # --- at once ---------------------------------------------------------------------------

    def _run(self, start: _Start, slot: int = -1) -> Task:
        """Start the task now. `slot` is the descriptor of its place among the running background tasks."""
        around = surroundings(start.launch)
        prepared = self._prepared.take(around) if slot < 0 else None
        for _ in range(_ID_TRIES):
            if prepared is not None:
                staged, published = prepared.staged, prepared.published
            else:
                staged, published = self._registry.stage(start.launch.kind, around)
            answer, connection = self._start_staged(staged, published, start, slot, prepared)
            if isinstance(answer, Started) and connection is not None:
                task_id = os.path.basename(published)
                self.connections.add(task_id, connection, start.launch.background)
                return view_started(published, start.launch, answer.pid or None, answer.time)
            # A prepared shell that was lost, or an id that another task has: try again with a new directory.
            if isinstance(answer, Refused) and not answer.is_taken and prepared is None:
                raise StartFailed(f"The command could not be started: {_reason(start.launch, answer)}.")
            prepared = None
        raise StartFailed(_NO_ID)

    def _start_staged(
        self, staged: str, published: str, start: _Start, slot: int, prepared: Prepared | None
    ) -> tuple[Started | Refused, Connection | None]:
        """Write the launch into the staged directory and let a guard run it."""
        entered: tuple[FileId, Launch] | None = None
        connection = prepared.connection if prepared else None
        answer: Started | Refused = Refused(errno.EEXIST, "its id is taken")
        try:
            entered = self._enter(staged, published, start)
            if entered is not None:
                if slot >= 0:
                    self._queue.label_slot(slot, start.launch.session, os.path.basename(published))
                connection = self._release_command(staged, published, entered[1], slot, connection)
                answer = _wait_started(connection, published)
        except FileNotFoundError:
            if prepared is None:
                raise
            answer = GONE  # the guard of the prepared shell died and its directory was removed
        except BaseException:
            if connection is not None:
                connection.close()
            self._registry.discard(staged, published)
            raise
        if isinstance(answer, Started):
            self._registry.confirm(os.path.basename(published), entered[0] if entered else None)
        else:
            if connection is not None:
                connection.close()
            self._registry.discard(staged, published, entered=entered is not None)
        return answer, connection

    def _release_command(
        self, staged: str, published: str, launch: Launch, slot: int, prepared: Connection | None
    ) -> Connection:
        """Let the prepared shell run the command, or start a guard that does."""
        around, limits = surroundings(launch), terms(launch)
        skips_dump = around.state and not limits.keeps
        if prepared is not None:
            if skips_dump:
                sessions.skip_dump(staged)
            _check_descriptors_left()
            prepared.begin(terms_items(limits, around.split))
            return prepared
        with describe(staged, published, launch, around, limits) as description:
            if slot >= 0:
                description.hold(slot)
            if skips_dump:
                sessions.skip_dump(staged)  # after the description has opened the file: the shell restores from it
            _check_descriptors_left()
            return start_guard(description.encode(), description.inherited)

    def _enter(self, staged: str, published: str, start: _Start) -> tuple[FileId, Launch] | None:
        """Write what a staged task runs, and register it; None if its id is taken.

        The launch that it returns has the task's share of the disk as its output limit. All of this happens before
        the task is published: the next user of its session, the process that ends its parent, a second start with
        its name and a cleaner must not see the task without it.
        """
        launch, task_id = start.launch, os.path.basename(published)
        entered = self._registry.reserve(staged, published, launch, self._settings.state_limit_bytes)
        if entered is None:
            return None
        shell_argv.create_pipes_file(launch.command, staged)
        if launch.keeps:
            self._sessions.register(launch.state, staged)
        if launch.parent:
            task_directory.add_offspring(self._registry.home.task(launch.parent), task_id)
        if start.hold is not None:
            start.hold.take(staged)
        if start.give_name_to:
            start.give_name_to(task_id)
        return entered

    # --- from the queue --------------------------------------------------------------------

    def _enqueue(self, start: _Start) -> Task:
        """Publish the task as pending."""
        for _ in range(_ID_TRIES):
            staged, published = self._registry.stage(start.launch.kind, surroundings(start.launch))
            try:
                entered = self._enter(staged, published, start)
                if entered is not None:
                    self._queue.enqueue(staged, published, start.launch)
                    self._registry.confirm(os.path.basename(published), entered[0])
                    self.advance_queue()
                    return self._look_at_pending(start.launch, published)
            except OSError as error:
                self._registry.discard(staged, published)
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                continue
            except BaseException:
                self._registry.discard(staged, published)
                raise
            self._registry.discard(staged, published, entered=False)
        raise StartFailed(_NO_ID)

    def _look_at_pending(self, launch: Launch, published: str) -> Task:
        try:
            return self._registry.get(os.path.basename(published))
        except (OSError, OutlastError, sqlite3.Error):
            # The task exists. A caller that gets an error here would start it a second time.
            return view_started(published, launch, None, time.time(), "pending")

    def advance_queue(self) -> None:
        """Start the queued tasks that may start now. An error here is not the error of the call that came by."""
        try:
            self._queue.advance(self._start_pending)
        except (OSError, OutlastError, ValueError):
            pass  # the next task that ends, or the next caller, tries again

    def _start_pending(self, turn: Turn) -> bool:
        try:
            launch = task_directory.read_with_secrets(turn.directory)
            around = surroundings(launch)
            with describe(turn.directory, turn.directory, launch, around, terms(launch)) as description:
                description.take_lock(turn.lock)
                if turn.slot >= 0:
                    description.hold(turn.slot)
                for path in self._queue.files_of_pending(turn.directory):
                    description.add("remove", path)
                connection = start_guard(description.encode(), description.inherited)
            answer = connection.wait_started()
            connection.leave()
        finally:
            turn.close()
        if isinstance(answer, Refused) and answer != GONE:
            self._queue.end_unrun(turn.directory, _reason(launch, answer))
        return isinstance(answer, Started)

    def forget_names(self) -> None:
        """Free the names of tasks that were removed."""
        self._queue.forget_names()

    # --- the prepared shell ----------------------------------------------------------------

    def prepare_shell(self, launch: Launch) -> None:
        """Start a shell that restores the session's state and waits for a command like this one."""
        around = surroundings(launch)
        if not can_be_prepared(around) or self._prepared.holds(around):
            return
        staged, published = self._registry.stage(launch.kind, around)
        try:
            with describe_prepared(staged, published, around) as description:
                connection = start_guard(description.encode(), description.inherited)
        except BaseException:
            self._registry.discard(staged, published, entered=False)
            raise
        self._prepared.put(Prepared(staged, published, around, connection))


def _needs_slot(launch: Launch) -> bool:
    """Whether the task counts among the running background tasks, whose number is limited."""
    return launch.background and launch.max_running > 0 and launch.agent.get("format") != REGISTERED


def _wait_started(connection: Connection, published: str) -> Started | Refused:
    answer = connection.wait_started()
    if answer is None or answer == GONE:
        # The disk decides: the guards may have published the task before both were killed.
        return Started(0, time.time()) if os.path.isdir(published) else GONE
    return answer


def _check_descriptors_left() -> None:
    """Raise OSError if too few descriptors are left to start a guard, wait for its task and read it.

    Before the guard starts: from then on the task may be published, and a caller that fails would not know of it.
    """
    opened: list[int] = []
    try:
        while len(opened) < _FDS_TO_START + _FDS_TO_READ:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in opened:
            os.close(fd)


def _reason(launch: Launch, answer: Refused) -> str:
    return f"the sandbox cannot be made: {answer.reason}" if launch.sandbox else answer.reason
