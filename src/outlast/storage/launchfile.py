"""A launch on disk, as the caller leaves it for the supervisor.

launch.json   everything but the following
command       the text of the command, never in an argument list

environ       its variables, and
input         what it gets to read if that was given as text: only while it is pending,
              because they may hold secrets; otherwise they are handed over in memory
"""

from __future__ import annotations

import os

from outlast.errors import NewerTask
from outlast.frozen import fields, replaced
from outlast.light import json
from outlast.linux.files import open_regular
from outlast.storage.home import FORMAT
from outlast.storage.status import LAUNCH, trouble
from outlast.types import Launch, Stdin, as_sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


NAME = _LAUNCH = LAUNCH
_COMMAND = "command"
SECRETS = _ENVIRON, _INPUT = "environ", "input"
_APART = ("command", "env", "stdin")
_READ_BYTES = 1 << 16


def write(directory: str, launch: Launch, created: float) -> None:
    """Leave `launch` in a staged directory."""
    _write(directory, _LAUNCH, _dump(launch, created))
    _write(directory, _COMMAND, os.fsencode(launch.command))


def _dump(launch: Launch, created: float) -> bytes:
    plain = {name: value for name, value in fields(launch).items() if name not in _APART}
    stdin = {"file": launch.stdin.file, "open": launch.stdin.open, "text": launch.stdin.text is not None}
    plain["sandbox"] = fields(launch.sandbox) if launch.sandbox else None
    return json.dumps({"format": FORMAT, "created": created, "stdin": stdin, **plain}).encode()


def make_room(directory: str = ".") -> None:
    """Put the files in place, empty: making one takes far longer than filling it."""
    for name in (_LAUNCH, _COMMAND):
        os.close(_open(directory, name))


def _open(directory: str, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(f"{directory}/{name}", flags, 0o600)


def _write(directory: str, name: str, data: bytes) -> None:
    fd = _open(directory, name)
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
    values.update({several: tuple(values.get(several, ())) for several in ("after", "held_back")})
    values["sandbox"] = as_sandbox(values.get("sandbox"))
    return Launch(**values), created


def made_at(directory: str) -> float:
    """When a launch was left: without reading it."""
    return os.stat(f"{directory}/{_LAUNCH}").st_mtime


def after_of(directory: str) -> tuple[tuple[str, ...], str]:
    """What a task waits for, and what to do if that failed: without reading the rest."""
    values = json.loads(_read(directory, _LAUNCH))
    return tuple(values.get("after", ())), values.get("after_failed", "skip")


def cwd_of(directory: str) -> str:
    """The directory that a command began in: without reading the rest."""
    return str(json.loads(_read(directory, _LAUNCH))["cwd"])


# --- what a pending task needs besides: it is begun by a stranger ------------------------


def write_secrets(directory: str, launch: Launch) -> None:
    """Leave its variables and its input, for as long as it is pending."""
    _write(directory, _ENVIRON, b"\0".join(os.fsencode(f"{k}={v}") for k, v in launch.env.items()))
    if launch.stdin.text is not None:
        _write(directory, _INPUT, launch.stdin.text)


def read_all(directory: str) -> Launch:
    """The launch of a pending task, with all that it needs to begin."""
    launch, _ = read(directory)
    items = os.fsdecode(_read(directory, _ENVIRON)).split("\0")
    env = dict(item.split("=", 1) for item in items if item)
    stdin = Stdin(text=_read(directory, _INPUT)) if launch.stdin.text is not None else launch.stdin
    return replaced(launch, env=env, stdin=stdin)


def erase_secrets(directory: str = ".") -> None:
    """Remove what the command has taken over, or never will."""
    for name in (_ENVIRON, _INPUT):
        try:
            os.unlink(f"{directory}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            pass


def is_newer(directory: str) -> bool:
    """Whether a newer version made the task: whatever it looks like to us, it is not ours to judge."""
    try:
        return bool(json.loads(_read(directory, _LAUNCH))["format"] > FORMAT)
    except (ValueError, TypeError, KeyError, OSError):
        return False


def _read(directory: str, name: str) -> bytes:
    # Not a file object: every start and every look at a task comes by here.
    fd = open_regular(f"{directory}/{name}")
    try:
        data = b""
        while piece := os.read(fd, _READ_BYTES):
            data += piece
        return data
    finally:
        os.close(fd)
