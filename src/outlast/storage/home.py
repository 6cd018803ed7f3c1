"""The state directory: made private, checked before it is trusted.

format        the version of this layout
config.toml   settings, if the user wrote any
policy.toml   the user's own rules, if there are any
tasks/        one directory for each task
queue/        what waits, and who may run: see `store.queue`
staging/      tasks that are being prepared or removed; nothing in here is a task
sessions/     the state of each session
outbox/       what is to be told, and who was: see `store.outbox`
mcp/          what MCP servers leave to the next one: see `store.handles`, `store.lease`, `store.secretfile`
index.sqlite  what would take too long to read off 100,000 directories; can be rebuilt
"""

from __future__ import annotations

import errno
import os
import stat

from outlast.errors import StateRefused
from outlast.frozen import frozen
from outlast.linux.files import open_regular

FORMAT = 1
STAGING = "staging"
_OURS = (
    "format",
    "tasks",
    STAGING,
    "queue",
    "sessions",
    "mcp",
    "outbox",
    "config.toml",
    "policy.toml",
    "index.sqlite",
)


@frozen
class Home:
    """A state directory that was found private, ours and of a known format."""

    path: str

    @property
    def tasks(self) -> str:
        return f"{self.path}/tasks"

    @property
    def staging(self) -> str:
        return f"{self.path}/{STAGING}"

    @property
    def sessions(self) -> str:
        return f"{self.path}/sessions"

    @property
    def index(self) -> str:
        return f"{self.path}/index.sqlite"

    def task(self, task_id: str) -> str:
        return f"{self.path}/tasks/{task_id}"


def open_home(path: str) -> Home:
    """Make or check the state directory at `path`."""
    home = Home(path)
    try:
        os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
        _refuse_other_things(path)
        _private(path)
        _check_format(path)  # first: nothing is put into a directory that is refused
        for directory in (home.tasks, home.staging, home.sessions):
            _private(directory)
    except OSError as error:
        what = f"{error.filename} is not a directory" if isinstance(error, FileExistsError) else error.strerror
        raise StateRefused(
            f"The state directory {path} cannot be used: {what}; set OUTLAST_HOME to one that can."
        ) from None
    return home


def _refuse_other_things(path: str) -> None:
    """Making a directory private that holds other people's things (/tmp, a home) would be a disaster."""
    try:
        names = [] if os.path.islink(path) else os.listdir(path)
    except OSError:
        return  # it is new, or `_private` says what is wrong with it
    # Without a format it may be one that somebody else is making at this very moment.
    if "format" not in names and not all(name.startswith(_OURS) for name in names):
        raise StateRefused(
            f"{path} holds other files and is no state directory of Outlast's; set OUTLAST_HOME to a new place."
        )


def _private(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
        return
    except FileExistsError:
        pass
    # lstat, not stat: a link that somebody planted must not lead us elsewhere.
    found = os.lstat(directory)
    if stat.S_ISLNK(found.st_mode):
        raise StateRefused(f"{directory} is a symbolic link; set OUTLAST_HOME to the real directory.")
    if not stat.S_ISDIR(found.st_mode):
        raise StateRefused(f"{directory} is not a directory; set OUTLAST_HOME to another place.")
    if found.st_uid != os.geteuid():
        raise StateRefused(f"{directory} belongs to another user (uid {found.st_uid}); set OUTLAST_HOME to your own.")
    if found.st_mode & 0o077:
        os.chmod(directory, 0o700)


def _check_format(path: str) -> None:
    name = os.path.join(path, "format")
    try:
        with open(open_regular(name), "rb") as file:
            text = file.read(64)
    except FileNotFoundError:
        _write_format(name)
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


def _write_format(name: str) -> None:
    # Written aside and linked: another process that opens the directory now sees all of it or nothing.
    aside = f"{name}.{os.urandom(4).hex()}"  # several threads may
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(b"%d\n" % FORMAT)
        os.link(aside, name)
    except FileExistsError:
        pass
    finally:
        os.unlink(aside)
