"""Tasks on this machine: each one a directory, watched by a supervisor and its keeper."""

from __future__ import annotations

import errno
import os
import select
import signal
import sqlite3
import time

from outlast import process
from outlast.errors import AlreadyEnded, BadInput, InputRefused, OutlastError, StartFailed, named
from outlast.frozen import fields
from outlast.model import Pending, Receipt, Running
from outlast.store import launchfile, output, record, status
from outlast.store.home import open_home
from outlast.store.queue import Queue
from outlast.store.registry import Registry
from outlast.store.view import announced
from outlast.supervise import EXISTS
from outlast.watch import Deadline, Watch, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from outlast.executors.nursery import Nursery
    from outlast.model import Guards, Launch, Slice, Status, Task
    from outlast.settings import Settings
    from outlast.store.queue import Turn

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
RECORD_PATIENCE_S = 5.0  # between the death of a tree and the record of it; milliseconds, unless the disk is stuck
_TREES_AT_ONCE = 100  # each process of a tree takes a descriptor while it is being ended
_ID_TRIES = 5
_BEGINS_S = 0.005  # about what it takes to begin a task that is no longer to be held back


class LocalExecutor:
    """The tasks of one state directory."""

    def __init__(self, home: str, settings: Settings) -> None:
        self._settings = settings
        self.registry = Registry(open_home(home))
        self._nursery: Nursery | None = None
        self._queue = Queue(home)

    def close(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
        self.registry.close()

    # --- start ---------------------------------------------------------------------------

    def start(self, launch: Launch) -> Task:
        return self.start_or_find(launch)[0]

    def start_or_find(self, launch: Launch) -> tuple[Task, bool]:
        """Start it, or find the task that has its name already; whether it is new."""
        try:
            if not launch.name:
                return self._start(launch), True
            with self._queue.naming(launch.session, launch.name) as naming:
                found = self._named(launch, naming.task_id)
                return (found, False) if found else (self._start(launch, naming.give_to), True)
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

    def _start(self, launch: Launch, with_id: Callable[[str], None] | None = None) -> Task:
        self.registry.sweep()
        self.registry.prune(self._settings.retention_hours * 3600)
        if not launch.background and not launch.after:
            self.advance()  # the others look at the queue anyway
        for _ in range(_ID_TRIES):
            staged, published = self.registry.stage(launch, self._settings.state_limit_bytes)
            try:
                if with_id:
                    with_id(os.path.basename(published))  # before there is a task: no second one may come between
                answer = self._publish(staged, published, launch)
            except BaseException:
                self.registry.discard(staged, published)
                raise
            if "error" not in answer:
                return self._announced(launch, published, answer)
            self.registry.discard(staged, published)
            if answer["error"] != EXISTS:
                raise StartFailed(f"The command could not be started: {answer['error']}.")
        raise StartFailed("No free task id was found; `outlast clean` removes finished tasks.")

    def _publish(self, staged: str, published: str, launch: Launch) -> dict[str, Any]:
        """Have the staged task started, or queued: what came of it, with `error` if there is no task."""
        if not launch.background and not launch.after:
            return self._supervised(staged, published)
        if not launch.after:
            place = self._queue.claim(launch.session, os.path.basename(published), launch.max_running)
            if place is not None:
                return self._in_its_place(staged, published, place)
        return self._enqueued(staged, published, launch)

    def _in_its_place(self, staged: str, published: str, place: int) -> dict[str, Any]:
        answer: dict[str, Any] = {"error": ""}
        try:
            answer = self._supervised(staged, published, place=place)
        finally:
            os.close(place)
            if "error" in answer:
                self.advance()  # somebody may have found the place taken meanwhile
        return answer

    def _enqueued(self, staged: str, published: str, launch: Launch) -> dict[str, Any]:
        try:
            self._queue.enqueue(staged, published, launch)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return {"error": EXISTS}
            raise
        self.advance()
        return {"status": "pending"}

    def advance(self) -> None:
        """Begin what is pending and may. Whatever keeps us from it is not our caller's trouble."""
        try:
            self._queue.advance(self._begin)
        except (OSError, OutlastError):
            pass  # the next one to end, or to open the state directory, will

    def forget_names(self) -> None:
        """Names whose tasks were removed are free."""
        self._queue.forget_names()

    def _begin(self, turn: Turn) -> bool:
        held = {"lock": turn.lock, **({"place": turn.place} if turn.place >= 0 else {})}
        try:
            answer = self._nursery_of_ours().fork(turn.directory, turn.directory, **held)
        finally:
            turn.close()
        return answer is not None and "error" not in answer

    def _supervised(self, staged: str, published: str, **held: int) -> dict[str, Any]:
        answer = self._nursery_of_ours().fork(staged, published, **held)
        if answer is None:
            # The supervisor died before it could answer. What counts is what is on disk.
            return {} if os.path.isdir(published) else {"error": "its supervisor died at the start"}
        return answer

    def _announced(self, launch: Launch, published: str, answer: dict[str, Any]) -> Task:
        try:
            self.registry.confirm(os.path.basename(published))
            return self.registry.get(os.path.basename(published))
        except (OSError, OutlastError, sqlite3.Error):
            # It runs, whatever keeps us from looking at it: who is told that it does not would start it again.
            started, state = answer.get("started", time.time()), answer.get("status", "running")
            return announced(published, launch, answer.get("pid"), started, state)

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
        return not isinstance(self._status_moved_on(task_id)[0], (Pending, Running))

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
            return status.status_of(directory)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise status.trouble(directory, error) from None

    def read(self, task_id: str, stream: str, cursor: int, most: int) -> Slice:
        return self.source(task_id, stream).read(cursor, most)

    def source(self, task_id: str, stream: str) -> output.Source:
        """One stream of a task's output."""
        directory = self._directory(task_id)
        launch, _ = launchfile.read(directory)
        return output.Source(directory, stream, output.bound_of(launch.output_limit, launch.split))

    def trouble(self, task_id: str, error: OSError) -> OutlastError:
        """What to tell of a task whose files could not be used."""
        return status.trouble(self._directory(task_id), error)

    def watch(self, task_id: str) -> Watch:
        return Watch(self._directory(task_id))

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
        receipts.update(zip(begun, self._end_running(begun, grace, by, rule), strict=True))
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
