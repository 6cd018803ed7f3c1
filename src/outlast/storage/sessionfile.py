"""The sessions of a state directory: one directory for each, with the snapshot of its state.

sessions/NAME/snapshot    replaced by rename, never changed in place
sessions/NAME/beginning   the first snapshot, to tell what has changed since
sessions/NAME/pending/    an entry for each task whose state is to be merged: see `session_merge`
sessions/NAME/lock        held (flock) while a living caller replaces the snapshot
sessions/.shell-…         the state of a `Shell` without a name, gone with its process

A task has a link to the snapshot it began with, so nothing that happens to the session
meanwhile can confuse it.
"""

from __future__ import annotations

import errno
import os
import time

from outlast.errors import SessionMoved
from outlast.linux import process
from outlast.storage import session_files, session_merge, snapshot
from outlast.storage.session_merge import SNAPSHOT, lock, make_file, read_file, replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outlast.storage.snapshot import Snapshot, State

BEGINNING = "beginning"
DAMAGED = "snapshot.damaged-"
_PRIVATE = ".shell-"
_STALE_S = 3600.0  # what is this old is nobody's work in progress
_HEAD_BYTES = 512  # where the mark stands


class Sessions:
    """The sessions below one directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._home = os.path.dirname(path)
        self._known: tuple[tuple[str, int, int, int], Snapshot] | None = None

    def snapshot(self, name: str, begin: Callable[[], bytes]) -> Snapshot:
        """A session's state. A new session, or one whose snapshot is damaged, begins with what `begin` gives."""
        try:
            return self.read(name)
        except (FileNotFoundError, NotADirectoryError, snapshot.Damaged):
            pass
        os.makedirs(self._of(name), 0o700, exist_ok=True)
        with lock(self._of(name)):
            self._begin_if_missing(name, begin)
        return self.read(name)

    def _begin_if_missing(self, name: str, begin: Callable[[], bytes]) -> None:
        try:
            self._read(name)
            return  # another process was faster
        except FileNotFoundError:
            pass
        except snapshot.Damaged:
            self._set_aside(name)
        data = begin()
        replace_file(self._of(name), SNAPSHOT, data)
        replace_file(self._of(name), BEGINNING, data)

    def known(self, name: str) -> Snapshot | None:
        """A session's state as it was last read here."""
        return self._known[1] if self._known is not None and self._known[0][0] == name else None

    def glance(self, name: str) -> Snapshot:
        """A session's state without what commands that just ended may add to it; raises as `read` does."""
        return self._read(name)

    def read(self, name: str, patience: float | None = None) -> Snapshot:
        """A session's state after all commands that ended; raises if there is none, or if it is damaged."""
        self.merge(name, patience)
        return self._read(name)

    def merge(self, name: str, patience: float | None = None) -> None:
        """Merge what commands that ended changed. Does nothing to a session that is not there.

        `patience` is how long to wait for another process that merges; then it raises `SessionBusy`.
        """
        try:
            session_merge.merge_finished(self._of(name), self._home, patience)
        except (FileNotFoundError, NotADirectoryError):
            pass  # it was removed, or has no snapshot

    def register(self, name: str, staged: str) -> None:
        """Have the next user of a session merge what a staged task changes."""
        session_merge.register(self._of(name), staged)

    def _read(self, name: str) -> Snapshot:
        found = os.stat(self._of(name, SNAPSHOT))
        # It is replaced, never changed: the same file is the same state.
        which = (name, found.st_ino, found.st_mtime_ns, found.st_size)
        if self._known is None or self._known[0] != which:
            self._known = (which, snapshot.read(read_file(self._of(name, SNAPSHOT))))
        return self._known[1]

    def link(self, name: str, staged: str, mark: str) -> None:
        """Give a staged task what it begins with, and files to write to: its umask must not decide about them.

        It is the state with this mark or none: the command was judged in it.
        """
        source, target = self._of(name, SNAPSHOT), f"{staged}/{session_files.BEFORE}"
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            with open(make_file(target), "wb") as file:
                file.write(read_file(source))
        if mark.encode() not in _head(target):
            raise SessionMoved(f"The session {name} changed while a command was prepared; try again.")
        for name_of_file in (session_files.START, session_files.STATE):
            os.close(make_file(f"{staged}/{name_of_file}"))

    def reset(self, name: str, data: bytes) -> None:
        """Let a session begin anew, whatever it had."""
        with lock(self._of(name)):
            session_merge.drop_finished(self._of(name), self._home)
            replace_file(self._of(name), SNAPSHOT, data)
            replace_file(self._of(name), BEGINNING, data)
            for path in self.damages(name):
                os.unlink(path)

    def copy(self, name: str, target: str) -> None:
        """A second session in the same state; FileExistsError if there is one of this name."""
        found = self.read(name)
        aside = self._of(f".copy-{os.urandom(4).hex()}")
        os.mkdir(aside, 0o700)
        try:
            data = snapshot.again(found)
            replace_file(aside, SNAPSHOT, data)
            replace_file(aside, BEGINNING, self._beginning(name, data))
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
            return snapshot.read(read_file(self._of(name, BEGINNING))).state()
        except (OSError, snapshot.Damaged):
            return {}

    def _beginning(self, name: str, otherwise: bytes) -> bytes:
        try:
            return read_file(self._of(name, BEGINNING))
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
        session_merge.tidy_tasks(self._of(name), self._home)
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


def _head(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(fd, _HEAD_BYTES)
    finally:
        os.close(fd)
