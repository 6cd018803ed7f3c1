"""Merge what finished commands changed into the snapshot of their session.

A command that keeps state is registered before its task is published, as an empty file
sessions/NAME/pending/START-STAGED (START: nanoseconds, STAGED: the name of its staging directory).
The next user of the session merges every registered task that has ended, in the order in which they ended,
replaces the snapshot by one rename, and then removes the entries. A process that is killed at any point
leaves entries behind, and the next one merges them again: the snapshot names the tasks that its last merge took,
and merging a task a second time sets the same items to the same values.
"""

from __future__ import annotations

import os
import time

from outlast.errors import OutlastError, SessionBusy, SessionMoved
from outlast.frozen import frozen
from outlast.storage import launchfile, session_files, snapshot, status
from outlast.storage.locks import Held
from outlast.types import Ended, Pending, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.snapshot import Snapshot, State

SNAPSHOT = "snapshot"
PENDING = "pending"
LOCK_PATIENCE_S = 5.0  # a merge takes milliseconds, so its process was stopped, or the disk hangs
_LOCK = "lock"
_MOST_BYTES = 64 << 20  # a larger file was not written by Outlast
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO in its place must not block
_TO_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class _Finished:
    """A registered task of which nothing more is to come."""

    entry: str
    task_id: str
    directory: str
    ended: float
    counts: bool  # whether its state belongs to the session


# --- before the task is published ----------------------------------------------------------


def register(session: str, staged: str) -> None:
    """Register a staged task, so that the next user of the session merges its state. Raises `SessionMoved`."""
    pending = f"{session}/{PENDING}"
    entry = f"{pending}/{time.time_ns():020d}-{os.path.basename(staged)}"
    try:
        try:
            os.close(os.open(entry, _TO_MAKE, 0o600))
        except FileNotFoundError:
            try:
                os.mkdir(pending, 0o700)
            except FileExistsError:
                pass  # another process made it first
            os.close(os.open(entry, _TO_MAKE, 0o600))
    except (FileNotFoundError, NotADirectoryError):
        name = os.path.basename(session)
        raise SessionMoved(f"The session {name} was removed while a command was prepared; try again.") from None


# --- merging -------------------------------------------------------------------------------


def merge_finished(session: str, home: str, patience: float | None = None) -> None:
    """Bring the snapshot up to date. Raises `SessionBusy` if another process holds the lock for too long."""
    if not any(_finished(home, entry) for entry in _entries(session)):
        return
    with lock(session, patience):
        # Another process may have merged since the first look. Only what is seen under the lock counts.
        found = [one for entry in _entries(session) if (one := _finished(home, entry)) is not None]
        _merge(session, sorted(found, key=lambda one: (one.ended, one.entry)))


def drop_finished(session: str, home: str) -> None:
    """Under the lock: forget what ended, unmerged. A reset must not be undone by a command before it."""
    for entry in _entries(session):
        one = _finished(home, entry)
        if one is not None:
            _forget(session, one)


def tidy_tasks(session: str, home: str) -> None:
    """Remove the session files of all registered tasks: the session is about to be removed."""
    for entry in _entries(session):
        session_files.remove_all(_directory_of(home, entry)[1])


def _entries(session: str) -> list[str]:
    try:
        return sorted(os.listdir(f"{session}/{PENDING}"))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _directory_of(home: str, entry: str) -> tuple[str, str]:
    """The name of a task's staging directory, and where it is published."""
    staged = entry.partition("-")[2]
    return staged, f"{home}/tasks/{staged.rpartition('.')[0]}"


def _finished(home: str, entry: str) -> _Finished | None:
    """What is known of a registered task; None while it is prepared or runs."""
    staged, directory = _directory_of(home, entry)
    # Publication renames the staging directory. Look there first: afterwards the task is either published or gone.
    if os.path.exists(f"{home}/staging/{staged}"):
        return None
    ended = _end_of(directory)
    if ended is None:
        return None
    return _Finished(entry, os.path.basename(directory), directory, ended, counts=ended > 0)


def _end_of(directory: str) -> float | None:
    """When a published task ended; 0 if its state does not count; None while it runs."""
    try:
        found = status.status_of(directory)[0]
    except (OSError, KeyError, TypeError, ValueError, OutlastError) as error:
        if isinstance(error, OSError) and not status.is_damage(error):
            raise
        return 0.0  # removed, never published, or damaged
    if isinstance(found, Pending):
        return None  # also if its caller stopped waiting: it still needs the snapshot that it begins with
    if session_files.is_moved(directory):
        return 0.0
    if isinstance(found, Running):
        return None
    return found.until if isinstance(found, Ended) else 0.0


def _merge(session: str, found: list[_Finished]) -> None:
    current = snapshot.read(read_file(f"{session}/{SNAPSHOT}"))
    merged = current.task.split()
    # Entries that a killed process left behind go before the next replacement, which names other tasks.
    due = [one for one in found if one.counts and one.task_id not in merged]
    for one in found:
        if one not in due:
            _forget(session, one)
    if not due:
        return
    was = current.state()
    state = was
    unmerged: Snapshot | None = current
    for one in due:
        changed = _with_changes(session, state, one, unmerged)
        if changed is not None:
            state, unmerged = changed, None
    if state != was or (current.first and unmerged is None):
        data = snapshot.compose(
            state,
            generation=current.generation + 1,
            task=" ".join(one.task_id for one in due),
            made=time.time(),
            environ=current.environ,
        )
        replace_file(session, SNAPSHOT, data)
    # In the order in which they ended: merging what is left once more then changes nothing.
    for one in due:
        _forget(session, one)


def _forget(session: str, one: _Finished) -> None:
    session_files.remove_all(one.directory)
    try:
        os.unlink(f"{session}/{PENDING}/{one.entry}")
    except FileNotFoundError:
        pass  # the session was removed


def _with_changes(session: str, state: State, one: _Finished, current: Snapshot | None) -> State | None:
    """`state` with what one command changed; None if its shell dumped nothing.

    `current` is the snapshot that `state` was read from, until a first command is merged.
    """
    try:
        before = _before(session, one.directory, current)
        ground = state if before is current else before.state()
        dump = snapshot.dumped(read_file(f"{one.directory}/{session_files.STATE}"), before.mark, ground)
        if dump is None:
            return None  # the shell was killed, or replaced by `exec`
        if before.first:
            begun = snapshot.dumped(read_file(f"{one.directory}/{session_files.START}"), before.mark, ground)
            if begun:
                ground = {**begun.state, snapshot.DIRECTORY: ground[snapshot.DIRECTORY]}
        start = snapshot.laid_over(ground, dump, launchfile.cwd_of(one.directory))
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and not status.is_damage(error):
            raise
        return None  # its files are damaged, or were merged and removed
    if current is not None:
        state = ground if before.mark == current.mark else state
        state = snapshot.grounded(state, ground) if current.first else state
    return snapshot.merged(state, start, snapshot.settled(start, dump))


def _before(session: str, directory: str, current: Snapshot | None) -> Snapshot:
    """The snapshot that a command began with. Mostly it still is the current one, and need not be parsed again."""
    path = f"{directory}/{session_files.BEFORE}"
    if current is not None and os.path.samestat(os.lstat(path), os.lstat(f"{session}/{SNAPSHOT}")):
        return current
    return snapshot.read(read_file(path))


# --- files ---------------------------------------------------------------------------------


def lock(session: str, patience: float | None = None) -> Held:
    """The lock of a session, to replace its snapshot. Only living callers hold it, each for one merge."""
    # FileNotFoundError: the session was removed.
    fd = os.open(f"{session}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    busy = SessionBusy(f"Another process changes session {os.path.basename(session)}; try again.")
    return Held(fd, patience=LOCK_PATIENCE_S if patience is None else patience, otherwise=busy)


def replace_file(session: str, name: str, data: bytes) -> None:
    """Replace a file of a session by rename."""
    aside = f"{session}/.{os.urandom(4).hex()}"
    try:
        _write_new(aside, data)
        os.rename(aside, f"{session}/{name}")
    except BaseException:
        try:
            os.unlink(aside)
        except OSError:
            pass
        raise


def make_file(path: str) -> int:
    return os.open(path, _TO_MAKE, 0o600)


def _write_new(path: str, data: bytes) -> None:
    with open(make_file(path), "wb") as file:
        file.write(data)


def read_file(path: str) -> bytes:
    with open(os.open(path, _TO_READ), "rb", buffering=0) as file:
        # By its size: a read with a bound would allocate all of the bound first.
        return file.read(min(os.fstat(file.fileno()).st_size, _MOST_BYTES)) or b""
