"""The sessions of a state directory, and how a command changes its session.

sessions/NAME/snapshot    the state (see `snapshot`), replaced by rename, never changed in place
sessions/NAME/beginning   the first snapshot, to find what has changed since
sessions/NAME/pending/    a link to a snapshot for each task whose state is to be merged; only its name is read
sessions/NAME/lock        held (flock) while a caller replaces the snapshot
sessions/.shell-…         the state of a `Shell` without a name, removed after its process

tasks/ID/before           the snapshot that the command begins with (a hard link)
tasks/ID/start            what bash sets by itself, dumped by the first command of a session
tasks/ID/state            what the shell dumps after the command; complete only if the shell reached its end
tasks/ID/moved            the caller stopped waiting, so the session ignores what the command changes
tasks/ID/go               the FIFO on which a prepared shell waits for its command

A command that keeps state is registered before its task is published, as pending/START-STAGED (START: nanoseconds,
STAGED: the name of its staging directory). The next user of the session merges every registered task that has ended,
in the order in which they ended, replaces the snapshot by one rename, and then removes the entries. If that process
is killed, entries stay behind and the next user merges them again. That is safe: the snapshot names the tasks
of its last merge, and merging a task twice sets the same items to the same values.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from outlast.errors import SessionBusy, SessionMoved
from outlast.light import frozen
from outlast.linux.files import FileLock, create_file, read_file, remove_file, remove_tree, try_lock
from outlast.storage import dump, record, snapshot, task_directory
from outlast.types import Ended, Pending, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from outlast.storage.snapshot import Snapshot, State

BEFORE, START, STATE, GO = "before", "start", "state", "go"
# `before` first: a task without it has nothing to merge, so a crash between two unlinks does no harm.
TEMPORARY_FILES = (BEFORE, START, STATE, GO)
LOCK_TIMEOUT_S = 5.0  # a merge takes milliseconds: a process that holds the lock longer was stopped, or the disk hangs

_SNAPSHOT, _FIRST, _PENDING = "snapshot", "beginning", "pending"
_DAMAGED = "snapshot.damaged-"
_PRIVATE = ".shell-"
_STALE_S = 3600.0  # no copy or removal takes this long: its process died
_HEADER_BYTES = 512  # the mark is within them
_MOST_BYTES = 64 << 20  # no shell dumps more


@frozen
class SessionState:
    """What a session remembers. Values are as bash would print them, on one line each."""

    name: str
    directory: str
    umask: str
    generation: int
    updated_at: float
    last_task: str
    variables: Mapping[str, str]  # those that are not as they were when the session began
    removed: tuple[str, ...]  # those that it began with and has no more
    functions: tuple[str, ...]
    aliases: Mapping[str, str]
    options: tuple[str, ...]
    traps: Mapping[str, str]
    damaged: tuple[str, ...]  # snapshots that were found damaged and set aside


class Sessions:
    """The sessions below one directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._home = os.path.dirname(path)

    # --- read ----------------------------------------------------------------------------

    def read(self, name: str, patience: float | None = None) -> Snapshot:
        """Return the state after all commands that ended. Raises OSError or `DamagedSnapshot` if there is none."""
        self.merge(name, patience)
        return self.peek(name)

    def peek(self, name: str) -> Snapshot:
        """As `read`, without merging what commands that just ended changed."""
        return snapshot.parse(read_file(self._path(name, _SNAPSHOT)))

    def read_or_create(self, name: str, compose_first: Callable[[], bytes]) -> Snapshot:
        """As `read`. A session that is new, or whose snapshot is damaged, begins with what `compose_first` returns."""
        try:
            return self.read(name)
        except (FileNotFoundError, NotADirectoryError, snapshot.DamagedSnapshot):
            pass
        os.makedirs(self._path(name), 0o700, exist_ok=True)
        with self._lock(name):
            try:
                self.peek(name)  # another process may have created it
            except (FileNotFoundError, snapshot.DamagedSnapshot) as error:
                if isinstance(error, snapshot.DamagedSnapshot):
                    os.rename(self._path(name, _SNAPSHOT), self._path(name, f"{_DAMAGED}{time.time_ns()}"))
                self._begin(name, compose_first())
        return self.read(name)

    def read_first_state(self, name: str) -> State:
        """Return what a session began with; empty if that is not known any more."""
        try:
            return snapshot.parse(read_file(self._path(name, _FIRST))).state()
        except (OSError, snapshot.DamagedSnapshot):
            return {}

    def names(self) -> list[str]:
        """Return all named sessions."""
        return sorted(name for name in os.listdir(self.path) if not name.startswith("."))

    def damaged_files(self, name: str) -> list[str]:
        """Return the snapshots that were found damaged and set aside."""
        return sorted(self._path(name, file) for file in os.listdir(self._path(name)) if file.startswith(_DAMAGED))

    # --- start a command in a session ----------------------------------------------------

    def link(self, name: str, staged: str, mark: str) -> None:
        """Give a staged task the snapshot with this mark, and create the files that its shell writes to.

        Raises `SessionMoved` if the session has another snapshot by now: the policy judged the command in this one.
        """
        source, target = self._path(name, _SNAPSHOT), f"{staged}/{BEFORE}"
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            create_file(target, read_file(source))
        if mark.encode() not in read_file(target, _HEADER_BYTES):
            raise SessionMoved(f"The session {name} changed while a command was prepared; try again.")
        # Here, because a file that the shell created would have the mode that the command's umask gives.
        create_file(f"{staged}/{START}")
        create_file(f"{staged}/{STATE}")

    def register(self, name: str, staged: str) -> None:
        """Register a staged task, so that the next user of the session merges its state. Raises `SessionMoved`."""
        pending = self._path(name, _PENDING)
        try:
            try:
                os.mkdir(pending, 0o700)
            except FileExistsError:
                pass
            entry = f"{pending}/{time.time_ns():020d}-{os.path.basename(staged)}"
            try:
                # Only the name matters. A new file takes 0.4 ms on ext4 where many were removed, a link 0.02.
                os.link(self._path(name, _SNAPSHOT), entry)
            except (FileNotFoundError, NotADirectoryError):
                raise
            except OSError:  # a file system without links
                create_file(entry)
        except (FileNotFoundError, NotADirectoryError):
            raise SessionMoved(f"The session {name} was removed while a command was prepared; try again.") from None

    # --- merge ---------------------------------------------------------------------------

    def merge(self, name: str, patience: float | None = None) -> None:
        """Merge what commands that ended changed. Does nothing to a session that does not exist.

        Raises `SessionBusy` if another process holds the lock for longer than `patience` seconds.
        """
        if not any(self._ended_tasks(name)):
            return
        try:
            with self._lock(name, patience):
                # Another process may have merged since the first look: only what is seen under the lock counts.
                self._merge(name, sorted(self._ended_tasks(name)))
        except (FileNotFoundError, NotADirectoryError):
            pass  # the session was removed, or has no snapshot

    def _merge(self, name: str, ended: list[tuple[float, str]]) -> None:
        current = self.peek(name)
        merged = current.task.split()
        due = []
        for ended_at, entry in ended:
            if ended_at and os.path.basename(self._task_directory(entry)) not in merged:
                due.append(entry)
            else:  # before the replacement, which does not name what a killed process has merged
                self._unregister(name, entry)
        data = _merge_tasks(current, [self._task_directory(entry) for entry in due])
        if data:
            self._replace(name, _SNAPSHOT, data)
        # In the order in which they ended: if this process is killed, merging the rest again changes nothing.
        for entry in due:
            self._unregister(name, entry)

    def _ended_tasks(self, name: str) -> Iterator[tuple[float, str]]:
        """Yield the entries of tasks that will not change any more: when each ended (0: ignore its state), its name."""
        for entry in self._entries(name):
            # Publication renames the staging directory. Look there first: afterwards the task is published or gone.
            if not os.path.exists(f"{self._home}/staging/{entry.partition('-')[2]}"):
                ended_at = _find_end(self._task_directory(entry))
                if ended_at is not None:
                    yield ended_at, entry

    def _entries(self, name: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(name, _PENDING)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _task_directory(self, entry: str) -> str:
        return f"{self._home}/tasks/{entry.partition('-')[2].rpartition('.')[0]}"

    def _unregister(self, name: str, entry: str) -> None:
        remove_files(self._task_directory(entry))
        remove_file(self._path(name, f"{_PENDING}/{entry}"))

    # --- reset, copy, remove -------------------------------------------------------------

    def reset(self, name: str, data: bytes) -> None:
        """Let a session begin again with the snapshot `data`."""
        with self._lock(name):
            for _, entry in self._ended_tasks(name):
                self._unregister(name, entry)  # a command from before the reset must not undo it
            self._begin(name, data)
            for path in self.damaged_files(name):
                os.unlink(path)

    def _begin(self, name: str, data: bytes) -> None:
        # In this order: a session that has a snapshot also has its first one.
        self._replace(name, _FIRST, data)
        self._replace(name, _SNAPSHOT, data)

    def copy(self, name: str, target: str) -> None:
        """Create a second session in the same state. Raises FileExistsError if there is a session `target`."""
        self.read(name)  # merges, and raises if there is none, or a damaged one
        temporary = f".copy-{os.urandom(4).hex()}"
        os.mkdir(self._path(temporary), 0o700)
        try:
            create_file(self._path(temporary, _SNAPSHOT), read_file(self._path(name, _SNAPSHOT)))
            create_file(self._path(temporary, _FIRST), read_file(self._path(name, _FIRST)))
            # rename(2) does not replace a directory that is not empty.
            os.rename(self._path(temporary), self._path(target))
        except OSError as error:
            remove_tree(self._path(temporary))
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(error.errno, error.strerror) from None
            raise

    def remove(self, name: str) -> None:
        """Remove a session's state. A command of it that still runs finds nothing to change."""
        for entry in self._entries(name):
            remove_files(self._task_directory(entry))
        # Rename it first: other processes never see half a session.
        temporary = f".gone-{os.urandom(4).hex()}"
        os.rename(self._path(name), self._path(temporary))
        remove_tree(self._path(temporary))

    def create_private(self) -> tuple[str, int]:
        """Create a state for this process. Returns its name and a descriptor: `sweep` spares it while that is open.

        A pid would not do: processes in another container (pid namespace) cannot see it.
        """
        name, temporary = f"{_PRIVATE}{os.urandom(8).hex()}", f".new-{os.urandom(4).hex()}"
        os.mkdir(self._path(temporary), 0o700)
        fd = _open_directory(self._path(temporary))
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.rename(self._path(temporary), self._path(name))  # locked, so that no sweep takes it before
        return name, fd

    def sweep(self) -> None:
        """Remove the private states of processes that are gone, and unfinished copies and removals."""
        for name in os.listdir(self.path):
            try:
                if self._is_stale(name):
                    self.remove(name)
            except (OSError, ValueError):
                pass  # another process removed it, the next sweep will, or Outlast did not make it

    def _is_stale(self, name: str) -> bool:
        if name.startswith(_PRIVATE):
            owner = name.partition("@")[0]  # its state on another machine goes with it
            if owner != name and not os.path.exists(self._path(owner)):
                return True
            fd = _open_directory(self._path(owner))
            try:
                return try_lock(fd)
            finally:
                os.close(fd)
        return name.startswith(".") and os.stat(self._path(name)).st_mtime < time.time() - _STALE_S

    # --- files ---------------------------------------------------------------------------

    def _path(self, name: str, file: str = "") -> str:
        return f"{self.path}/{name}/{file}" if file else f"{self.path}/{name}"

    def _lock(self, name: str, patience: float | None = None) -> FileLock:
        """Return the lock for replacing the snapshot. Raises FileNotFoundError if the session was removed."""
        fd = os.open(self._path(name, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        timeout = LOCK_TIMEOUT_S if patience is None else patience
        return FileLock(fd, timeout, lambda: SessionBusy(f"Another process changes session {name}; try again."))

    def _replace(self, name: str, file: str, data: bytes) -> None:
        temporary = self._path(name, f".{os.urandom(4).hex()}")
        try:
            create_file(temporary, data)
            os.rename(temporary, self._path(name, file))
        except BaseException:
            remove_file(temporary)
            raise


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _find_end(directory: str) -> float | None:
    """Return when a published task ended; 0 if its state does not count, None while it runs."""
    try:
        found = record.status_of(directory)[0]
    except record.UNREADABLE as error:
        if not record.is_damage(error):
            raise
        return 0.0  # removed, never published, or damaged
    is_moved = task_directory.is_moved(directory)
    # A pending task counts also if its caller stopped waiting: it still needs the snapshot that it begins with.
    if isinstance(found, Pending) or (isinstance(found, Running) and not is_moved):
        return None
    return found.until if isinstance(found, Ended) and not is_moved else 0.0


def _merge_tasks(current: Snapshot, due: list[str]) -> bytes | None:
    """Return the snapshot after these tasks; None if they changed nothing."""
    was = state = current.state()
    first_mark = current.mark if current.first else ""
    for directory in due:
        changed = _apply_task(state, directory, first_mark)
        if changed is not None:
            state, first_mark = changed, ""
    if state == was and (first_mark or not current.first):
        return None
    return snapshot.compose(
        state,
        generation=current.generation + 1,
        task=" ".join(map(os.path.basename, due)),
        made=time.time(),
        environ=current.environ,
    )


def _apply_task(state: State, directory: str, first_mark: str) -> State | None:
    """Return `state` with what one command changed; None if its shell wrote no complete dump.

    `first_mark` is the mark of the session's first snapshot while no command has been merged into it.
    """
    try:
        before = snapshot.parse(read_file(f"{directory}/{BEFORE}"))
        base = before.state()
        found = dump.parse_dump(read_file(f"{directory}/{STATE}", _MOST_BYTES), before.mark, base)
        if found is None:
            return None  # the shell was killed, or replaced by `exec`
        if before.first:
            begun = dump.parse_dump(read_file(f"{directory}/{START}", _MOST_BYTES), before.mark, base)
            if begun:
                base = {**begun.state, snapshot.DIRECTORY: base[snapshot.DIRECTORY]}
        cwd = str(task_directory.read_values(directory)["cwd"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        if not record.is_damage(error):
            raise
        return None  # its files are damaged, or were merged and removed
    if first_mark:  # a first snapshot lacks what bash sets by itself
        state = base if before.mark == first_mark else dump.add_bash_defaults(state, base)
    return dump.apply_dump(state, base, found, cwd)


def remove_files(directory: str) -> None:
    """Remove what the session does not need any more. Keeps `moved`, which notices read."""
    for name in TEMPORARY_FILES:
        remove_file(f"{directory}/{name}")


def skip_dump(directory: str) -> None:
    """Let the shell of a task that keeps no state end without dumping it."""
    remove_file(f"{directory}/{BEFORE}")
