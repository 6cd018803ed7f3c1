"""Reads and replaces the files of `outlast setup`, and keeps the records that `--undo` needs."""

from __future__ import annotations

import json
import os
import stat

from outlast.cli.setup_edits import is_blank
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
    """A file's text, with its line ends as they are."""
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
    """Replace the file atomically, or remove it. Refuses if another program has changed it since it was read."""
    # A client that runs rewrites its own file at any time; the check leaves only the time of one rename to it.
    if read(before.path) != before:
        raise Unsupported(f"{before.path} was changed by another program meanwhile; run `outlast setup` again.")
    path = os.path.realpath(before.path)
    if text is None:
        os.unlink(path)
        return
    aside = f"{path}.{os.urandom(4).hex()}.outlast"
    old = os.stat(path) if before.text is not None else None
    mode = stat.S_IMODE(old.st_mode) if old else new_mode
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8", newline="") as file:
            file.write(before.bom + text)
            if old and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                _give(fd, old)
            os.fchmod(fd, mode)
            file.flush()
            os.fsync(fd)
        os.rename(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def _give(fd: int, old: os.stat_result) -> None:
    try:
        os.fchown(fd, old.st_uid, old.st_gid)
    except PermissionError:
        pass  # only root can give a file away; then it is ours, as after any editor that replaces it


def make_directories(path: str) -> list[str]:
    """Make the directory of a file; those that were made, innermost first."""
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


def original(record: Record, text: str) -> str | None:
    """What a file has to hold when all edits are taken back: nothing is left of a file that we made."""
    if record.get("origin") is None or not is_blank(record["format"], text):
        return text
    return None if record["origin"] == "absent" else ""


# --- records -------------------------------------------------------------------------------


class Records:
    """What was changed where, in the state directory; each belongs to a client, a scope and a file."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = os.path.join(home, RECORDS)
        self._all: list[Record] = []
        try:
            with open(self._path, encoding="utf-8") as file:
                self._all = json.load(file)
        except FileNotFoundError:
            pass
        except ValueError:
            raise Unsupported(f"{self._path} is damaged; remove it, and take changes back by hand.") from None

    def of(self, client: str, scope: str, files: set[str]) -> list[Record]:
        """The records of a client in these files, oldest first."""
        return [one for one in self._all if (one["client"], one["scope"]) == (client, scope) and one["file"] in files]

    def find(self, client: str, scope: str, file: str, path: tuple[str, ...]) -> Record | None:
        return next((one for one in self.of(client, scope, {file}) if one["path"] == list(path)), None)

    def add(self, record: Record) -> None:
        """Keep a record in the place of an older one of the same edit."""
        same = ("client", "scope", "file", "path")
        self._all = [one for one in self._all if any(one[name] != record[name] for name in same)]
        self._all.append(record)
        self._write()

    def remove(self, records: list[Record]) -> None:
        self._all = [one for one in self._all if one not in records]
        self._write()

    def _write(self) -> None:
        open_home(self._home)
        before = read(self._path)
        if self._all:
            replace(before, json.dumps(self._all, indent=1, ensure_ascii=False) + "\n", 0o600)
        elif before.text is not None:
            os.unlink(self._path)
