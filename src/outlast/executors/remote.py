"""What executors on other machines share: a task's mirror here, and everything that is done with mirrors alone.

A start publishes the mirror first and then asks the other side, which starts a task once for each id however often it
is asked. If the answer is missing, the task is pending and says that its start is not confirmed; the next look settles
it. A subclass of `RemoteExecutor` has the methods of `OtherMachine`.
"""

from __future__ import annotations

import os
import time

from outlast.errors import (
    WITH_TERMINAL,
    AlreadyEnded,
    BadInput,
    InputRefused,
    OutlastError,
    StartFailed,
    Unsupported,
    quote,
)
from outlast.executors.local.stdin import end_terminal_input
from outlast.executors.names import start_named
from outlast.guard.client import Refused
from outlast.light import extend
from outlast.linux.files import open_regular, unlock_and_close
from outlast.storage import mirror, record, task_directory
from outlast.storage.index import NOTICE_DUE
from outlast.storage.layout import SIZE, random_token
from outlast.storage.queue import Queue
from outlast.storage.sessions import Sessions
from outlast.storage.task_directory import view_started
from outlast.storage.watch import Watch, wake_waiters
from outlast.types import AGENT, BRIDGE, Ended, Exited, Pending, Receipt, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.executors.base import Phase
    from outlast.linux.activity import Activity
    from outlast.settings import Settings
    from outlast.storage.name_lock import NameLock
    from outlast.storage.output import Source
    from outlast.storage.registry import Registry
    from outlast.storage.task_directory import Hold
    from outlast.types import Launch, Place, Task

_ID_TRIES = 5
# Of a side that does not answer: how often as long as a look waited no other look asks it again, and at most.
_QUIET_PARTS, _LONGEST_QUIET_S = 10, 10.0
# The numbers of the descriptors from which a shell there restores its session: see far.c.
_BEFORE_FD, _START_FD = 100, 101


class Unreachable(OutlastError, code="unreachable"):
    """The other side did not answer: what it did is not known."""


class OtherMachine:
    """What one kind of other machine does in its own way: ssh, Slurm or Ray."""

    def place(self) -> Place:
        """Return where a command begins there: the variables, the home directory, the shell."""
        raise NotImplementedError

    def examine(self) -> str:
        """Return in a few words what this executor offers; raises `OutlastError` that says what is missing."""
        raise NotImplementedError

    def submit(self, task_id: str, launch: Launch) -> tuple[int, float]:
        """Start the task there unless it was started before; returns its pid (0: not known) and when it began.

        Raises `Refused` if there is no task and will be none, `Unreachable` if that is not known.
        """
        raise NotImplementedError

    def update(self, task_ids: Sequence[str], patience: float | None = None) -> None:
        """Bring mirrors up to date. Notes in each (`mirror.note_problem`) why that was not possible; does not raise."""
        raise NotImplementedError

    def follow(self, task_id: str) -> None:
        """Keep the mirror up to date from now on, in a thread; the waiter wakes when it changes. `unfollow` ends it."""
        raise NotImplementedError

    def unfollow(self, task_id: str) -> None:
        """Stop what `follow` began."""
        raise NotImplementedError

    def end(self, task_ids: Sequence[str], grace: float, ending: Mapping[str, object]) -> list[tuple[Any, Any]]:
        """End these trees there; returns of each the pids that ended and those that survived. Raises `Unreachable`.

        `ending` is what the record says about it. A task whose start is not confirmed must never begin afterwards.
        """
        raise NotImplementedError

    def signal(self, task_id: str, number: int) -> bool:
        """Send a signal to the command's process group."""
        raise NotImplementedError

    def send(self, task_id: str, data: bytes, eof: bool) -> None:
        """Write to the task's input. Raises `InputRefused`."""
        raise NotImplementedError

    def copy_there(self, paths: Sequence[str], directory: str) -> None:
        """Copy files and directories of this machine into one there. Raises `OutlastError`."""
        raise NotImplementedError

    def copy_here(self, paths: Sequence[str], directory: str, into: str) -> None:
        """Copy what is in a directory there into one of this machine. Raises `OutlastError`."""
        raise NotImplementedError

    def set_size(self, task_id: str, size: bytes) -> None:
        """Write the file `size` of the task there, and wake its guard."""
        raise NotImplementedError


class RemoteExecutor(OtherMachine):
    """One entry of `[executors.*]`: see `Executor`. All of them share the registry of this machine."""

    needs: Sequence[str] = ()  # what a task can ask for there

    def __init__(self, name: str, table: Mapping[str, Any], registry: Registry, settings: Settings) -> None:
        self.name, self.table, self.registry, self.settings = name, table, registry, settings
        self._problem, self._quiet_until = "", 0.0
        self._sessions = Sessions(registry.home.sessions)
        self._queue = Queue(registry.home.path)

    def near(self, task_id: str) -> str:
        """Return the path of a task's mirror."""
        return self.registry.home.task(task_id)

    def close(self) -> None:
        raise NotImplementedError

    # --- start -------------------------------------------------------------------------------

    def start(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        self._check(launch)
        if launch.send:
            self.copy_there(launch.send, launch.cwd)
        try:
            return start_named(self._queue, self.registry, launch, hold, lambda name: self._start(launch, hold, name))
        except OSError as error:
            raise StartFailed(f"The task cannot be prepared in {self.registry.home.path}: {error.strerror}.") from None

    def _check(self, launch: Launch) -> None:
        """Refuse what cannot be had there, before anything is sent."""
        if launch.shell in (AGENT, BRIDGE):
            raise Unsupported(f"An agent runs on this machine only, not on {self.name}; leave out the executor.")
        for need in launch.needs:
            if need not in self.needs:
                some = f"it can be for {', '.join(sorted(self.needs))}" if self.needs else "leave that out"
                raise BadInput(f"{self.name} cannot be asked for {quote(need)}; {some}.")
        if launch.after:
            raise Unsupported(f"A task on {self.name} cannot wait for others; wait for them first (outlast wait).")

    def start_array(self, launches: Sequence[Launch]) -> list[Task]:
        raise Unsupported(f"{self.name} has no arrays; start the tasks one by one.")

    def _start(self, launch: Launch, hold: Hold | None, name: NameLock | None) -> Task:
        task_id, reserved, lock = self._publish(launch, hold, name)
        try:
            return self._submit(task_id, reserved)
        finally:
            if lock is not None:
                unlock_and_close(lock)

    def _publish(
        self, launch: Launch, hold: Hold | None = None, name: NameLock | None = None, first: str = ""
    ) -> tuple[str, Launch, int | None]:
        """Make a task durable whose start is not confirmed; returns also the lock of its start.

        `first` is the first task of the array that it is in, whose lock is that of all.
        """
        for _ in range(_ID_TRIES):
            staged, published = self.registry.stage(launch)
            task_id = os.path.basename(published)
            try:
                reserved = self.registry.reserve(staged, published, launch, self.settings.state_limit_bytes)
                if reserved is None:
                    self.registry.discard(staged, published)
                    continue
                self._register(staged, task_id, reserved, hold, name)
                mirror.create(staged, self.near(first) if first else "")
                lock = None if first else mirror.lock_start(staged)  # no other process settles it from now on
                os.rename(staged, published)
            except BaseException:
                self.registry.discard(staged, published)
                raise
            return task_id, reserved, lock
        raise StartFailed("No free task id was found; `outlast clean` removes finished tasks.")

    def _register(self, staged: str, task_id: str, launch: Launch, hold: Hold | None, name: NameLock | None) -> None:
        if launch.keeps:
            self._sessions.register(launch.state, staged)
        if launch.parent:
            task_directory.add_offspring(self.registry.home.task(launch.parent), task_id)
        if hold is not None:
            hold.take(staged)
        if name is not None:
            name.assign(task_id)
        record.create_pipes(launch.command, staged)

    def _submit(self, task_id: str, launch: Launch) -> Task:
        try:
            pid, started = self.submit(task_id, launch)
        except Refused as refused:
            self._discard(task_id)
            raise StartFailed(f"The command could not be started on {self.name}: {refused.reason}.") from None
        except Unreachable as error:
            mirror.note_problem(self.near(task_id), f"its start is not confirmed: {error.message}")
            return self.registry.get(task_id)
        return view_started(self.near(task_id), launch, pid, started) if pid else self.registry.get(task_id)

    def _discard(self, task_id: str) -> None:
        """Remove a task that never was one. Not by `remove`: the caller may hold it."""
        staged = f"{self.registry.home.staging}/{task_id}.{random_token()}"
        os.rename(self.near(task_id), staged)
        self.registry.discard(staged, self.near(task_id))

    # --- look --------------------------------------------------------------------------------

    def prepare(self, launch: Launch) -> bool:
        return False  # the connection stays open anyway

    def has_prepared(self) -> bool:
        return False

    def advance(self) -> None:
        """There is no queue for other machines."""

    def refresh(self) -> None:
        unfinished = self.registry.index.sample_unfinished(time.time() + 1, -1)
        ours = [one for one in unfinished if self._is_ours(one) and self._can_change(one)]
        if changing := [one for one in ours if not self.is_silent(one)]:
            self.update(changing)

    def _is_ours(self, task_id: str) -> bool:
        try:
            return self.registry.launch_of(task_id).executor == self.name
        except OutlastError:
            return False  # it is damaged; other calls say so

    def _can_change(self, task_id: str) -> bool:
        try:
            return record.has_guard(self.near(task_id))
        except (OSError, KeyError, TypeError, ValueError):
            return False  # the look at its files says what is wrong

    def status(self, task_id: str) -> Task:
        self._look(task_id)
        return self.registry.get(task_id)

    def _look(self, task_id: str) -> None:
        """Bring one mirror up to date; not while the other side is known not to answer."""
        if self._can_change(task_id) and not self.is_silent(task_id):
            self.update([task_id])

    def is_silent(self, task_id: str) -> bool:
        """Return whether the other side is known not to answer now, and note that in a mirror."""
        if time.monotonic() >= self._quiet_until:
            return False
        self.note_problem(task_id, self._problem)
        return True

    def note_problem(self, task_id: str, problem: str) -> None:
        try:
            mirror.note_problem(self.near(task_id), problem)
        except (OSError, ValueError):
            pass  # it was removed

    def note_silence(self, problem: str, waited: float) -> None:
        """The other side did not answer for so long. A look at a hundred tasks must not wait for each."""
        self._problem, self._quiet_until = problem, time.monotonic() + min(_QUIET_PARTS * waited, _LONGEST_QUIET_S)

    def has_reached(self, task_id: str, phase: Phase) -> bool:
        directory = self.near(task_id)
        try:
            found, _, closed = record.status_of(directory)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise record.explain_error(directory, error) from None
        if isinstance(found, (Pending, Running)):
            return phase == "begun" and isinstance(found, Running)
        succeeded = isinstance(found, Ended) and found.outcome == Exited(0)
        return closed or phase in ("begun", "ended") or (phase == "over" and not succeeded)

    def source(self, task_id: str, stream: str) -> Source:
        return self.registry.source(task_id, stream)

    def watch(self, task_id: str, ends_only: bool = False) -> Watch:
        return FollowingWatch(self, task_id)

    def activity(self, task_id: str) -> Activity:
        from outlast.linux.activity import Activity

        return Activity()  # the pids of another machine say nothing here

    def explain(self, task_id: str, error: OSError) -> OutlastError:
        return record.explain_error(self.near(task_id), error)

    # --- act ---------------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes, eof: bool) -> None:
        if not self.registry.launch_of(task_id).stdin.open:
            raise InputRefused(f"{task_id} takes no input; start it with its input open.")
        self._look(task_id)
        if self.has_reached(task_id, "ended"):
            raise AlreadyEnded(f"{task_id} has ended and reads no more input.")
        if eof and self.registry.launch_of(task_id).tty is not None:
            data, eof = end_terminal_input(data), False
        self.send(task_id, data, eof)

    def resize(self, task_id: str, columns: int, rows: int) -> None:
        if self.registry.launch_of(task_id).tty is None:
            raise InputRefused(f"{task_id} has no terminal, so it has no size.", WITH_TERMINAL)
        self._look(task_id)
        if self.has_reached(task_id, "ended"):
            raise AlreadyEnded(f"{task_id} has ended; its screen stays as it is.")
        size = b"%04dx%04d\n" % (columns, rows)
        self.set_size(task_id, size)
        mirror.replace_file(self.near(task_id), SIZE, size)

    def release(self, task_id: str) -> None:
        try:
            if not self.has_reached(task_id, "ended"):
                path = os.path.join(self.near(task_id), task_directory.MOVED)
                os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
                self.registry.index.set_notice_due([task_id], NOTICE_DUE)
                wake_waiters(f"{self.registry.home.path}/outbox")
        except OSError:
            pass  # a full disk, or the task was removed: the caller has a more important error to report

    def fetch(self, task_id: str, paths: Sequence[str], into: str) -> None:
        self.copy_here(paths, self.registry.launch_of(task_id).cwd, into)

    def interrupt(self, task_id: str) -> bool:
        from outlast.light import signal

        return self.signal(task_id, signal.SIGINT)

    def kill(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        ended = self.end(task_ids, grace, {"by": by, "rule": record.shorten(rule, 360), "at": time.time()})
        receipts = []
        for task_id, (pids, survivors) in zip(task_ids, ended, strict=True):
            receipts.append(extend(Receipt, self.status(task_id), ended=tuple(pids), survivors=tuple(survivors)))
        return receipts


class FollowingWatch(Watch):
    """What to wait on until a task elsewhere changes: its bell here, while a thread keeps the mirror up to date."""

    def __init__(self, executor: RemoteExecutor, task_id: str) -> None:
        super().__init__(executor.registry.home.task(task_id))
        self._executor, self._task_id = executor, task_id
        executor.follow(task_id)

    def arm(self) -> bool:
        self._disarm()
        try:
            self._bell.rearm()
        except OSError as error:
            raise record.explain_error(self._directory, error) from None
        return True

    def close(self) -> None:
        super().close()
        if self._task_id:
            self._executor.unfollow(self._task_id)
            self._task_id = ""
