"""The state directory: where each file is, made private, checked before it is trusted.

format        the version of this layout
config.toml   settings, if the user wrote any
policy.toml   the user's own rules, if there are any
tasks/        one directory for each task
queue/        pending tasks, and the slots for running ones: see `queue.py`
staging/      tasks that are being prepared or removed; nothing in here is a task
sessions/     the state of each session
approvals/    where pages that are served take questions, and what was allowed for a session
outbox/       notices, and who has read them: see `outbox.py`
executors/    what the executors on other machines keep here
mcp/          what an MCP server leaves to the next one
index.sqlite  a cache of what would take too long to read from 100,000 directories
"""

from __future__ import annotations

import errno
import os
import stat

from outlast.errors import StateRefused
from outlast.light import frozen
from outlast.linux.files import create_file, read_file

FORMAT = 1
STAGING = "staging"
_ENTRIES = (
    *("format", "tasks", STAGING, "queue", "sessions", "mcp", "outbox", "approvals", "executors"),
    *("config.toml", "policy.toml", "index.sqlite"),
)

# Files of a task.
LAUNCH = "launch.json"
LOCK = "lock"  # held (flock) by the guards while the task lives
QUEUED = "queued"  # the name of its entry in the queue, if it was pending
STDIN = "stdin"
END_OF_INPUT = "stdin.eof"
SIZE, SIZES = "size", "sizes"  # of its terminal: as it is to be, and as it was from which byte of the output on


@frozen
class Home:
    """A state directory that is private, ours and of a known format; the paths in it."""

    path: str
    tasks: str
    staging: str
    sessions: str

    def task(self, task_id: str) -> str:
        return f"{self.tasks}/{task_id}"


def random_token() -> str:
    """Return the random part of an id or of a temporary file name."""
    return os.urandom(4).hex()


def open_home(path: str) -> Home:
    """Create or check the state directory at `path`."""
    home = Home(path, f"{path}/tasks", f"{path}/{STAGING}", f"{path}/sessions")
    try:
        os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
        _refuse_foreign_files(path)
        _make_private(path)
        _check_format(path)  # before anything else is created: a refused directory is not changed
        for directory in (home.tasks, home.staging, home.sessions):
            _make_private(directory)
    except OSError as error:
        what = f"{error.filename} is not a directory" if isinstance(error, FileExistsError) else error.strerror
        raise StateRefused(
            f"The state directory {path} cannot be used: {what}; set OUTLAST_HOME to one that can."
        ) from None
    return home


def _refuse_foreign_files(path: str) -> None:
    """Refuse a directory that holds other files: making /tmp or a user's home private would do harm."""
    try:
        names = [] if os.path.islink(path) else os.listdir(path)
    except OSError:
        return  # it is new, or `_make_private` says what is wrong with it
    # A directory without `format` may be one that another process is creating at this moment.
    if "format" not in names and not all(name.startswith(_ENTRIES) for name in names):
        raise StateRefused(
            f"{path} holds other files and is no state directory of Outlast's; set OUTLAST_HOME to a new place."
        )


def _make_private(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
        return
    except FileExistsError:
        pass
    found = os.lstat(directory)  # not stat: do not follow a planted link
    if stat.S_ISLNK(found.st_mode):
        raise StateRefused(f"{directory} is a symbolic link; set OUTLAST_HOME to the real directory.")
    if not stat.S_ISDIR(found.st_mode):
        raise StateRefused(f"{directory} is not a directory; set OUTLAST_HOME to another place.")
    if found.st_uid != os.geteuid():
        raise StateRefused(f"{directory} belongs to another user (uid {found.st_uid}); set OUTLAST_HOME to your own.")
    if found.st_mode & 0o077:
        os.chmod(directory, 0o700)


def _check_format(path: str) -> None:
    name = f"{path}/format"
    try:
        text = read_file(name, 64)
    except FileNotFoundError:
        create_once(name, b"%d\n" % FORMAT)
        return
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StateRefused(f"{name} is a symbolic link; remove it or set OUTLAST_HOME to another place.") from None
        raise
    if not text.strip().isdigit():
        raise StateRefused(
            f"{name} does not hold a version number, so this is no state directory of Outlast's; "
            "set OUTLAST_HOME to another place."
        )
    if int(text) > FORMAT:
        raise StateRefused(
            f"{path} has format {int(text)}, newer than this version of Outlast knows ({FORMAT}); update Outlast."
        )


def create_once(path: str, data: bytes) -> None:
    """Create a file with all of its data, atomically; keep one that is there."""
    temporary = f"{path}.{random_token()}"
    create_file(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was faster
    finally:
        os.unlink(temporary)
