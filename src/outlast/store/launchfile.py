"""A launch on disk, as the caller leaves it for the supervisor.

launch.json   everything but the following
command       the text of the command, never in an argument list

Its variables and its input may hold secrets, and are never on disk.
"""

from __future__ import annotations

import json
import os

from outlast.errors import NewerTask
from outlast.frozen import fields
from outlast.model import Launch, Stdin
from outlast.store.home import FORMAT
from outlast.store.status import trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_APART = ("command", "env", "stdin")


def write(directory: str, launch: Launch, created: float) -> None:
    """Leave `launch` in a staged directory."""
    plain = {name: value for name, value in fields(launch).items() if name not in _APART}
    stdin = {"file": launch.stdin.file, "open": launch.stdin.open, "text": launch.stdin.text is not None}
    _write(
        directory, "launch.json", json.dumps({"format": FORMAT, "created": created, "stdin": stdin, **plain}).encode()
    )
    _write(directory, "command", os.fsencode(launch.command))


def _write(directory: str, name: str, data: bytes) -> None:
    fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def read(directory: str = ".") -> tuple[Launch, float]:
    """The launch of a task and when it was made; without its variables and its input."""
    name = os.path.basename(os.path.abspath(directory))
    try:
        values: dict[str, Any] = json.loads(_read(directory, "launch.json"))
        if values.pop("format") > FORMAT:
            raise NewerTask(f"{name} was made by a newer version of Outlast; update Outlast to read it.")
        created = float(values.pop("created"))
        stdin = values.pop("stdin")
        values["command"] = os.fsdecode(_read(directory, "command"))
        values["env"] = {}
        values["stdin"] = Stdin(file=stdin["file"], open=stdin["open"], text=b"" if stdin["text"] else None)
        return Launch(**values), created
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise trouble(os.path.abspath(directory), error) from None


def is_newer(directory: str) -> bool:
    """Whether a newer version made the task: whatever it looks like to us, it is not ours to judge."""
    try:
        return bool(json.loads(_read(directory, "launch.json"))["format"] > FORMAT)
    except (ValueError, TypeError, KeyError, OSError):
        return False


def _read(directory: str, name: str) -> bytes:
    with open(os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()
