"""The queue: slots for background tasks, and the tasks that wait for one. There is no daemon.

queue/lock       held (flock) while a process chooses the next task
queue/places/N   a slot, held (flock) by the guards of one running background task; N is below `max_running`
queue/entries/   an empty file for each pending task; its name says what is needed to choose
queue/names/     for each session and name the task that has it

The guards of a running task hold its slot, so the kernel frees it when they are gone, also after kill -9. A process
that starts a pending task holds the task's `lock` until the guards do. Only the guards in its record say that a task
has begun: if the starter dies before they are recorded, the task is still pending; later, it has begun. So each task
begins once, and none is forgotten.
"""

from __future__ import annotations

import os
import time

from outlast.light import frozen
from outlast.linux import process
from outlast.linux.files import open_regular
from outlast.storage import bell, launchfile, predecessors, record, status
from outlast.storage.layout import LOCK, QUEUED
from outlast.storage.locks import FileLock, NameLock, try_flock
from outlast.storage.status import UNREADABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlast.types import Launch

_SLOT_BYTES = 160  # of the line in a slot, always: so that a new one is written over the old one
_DIGITS = 20  # of the sequence number of an entry
_NONE = "-"
_OUTBOX = "../../outbox"  # from a task's directory


@frozen
class Entry:
    """One pending task, as the name of its entry describes it."""

    sequence: int
    task_id: str
    slots: int  # how many there are for it; 0: it needs none
    after: str  # one of the tasks that it waits for; the others are in its launch
    session: str

    @property
    def name(self) -> str:
        return f"{self.sequence:0{_DIGITS}d}.{self.task_id}.{self.slots}.{self.after}.{self.session}"


def _parse_entry(name: str) -> Entry | None:
    parts = name.split(".", 4)
    if len(parts) != 5 or not (parts[0].isdecimal() and parts[2].isdecimal()):
        return None  # not a file of ours
    return Entry(int(parts[0]), parts[1], int(parts[2]), parts[3], parts[4])


@frozen
class Turn:
    """A pending task that is to begin now: these descriptors hold its lock and its slot."""

    task_id: str
    directory: str
    lock: int
    slot: int  # -1: it needs none

    def close(self) -> None:
        """Close our copies; the guards have their own."""
        os.close(self.lock)
        if self.slot >= 0:
            os.close(self.slot)


class Queue:
    """The queue of one state directory."""

    def __init__(self, home: str) -> None:
        self._tasks = os.path.join(home, "tasks")
        self._path = os.path.join(home, "queue")
        self._entries, self._slots, self._names = (os.path.join(self._path, n) for n in ("entries", "places", "names"))

    def is_empty(self) -> bool:
        """Return whether no task is pending."""
        try:
            return not os.listdir(self._entries)
        except FileNotFoundError:
            return True

    def _lock(self) -> FileLock:
        return FileLock(self._open(os.path.join(self._path, "lock")))

    def _open(self, path: str) -> int:
        how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, how, 0o600)
        except FileNotFoundError:
            for directory in (self._path, self._entries, self._slots, self._names):
                try:
                    os.mkdir(directory, 0o700)
                except FileExistsError:
                    continue
            return os.open(path, how, 0o600)

    def _task(self, task_id: str) -> str:
        return os.path.join(self._tasks, task_id)

    def _list_entries(self) -> list[Entry]:
        """Return the pending tasks in the order in which they were queued."""
        return [entry for name in sorted(os.listdir(self._entries)) if (entry := _parse_entry(name))]

    # --- slots ---------------------------------------------------------------------------

    def claim_slot(self, session: str, limit: int) -> int | None:
        """Return a descriptor that holds a slot for a new task; None if no slot is free or other tasks wait."""
        with self._lock():
            if not self.is_empty():
                return None
            for number in range(limit):
                if (fd := self._try_slot(number)) is not None:
                    self.label_slot(fd, session, _NONE)
                    return fd
        return None

    def _try_slot(self, number: int) -> int | None:
        fd = self._open(os.path.join(self._slots, str(number)))
        return fd if try_flock(fd) else None

    def label_slot(self, fd: int, session: str, task_id: str) -> None:
        """Write into a slot that we hold which task it is for."""
        me = process.identity(os.getpid())
        line = f"{task_id} {me.pid} {me.tick} {me.boot} {session}"
        os.pwrite(fd, line.ljust(_SLOT_BYTES - 1).encode() + b"\n", 0)

    def _used_slots(self) -> dict[int, str]:
        """Return the slots that are held, each with its session. Call this with the queue locked."""
        found = {}
        for name in os.listdir(self._slots):
            if (fd := self._try_slot(int(name))) is not None:
                os.close(fd)
                continue
            with open(open_regular(os.path.join(self._slots, name)), "rb") as file:
                words = file.read(_SLOT_BYTES).decode(errors="replace").split()
            found[int(name)] = words[-1] if words else ""
        return found

    # --- enter, leave --------------------------------------------------------------------

    def enqueue(self, staged: str, published: str, launch: Launch) -> None:
        """Publish a staged task as pending."""
        record.reserve(staged)
        bell.create(staged)
        launchfile.write_secrets(staged, launch)
        _create(os.path.join(staged, LOCK))
        with self._lock():
            sequences = [name[:_DIGITS] for name in os.listdir(self._entries) if name[:_DIGITS].isdecimal()]
            entry = Entry(
                sequence=int(max(sequences, default="0")) + 1,
                task_id=os.path.basename(published),
                slots=launch.max_running if launch.background else 0,
                after=launch.after[0] if launch.after else _NONE,
                session=launch.session,
            )
            _create(os.path.join(staged, QUEUED), entry.name.encode())
            for task_id in launch.after:
                predecessors.write_end(self._task(task_id), staged)  # it may be removed as soon as we release the lock
            # The entry first: a task without one would wait for ever, an entry without a task is ignored.
            _create(os.path.join(self._entries, entry.name))
            try:
                os.rename(staged, published)
            except OSError:
                self._remove_entry(entry.name)
                raise

    def _remove_entry(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._entries, name))
        except FileNotFoundError:
            pass

    def _read_entry_name(self, directory: str) -> str:
        with open(open_regular(os.path.join(directory, QUEUED)), "rb") as file:
            return os.path.basename(file.read(512).decode())

    def files_of_pending(self, directory: str) -> list[str]:
        """Return the files that the guard of a pending task removes once its command runs."""
        return [*launchfile.SECRETS, os.path.join(self._entries, self._read_entry_name(directory))]

    def remember_end(self, task_id: str) -> None:
        """Before a task is removed, note how it ended in each pending task that waits for it.

        OSError if that cannot be noted; then the task must stay.
        """
        if self.is_empty():
            return
        with self._lock():
            for entry in self._list_entries():
                try:
                    waits = entry.after != _NONE and task_id in launchfile.read_after(self._task(entry.task_id))[0]
                except UNREADABLE:
                    continue
                if waits:
                    predecessors.write_end(self._task(task_id), self._task(entry.task_id))

    def cancel(self, directory: str, by: str, rule: str) -> bool:
        """End a pending task; False if it is not pending, or about to begin. OSError if it has no usable lock."""
        with self._lock():
            lock = _lock_task(directory)
            if lock is None:
                return False
            try:
                if not status.is_pending(directory):
                    return False
                status.write_ending(by, rule, time.time(), directory)
                self.end_unrun(directory, "it was ended before it began")
            finally:
                os.close(lock)
        bell.wake_waiters(directory)
        return True

    def end_unrun(self, directory: str, why: str) -> None:
        """Record that a pending task never ran. The caller holds its lock."""
        status.write_never_started(why, time.time(), directory)
        launchfile.erase_secrets(directory)
        self._remove_entry(self._read_entry_name(directory))
        bell.wake_waiters(os.path.join(directory, _OUTBOX))

    # --- choose --------------------------------------------------------------------------

    def advance(self, begin: Callable[[Turn], bool]) -> None:
        """Start every pending task that may begin. `begin` starts one, closes the turn and returns whether it began."""
        failed = ""
        while (turn := self.next_turn()) is not None:
            if begin(turn):
                continue
            if turn.task_id == failed:
                return  # it failed twice, for a reason that a third attempt would meet again
            failed = turn.task_id

    def next_turn(self) -> Turn | None:
        """Return the pending task that is to begin now, if one may."""
        if self.is_empty():
            return None
        with self._lock():
            used = self._used_slots()
            # A task that ends unrun may be one that an earlier entry waits for: then look through all again.
            while (found := self._choose(used)) is True:
                continue
            return found or None

    def _choose(self, used: dict[int, str]) -> Turn | bool:
        """Return the next turn; True if an entry was removed, False if no task may begin."""
        entries = self._list_entries()
        pending = {entry.task_id for entry in entries}
        free = next(number for number in range(len(used) + 1) if number not in used)
        sessions = list(used.values())
        changed = False
        for entry in sorted(entries, key=lambda entry: (sessions.count(entry.session), entry.sequence)):
            if entry.slots and entry.slots <= free and entry.after == _NONE:
                continue  # it only waits for a slot
            ready = self._is_ready(entry, pending)
            if isinstance(ready, str):
                changed |= self._skip(entry, ready)
            elif ready and (not entry.slots or free < entry.slots):
                lock = self._lock_if_pending(entry)
                if lock is not None:
                    return self._take_turn(entry, lock, free) or False
                changed |= not os.path.lexists(os.path.join(self._entries, entry.name))
        return changed

    def _is_ready(self, entry: Entry, pending: set[str]) -> bool | str:
        """Return whether all that it waits for has ended; or the sentence why it never will begin."""
        if entry.after == _NONE:
            return True
        if entry.after in pending:
            return False
        directory = self._task(entry.task_id)
        try:
            after, after_failed = launchfile.read_after(directory)
        except UNREADABLE:
            return True  # the process that starts it reports what is wrong
        ends = [None if one in pending else predecessors.read_end(self._task(one), directory) for one in after]
        if after_failed == "run":
            return None not in ends
        return next((end for end in ends if end), None not in ends)

    def _skip(self, entry: Entry, why: str) -> bool:
        directory = self._task(entry.task_id)
        lock = self._lock_if_pending(entry)
        if lock is None:
            return False
        try:
            status.write_ending("queue", why, time.time(), directory)
            self.end_unrun(directory, "it was not to begin")
        finally:
            os.close(lock)
        bell.wake_waiters(directory)
        return True

    def _take_turn(self, entry: Entry, lock: int, free: int) -> Turn | None:
        slot = self._try_slot(free) if entry.slots else -1
        if slot is None:
            # A fork of a process that just probed the slot still has it open: the next attempt finds it free.
            os.close(lock)
            return None
        if slot >= 0:
            self.label_slot(slot, entry.session, entry.task_id)
        return Turn(entry.task_id, self._task(entry.task_id), lock, slot)

    def _lock_if_pending(self, entry: Entry) -> int | None:
        """Lock a task if it is still pending; otherwise remove its entry, which a dead process left behind."""
        directory = self._task(entry.task_id)
        try:
            lock = _lock_task(directory)
        except OSError:
            lock = None
        try:
            pending = status.is_pending(directory)
        except UNREADABLE:
            pending = False
        if pending:
            return lock
        self._remove_entry(entry.name)
        if lock is not None:
            os.close(lock)
        return None

    # --- names ---------------------------------------------------------------------------

    def lock_name(self, session: str, name: str) -> NameLock:
        """Lock a name while it is decided which task has it."""
        return NameLock(os.path.join(self._names, f"{session}:{name}"), self._open)

    def forget_names(self) -> None:
        """Remove the names of tasks that are gone."""
        for file in os.listdir(self._names) if os.path.isdir(self._names) else ():
            path = os.path.join(self._names, file)
            with NameLock(path, self._open) as name:
                if not name.task_id or not os.path.isdir(self._task(name.task_id)):
                    os.unlink(path)


def _create(path: str, data: bytes = b"") -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _lock_task(directory: str) -> int | None:
    """Lock a task that has no guard and no starter; OSError if there is no such file."""
    fd = open_regular(os.path.join(directory, LOCK), os.O_RDWR)
    return fd if try_flock(fd) else None
