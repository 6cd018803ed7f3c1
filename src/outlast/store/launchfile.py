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

    from outlast.model import Surroundings

_LAUNCH = "launch.json"
_COMMAND = "command"
_APART = ("command", "env", "stdin")
_READ_BYTES = 1 << 16


def write(directory: str, launch: Launch, created: float) -> None:
    """Leave `launch` in a staged directory."""
    _write(directory, _LAUNCH, _dump(launch, created))
    _write(directory, _COMMAND, os.fsencode(launch.command))


def _dump(launch: Launch, created: float) -> bytes:
    plain = {name: value for name, value in fields(launch).items() if name not in _APART}
    stdin = {"file": launch.stdin.file, "open": launch.stdin.open, "text": launch.stdin.text is not None}
    return json.dumps({"format": FORMAT, "created": created, "stdin": stdin, **plain}).encode()


def _write(directory: str, name: str, data: bytes) -> None:
    fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def read(directory: str = ".") -> tuple[Launch, float]:
    """The launch of a task and when it was made; without its variables and its input."""
    name = os.path.basename(os.path.abspath(directory))
    try:
        return _parse(_read(directory, _LAUNCH), _read(directory, _COMMAND), name)
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise trouble(os.path.abspath(directory), error) from None


def _parse(text: bytes, command: bytes, name: str) -> tuple[Launch, float]:
    values: dict[str, Any] = json.loads(text)
    if values.pop("format") > FORMAT:
        raise NewerTask(f"{name} was made by a newer version of Outlast; update Outlast to read it.")
    created = float(values.pop("created"))
    stdin = values.pop("stdin")
    values["command"], values["env"] = os.fsdecode(command), {}
    values["stdin"] = Stdin(file=stdin["file"], open=stdin["open"], text=b"" if stdin["text"] else None)
    return Launch(**values), created


def rehearse(around: Surroundings) -> None:
    """As if there were something to read."""
    plain = fields(around)
    values: dict[str, Any] = {name: plain.get(name, 0) for name in Launch.__match_args__}
    _parse(_dump(Launch(**values), 0.0), b"true", "")


def is_newer(directory: str) -> bool:
    """Whether a newer version made the task: whatever it looks like to us, it is not ours to judge."""
    try:
        return bool(json.loads(_read(directory, _LAUNCH))["format"] > FORMAT)
    except (ValueError, TypeError, KeyError, OSError):
        return False


def _read(directory: str, name: str) -> bytes:
    # Not a file object: every start and every look at a task comes by here.
    fd = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        data = b""
        while piece := os.read(fd, _READ_BYTES):
            data += piece
        return data
    finally:
        os.close(fd)
