"""How tasks on this machine begin: the caller writes the task's directory, and a guard publishes and watches it."""

from __future__ import annotations

import errno
import os
import time

from outlast.errors import BadInput, OutlastError, StartFailed, named
from outlast.executors.local import shell_argv
from outlast.executors.local.description import describe, describe_prepared, terms_items
from outlast.executors.local.prepared import Prepared, PreparedShells
from outlast.frozen import frozen
from outlast.guard.client import GONE, Refused, Started, start_guard
from outlast.light import sqlite3
from outlast.storage import launchfile
from outlast.storage.layout import open_home
from outlast.storage.queue import Queue
from outlast.storage.registry import Registry
from outlast.storage.sessions import Sessions, skip_dump
from outlast.storage.task_directory import stage
from outlast.storage.view import view_started
from outlast.types import REGISTERED, surroundings, terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.guard.client import Connection
    from outlast.settings import Settings
    from outlast.storage.index import FileId
    from outlast.storage.locks import Hold
    from outlast.storage.queue import Turn
    from outlast.types import Launch, Surroundings, Task

_ID_TRIES = 5
_WARM_KIND = "bash"
_NO_ID = "No free task id was found; `outlast clean` removes finished tasks."
_TIDY_EVERY_S = 0.1
_TO_LOOK = 8  # descriptors that waiting for a task and reading it take at most
_CONNECTIONS = 32  # to guards of background tasks that are kept; waiting for a task without one takes a little longer


@frozen
class _Start:
    """One start: what is to run, what keeps it from being removed, and who is told its id first."""

    launch: Launch
    hold: Hold | None
    give_name_to: Callable[[str], None] | None = None


def _spare(fd: int) -> None:
    """Refuse before there is a task if we could not even look at it for want of descriptors."""
    spare: list[int] = []
    try:
        while len(spare) < _TO_LOOK:
            spare.append(os.dup(fd))
    finally:
        for one in spare:
            os.close(one)


def _needs_place(launch: Launch) -> bool:
    return launch.background and launch.max_running > 0 and launch.agent.get("format") != REGISTERED


class Starting:
    """New tasks of one state directory, what they need, and what is prepared for the next."""

    def __init__(self, home: str, settings: Settings) -> None:
        self._settings = settings
        self.registry = Registry(open_home(home))
        self._sessions = Sessions(self.registry.home.sessions)
        self._queue = Queue(home)
        self._begun: dict[str, Connection] = {}  # tasks that this process started: foreground ones, the latest others
        self._foreground: set[str] = set()  # a guard whose caller closes the connection believes that nobody waits
        self._tidy_at = 0.0
        self._prepared = PreparedShells()

    def close(self) -> None:
        self._prepared.close()
        while self._begun:
            self._begun.popitem()[1].leave()
        self.registry.close()

    def start(self, launch: Launch) -> Task:
        return self.start_or_find(launch)[0]

    def start_or_find(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        """Start it, or find the task that has its name already; whether it is new. Not removed while `hold` is open."""
        try:
            if not launch.name:
                return self._start(_Start(launch, hold)), True
            with self._queue.lock_name(launch.session, launch.name) as name:
                found = self._named(launch, name.task_id)
                if found is None:
                    return self._start(_Start(launch, hold, name.assign)), True
                if hold is not None:
                    hold.take(self.registry.home.task(found.task_id))
                return found, False
        except OSError as error:
            raise StartFailed(f"The task cannot be prepared in {self.registry.home.path}: {error.strerror}.") from None

    def _named(self, launch: Launch, task_id: str) -> Task | None:
        """The task that has the name of this launch, if it is not over."""
        try:
            task = self.registry.get(task_id) if task_id else None
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
        if not _needs_place(launch) and not launch.after:
            task = self._run(start)
            self._tidy()  # while it runs
            self.advance()  # the others look at the queue anyway
            return task
        self._tidy()
        if launch.after:
            return self._queue_up(start)
        place = self._queue.claim_slot(launch.session, launch.max_running)
        if place is None:
            return self._queue_up(start)
        try:
            return self._run(start, place)
        except BaseException:
            self.advance()  # somebody may have found the place taken meanwhile
            raise
        finally:
            os.close(place)

    def _run(self, start: _Start, place: int = -1) -> Task:
        around = surroundings(start.launch)
        prepared = self._prepared.take(around) if place < 0 else None
        for _ in range(_ID_TRIES):
            if prepared is not None:
                staged, published = prepared.staged, prepared.published
            else:
                staged, published = stage(self.registry.home, start.launch.kind, around)
            answer, connection = self._begin(staged, published, start, place, prepared)
            if isinstance(answer, Started) and connection is not None:
                return self._announced(start.launch, published, answer, connection)
            prepared, was_prepared = None, prepared is not None
            if isinstance(answer, Refused) and not answer.is_taken and not was_prepared:
                raise StartFailed(f"The command could not be started: {_why(start.launch, answer)}.")
        raise StartFailed(_NO_ID)

    def _begin(
        self, staged: str, published: str, start: _Start, place: int, prepared: Prepared | None
    ) -> tuple[Started | Refused, Connection | None]:
        """Write down what is to run, and have a guard run it."""
        entry: FileId | None = None
        connection: Connection | None = prepared.connection if prepared else None
        answer: Started | Refused = Refused(errno.EEXIST, "its id is taken")
        try:
            entered = self._enter(staged, published, start)
            if entered is not None:
                entry, launch = entered
                if place >= 0:
                    self._queue.label_slot(place, launch.session, os.path.basename(published))
                connection = self._start_guard(staged, published, launch, place, connection)
                answer = self._answer(connection, published)
        except FileNotFoundError:
            if prepared is None:
                raise
            answer = GONE  # its guard removed it meanwhile
        except BaseException:
            if connection is not None:
                connection.close()
            self.registry.discard(staged, published)
            raise
        if isinstance(answer, Started):
            self.registry.confirm(os.path.basename(published), entry)
        else:
            if connection is not None:
                connection.close()
            self.registry.discard(staged, published, entered=entry is not None)
        return answer, connection

    def _start_guard(
        self, staged: str, published: str, launch: Launch, place: int, prepared: Connection | None
    ) -> Connection:
        around, said = surroundings(launch), terms(launch)
        forgets = around.state and not said.keeps
        if prepared is not None:
            if forgets:
                skip_dump(staged)
            _spare(prepared.fileno())
            prepared.begin(terms_items(said, around.split))
            return prepared
        with describe(staged, published, launch, around, said) as description:
            if place >= 0:
                description.hold(place)
            if forgets:
                skip_dump(staged)  # the shell reads it through the descriptor that it inherits
            connection = start_guard(description.encode(), description.inherited)
        _spare(connection.fileno())
        return connection

    def _answer(self, connection: Connection, published: str) -> Started | Refused:
        answer = connection.wait_started()
        if answer is None or answer == GONE:
            # What counts is what is on disk: the task may have been published before both guards were killed.
            return Started(0, time.time()) if os.path.isdir(published) else GONE
        return answer

    def _enter(self, staged: str, published: str, start: _Start) -> tuple[FileId, Launch] | None:
        """Write down what a staged task is to run; None if its id is taken."""
        entered = self.registry.reserve(staged, published, start.launch, self._settings.state_limit_bytes)
        if entered is not None:
            shell_argv.create_pipes_file(start.launch.command, staged)
            if start.launch.keeps:
                # Before there is a task: the next user of the session must not miss it.
                self._sessions.register(start.launch.state, staged)
            if start.launch.parent:
                # Before there is a task: who ends the parent must not miss it.
                launchfile.add_offspring(self.registry.home.task(start.launch.parent), os.path.basename(published))
            if start.hold is not None:
                start.hold.take(staged)
            if start.give_name_to:
                start.give_name_to(os.path.basename(published))  # before there is a task: no second one comes between
        return entered

    def _queue_up(self, start: _Start) -> Task:
        """Publish it as pending."""
        for _ in range(_ID_TRIES):
            staged, published = stage(self.registry.home, start.launch.kind, surroundings(start.launch))
            try:
                entered = self._enter(staged, published, start)
                if entered is not None:
                    self._queue.enqueue(staged, published, start.launch)
                    self.registry.confirm(os.path.basename(published), entered[0])
                    self.advance()
                    return self._looked_at(start.launch, published)
            except OSError as error:
                self.registry.discard(staged, published)
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                continue
            except BaseException:
                self.registry.discard(staged, published)
                raise
            self.registry.discard(staged, published, entered=False)
        raise StartFailed(_NO_ID)

    def _looked_at(self, launch: Launch, published: str) -> Task:
        try:
            return self.registry.get(os.path.basename(published))
        except (OSError, OutlastError, sqlite3.Error):
            # It is there, whatever keeps us from looking at it: who is told that it is not would start it again.
            return view_started(published, launch, None, time.time(), "pending")

    def advance(self) -> None:
        """Begin what is pending and may. Whatever keeps us from it is not our caller's trouble."""
        try:
            self._queue.advance(self._begin_pending)
        except (OSError, OutlastError, ValueError):
            pass  # the next one to end, or to open the state directory, will

    def _begin_pending(self, turn: Turn) -> bool:
        try:
            launch = launchfile.read_with_secrets(turn.directory)
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
            self._queue.end_unrun(turn.directory, _why(launch, answer))
        return isinstance(answer, Started)

    def forget_names(self) -> None:
        """Names whose tasks were removed are free."""
        self._queue.forget_names()

    def _tidy(self) -> None:
        """Every start removes a little of what is too old; those in quick succession share that."""
        now = time.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY_EVERY_S
            self.registry.sweep()
            self.registry.prune(self._settings.retention_hours * 3600)

    def prepare_shell(self, launch: Launch) -> None:
        """Start a shell that restores the state of its session and then waits for a command."""
        around = surroundings(launch)
        if not can_wait(around):
            return
        staged, published = stage(self.registry.home, launch.kind, around)
        try:
            with describe_prepared(staged, published, around) as description:
                connection = start_guard(description.encode(), description.inherited)
        except BaseException:
            self.registry.discard(staged, published, entered=False)
            raise
        self._prepared.put(Prepared(staged, published, around, connection))

    def count_prepared(self, launch: Launch) -> int:
        """How many shells wait for a command like this one."""
        return self._prepared.count(surroundings(launch))

    def _announced(self, launch: Launch, published: str, answer: Started, connection: Connection) -> Task:
        """What is known of a task that just began. It runs, whatever keeps us from looking at it."""
        task_id = os.path.basename(published)
        self._begun[task_id] = connection
        if launch.background:
            others = [one for one in self._begun if one not in self._foreground]
            for one in others[:-_CONNECTIONS]:
                self._begun.pop(one).leave()
        else:
            self._foreground.add(task_id)
        return view_started(published, launch, answer.pid or None, answer.time)


def can_wait(around: Surroundings) -> bool:
    """Whether its shell can be started before its command is known."""
    if around.sandbox or around.groups or around.stdin.text is not None:
        return False
    return os.path.basename(around.shell) == "bash"


def _why(launch: Launch, answer: Refused) -> str:
    return f"the sandbox cannot be made: {answer.reason}" if launch.sandbox else answer.reason
