"""The queue: slots for background tasks, and the tasks that wait for one. There is no daemon.

queue/lock       held (flock) while a process chooses the next task
queue/places/N   a slot, held (flock) by the guards of one running background task; N is below `max_running`
queue/entries/   an empty file for each pending task; its name says what is needed to choose
queue/names/     for each session and name the task that has it
tasks/ID/after.* how tasks ended that this pending task waits for, if they were removed

The guards of a running task hold its slot, so the kernel frees it when they are gone, also after kill -9. A process
that starts a pending task holds the task's `lock` until the guards do. Only the guards in its record say that a task
has begun: if the starter dies before they are recorded, the task is still pending; later, it has begun. So each task
begins once, and none is forgotten.
"""

from __future__ import annotations

import os
import time

from outlast.light import frozen
from outlast.linux.files import FileLock, create_file, open_regular, read_file, remove_file, try_lock
from outlast.storage import record, task_directory, watch
from outlast.storage.layout import LOCK, QUEUED
from outlast.storage.name_lock import NameLock
from outlast.storage.record import UNREADABLE
from outlast.types import Ended, Exited, Lost, Signalled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outlast.types import Launch

_SLOT_BYTES = 160  # of the line in a slot, always: so that a new one is written over the old one
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
        return f"{self.sequence:020d}.{self.task_id}.{self.slots}.{self.after}.{self.session}"


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
        self._tasks = f"{home}/tasks"
        self._path = f"{home}/queue"
        self._entries, self._slots, self._names = (f"{self._path}/{name}" for name in ("entries", "places", "names"))

    def is_empty(self) -> bool:
        """Return whether no task is pending."""
        try:
            return not os.listdir(self._entries)
        except FileNotFoundError:
            return True

    def _lock(self) -> FileLock:
        return FileLock(self._open(f"{self._path}/lock"))

    def _open(self, path: str) -> int:
        how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, how, 0o600)
        except FileNotFoundError:
            for directory in (self._path, self._entries, self._slots, self._names):
                os.makedirs(directory, 0o700, exist_ok=True)
            return os.open(path, how, 0o600)

    def _task(self, task_id: str) -> str:
        return f"{self._tasks}/{task_id}"

    def _list_entries(self) -> list[Entry]:
        """Return the pending tasks in the order in which they were queued."""
        names = [name.split(".", 4) for name in sorted(os.listdir(self._entries)) if name.count(".") >= 4]
        return [Entry(int(number), task_id, int(slots), *rest) for number, task_id, slots, *rest in names]

    # --- slots ---------------------------------------------------------------------------

    def open_slots(self, most: int) -> list[int]:
        """Open the first slots that were ever used, up to `most`, without claiming one of them."""
        found: list[int] = []
        try:
            while len(found) < most:
                found.append(open_regular(f"{self._slots}/{len(found)}", os.O_RDWR))
        except OSError:
            pass  # the next slot was not used yet
        return found

    def claim_slot(self, session: str, limit: int, opened: Sequence[int] = ()) -> tuple[int, int] | None:
        """Return a descriptor that holds a slot for a new task, and its number; None if none is free or others wait.

        `opened` are the first slots, opened before. Of these it locks the open file, which a guard may share.
        """
        with self._lock():
            if not self.is_empty():
                return None
            for number in range(limit):
                if (fd := self._try_slot(number, opened)) is not None:
                    self.label_slot(fd, session, _NONE)
                    return fd, number
        return None

    def _try_slot(self, number: int, opened: Sequence[int] = ()) -> int | None:
        is_open = number < len(opened)
        return _lock_or_close(os.dup(opened[number]) if is_open else self._open(f"{self._slots}/{number}"))

    def label_slot(self, fd: int, session: str, task_id: str) -> None:
        """Write into a slot that we hold which task it is for."""
        os.pwrite(fd, f"{task_id} {session}".ljust(_SLOT_BYTES - 1).encode() + b"\n", 0)

    def _used_slots(self) -> dict[int, str]:
        """Return the slots that are held, each with its session. Call this with the queue locked."""
        found = {}
        for name in os.listdir(self._slots):
            if (fd := self._try_slot(int(name))) is not None:
                os.close(fd)
                continue
            words = read_file(f"{self._slots}/{name}", _SLOT_BYTES).decode(errors="replace").split()
            found[int(name)] = words[-1] if words else ""
        return found

    # --- enter, leave --------------------------------------------------------------------

    def enqueue(self, staged: str, published: str, launch: Launch) -> None:
        """Publish a staged task as pending."""
        record.reserve(staged)
        watch.create(staged)
        task_directory.write_secrets(staged, launch)
        create_file(f"{staged}/{LOCK}")
        with self._lock():
            entry = Entry(
                sequence=max((entry.sequence for entry in self._list_entries()), default=0) + 1,
                task_id=os.path.basename(published),
                slots=launch.max_running if launch.background else 0,
                after=launch.after[0] if launch.after else _NONE,
                session=launch.session,
            )
            create_file(f"{staged}/{QUEUED}", entry.name.encode())
            for task_id in launch.after:
                _write_end(self._task(task_id), staged)  # it may be removed as soon as we release the lock
            # The entry first: a task without one would wait for ever, an entry without a task is ignored.
            create_file(f"{self._entries}/{entry.name}")
            try:
                os.rename(staged, published)
            except OSError:
                self._remove_entry(entry.name)
                raise

    def _remove_entry(self, name: str) -> None:
        remove_file(f"{self._entries}/{name}")

    def _read_entry_name(self, directory: str) -> str:
        return os.path.basename(read_file(f"{directory}/{QUEUED}", 512).decode())

    def files_of_pending(self, directory: str) -> list[str]:
        """Return the files that the guard of a pending task removes once its command runs."""
        return [*task_directory.SECRETS, f"{self._entries}/{self._read_entry_name(directory)}"]

    def remember_end(self, task_id: str) -> None:
        """Before a task is removed, note how it ended in each pending task that waits for it.

        OSError if that cannot be noted; then the task must stay.
        """
        if self.is_empty():
            return
        with self._lock():
            for entry in self._list_entries():
                directory = self._task(entry.task_id)
                try:
                    waits = entry.after != _NONE and task_id in task_directory.read_values(directory)["after"]
                except UNREADABLE:
                    continue
                if waits:
                    _write_end(self._task(task_id), directory)

    def cancel(self, directory: str, by: str, rule: str) -> bool:
        """End a pending task; False if it is not pending, or about to begin. OSError if it has no usable lock."""
        with self._lock():
            lock = _lock_task(directory)
            if lock is None:
                return False
            try:
                if not record.is_pending(directory):
                    return False
                self.end_unrun(directory, "it was ended before it began", by, rule)
                return True
            finally:
                os.close(lock)

    def end_unrun(self, directory: str, why: str, by: str = "", rule: str = "") -> None:
        """Record that a pending task never ran, and who decided that, by which rule. The caller holds its lock."""
        if by:
            record.write_ending(by, rule, time.time(), directory)
        record.write_never_started(why, time.time(), directory)
        task_directory.erase_secrets(directory)
        self._remove_entry(self._read_entry_name(directory))
        watch.wake_waiters(directory)
        watch.wake_waiters(f"{directory}/{_OUTBOX}")

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
            while True:
                entries = self._list_entries()
                turn = self._choose(entries, used)
                # A task that ended unrun may be one that an earlier entry waits for: then look through all again.
                if turn is not None or self._list_entries() == entries:
                    return turn

    def _choose(self, entries: list[Entry], used: dict[int, str]) -> Turn | None:
        """Return the next turn; end the tasks that never will begin, and remove entries that are left over."""
        pending = {entry.task_id for entry in entries}
        free = next(number for number in range(len(used) + 1) if number not in used)
        sessions = list(used.values())
        for entry in sorted(entries, key=lambda entry: (sessions.count(entry.session), entry.sequence)):
            if entry.slots and entry.slots <= free and entry.after == _NONE:
                continue  # it only waits for a slot
            ready = self._is_ready(entry, pending)
            begins = ready is True and (not entry.slots or free < entry.slots)
            lock = self._lock_if_pending(entry) if begins or isinstance(ready, str) else None
            if lock is not None and begins:
                return self._take_turn(entry, lock, free)
            if lock is not None:
                try:
                    self.end_unrun(self._task(entry.task_id), "it was not to begin", "queue", str(ready))
                finally:
                    os.close(lock)
        return None

    def _is_ready(self, entry: Entry, pending: set[str]) -> bool | str:
        """Return whether all that it waits for has ended; or the sentence why it never will begin."""
        if entry.after == _NONE:
            return True
        if entry.after in pending:
            return False
        directory = self._task(entry.task_id)
        try:
            values = task_directory.read_values(directory)
            ends = [None if one in pending else _read_end(self._task(one), directory) for one in values["after"]]
        except UNREADABLE:
            return True  # the process that starts it reports what is wrong
        if values.get("after_failed") == "run":
            return None not in ends
        return next((end for end in ends if end), None not in ends)

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
        lock, is_leftover = None, True
        try:
            lock = _lock_task(directory)
            if record.is_pending(directory):
                return lock
        except UNREADABLE as error:
            is_leftover = record.is_damage(error)  # otherwise the task may be pending, and needs its entry
        if is_leftover:
            self._remove_entry(entry.name)
        if lock is not None:
            os.close(lock)
        return None

    # --- names ---------------------------------------------------------------------------

    def lock_name(self, session: str, name: str) -> NameLock:
        """Lock a name while it is decided which task has it."""
        return NameLock(f"{self._names}/{session}:{name}", self._open)

    def forget_names(self) -> None:
        """Remove the names of tasks that are gone."""
        for file in os.listdir(self._names) if os.path.isdir(self._names) else ():
            path = f"{self._names}/{file}"
            with NameLock(path, self._open) as name:
                if not name.task_id or not os.path.isdir(self._task(name.task_id)):
                    os.unlink(path)


def _lock_task(directory: str) -> int | None:
    """Lock a task that has no guard and no starter; OSError if there is no such file."""
    return _lock_or_close(open_regular(f"{directory}/{LOCK}", os.O_RDWR))


def _lock_or_close(fd: int) -> int | None:
    if try_lock(fd):
        return fd
    os.close(fd)
    return None


def _describe_end(directory: str) -> str | None:
    """Return None while the task runs or waits, "" if it completed, otherwise the sentence why it did not."""
    match record.status_of(directory)[0]:
        case Ended(outcome=Exited(0), ending=None):
            return ""
        case Ended(ending=None, outcome=Exited(code)):
            how = f"failed with exit code {code}"
        case Ended(ending=None, outcome=Signalled(number)):
            how = f"was ended by signal {number}"
        case Ended(ending=None):
            how = "could not be started"
        case Ended():
            how = "was killed"
        case Lost():
            how = "was lost"
        case _:
            return None
    return f"{os.path.basename(directory)}, which it was to follow, {how}"


def _write_end(directory: str, pending: str) -> None:
    """Note in the directory of a pending task how another one ended. OSError if there is no space for that."""
    try:
        end = _describe_end(directory)
    except UNREADABLE:
        return
    if end is None:
        return
    path = f"{pending}/after.{os.path.basename(directory)}"
    with open(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb", buffering=0) as file:
        file.write(b"%s\n" % end.encode())


def _read_end(directory: str, pending: str) -> str | None:
    """Return how a task ended, as `_describe_end`; if it was removed, from the note in the pending task."""
    try:
        return _describe_end(directory)
    except UNREADABLE:
        task_id = os.path.basename(directory)
    try:
        text = read_file(f"{pending}/after.{task_id}").decode(errors="replace")
    except OSError:
        text = ""
    # Without the newline its writer was killed in the middle, or the disk was full.
    return text[:-1] if text.endswith("\n") else f"{task_id}, which it was to follow, is not there any more"
