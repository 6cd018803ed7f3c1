"""Reads and replaces the files of `outlast setup`, and keeps the records that `--undo` needs."""

from __future__ import annotations

import json
import os
import stat

from outlast.errors import Unsupported
from outlast.light import frozen
from outlast.storage.layout import open_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.cli.setup_edits import Record

RECORDS = "setup.json"
_BOM = "\ufeff"


@frozen
class Snapshot:
    """A file as it was read. `text` is None if there is no file."""

    path: str
    text: str | None
    bom: str = ""


def read(path: str) -> Snapshot:
    """Return a file's text, with its line ends as they are."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except FileNotFoundError:
        return Snapshot(path, None)
    except UnicodeDecodeError:
        raise Unsupported(f"{path} is not UTF-8 text; it was not changed.") from None
    bom = _BOM if text.startswith(_BOM) else ""
    return Snapshot(path, text.removeprefix(bom), bom)


def replace(before: Snapshot, text: str | None, new_mode: int) -> None:
    """Replace the file atomically, or remove it. Refuses if another program changed it since it was read."""
    # A running client rewrites its own file at any time; this check leaves it only the time of one rename.
    if read(before.path) != before:
        raise Unsupported(f"{before.path} was changed by another program meanwhile; run `outlast setup` again.")
    path = os.path.realpath(before.path)
    if text is None:
        os.unlink(path)
        return
    staged = f"{path}.{os.urandom(4).hex()}.outlast"
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "w", encoding="utf-8", newline="") as file:
            file.write(before.bom + text)
            _set_owner_and_mode(file.fileno(), os.stat(path) if before.text is not None else None, new_mode)
            file.flush()
            os.fsync(file.fileno())
        os.rename(staged, path)
    except BaseException:
        os.unlink(staged)
        raise


def _set_owner_and_mode(fd: int, old: os.stat_result | None, new_mode: int) -> None:
    if old and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(fd, old.st_uid, old.st_gid)
        except PermissionError:
            pass  # only root can give a file away; then it is ours, as after any editor that replaces it
    os.fchmod(fd, stat.S_IMODE(old.st_mode) if old else new_mode)


def make_directories(path: str) -> list[str]:
    """Make the directory of a file; return those that were made, innermost first."""
    missing = []
    directory = os.path.dirname(os.path.realpath(path))
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for one in reversed(missing):
        os.mkdir(one)
    return missing


def remove_directories(made: list[str]) -> None:
    """Remove directories that we made, as long as they are empty."""
    for directory in made:
        try:
            os.rmdir(directory)
        except OSError:
            return


# --- records -------------------------------------------------------------------------------


class Records:
    """What was changed where, in the state directory; each record belongs to a client, a scope and a file."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = os.path.join(home, RECORDS)
        try:
            self._all: list[Record] = json.loads(read(self._path).text or "[]")
        except ValueError:
            raise Unsupported(f"{self._path} is damaged; remove it, and take changes back by hand.") from None

    def of(self, client: str, scope: str, files: set[str]) -> list[Record]:
        """Return the records of a client in these files, oldest first."""
        return [one for one in self._all if (one["client"], one["scope"]) == (client, scope) and one["file"] in files]

    def add(self, record: Record) -> None:
        """Keep a record in the place of an older one of the same edit."""
        same = ("client", "scope", "file", "path")
        kept = [one for one in self._all if any(one[name] != record[name] for name in same)]
        self._write([*kept, record])

    def remove(self, records: list[Record]) -> None:
        self._write([one for one in self._all if one not in records])

    def _write(self, records: list[Record]) -> None:
        self._all = records
        open_home(self._home)
        before = read(self._path)
        if records or before.text is not None:
            replace(before, json.dumps(records, indent=1) + "\n" if records else None, 0o600)
