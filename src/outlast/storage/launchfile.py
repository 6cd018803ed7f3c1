"""What the caller writes down about a task before it starts.

launch.json   everything but the following
command       the text of the command, never in an argument list
offspring     the ids of tasks that were started from inside of this one, a line for each

environ       its variables, and
input         its input if that was given as text: only while it is pending, because they may
              hold secrets; otherwise the guard gets them in memory
"""

from __future__ import annotations

import os

from outlast.errors import NewerTask
from outlast.light import fields, json, replaced
from outlast.linux.files import open_regular
from outlast.storage.layout import FORMAT, LAUNCH
from outlast.storage.status import explain_error
from outlast.types import Launch, Stdin, as_sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECRETS = _ENVIRON, _INPUT = "environ", "input"
_COMMAND = "command"
_OFFSPRING = "offspring"
_IN_OTHER_FILES = ("command", "env", "stdin")
_READ_BYTES = 1 << 16


def write(directory: str, launch: Launch, created: float) -> None:
    """Write the launch into a staged directory, without its variables and its input."""
    values = {name: value for name, value in fields(launch).items() if name not in _IN_OTHER_FILES}
    values["sandbox"] = fields(launch.sandbox) if launch.sandbox else None
    stdin = {"file": launch.stdin.file, "open": launch.stdin.open, "text": launch.stdin.text is not None}
    text = json.dumps({"format": FORMAT, "created": created, "stdin": stdin, **values})
    _write(directory, LAUNCH, text.encode())
    _write(directory, _COMMAND, os.fsencode(launch.command))


def read(directory: str) -> tuple[Launch, float]:
    """Return the launch of a task and when it was created; without its variables and its input."""
    try:
        return _parse(directory, _read(directory, LAUNCH), _read(directory, _COMMAND))
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise explain_error(os.path.abspath(directory), error) from None


def _parse(directory: str, text: bytes, command: bytes) -> tuple[Launch, float]:
    values: dict[str, Any] = json.loads(text)
    if values.pop("format") > FORMAT:
        name = os.path.basename(os.path.abspath(directory))
        raise NewerTask(f"{name} was made by a newer version of Outlast; update Outlast to read it.")
    created = float(values.pop("created"))
    stdin = values.pop("stdin")
    values["command"], values["env"] = os.fsdecode(command), {}
    values["stdin"] = Stdin(file=stdin["file"], open=stdin["open"], text=b"" if stdin["text"] else None)
    values.update({name: tuple(values.get(name, ())) for name in ("after", "held_back")})
    values["sandbox"] = as_sandbox(values.get("sandbox"))
    return Launch(**values), created


def created_at(directory: str) -> float:
    """Return when a launch was written, without parsing it."""
    return os.stat(f"{directory}/{LAUNCH}").st_mtime


def read_after(directory: str) -> tuple[tuple[str, ...], str]:
    """Return the ids that a task waits for, and what to do if one of them failed."""
    values = json.loads(_read(directory, LAUNCH))
    return tuple(values.get("after", ())), values.get("after_failed", "skip")


def read_cwd(directory: str) -> str:
    """Return the directory that the command began in."""
    return str(json.loads(_read(directory, LAUNCH))["cwd"])


def is_newer(directory: str) -> bool:
    """Return whether a newer version of Outlast made the task. Then only that version may remove it."""
    try:
        return bool(json.loads(_read(directory, LAUNCH))["format"] > FORMAT)
    except (ValueError, TypeError, KeyError, OSError):
        return False


# --- what a pending task needs besides: another process starts it ------------------------


def write_secrets(directory: str, launch: Launch) -> None:
    """Write its variables and its input, for as long as it is pending."""
    _write(directory, _ENVIRON, b"\0".join(os.fsencode(f"{k}={v}") for k, v in launch.env.items()))
    if launch.stdin.text is not None:
        _write(directory, _INPUT, launch.stdin.text)


def read_with_secrets(directory: str) -> Launch:
    """Return the launch of a pending task, with its variables and its input."""
    launch, _ = read(directory)
    items = os.fsdecode(_read(directory, _ENVIRON)).split("\0")
    env = dict(item.split("=", 1) for item in items if item)
    stdin = Stdin(text=_read(directory, _INPUT)) if launch.stdin.text is not None else launch.stdin
    return replaced(launch, env=env, stdin=stdin)


def erase_secrets(directory: str) -> None:
    """Remove the variables and the input once the command has them, or never will."""
    for name in SECRETS:
        try:
            os.unlink(f"{directory}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            pass


# --- offspring ---------------------------------------------------------------------------


def add_offspring(parent: str, task_id: str) -> None:
    """Note that `task_id` is about to be started from inside of the task in the directory `parent`."""
    try:
        fd = open_regular(os.path.join(parent, _OFFSPRING), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except (FileNotFoundError, NotADirectoryError):
        return  # the parent is a task of another state directory, or was removed
    try:
        os.write(fd, task_id.encode() + b"\n")
    finally:
        os.close(fd)


def read_offspring(parent: str) -> list[str]:
    """Return the ids of all tasks that were ever started from inside of this one."""
    try:
        text = _read(parent, _OFFSPRING).decode(errors="replace")
    except OSError:
        return []
    # The task itself can write to the file: a name that is no id would lead out of `tasks/`.
    return [line for line in text.split("\n") if line and "/" not in line and line[0] != "."]


def _write(directory: str, name: str, data: bytes) -> None:
    fd = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def _read(directory: str, name: str) -> bytes:
    fd = open_regular(f"{directory}/{name}")
    try:
        data = b""
        while piece := os.read(fd, _READ_BYTES):
            data += piece
        return data
    finally:
        os.close(fd)
