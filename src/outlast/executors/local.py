"""Tasks on this machine: each one a directory, watched by a supervisor and its keeper."""

from __future__ import annotations

import errno
import os
import select
import signal
import sqlite3
import time

from outlast import process
from outlast.errors import AlreadyEnded, InputRefused, OutlastError, StartFailed
from outlast.frozen import fields
from outlast.model import Receipt, Running
from outlast.store import launchfile, output, sessionfile, status
from outlast.store.home import open_home
from outlast.store.registry import Registry
from outlast.store.view import announced
from outlast.supervise import EXISTS
from outlast.watch import Deadline, Watch, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outlast.executors.nursery import Nursery
    from outlast.model import Guards, Launch, Slice, Status, Task
    from outlast.settings import Settings

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
RECORD_PATIENCE_S = 5.0  # between the death of a tree and the record of it; milliseconds, unless the disk is stuck
_TREES_AT_ONCE = 100  # each process of a tree takes a descriptor while it is being ended
_ID_TRIES = 5


class LocalExecutor:
    """The tasks of one state directory."""

    def __init__(self, home: str, settings: Settings) -> None:
        self._settings = settings
        self.registry = Registry(open_home(home))
        self._nursery: Nursery | None = None

    def close(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
        self.registry.close()

    # --- start ---------------------------------------------------------------------------

    def start(self, launch: Launch) -> Task:
        try:
            return self._start(launch)
        except OSError as error:
            raise StartFailed(f"The task cannot be prepared in {self.registry.home.path}: {error.strerror}.") from None

    def _start(self, launch: Launch) -> Task:
        self.registry.sweep()
        self.registry.prune(self._settings.retention_hours * 3600)
        for _ in range(_ID_TRIES):
            staged, published = self.registry.stage(launch, self._settings.state_limit_bytes)
            try:
                answer = self._publish(staged, published)
            except BaseException:
                self.registry.discard(staged, published)
                raise
            if "error" not in answer:
                return self._announced(launch, published, answer)
            self.registry.discard(staged, published)
            if answer["error"] != EXISTS:
                raise StartFailed(f"The command could not be started: {answer['error']}.")
        raise StartFailed("No free task id was found; `outlast clean` removes finished tasks.")

    def _publish(self, staged: str, published: str) -> dict[str, Any]:
        """Have the staged task started: what its supervisor answers, with `error` if there is no task."""
        answer = self._nursery_of_ours().fork(staged, published)
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
            return announced(published, launch, answer.get("pid"), answer.get("started", time.time()))

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
        return not isinstance(self._status_of(task_id)[0], Running)

    def is_closed(self, task_id: str) -> bool:
        """Whether no more output will come."""
        return self._status_of(task_id)[2]

    def _status_of(self, task_id: str) -> tuple[Status, Guards, bool]:
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
            # What has ended has told its session already.
            if os.path.exists(os.path.join(directory, sessionfile.AFTER)):
                path = os.path.join(directory, sessionfile.MOVED)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError:
            pass  # a full disk, or it was removed: whoever asked has more important things to learn

    # --- end -----------------------------------------------------------------------------

    def interrupt(self, task_id: str) -> bool:
        """What Ctrl-C does on a terminal: INT to the command's process group. It may go on."""
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
