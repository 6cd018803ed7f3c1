"""Who may run: places for background tasks, and the tasks that wait for one. No daemon, and no claims to clean up.

queue/lock       held (flock) for the moment in which somebody chooses
queue/places/N   held (flock) by the guards of one running background task; N is below the setting `max_running`
queue/entries/   an empty file for each pending task; its name says all that is needed to choose
queue/names/     for each session and name the task that has it

A place is held by who runs the task, so the kernel frees it when they are gone, kill -9 included; nobody has to
find out whether a claim is still meant. Whoever begins a pending task holds its `lock` from before until its end.
That a task has begun is said by one thing only, the guards in its record: whoever dies before they are written
leaves the task as pending as it was, and whoever comes later finds it begun. So it begins once, and is not forgotten.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from outlast.frozen import frozen
from outlast.linux import process
from outlast.linux.files import open_regular
from outlast.storage import bell, launchfile, predecessors, record, status
from outlast.storage.locks import Held
from outlast.storage.names import Naming
from outlast.types import Identity, NeverStarted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outlast.types import Launch

_PLACE_BYTES = 160  # of the line in a place, always: so a new one can be written over an old one
_DIGITS = 20  # of the number that an entry has in the order
_NOBODY = "-"
_UNREADABLE = predecessors.UNREADABLE


@frozen
class Entry:
    """One pending task, as its entry's name tells it."""

    sequence: int
    task_id: str
    places: int  # how many there are for it; 0: it needs none
    after: str  # one of the tasks that it waits for; the others are in its launch
    session: str

    @property
    def name(self) -> str:
        return f"{self.sequence:0{_DIGITS}d}.{self.task_id}.{self.places}.{self.after}.{self.session}"


def _split(name: str) -> list[str] | None:
    parts = name.split(".", 4)
    return parts if len(parts) == 5 and parts[0].isdecimal() and parts[2].isdecimal() else None  # not one of ours


def _worth_a_look(names: list[list[str]], free: int) -> list[Entry]:
    """Those that might begin if the first free place is this one, in order.

    Of a thousand that only wait for a place, those behind the first few of their session are not even taken apart.
    """
    found: list[Entry] = []
    ahead: dict[str, int] = {}
    for sequence, task_id, places, after, session in names:
        if after == _NOBODY and places != "0":
            # The first ones may be about to begin, each in a place; the next one is its turn.
            if int(places) <= free or ahead.setdefault(session, 0) > int(places):
                continue
            ahead[session] += 1
        found.append(Entry(int(sequence), task_id, int(places), after, session))
    return found


@frozen
class Turn:
    """A pending task that is to begin now: its lock and its place are held by these descriptors."""

    task_id: str
    directory: str
    lock: int
    place: int  # -1: it needs none

    def close(self) -> None:
        """Let go of our copies; those of a supervisor hold on."""
        os.close(self.lock)
        if self.place >= 0:
            os.close(self.place)


class Queue:
    """The queue of one state directory."""

    def __init__(self, home: str) -> None:
        self._tasks = os.path.join(home, "tasks")
        self._path = os.path.join(home, "queue")
        self._entries, self._places, self._names = (os.path.join(self._path, n) for n in ("entries", "places", "names"))
        self._next = self._claims = 0

    def is_empty(self) -> bool:
        """Whether nothing waits; the one thing that every look at the state directory asks."""
        try:
            return not os.listdir(self._entries)
        except FileNotFoundError:
            return True

    def _locked(self) -> Held:
        return Held(self._open(os.path.join(self._path, "lock")))

    def _open(self, path: str) -> int:
        how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, how, 0o600)
        except FileNotFoundError:
            for directory in (self._path, self._entries, self._places, self._names):
                try:
                    os.mkdir(directory, 0o700)
                except FileExistsError:
                    continue
            return os.open(path, how, 0o600)

    def _task(self, task_id: str) -> str:
        return os.path.join(self._tasks, task_id)

    # --- places --------------------------------------------------------------------------

    def claim(self, session: str, limit: int) -> int | None:
        """Hold a place for a task that is about to start; None if there is none, or others wait."""
        with self._locked():
            if not self.is_empty():
                return None
            for number in self._in_turn(limit):
                if (fd := self._held_by_us(number)) is not None:
                    self._next = number + 1
                    self.sign(fd, session, _NOBODY)
                    return fd
        return None

    def _in_turn(self, limit: int) -> Iterator[int]:
        """All places, beginning with the one after the last that we claimed.

        From the first one again after as many claims as there are before that: so each takes about the
        same, with thousands of them, and there are not many more files than were ever held at once.
        """
        self._claims += 1
        first = self._next
        if first >= limit or self._claims > first:
            first = self._claims = 0
        yield from range(first, limit)
        yield from range(first)

    def _held_by_us(self, number: int) -> int | None:
        return _held_or_closed(self._open(os.path.join(self._places, str(number))))

    def sign(self, fd: int, session: str, task_id: str) -> None:
        """Say in a place that we hold for whom it is."""
        me = process.identity(os.getpid())
        line = f"{task_id} {me.pid} {me.tick} {me.boot} {session}"
        os.pwrite(fd, line.ljust(_PLACE_BYTES - 1).encode() + b"\n", 0)

    def _occupied(self) -> dict[int, str]:
        """The places that are held, each with the session that holds it. Only under the lock of the queue."""
        found = {}
        for name in os.listdir(self._places):
            if (fd := self._held_by_us(int(name))) is not None:
                os.close(fd)
            else:
                found[int(name)] = (self._line(name) or [""])[-1]
        return found

    def _line(self, name: str) -> list[str]:
        with open(open_regular(os.path.join(self._places, name)), "rb") as file:
            return file.read(_PLACE_BYTES).decode(errors="replace").split()

    # --- enter, leave --------------------------------------------------------------------

    def enqueue(self, staged: str, published: str, launch: Launch) -> None:
        """Publish a staged task as pending."""
        record.reserve(staged)
        bell.hang(staged)
        launchfile.write_secrets(staged, launch)
        os.close(os.open(os.path.join(staged, status.LOCK), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with self._locked():
            numbers = [name[:_DIGITS] for name in os.listdir(self._entries) if name[:_DIGITS].isdecimal()]
            entry = Entry(
                sequence=int(max(numbers, default="0")) + 1,
                task_id=os.path.basename(published),
                places=launch.max_running if launch.background else 0,
                after=launch.after[0] if launch.after else _NOBODY,
                session=launch.session,
            )
            queued = os.open(os.path.join(staged, status.QUEUED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(queued, entry.name.encode())
            os.close(queued)
            for one in launch.after:
                predecessors.remember(self._task(one), staged)  # it may be removed as soon as we release the lock
            # The entry first: a task without one would wait for ever, an entry without a task is nothing.
            os.close(self._open(os.path.join(self._entries, entry.name)))
            try:
                os.rename(staged, published)
            except OSError:
                self._remove(entry.name)
                raise

    def _remove(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._entries, name))
        except FileNotFoundError:
            pass

    def leave(self, directory: str) -> None:
        """The task has begun, or never will."""
        with open(open_regular(os.path.join(directory, status.QUEUED)), "rb") as file:
            self._remove(os.path.basename(file.read(512).decode()))

    def files_of_pending(self, directory: str) -> list[str]:
        """What the guard of a pending task removes once its command was released: until then others may start it."""
        with open(os.path.join(directory, status.QUEUED), "rb") as file:
            entry = os.path.basename(file.read(512).decode())
        return [*launchfile.SECRETS, os.path.join(self._entries, entry)]

    def remember_end(self, task_id: str) -> None:
        """A task is about to be removed: note how it ended in each pending task that waits for it.

        OSError if that cannot be noted; the task must stay then.
        """
        if self.is_empty():
            return
        with self._locked():
            names = [parts for name in os.listdir(self._entries) if (parts := _split(name))]
            for _, pending, _, after, _ in names:
                if after == _NOBODY:
                    continue
                try:
                    waits = task_id in launchfile.after_of(self._task(pending))[0]
                except _UNREADABLE:
                    continue
                if waits:
                    predecessors.remember(self._task(task_id), self._task(pending))

    def end_pending(self, directory: str, by: str, rule: str) -> bool:
        """End a pending task unrun; False if it is not pending, or about to begin. OSError if it has no usable lock."""
        with self._locked():
            fd = _lock_of(directory)
            if fd is None:
                return False
            try:
                if not status.is_pending(directory):
                    return False
                status.write_ending(by, rule, time.time(), directory)
                self.end_unrun(directory, "it was ended before it began")
            finally:
                os.close(fd)
        bell.ring_once(directory)
        return True

    def end_unrun(self, directory: str, why: str) -> None:
        """Record that a pending task never ran. Who calls this holds its lock."""
        status.write_code(NeverStarted(why), directory=directory)
        record.write("outcome", {"ended": time.time(), "elapsed": 0.0, "pipes": None}, directory)
        launchfile.erase_secrets(directory)
        self.leave(directory)
        bell.ring_house(directory)

    # --- choose --------------------------------------------------------------------------

    def advance(self, begin: Callable[[Turn], bool]) -> None:
        """Begin all that may. `begin` has a supervisor forked and closes the turn; it says whether that went well."""
        failed = ""
        while (turn := self.next_turn()) is not None:
            if begin(turn):
                continue
            if turn.task_id == failed:
                return  # twice: what is missing will still be missing the third time
            failed = turn.task_id

    def next_turn(self) -> Turn | None:
        """The pending task that is to begin now, if one may."""
        if self.is_empty():
            return None
        with self._locked():
            occupied = self._occupied()
            # Whoever ends unrun may be waited for by one that was looked at before.
            while (found := self._look_through(occupied)) is True:
                continue
            return found or None

    def _look_through(self, occupied: dict[int, str]) -> Turn | bool:
        """The next turn; True if something else changed, False if nothing may begin."""
        names = [parts for name in sorted(os.listdir(self._entries)) if (parts := _split(name))]
        waiting = {parts[1] for parts in names}
        free = next(number for number in range(len(occupied) + 1) if number not in occupied)
        sessions = list(occupied.values())
        changed = False
        for entry in sorted(_worth_a_look(names, free), key=lambda one: (sessions.count(one.session), one.sequence)):
            verdict = self._may_begin(entry, waiting)
            if isinstance(verdict, str):
                changed |= self._skip(entry, verdict)
            elif verdict and (not entry.places or free < entry.places):
                lock = self._lock_if_pending(entry)
                if lock is not None:
                    return self._turn(entry, lock, free) or False
                changed |= not os.path.lexists(os.path.join(self._entries, entry.name))
        return changed

    def _may_begin(self, entry: Entry, waiting: set[str]) -> bool | str:
        """Whether all that it waits for is over; or the sentence why it never will begin."""
        if entry.after == _NOBODY:
            return True
        if entry.after in waiting:
            return False
        try:
            after, after_failed = launchfile.after_of(self._task(entry.task_id))
        except _UNREADABLE:
            return True  # whoever begins it finds out
        pending = self._task(entry.task_id)
        ends = [
            None if one in waiting else predecessors.how_it_ended_or_was_removed(self._task(one), pending)
            for one in after
        ]
        if after_failed == "run":
            return None not in ends
        return next((end for end in ends if end), None not in ends)

    def _skip(self, entry: Entry, why: str) -> bool:
        directory = self._task(entry.task_id)
        fd = self._lock_if_pending(entry)
        if fd is None:
            return False
        try:
            status.write_ending("queue", why, time.time(), directory)
            self.end_unrun(directory, "it was not to begin")
        finally:
            os.close(fd)
        bell.ring_once(directory)
        return True

    def _turn(self, entry: Entry, lock: int, free: int) -> Turn | None:
        place = self._held_by_us(free) if entry.places else -1
        if place is None:
            # A fork of somebody who just looked whether it is free: the next look finds it taken, or free.
            os.close(lock)
            return None
        if place >= 0:
            self.sign(place, entry.session, entry.task_id)
        return Turn(entry.task_id, self._task(entry.task_id), lock, place)

    def _lock_if_pending(self, entry: Entry) -> int | None:
        """Its lock, if it still waits; an entry that outlived the death of who should have removed it goes."""
        directory = self._task(entry.task_id)
        try:
            fd = _lock_of(directory)
        except OSError:
            fd = None
        try:
            pending = status.is_pending(directory)
        except _UNREADABLE:
            pending = False
        if pending:
            return fd
        self._remove(entry.name)
        if fd is not None:
            os.close(fd)
        return None

    # --- wait ----------------------------------------------------------------------------

    def whom_to_watch(self, task_id: str) -> tuple[set[Identity], bool]:
        """Whose end may let a pending task begin, and whether there is something that nobody would tell us of.

        They tell nobody if they are killed with kill -9; who waits looks at the queue in their stead.
        """
        found: set[Identity] = set()
        unseen = self._failed_to_begin(task_id)
        for name in os.listdir(self._places):
            holders, obscure = self._holders(name)
            unseen |= obscure
            found |= holders
        for one in self._before(task_id):
            found |= _living_guards(self._task(one))
        return found, unseen

    def _holders(self, name: str) -> tuple[set[Identity], bool]:
        """Who holds a place; and whether that cannot be said, or it is free because somebody failed to begin a task."""
        line = self._line(name)
        if len(line) != 5 or not (line[1].isdigit() and line[2].isdigit()):
            return set(), self._is_held(name)
        if guards := _living_guards(self._task(line[0])):
            return guards, False
        if not self._is_held(name):
            return set(), self._is_pending(line[0])
        starter = Identity(int(line[1]), int(line[2]), line[3])
        seen = starter.pid != os.getpid() and process.is_alive(starter)
        return ({starter} if seen else set()), not seen

    def _is_pending(self, task_id: str) -> bool:
        try:
            return status.is_pending(self._task(task_id))
        except _UNREADABLE:
            return False

    def _failed_to_begin(self, task_id: str) -> bool:
        """Whether it needs no place, and all that it waits for is over: then it should have begun."""
        names = [parts for name in os.listdir(self._entries) if (parts := _split(name))]
        mine = [parts for parts in names if parts[1] == task_id and parts[2] == "0"]
        return any(
            self._may_begin(entry, {parts[1] for parts in names}) is True for entry in _worth_a_look(mine, free=0)
        )

    def _is_held(self, name: str) -> bool:
        try:
            with self._locked():
                fd = self._held_by_us(int(name))
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return True  # it cannot be tried on a read-only file system: the waiter looks again after a moment
        if fd is not None:
            os.close(fd)
        return fd is None

    def _before(self, task_id: str) -> set[str]:
        """All that it waits for, directly or not."""
        reached: set[str] = set()
        ahead = [task_id]
        while ahead:
            try:
                directory = self._task(ahead.pop())
                after = launchfile.after_of(directory)[0] if status.is_pending(directory) else ()
            except _UNREADABLE:
                continue
            ahead += [one for one in after if one not in reached]
            reached.update(after)
        return reached

    # --- names ---------------------------------------------------------------------------

    def naming(self, session: str, name: str) -> Naming:
        """Decide which task has a name; nobody else does meanwhile."""
        return Naming(os.path.join(self._names, f"{session}:{name}"), self._open)

    def forget_names(self) -> None:
        """Remove the names of tasks that are not there any more."""
        for file in os.listdir(self._names) if os.path.isdir(self._names) else ():
            path = os.path.join(self._names, file)
            with Naming(path, self._open) as naming:
                if not naming.task_id or not os.path.isdir(self._task(naming.task_id)):
                    os.unlink(path)


def _lock_of(directory: str) -> int | None:
    """The lock of a task that no process watches or begins; OSError if there is no such file."""
    return _held_or_closed(open_regular(os.path.join(directory, status.LOCK), os.O_RDWR))


def _held_or_closed(fd: int) -> int | None:
    """The descriptor with its lock held by us; None, and closed, if somebody else holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except BlockingIOError:
        os.close(fd)
        return None


def _living_guards(directory: str) -> set[Identity]:
    try:
        guards = status.guards_of(directory)
    except _UNREADABLE:
        return set()
    return {who for who in (guards.supervisor, guards.keeper) if who and process.is_alive(who)}
