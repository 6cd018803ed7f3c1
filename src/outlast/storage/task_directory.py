"""The directory of a task: what the caller writes into it before it starts, what keeps it, how it is removed.

launch.json   what runs; the following are not part of it. A shared lock on it keeps an ended task from being removed
command       the text of the command, never in an argument list
offspring     the ids of tasks that were started from inside of this one, a line for each
environ       its variables, and
input         its input if that was given as text: only while it is pending, because they may
              hold secrets; otherwise the guard gets them in memory
"""

from __future__ import annotations

import fcntl
import os
import time

from outlast.errors import NewerTask
from outlast.frozen import fields, replaced
from outlast.light import json
from outlast.linux.files import create_file, open_regular, read_file, remove_file, try_lock, unlock_and_close
from outlast.storage.layout import FORMAT, LAUNCH
from outlast.storage.record import UNREADABLE, explain_error, has_guard, is_damage, is_pending
from outlast.types import Launch, Stdin, as_sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

SECRETS = _ENVIRON, _INPUT = "environ", "input"
_COMMAND = "command"
_OFFSPRING = "offspring"
_IN_OTHER_FILES = ("command", "env", "stdin")
_STALE_S = 3600.0  # a process that prepares or removes a task does not take this long
_REMOVAL_S = 1.0  # a removal holds the lock for the length of one rename
_PAUSE_S = 0.0005


# --- the launch --------------------------------------------------------------------------


def write_launch(directory: str, launch: Launch, created: float) -> None:
    """Write the launch into a staged directory, without its variables and its input."""
    values = {name: value for name, value in fields(launch).items() if name not in _IN_OTHER_FILES}
    values["sandbox"] = fields(launch.sandbox) if launch.sandbox else None
    stdin = {"file": launch.stdin.file, "open": launch.stdin.open, "text": launch.stdin.text is not None}
    text = json.dumps({"format": FORMAT, "created": created, "stdin": stdin, **values})
    create_file(f"{directory}/{LAUNCH}", text.encode())
    create_file(f"{directory}/{_COMMAND}", os.fsencode(launch.command))


def read_launch(directory: str) -> tuple[Launch, float]:
    """Return the launch of a task and when it was created; without its variables and its input."""
    try:
        values = read_values(directory)
        if values.pop("format") > FORMAT:
            name = os.path.basename(os.path.abspath(directory))
            raise NewerTask(f"{name} was made by a newer version of Outlast; update Outlast to read it.")
        created = float(values.pop("created"))
        stdin = values.pop("stdin")
        values["command"], values["env"] = os.fsdecode(read_file(f"{directory}/{_COMMAND}")), {}
        values["stdin"] = Stdin(file=stdin["file"], open=stdin["open"], text=b"" if stdin["text"] else None)
        values.update({name: tuple(values.get(name, ())) for name in ("after", "held_back")})
        values["sandbox"] = as_sandbox(values.get("sandbox"))
        return Launch(**values), created
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise explain_error(directory, error) from None


def read_values(directory: str) -> dict[str, Any]:
    """Return what `launch.json` holds, as it is."""
    values: dict[str, Any] = json.loads(read_file(f"{directory}/{LAUNCH}"))
    return values


def write_secrets(directory: str, launch: Launch) -> None:
    """Write what another process needs to start a pending task: its variables and its input."""
    create_file(f"{directory}/{_ENVIRON}", b"\0".join(os.fsencode(f"{k}={v}") for k, v in launch.env.items()))
    if launch.stdin.text is not None:
        create_file(f"{directory}/{_INPUT}", launch.stdin.text)


def read_with_secrets(directory: str) -> Launch:
    """Return the launch of a pending task, with its variables and its input."""
    launch, _ = read_launch(directory)
    items = os.fsdecode(read_file(f"{directory}/{_ENVIRON}")).split("\0")
    env = dict(item.split("=", 1) for item in items if item)
    stdin = Stdin(text=read_file(f"{directory}/{_INPUT}")) if launch.stdin.text is not None else launch.stdin
    return replaced(launch, env=env, stdin=stdin)


def erase_secrets(directory: str) -> None:
    """Remove the variables and the input once the command has them, or never will."""
    for name in SECRETS:
        remove_file(f"{directory}/{name}")


def add_offspring(parent: str, task_id: str) -> None:
    """Note that `task_id` is about to be started from inside of the task in the directory `parent`."""
    try:
        fd = open_regular(f"{parent}/{_OFFSPRING}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except (FileNotFoundError, NotADirectoryError):
        return  # the parent is a task of another state directory, or was removed
    try:
        os.write(fd, task_id.encode() + b"\n")
    finally:
        os.close(fd)


def read_offspring(parent: str) -> list[str]:
    """Return the ids of all tasks that were ever started from inside of this one."""
    try:
        text = read_file(f"{parent}/{_OFFSPRING}").decode(errors="replace")
    except OSError:
        return []
    # The task itself can write to the file: a name that is no id would lead out of `tasks/`.
    return [line for line in text.split("\n") if line and "/" not in line and line[0] != "."]


# --- holds -------------------------------------------------------------------------------


class Hold:
    """Keeps tasks that have ended from being removed while a caller still has to report them.

    It is a shared lock on `launch.json`, which exists before the task is published, so the process that starts a task
    holds it from its first moment. A remover takes the lock exclusively until the directory is renamed.
    """

    def __init__(self) -> None:
        self._fds: list[int] = []

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def take(self, directory: str) -> Hold:
        """Hold the task in `directory`, if it can be held; a later look at the task reports what is wrong with it."""
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                fd = open_regular(f"{directory}/{LAUNCH}")
            except OSError:
                return self
            if try_lock(fd, fcntl.LOCK_SH):
                self._fds.append(fd)
                return self
            os.close(fd)  # open it again: after the removal there is no such file
            if time.monotonic() >= deadline:
                return self
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        while self._fds:
            unlock_and_close(self._fds.pop())


# --- removal -----------------------------------------------------------------------------


def measure_size(directory: str, without: tuple[str, ...] = ()) -> int:
    """Return the bytes that a task takes on disk, without some of its files."""
    size = os.stat(directory).st_blocks * 512
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    size += measure_size(entry.path)
                elif entry.name not in without:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue  # the guard or a reader removed it
    return size


def is_removable(directory: str) -> bool:
    """Return whether a task has no guard, is not pending, and may be removed by this version."""
    for is_in_use in (_is_newer, is_pending, has_guard):
        try:
            if is_in_use(directory):
                return False
        except UNREADABLE as error:
            if not is_damage(error):
                raise explain_error(directory, error) from None
    return True


def _is_newer(directory: str) -> bool:
    return bool(read_values(directory)["format"] > FORMAT)


def rename_unless_held(directory: str, moved: str) -> bool:
    """Rename a task before it is removed, so that no reader sees half of it; return False if it is held."""
    try:
        fd = open_regular(f"{directory}/{LAUNCH}", os.O_RDWR)
    except OSError as error:
        if not is_damage(error):
            raise explain_error(directory, error) from None
        os.rename(directory, moved)  # without a launch.json there is no hold
        return True
    is_held = not try_lock(fd)
    try:
        if not is_held:
            os.rename(directory, moved)
    finally:
        unlock_and_close(fd)
    return not is_held


def sweep_staging(staging: str) -> None:
    """Remove the staging directories of processes that died."""
    with os.scandir(staging) as entries:
        for entry in entries:
            try:
                is_old = entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE_S
                if is_old and not _is_prepared_shell(entry.path):
                    remove_tree(entry.path)
            except FileNotFoundError:
                continue


def _is_prepared_shell(staged: str) -> bool:
    try:
        return has_guard(staged)
    except OSError:
        return False


def remove_tree(directory: str) -> None:
    """Remove a directory that is no task (any more)."""
    from shutil import rmtree  # takes 4 ms to import

    try:
        os.unlink(directory)  # a planted link is not followed
    except OSError:
        rmtree(directory, ignore_errors=True)
