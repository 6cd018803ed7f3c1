"""A task's status, computed from its files. Nothing stores a status, so nothing can contradict them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from outlast.errors import DamagedTask, OutlastError, SystemRefused, UnknownTask
from outlast.light import json
from outlast.linux import process
from outlast.linux.files import open_regular
from outlast.storage import record
from outlast.storage.layout import LOCK, QUEUED, STAGING
from outlast.types import (
    Ended,
    Ending,
    Exited,
    Guards,
    Identity,
    Lost,
    NeverStarted,
    Pending,
    Running,
    Signalled,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.linux.process import Stat
    from outlast.types import Outcome, Status

PIPES = "pipes"
MOST_STAGES = 500  # the list of a longer pipeline is not kept

# What reading a task's files can raise, if it was removed or is damaged.
UNREADABLE = (OSError, OutlastError, KeyError, TypeError, ValueError)

# The errors of a file that is missing, or is not what it should be. Any other error (no descriptor left, a failing
# disk) says nothing about the task.
_DAMAGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})


def is_damage(error: OSError) -> bool:
    """Return whether a task's file is not as it should be."""
    return error.errno in _DAMAGED


def explain_error(directory: str, error: Exception) -> OutlastError:
    """Return the error to raise for a task whose files could not be read."""
    name = os.path.basename(directory)
    try:
        os.stat(directory)
    except FileNotFoundError:
        return UnknownTask(f"There is no task '{name}' (any more); `outlast ps --all` lists them.")
    except OSError:
        pass
    if isinstance(error, OSError) and not is_damage(error):
        return SystemRefused(f"{name} cannot be looked at now: {error.strerror}; try again.")
    return DamagedTask(f"The files of {name} are damaged; `outlast clean` removes it.")


# --- read --------------------------------------------------------------------------------


def status_of(directory: str) -> tuple[Status, Guards | None, bool]:
    """Return the status, the guards, and whether the task is closed: no more output will come."""
    found = record.read(directory)
    if "guards" not in found:
        # Do not probe the lock here: our shared lock would make a starter believe that another starter holds the task.
        return (*_status_without_guards(directory, found), "outcome" in found)
    guarded = has_guard(directory) if "outcome" not in found else None
    # The guards record the ending before they release the lock, so read the record again after the probe: a free
    # lock without an ending can only mean that both guards died.
    if guarded is False:
        found = record.read(directory)
    guards = _parse_guards(directory, found)
    if "outcome" in found:
        return _parse_ended(directory, guards.started, found), guards, not has_guard(directory)
    if guarded:
        return Running(guards.started), guards, False
    if "code" in found:  # the exit code is recorded, but both guards died before they recorded when
        last_change = os.stat(os.path.join(directory, record.NAME)).st_mtime
        return _parse_ended(directory, guards.started, found, last_change), guards, True
    return Lost(guards.started), guards, True


def has_outcome(directory: str) -> bool:
    """Return whether the end is recorded. This is the cheapest check; a lost task ends without a record."""
    return "outcome" in record.read(directory, ("outcome",))


def _status_without_guards(directory: str, found: dict[str, Any]) -> tuple[Status, None]:
    """A task without guards waits in the queue, or left it without having run."""
    since = os.stat(os.path.join(directory, QUEUED)).st_mtime
    if "outcome" in found:
        return _parse_ended(directory, since, found), None
    _check_lock(directory)
    return Pending(since), None


def is_pending(directory: str) -> bool:
    """Return whether a task has not begun yet."""
    found = record.read(directory)
    pending = not found.keys() & {"guards", "outcome"} and os.path.exists(os.path.join(directory, QUEUED))
    if pending:
        _check_lock(directory)
    return pending


def _check_lock(directory: str) -> None:
    """Raise OSError if a pending task has no usable lock: it can neither begin nor be ended."""
    path = os.path.join(directory, LOCK)
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.ENXIO, "It is not a regular file", path)


def has_guard(directory: str) -> bool:
    """Return whether a guard holds the task's lock."""
    fd = open_regular(f"{directory}/{LOCK}")
    try:
        # Shared, so that two probes at the same time do not take each other for a guard.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: a child that the host just forked may have it open
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def guards_of(directory: str) -> Guards:
    """Return the guards of a task; KeyError if it has none."""
    return _parse_guards(directory, record.read(directory))


def is_foreign_guard(stat: Stat, task_id: str) -> bool:
    """Return whether a process is a guard of another task than this one. Its name alone proves nothing."""
    if not stat.name.startswith("outlast-"):
        return False
    directory = ""
    try:
        directory = os.readlink(f"/proc/{stat.pid}/cwd")
        guards = guards_of(directory)
        if os.path.basename(os.path.dirname(directory)) == STAGING:
            return False  # a prepared shell, which has no task yet
    except KeyError:
        # The guard that is about to start a pending task: a process of another task may have started it.
        return os.path.basename(directory) != task_id and os.path.exists(os.path.join(directory, QUEUED))
    except (OSError, OutlastError, TypeError, ValueError):
        return False
    recorded = [(guard.pid, guard.tick) for guard in (guards.supervisor, guards.keeper) if guard]
    return guards.task_id != task_id and (stat.pid, stat.tick) in recorded


# --- write -------------------------------------------------------------------------------


def write_ending(by: str, rule: str, at: float, directory: str) -> None:
    """Record who asks for the end, before the task is ended; the first one stays."""
    if "ending" not in record.read(directory):
        record.write("ending", {"by": by, "rule": _shorten(rule, 360), "at": at}, directory)


def write_never_started(why: str, at: float, directory: str) -> None:
    """Record that a pending task ended without having run."""
    record.write("code", {"spawn": _shorten(why, 100)}, directory)
    record.write("outcome", {"ended": at, "elapsed": 0.0, "pipes": None}, directory)


def _shorten(text: str, most: int) -> str:
    """Cut `text` to what takes `most` bytes in a record, where one character can take twelve."""
    while len(json.dumps(text)) > most:
        text = text[: min(len(text) - 1, most)]
    return text


# --- parse -------------------------------------------------------------------------------


def _parse_ended(directory: str, since: float, found: dict[str, Any], fallback: float = 0.0) -> Ended:
    outcome = found.get("outcome", {})
    until = float(outcome.get("ended", fallback))
    ending = found.get("ending")
    return Ended(
        since=since,
        until=until,
        elapsed=float(outcome.get("elapsed", max(0.0, until - since))),
        outcome=parse_outcome(found["code"]),
        ending=Ending(**ending) if ending else None,
        pipe_status=_pipe_status(directory, found["code"].get("exit"), outcome),
        cpu=found["code"].get("cpu"),
        without_memory=outcome.get("oom", 0),
        caller_gone=bool(outcome.get("unheard", "ended" not in outcome)),
        left_no_processes=bool(outcome.get("alone")),
    )


def parse_outcome(code: dict[str, object]) -> Outcome:
    """Return what the `code` slot says."""
    match code:
        case {"exit": int(number)}:
            return Exited(number)
        case {"signal": int(number)}:
            return Signalled(number)
    return NeverStarted(str(code.get("spawn")))


def _parse_guards(directory: str, found: dict[str, Any]) -> Guards:
    slot = found["guards"]
    boot = process.join_boot(slot["boot"], slot["pidns"]) if "pidns" in slot else slot["boot"]

    def identity(name: str) -> Identity | None:
        if name not in slot:
            return None
        pid, tick = slot[name]
        return Identity(pid, tick, boot)

    supervisor, command = identity("supervisor"), identity("command")
    if supervisor is None or command is None:
        raise ValueError("the record does not name the guards")
    return Guards(
        task_id=os.path.basename(os.path.abspath(directory)),
        supervisor=supervisor,
        keeper=identity("keeper"),
        command=command,
        started=slot["started"],
        monotonic=slot["monotonic"],
        recoveries=slot["recoveries"],
    )


# --- the exit codes of the last pipeline -------------------------------------------------


def _pipe_status(directory: str, code: int | None, outcome: dict[str, Any]) -> tuple[int, ...] | None:
    if "pipes" in outcome:  # older guards recorded it
        return tuple(outcome["pipes"]) if outcome["pipes"] else None
    return None if code is None else parse_pipe_status(code, read_pipe_status(directory))


def read_pipe_status(directory: str) -> str | None:
    """Return what the shell wrote about its last pipeline; None if there is no file, or an empty one: it is none."""
    try:
        with open(open_regular(os.path.join(directory, PIPES)), encoding="ascii") as file:
            return file.read(4096) or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "?"


def parse_pipe_status(code: int, written: str | None) -> tuple[int, ...] | None:
    """Return the exit code of each stage of the last pipeline, if it is known.

    The command can write to the file as well, so nothing in it is trusted that contradicts the exit `code`.
    """
    if written is None:
        return (code,)
    words = written.split()
    if not 3 <= len(words) <= MOST_STAGES + 2 or not all(map(_is_exit_code, words[1:])):
        return None
    last, *stages = map(int, words[1:])
    if words[0] == "exit" and code not in stages:
        return (code,)  # the last thing it did was `exit 3`, a pipeline of one stage
    return tuple(stages) if last == code else None


def _is_exit_code(word: str) -> bool:
    return word.isascii() and word.isdigit() and int(word) < 256
