"""The sessions of a state directory: one directory for each, with the snapshot of its state.

sessions/NAME/snapshot    replaced by rename, never changed in place
sessions/NAME/beginning   the first snapshot, to tell what has changed since
sessions/NAME/lock        held (flock) from before the end of a command is told until its session has what it changed
sessions/.shell-…         the state of a `Shell` without a name, gone with its process

A task has a link to the snapshot it began with, so nothing that happens to the session
meanwhile can confuse it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from outlast import process
from outlast.errors import SessionMoved
from outlast.store import snapshot
from outlast.store.locks import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outlast.model import Surroundings
    from outlast.store.snapshot import Snapshot, State

SNAPSHOT = "snapshot"
BEGINNING = "beginning"
DAMAGED = "snapshot.damaged-"
BEFORE, START, AFTER, MOVED, TOLD, GO = "before", "start", "state", "moved", "told", "go"  # files of a task
_LOCK = "lock"
_PRIVATE = ".shell-"
_STALE_S = 3600.0  # what is this old is nobody's work in progress
_HEAD_BYTES = 512  # where the mark stands
_MOST_BYTES = 64 << 20  # a snapshot that is larger was not written by us


class Sessions:
    """The sessions below one directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: tuple[tuple[str, int, int, int], Snapshot] | None = None

    def snapshot(self, name: str, begin: Callable[[], bytes]) -> Snapshot:
        """A session's state. A new session, or one whose snapshot is damaged, begins with what `begin` gives."""
        try:
            return self.read(name)
        except (FileNotFoundError, NotADirectoryError, snapshot.Damaged):
            pass
        os.makedirs(self._of(name), 0o700, exist_ok=True)
        with _locked(self._of(name)):
            try:
                return self._read(name)  # somebody was quicker
            except FileNotFoundError:
                pass
            except snapshot.Damaged:
                self._set_aside(name)
            data = begin()
            _replace(self._of(name), data)
            _replace(self._of(name), data, BEGINNING)
            return self._read(name)

    def known(self, name: str) -> Snapshot | None:
        """A session's state as it was last read here."""
        return self._known[1] if self._known is not None and self._known[0][0] == name else None

    def glance(self, name: str) -> Snapshot:
        """A session's state without what commands that just ended may add to it; raises as `read` does."""
        return self._read(name)

    def read(self, name: str) -> Snapshot:
        """A session's state, with all that was told to have ended; raises if there is none, or if it is damaged."""
        _await_settled(self._of(name))
        return self._read(name)

    def _read(self, name: str) -> Snapshot:
        found = os.stat(self._of(name, SNAPSHOT))
        # It is replaced, never changed: the same file is the same state.
        which = (name, found.st_ino, found.st_mtime_ns, found.st_size)
        if self._known is None or self._known[0] != which:
            self._known = (which, snapshot.read(_bytes(self._of(name, SNAPSHOT))))
        return self._known[1]

    def link(self, name: str, staged: str, mark: str) -> None:
        """Give a staged task what it begins with, and files to write to: its umask must not decide about them.

        It is the state with this mark or none: the command was judged in it.
        """
        source, target = self._of(name, SNAPSHOT), f"{staged}/{BEFORE}"
        _await_settled(self._of(name))
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            with open(_new(target), "wb") as file:
                file.write(_bytes(source))
        if mark.encode() not in _head(target):
            raise SessionMoved(f"The session {name} changed while a command was prepared; try again.")
        for name_of_file in (START, AFTER):
            os.close(_new(f"{staged}/{name_of_file}"))

    def reset(self, name: str, data: bytes) -> None:
        """Let a session begin anew, whatever it had."""
        with _locked(self._of(name)):
            _replace(self._of(name), data)
            _replace(self._of(name), data, BEGINNING)
            for path in self.damages(name):
                os.unlink(path)

    def copy(self, name: str, target: str) -> None:
        """A second session in the same state; FileExistsError if there is one of this name."""
        found = self.read(name)
        aside = self._of(f".copy-{os.urandom(4).hex()}")
        os.mkdir(aside, 0o700)
        try:
            data = snapshot.again(found)
            _replace(aside, data)
            _replace(aside, self._beginning(name, data), BEGINNING)
            # Not over one that is there: a directory that is not empty is never replaced.
            os.rename(aside, self._of(target))
        except OSError as error:
            from shutil import rmtree

            rmtree(aside, ignore_errors=True)
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(error.errno, error.strerror) from None
            raise

    def beginning(self, name: str) -> State:
        """What a session began with; nothing if that is not known any more."""
        try:
            return snapshot.read(_bytes(self._of(name, BEGINNING))).state()
        except (OSError, snapshot.Damaged):
            return {}

    def _beginning(self, name: str, otherwise: bytes) -> bytes:
        try:
            return _bytes(self._of(name, BEGINNING))
        except OSError:
            return otherwise

    def names(self) -> list[str]:
        """Every session that has a state, or had one."""
        return sorted(name for name in os.listdir(self.path) if not name.startswith("."))

    def damages(self, name: str) -> list[str]:
        """Snapshots that were found damaged and set aside."""
        return sorted(self._of(name, file) for file in os.listdir(self._of(name)) if file.startswith(DAMAGED))

    def remove(self, name: str) -> None:
        """Forget a session's state. A command of it that still runs finds nothing to change."""
        from shutil import rmtree

        # Renamed first: nobody ever sees half a session.
        aside = self._of(f".gone-{os.urandom(4).hex()}")
        os.rename(self._of(name), aside)
        rmtree(aside, ignore_errors=True)

    def private(self) -> str:
        """A name for the state of this process' own, which others know to be stale when the process is gone."""
        me = process.identity(os.getpid())
        return f"{_PRIVATE}{me.pid}-{me.tick}-{os.urandom(4).hex()}"

    def sweep(self) -> None:
        """Remove the private states of processes that are gone."""
        for name in list(self._stale()):
            try:
                self.remove(name)
            except OSError:
                continue  # somebody else did, or will

    def _stale(self) -> Iterator[str]:
        for name in os.listdir(self.path):
            if name.startswith(_PRIVATE):
                pid, tick, _ = name.removeprefix(_PRIVATE).split("-")
                stat = process.stat_of(int(pid))
                if stat is None or str(stat.tick) != tick:
                    yield name
            elif name.startswith(".") and os.stat(self._of(name)).st_mtime < time.time() - _STALE_S:
                yield name  # being copied or removed by somebody who died

    def _set_aside(self, name: str) -> None:
        os.rename(self._of(name, SNAPSHOT), self._of(name, f"{DAMAGED}{time.time_ns()}"))

    def _of(self, name: str, file: str = "") -> str:
        return f"{self.path}/{name}/{file}" if file else f"{self.path}/{name}"


def begin(session: str, state: State) -> str:
    """Give a session that has nothing its first state; its mark."""
    with _locked(session):
        data = snapshot.compose(state, generation=0, task="", made=time.time(), environ={}, first=True)
        _replace(session, data)
    return snapshot.read(data).mark


# --- at the end of a task ----------------------------------------------------------------


class Ground:
    """In a task's directory: what its command began with, understood before it is needed."""

    def __init__(self) -> None:
        self.before = snapshot.read(_bytes(BEFORE))
        self.state = self.before.state()

    def rehearse(self) -> None:
        """As if a command had changed nothing."""
        dump = b"\n#%s variables\n\n#%s end end 0\n" % ((self.before.mark.encode(),) * 2)
        end = snapshot.dumped(dump, self.before.mark, self.state)
        start = snapshot.laid_over(self.state, {}, self.before.directory)
        if end is not None:
            snapshot.merged(self.state, start, snapshot.settled(start, end))


class Settling:
    """In a task's directory, when its command is over: first hold the session, then tell of the end, then settle.

    Whoever learns of the end and goes on in the session waits for us, and nobody else does.
    """

    def __init__(self, state: str, sessions: str) -> None:
        self._session = f"{sessions}/{state}"
        self._lock: Held | None = None
        if not os.path.exists(MOVED):
            self._lock = _locked(self._session).__enter__()

    def forget(self) -> None:
        """In a fork of whoever holds it: with a copy of ours it would stay held."""
        if self._lock is not None:
            self._lock.forget()
            self._lock = None

    def settle(self, around: Surroundings, task_id: str, ground: Ground | None = None) -> Snapshot | None:
        """Give the session what the command changed. Whoever does it twice does it once.

        What the session has then, if that differs in nothing that no snapshot holds.
        """
        if self._lock is None:
            return None
        ground = ground or Ground()
        try:
            _commit(around, task_id, self._session, ground)
            found = snapshot.read(_bytes(f"{self._session}/{SNAPSHOT}"))
            return found if found.environ == ground.before.environ else None
        finally:
            self._lock.release()
            self._lock = None


def need_not_dump(directory: str) -> None:
    """Nothing that the command of this task changes is kept, so its shell need not dump its state."""
    try:
        os.unlink(f"{directory}/{BEFORE}")
    except OSError:
        pass  # then it tells, and nobody listens


def tidy() -> None:
    """In a task's directory: its session has what it needs."""
    for name in (BEFORE, START, AFTER, TOLD, GO):
        try:
            os.unlink(name)
        except OSError:
            pass


def _commit(around: Surroundings, task_id: str, session: str, begun_with: Ground) -> None:
    before, ground = begun_with.before, begun_with.state
    dump = snapshot.dumped(_bytes(AFTER), before.mark, ground)
    if dump is None:
        return  # it was replaced by `exec`, or killed: the state stays as it was
    if before.first and (begun := snapshot.dumped(_bytes(START), before.mark, ground)):
        ground = {**begun.state, snapshot.DIRECTORY: ground[snapshot.DIRECTORY]}
    start = snapshot.laid_over(ground, around.env, around.cwd)
    end = snapshot.settled(start, dump)
    current = snapshot.read(_bytes(f"{session}/{SNAPSHOT}"))
    if current.task == task_id:
        return  # whoever was here before us did it, and died then
    base = ground if current.mark == before.mark else current.state()
    if current.first:
        base = snapshot.grounded(base, ground)
    _write_if_changed(session, current, task_id, snapshot.merged(base, start, end), base)


def _write_if_changed(session: str, current: Snapshot, task_id: str, state: State, base: State) -> None:
    if state == base and not current.first:
        return
    data = snapshot.compose(
        state, generation=current.generation + 1, task=task_id, made=time.time(), environ=current.environ
    )
    _replace(session, data)


def _await_settled(session: str) -> None:
    try:
        fd = os.open(f"{session}/{_LOCK}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # nobody has ever held it
    with Held(fd, fcntl.LOCK_SH):
        pass


def _locked(session: str) -> Held:
    """The lock of a session, for as long as replacing its snapshot takes."""
    # In a directory that is gone there is nothing to lock: the session was removed.
    return Held(os.open(f"{session}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _replace(session: str, data: bytes, name: str = SNAPSHOT) -> None:
    aside = f"{session}/.{os.urandom(4).hex()}"
    try:
        with open(_new(aside), "wb") as file:
            file.write(data)
        os.rename(aside, f"{session}/{name}")
    except BaseException:
        try:
            os.unlink(aside)
        except OSError:
            pass
        raise


def _new(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _head(path: str) -> bytes:
    # Not a file object: in a guard, that takes more memory than all the rest of this.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(fd, _HEAD_BYTES)
    finally:
        os.close(fd)


def _bytes(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as file:
        # Asked for by its size: a reader that is told "at most" makes room for all of that first.
        return file.read(min(os.fstat(file.fileno()).st_size, _MOST_BYTES)) or b""
