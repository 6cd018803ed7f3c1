"""How tasks on this machine begin: prepared in a directory of their own, watched by guards from a nursery."""

from __future__ import annotations

import errno
import os
import time

from outlast.errors import BadInput, OutlastError, StartFailed, named
from outlast.executors.warm import Warm
from outlast.frozen import frozen
from outlast.lean import sqlite
from outlast.model import REGISTERED, surroundings, terms
from outlast.store import launchfile, session_files
from outlast.store.home import open_home
from outlast.store.queue import Queue
from outlast.store.registry import Registry
from outlast.store.sessionfile import Sessions
from outlast.store.staging import stage
from outlast.store.view import announced
from outlast.supervise import EXISTS, invoke

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from outlast.executors.nursery import Nursery, Prepared
    from outlast.model import Launch, Surroundings, Task
    from outlast.settings import Settings
    from outlast.store.hold import Hold
    from outlast.store.index import Entry
    from outlast.store.queue import Turn

_ID_TRIES = 5
_WARM_KIND = "bash"
_NO_ID = "No free task id was found; `outlast clean` removes finished tasks."
_TIDY_EVERY_S = 0.1
_TO_LOOK = 8  # descriptors that waiting for a task and reading it take at most
_LINES = 32  # to so many supervisors we keep a line; waiting for a task without one takes a little longer


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
        self._nursery: Nursery | None = None
        self._sessions = Sessions(self.registry.home.sessions)
        self._queue = Queue(home)
        self._begun: dict[str, Prepared] = {}  # the latest tasks that we started: we have lines to their supervisors
        self._tidy_at = 0.0
        self._warm = Warm()

    def close(self) -> None:
        self._warm.close()
        if self._nursery is not None:
            self._nursery.close()
        while self._begun:
            self._begun.popitem()[1].hang_up()
        self.registry.close()

    def start(self, launch: Launch) -> Task:
        return self.start_or_find(launch)[0]

    def start_or_find(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        """Start it, or find the task that has its name already; whether it is new. Not removed while `hold` is open."""
        try:
            if not launch.name:
                return self._start(_Start(launch, hold)), True
            with self._queue.naming(launch.session, launch.name) as naming:
                found = self._named(launch, naming.task_id)
                if found is None:
                    return self._start(_Start(launch, hold, naming.give_to)), True
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
        place = self._queue.claim(launch.session, launch.max_running)
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
        warm = self._warm.take(around)
        for _ in range(_ID_TRIES):
            prepared = warm or self._prepare(start.launch.kind, around)
            try:
                answer = self._begin(prepared, start, place)
            except FileNotFoundError:
                if prepared is not warm:
                    raise
                answer = {"error": "somebody removed it while it waited"}
            if "error" not in answer:
                return self._announced(start.launch, prepared, answer)
            if prepared is warm:
                warm = None  # no harm was done
            elif answer["error"] != EXISTS:
                raise StartFailed(f"The command could not be started: {answer['error']}.")
        raise StartFailed(_NO_ID)

    def _begin(self, prepared: Prepared, start: _Start, place: int) -> dict[str, Any]:
        """Have a prepared task run: what its supervisor answers, with `error` if there is no task."""
        staged, published = prepared.staged, prepared.published
        entry: Entry | None = None
        answer: dict[str, Any] | None = {"error": EXISTS}
        try:
            entered = self._enter(staged, published, start)
            if entered is not None:
                entry, launch = entered
                if place >= 0:
                    self._queue.sign(place, launch.session, os.path.basename(published))
                _spare(prepared.fileno())
                answer = prepared.begin(terms(launch), place)
        except BaseException:
            prepared.close()
            self.registry.discard(staged, published)
            raise
        if answer is None:
            # The supervisor died before it could answer. What counts is what is on disk.
            answer = {} if os.path.isdir(published) else {"error": "its supervisor died at the start"}
        if "error" in answer:
            prepared.close()
            self.registry.discard(staged, published, entered=entry is not None)
        else:
            self.registry.confirm(os.path.basename(published), entry)
            if start.launch.state and not start.launch.keeps:
                session_files.skip_dump(published)
        return answer

    def _enter(self, staged: str, published: str, start: _Start) -> tuple[Entry, Launch] | None:
        """Write down what a staged task is to run; None if its id is taken."""
        entered = self.registry.enter(staged, published, start.launch, self._settings.state_limit_bytes)
        if entered is not None:
            invoke.make_room(start.launch.command, staged)
            if start.launch.keeps:
                # Before there is a task: the next user of the session must not miss it.
                self._sessions.register(start.launch.state, staged)
            if start.launch.parent:
                from outlast.store import offspring  # most are started by somebody who is no task

                # Before there is a task: who ends the parent must not miss it.
                offspring.note(self.registry.home.task(start.launch.parent), os.path.basename(published))
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
        except (OSError, OutlastError, sqlite.Error):
            # It is there, whatever keeps us from looking at it: who is told that it is not would start it again.
            return announced(published, launch, None, time.time(), "pending")

    def advance(self) -> None:
        """Begin what is pending and may. Whatever keeps us from it is not our caller's trouble."""
        try:
            self._queue.advance(self._begin_pending)
        except (OSError, OutlastError, ValueError):
            pass  # the next one to end, or to open the state directory, will

    def _begin_pending(self, turn: Turn) -> bool:
        try:
            launch = launchfile.read_all(turn.directory)
            around = surroundings(launch)
            prepared = self._nursery_of_ours().prepare(turn.directory, turn.directory, around, turn.lock)
            answer = prepared.begin(terms(launch), turn.place)
            prepared.close()
        finally:
            turn.close()
        return answer is not None and "error" not in answer

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

    def _prepare(self, kind: str, around: Surroundings, warm: bool = False) -> Prepared:
        staged, published = stage(self.registry.home, kind, around)
        try:
            return self._nursery_of_ours().prepare(staged, published, around, warm=warm)
        except BaseException:
            self.registry.discard(staged, published, entered=False)
            raise

    def warm_up(self, launch: Launch) -> None:
        """Prepare a task that is to run in these surroundings."""
        around = surroundings(launch)
        if around.stdin.text is None:
            self._warm.put(self._prepare(_WARM_KIND, around, warm=True))

    def warmth(self, launch: Launch) -> int:
        """How many tasks are prepared for such a launch."""
        return self._warm.count(surroundings(launch))

    def _announced(self, launch: Launch, prepared: Prepared, answer: dict[str, Any]) -> Task:
        """What is known of a task that just began. It runs, whatever keeps us from looking at it."""
        task_id = os.path.basename(prepared.published)
        self._begun[task_id] = prepared
        while len(self._begun) > _LINES:
            self._begun.pop(next(iter(self._begun))).hang_up()
        return announced(prepared.published, launch, answer.get("pid"), answer.get("started", time.time()))

    def get_ready(self) -> None:
        """Start what the first task will need."""
        from outlast.executors.nursery import Nursery

        self.adopt(Nursery.early())

    def adopt(self, nursery: Nursery) -> None:
        """Use a nursery that was started before us."""
        self._nursery = nursery

    def _nursery_of_ours(self) -> Nursery:
        from outlast.executors.nursery import Nursery  # looking at tasks needs none

        if self._nursery is None:
            self._nursery = Nursery()
        return self._nursery
