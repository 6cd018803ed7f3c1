"""Tasks on this machine: each one a directory, watched by a supervisor and its keeper."""

from __future__ import annotations

import errno
import os
import select
import sqlite3
import time

from outlast import process, tree
from outlast.errors import AlreadyEnded, BadInput, InputRefused, OutlastError, StartFailed, named
from outlast.executors.warm import Warm
from outlast.frozen import fields, frozen
from outlast.lean import signal
from outlast.model import Ended, Exited, Pending, Receipt, Running, surroundings, terms
from outlast.store import launchfile, output, record, sessionfile, status
from outlast.store.hold import Hold
from outlast.store.home import open_home
from outlast.store.queue import Queue
from outlast.store.registry import Registry
from outlast.store.staging import stage
from outlast.store.view import announced
from outlast.supervise import EXISTS, invoke
from outlast.watch import Deadline, Watch, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from outlast.executors.nursery import Nursery, Prepared
    from outlast.model import Guards, Launch, Slice, Status, Surroundings, Task
    from outlast.process import Stat
    from outlast.settings import Settings
    from outlast.store.index import Entry
    from outlast.store.queue import Turn

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
RECORD_PATIENCE_S = 5.0  # between the death of a tree and the record of it; milliseconds, unless the disk is stuck
_TREES_AT_ONCE = 100  # each process of a tree takes a descriptor while it is being ended
_ID_TRIES = 5
_NO_ID = "No free task id was found; `outlast clean` removes finished tasks."
_BEGINS_S = 0.005  # about what it takes to begin a task that is no longer to be held back
_TIDY_EVERY_S = 0.1
_TO_LOOK = 8  # descriptors that waiting for a task and reading it take at most
_LINES = 32  # to so many supervisors we keep a line; waiting for a task without one takes a little longer


@frozen
class _Start:
    """One start: what is to run, what keeps it from being removed, and who is told its id first."""

    launch: Launch
    hold: Hold | None
    give_name_to: Callable[[str], None] | None = None
    again: str = ""


def _spare() -> None:
    """Refuse before there is a task if we could not even look at it for want of descriptors."""
    spare: list[int] = []
    try:
        while len(spare) < _TO_LOOK:
            spare += os.pipe()
    finally:
        for fd in spare:
            os.close(fd)


class LocalExecutor:
    """The tasks of one state directory."""

    def __init__(self, home: str, settings: Settings) -> None:
        self._settings = settings
        self.registry = Registry(open_home(home))
        self._nursery: Nursery | None = None
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

    # --- start ---------------------------------------------------------------------------

    def start(self, launch: Launch) -> Task:
        return self.start_or_find(launch)[0]

    def start_or_find(self, launch: Launch, hold: Hold | None = None, again: str = "") -> tuple[Task, bool]:
        """Start it, or find the task that has its name already; whether it is new. Not removed while `hold` is open.

        With `again` (`HERE` or `FOLLOW` its session) another one like it is likely to come after it.
        """
        try:
            if not launch.name:
                return self._start(_Start(launch, hold, again=again)), True
            with self._queue.naming(launch.session, launch.name) as naming:
                found = self._named(launch, naming.task_id)
                if found is None:
                    return self._start(_Start(launch, hold, naming.give_to)), True
                if hold is not None:
                    hold.take(self._directory(found.task_id))
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
        if not launch.background and not launch.after:
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
                _spare()
                answer = prepared.begin(terms(launch), place, start.again)
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
        return answer

    def _enter(self, staged: str, published: str, start: _Start) -> tuple[Entry, Launch] | None:
        """Write down what a staged task is to run; None if its id is taken."""
        entered = self.registry.enter(staged, published, start.launch, self._settings.state_limit_bytes)
        if entered is not None:
            invoke.make_room(start.launch.command, staged)
            if start.launch.parent:
                from outlast.store import offspring  # most are started by somebody who is no task

                # Before there is a task: who ends the parent must not miss it.
                offspring.note(self._directory(start.launch.parent), os.path.basename(published))
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

    def _prepare(self, kind: str, around: Surroundings) -> Prepared:
        staged, published = stage(self.registry.home, kind, around)
        try:
            return self._nursery_of_ours().prepare(staged, published, around)
        except BaseException:
            self.registry.discard(staged, published, entered=False)
            raise

    def warm_up(self, launch: Launch) -> None:
        """Prepare a task that is to run in these surroundings."""
        around = surroundings(launch)
        if around.stdin.text is None and not self._warm.has(around):
            # Staged by its supervisor: we have somebody to answer.
            self._warm.put(self._nursery_of_ours().prepare(self.registry.home.path, "", around))

    def is_warm(self, launch: Launch) -> bool:
        """Whether a task is prepared for such a launch, or will be as soon as its session's state is known."""
        return self._warm.has(surroundings(launch))

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

    # --- look ----------------------------------------------------------------------------

    def status(self, task_id: str) -> Task:
        return self.registry.get(task_id)

    def has_ended(self, task_id: str) -> bool:
        """Whether its end is known: cheaper than `status`."""
        if self._is_recorded(task_id):
            return True
        return not isinstance(self._status_moved_on(task_id)[0], (Pending, Running))

    def is_over(self, task_id: str) -> bool:
        """Whether nothing more can be hoped of it: it is closed, or its command failed.

        A command that went well and left something running (`server &`) may have only begun.
        """
        found, _, closed = self._status_moved_on(task_id)
        went_well = isinstance(found, Ended) and found.outcome == Exited(0)
        return closed or not (went_well or isinstance(found, (Pending, Running)))

    def is_closed(self, task_id: str) -> bool:
        """Whether no more output will come."""
        return self._status_moved_on(task_id)[2]

    def has_begun(self, task_id: str) -> bool:
        """Whether it is not pending (any more)."""
        return not isinstance(self._status_moved_on(task_id)[0], Pending)

    def _status_moved_on(self, task_id: str) -> tuple[Status, Guards | None, bool]:
        """Whoever waits for a pending task looks after the queue: those who should have may have been killed."""
        found = self._status_of(task_id)
        if not isinstance(found[0], Pending):
            return found
        self.advance()
        return self._status_of(task_id)

    def _status_of(self, task_id: str) -> tuple[Status, Guards | None, bool]:
        directory = self._directory(task_id)
        try:
            found = status.status_of(directory)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise status.trouble(directory, error) from None
        if not isinstance(found[0], (Pending, Running)):
            self._let_go(task_id)
        return found

    def _is_recorded(self, task_id: str) -> bool:
        try:
            found = status.has_outcome(self._directory(task_id))
        except (OSError, ValueError):
            return False  # whoever looks longer says what is wrong
        if found:
            self._let_go(task_id)
        return found

    def _let_go(self, task_id: str) -> None:
        """It has ended: of this one its supervisor has said all that it ever will."""
        begun = self._begun.pop(task_id, None)
        following = begun.next() if begun is not None else None
        if following is not None:
            self._warm.put(following)

    def read(self, task_id: str, stream: str, cursor: int, most: int) -> Slice:
        return self.source(task_id, stream).read(cursor, most)

    def source(self, task_id: str, stream: str) -> output.Source:
        """One stream of a task's output."""
        directory, launch = self._directory(task_id), self.registry.launch_of(task_id)
        return output.Source(directory, stream, output.bound_of(launch.output_limit, launch.split))

    def members(self, task_id: str) -> dict[int, Stat]:
        """The living processes of a task, without its guards."""
        try:
            guards = status.guards_of(self._directory(task_id))
        except (OSError, KeyError, TypeError, ValueError):
            return {}  # pending, or just being removed
        return tree.look(guards, status.watches_another, process.Table).members

    def trouble(self, task_id: str, error: OSError) -> OutlastError:
        """What to tell of a task whose files could not be used."""
        return status.trouble(self._directory(task_id), error)

    def watch(self, task_id: str) -> Watch:
        begun = self._begun.get(task_id)
        return Watch(self._directory(task_id), begun.fileno() if begun is not None else -1)

    def hold(self, task_id: str) -> Hold:
        """Keep a task from being removed until it is reported."""
        return Hold().take(self._directory(task_id))

    def _directory(self, task_id: str) -> str:
        return self.registry.home.task(task_id)

    # --- input ---------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes, eof: bool) -> None:
        directory = self._directory(task_id)
        launch, _ = launchfile.read(directory)
        if not launch.stdin.open:
            raise InputRefused(f"{task_id} takes no input; start it with `--stdin open`.")
        if self.has_ended(task_id):
            raise AlreadyEnded(f"{task_id} has ended and reads no more input.")
        if not self.has_begun(task_id):
            raise InputRefused(f"{task_id} is pending and reads no input yet; send it once it runs.")
        if os.path.exists(os.path.join(directory, status.END_OF_INPUT)):
            raise InputRefused(f"The input of {task_id} was ended before; nothing more can be sent.")
        try:
            if data:
                self._feed(task_id, os.path.join(directory, status.STDIN), data)
            if eof:
                self._end_input(directory)
        except OSError as error:
            raise self.trouble(task_id, error) from None

    def _feed(self, task_id: str, path: str, data: bytes) -> None:
        """Write all of it, or refuse: a command that does not read must not hold us for ever."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise InputRefused(f"{task_id} has closed its input.") from None
            raise
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        sent = 0
        try:
            while sent < len(data):
                ready = poll.poll(INPUT_PATIENCE_S * 1000)
                if not ready:
                    raise InputRefused(f"{task_id} does not read its input: {sent} of {len(data)} bytes were taken.")
                try:
                    sent += os.write(fd, data[sent : sent + 65536])
                except BlockingIOError:
                    continue  # somebody else filled it
        except BrokenPipeError:
            raise InputRefused(f"{task_id} closed its input after {sent} of {len(data)} bytes.") from None
        finally:
            os.close(fd)

    def _end_input(self, directory: str) -> None:
        # The guards keep the input open. A file tells them to let go, also those who come later.
        path = os.path.join(directory, status.END_OF_INPUT)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        guards = status.guards_of(directory)
        for guard in (guards.supervisor, guards.keeper):
            if guard:
                process.send(guard, signal.SIGUSR1)

    def release(self, task_id: str) -> None:
        """Nobody waits for it any more: what it changes stays its own."""
        directory = self._directory(task_id)
        try:
            # What has ended has told its session already, or is about to.
            if not self.has_ended(task_id):
                path = os.path.join(directory, sessionfile.MOVED)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
                self.registry.index.set_untold([task_id], 1)  # of its end somebody has to be told
        except OSError:
            pass  # a full disk, or it was removed: whoever asked has more important things to learn

    # --- end -----------------------------------------------------------------------------

    def interrupt(self, task_id: str) -> bool:
        """What Ctrl-C does on a terminal: INT to the command's process group. It may go on."""
        if not self.has_begun(task_id):
            self.signal([task_id], 0.0, "kill", "interrupted before it began")
            return True
        try:
            return process.send_group(status.guards_of(self._directory(task_id)).command, signal.SIGINT)
        except OSError as error:
            raise self.trouble(task_id, error) from None

    def signal(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        receipts = []
        for start in range(0, len(task_ids), _TREES_AT_ONCE):
            some = task_ids[start : start + _TREES_AT_ONCE]
            try:
                receipts += self._end(some, grace, by, rule)
            except OSError as error:
                raise self.trouble(some[0], error) from None
        return receipts

    def _end(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        unrun = [self._directory(one) for one in task_ids if not self._runs_or_ran(one, by, rule)]
        if unrun:
            self.advance()  # what was to follow them need not wait
        receipts = {one: self._unrun(one) for one in map(os.path.basename, unrun)}
        begun = [one for one in task_ids if one not in receipts]
        end = self._end_with_agents if any(one.startswith("agent-") for one in begun) else self._end_running
        receipts.update(zip(begun, end(begun, grace, by, rule), strict=True))
        return [receipts[one] for one in task_ids]

    def _runs_or_ran(self, task_id: str, by: str, rule: str) -> bool:
        """Whether there is something to end; what is pending is ended at once, unrun."""
        directory = self._directory(task_id)
        while status.is_pending(directory):
            if self._queue.end_pending(directory, by, rule):
                return False
            select.select([], [], [], _BEGINS_S)
        return "guards" in record.read(directory)

    def _unrun(self, task_id: str) -> Receipt:
        return Receipt(**fields(self.status(task_id)), ended=(), survivors=())

    def _end_with_agents(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        """As `_end_running`, with all that those of them started that are agents."""
        from outlast.supervise import offspring  # most tasks are none

        agents = [one for one in task_ids if offspring.ends_with(one)]
        for one in agents:
            offspring.end_pending(self._directory(one), by)
        receipts = self._end_running(task_ids, grace, by, rule)
        return [
            offspring.end_offspring(self._directory(one.task_id), one, grace, by) if one.task_id in agents else one
            for one in receipts
        ]

    def _end_running(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        from outlast.supervise.ending import end_trees

        directories = [self._directory(task_id) for task_id in task_ids]
        for task_id, directory in zip(task_ids, directories, strict=True):
            if not self.has_ended(task_id):
                status.write_ending(by, rule, time.time(), directory)
            self._wake_guards(directory)
        looks = [lambda directory=directory: status.guards_of(directory) for directory in directories]
        ended = end_trees(looks, grace)
        return [
            self._receipt(task_id, gone, left, grace) for task_id, (gone, left) in zip(task_ids, ended, strict=True)
        ]

    def _wake_guards(self, directory: str) -> None:
        # A guard that somebody stopped would neither record the end nor leave.
        guards = status.guards_of(directory)
        for guard in (guards.supervisor, guards.keeper):
            if guard:
                process.send(guard, signal.SIGCONT)

    def _receipt(self, task_id: str, ended: tuple[int, ...], survivors: tuple[int, ...], grace: float) -> Receipt:
        if not survivors:
            # Who ends the task that they are part of would wait for themselves.
            inside = process.is_below(status.guards_of(self._directory(task_id)).keeper)
            over = self.has_ended if inside else self.is_closed
            with self.watch(task_id) as watch:
                until(watch, lambda: over(task_id), Deadline(RECORD_PATIENCE_S))
        return Receipt(**fields(self.status(task_id)), ended=ended, survivors=survivors)
