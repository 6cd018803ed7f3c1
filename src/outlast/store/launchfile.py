"""A launch on disk, as the caller leaves it for the supervisor.

launch.json   everything but the following
command       the text of the command, never in an argument list
environ       its variables; erased when the task starts, because they may hold secrets
input         what it gets to read, if that was given as text; erased likewise
"""

from __future__ import annotations

import json
import os

from outlast.errors import DamagedTask
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
    _write(directory, "environ", b"\0".join(os.fsencode(f"{k}={v}") for k, v in launch.env.items()))
    if launch.stdin.text is not None:
        _write(directory, "input", launch.stdin.text)


def _write(directory: str, name: str, data: bytes) -> None:
    fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def read(directory: str = ".") -> tuple[Launch, float]:
    """The launch of a task and when it was made; without its variables once they were erased."""
    name = os.path.basename(os.path.abspath(directory))
    try:
        values: dict[str, Any] = json.loads(_read(directory, "launch.json"))
        if values.pop("format") > FORMAT:
            raise DamagedTask(f"{name} was made by a newer version of Outlast; update Outlast to read it.")
        created = float(values.pop("created"))
        stdin = values.pop("stdin")
        values["command"] = os.fsdecode(_read(directory, "command"))
        values["env"] = _environment(directory)
        values["stdin"] = Stdin(file=stdin["file"], open=stdin["open"], text=b"" if stdin["text"] else None)
        values["after"] = tuple(values.get("after", ()))
        return Launch(**values), created
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise trouble(os.path.abspath(directory), error) from None


def after_of(directory: str) -> tuple[tuple[str, ...], str]:
    """What a task waits for, and what to do if that failed: without reading the rest."""
    values = json.loads(_read(directory, "launch.json"))
    return tuple(values.get("after", ())), values.get("after_failed", "skip")


def _environment(directory: str) -> dict[str, str]:
    try:
        text = os.fsdecode(_read(directory, "environ"))
    except FileNotFoundError:
        return {}
    return dict(item.split("=", 1) for item in text.split("\0") if item)


def _read(directory: str, name: str) -> bytes:
    with open(os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()


def erase_secrets(directory: str = ".") -> None:
    """Remove what the command has taken over, or never will."""
    for name in ("environ", "input"):
        try:
            os.unlink(os.path.join(directory, name))
        except (FileNotFoundError, NotADirectoryError):
            pass
