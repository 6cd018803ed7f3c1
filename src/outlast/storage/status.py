"""A task's status, derived from its files. Nothing stores a status, so nothing can contradict them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from outlast.errors import DamagedTask, OutlastError, SystemRefused, UnknownTask
from outlast.light import json
from outlast.linux import process
from outlast.linux.files import open_regular
from outlast.storage import home, record
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

LOCK = "lock"
QUEUED = "queued"
LAUNCH = "launch.json"
STDIN = "stdin"
END_OF_INPUT = "stdin.eof"

# How a file answers that is not there, or not what it should be. Anything else (no
# descriptor left, a failing disk) says nothing about the task.
_DAMAGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO})


def is_damage(error: OSError) -> bool:
    """Whether a task's file is not as it should be."""
    return error.errno in _DAMAGED


def trouble(directory: str, error: Exception) -> OutlastError:
    """What to tell of a task that could not be looked at."""
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


def status_of(directory: str) -> tuple[Status, Guards | None, bool]:
    """What the files say: the status, who watches, and whether no more output will come."""
    found = record.read(directory)
    if "guards" not in found:
        # Without a look at the lock: who begins it must not take us for somebody who does.
        return (*_unrun(directory, found), "outcome" in found)
    watched = is_watched(directory) if "outcome" not in found else None
    # The guards record the ending and only then let go of the lock, so look at the record
    # again after the lock: a free lock without an ending can only mean that both died.
    if watched is False:
        found = record.read(directory)
    guards = _guards(directory, found)
    if "outcome" in found:
        return _ended(directory, guards.started, found), guards, not is_watched(directory)
    if watched:
        return Running(guards.started), guards, False
    if "code" in found:  # recorded, but both guards died before they could say when
        return _ended(directory, guards.started, found, _last_change(directory)), guards, True
    return Lost(guards.started), guards, True


def has_outcome(directory: str) -> bool:
    """Whether its end is recorded: the shortest look there is. Without it, the task may have ended all the same."""
    return "outcome" in record.read(directory, ("outcome",))


def _unrun(directory: str, found: dict[str, Any]) -> tuple[Status, None]:
    """A task without guards waits in the queue, or left it without having run."""
    since = os.stat(os.path.join(directory, QUEUED)).st_mtime
    if "outcome" in found:
        return _ended(directory, since, found), None
    _check_lock(directory)
    return Pending(since), None


def is_pending(directory: str) -> bool:
    """Whether a task has not begun yet."""
    found = record.read(directory)
    pending = not found.keys() & {"guards", "outcome"} and os.path.exists(os.path.join(directory, QUEUED))
    if pending:
        _check_lock(directory)
    return pending


def _check_lock(directory: str) -> None:
    """OSError if a pending task has no usable lock: it can neither begin nor be ended."""
    path = os.path.join(directory, LOCK)
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.ENXIO, "It is not a regular file", path)


def is_watched(directory: str) -> bool:
    """Whether a guard holds the task's lock."""
    fd = open_regular(f"{directory}/{LOCK}")
    try:
        # Shared, so that two who look at the same time do not take each other for a supervisor.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)  # what the host forked meanwhile may have it open
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _ended(directory: str, since: float, found: dict[str, Any], fallback: float = 0.0) -> Ended:
    outcome = found.get("outcome", {})
    until = float(outcome.get("ended", fallback))
    pipes = outcome["pipes"] if "pipes" in outcome else _stages(directory, found)
    ending = found.get("ending")
    return Ended(
        since=since,
        until=until,
        elapsed=float(outcome.get("elapsed", max(0.0, until - since))),
        outcome=outcome_of(found["code"]),
        ending=Ending(**ending) if ending else None,
        pipe_status=tuple(pipes) if pipes else None,
        cpu=found["code"].get("cpu"),
        without_memory=outcome.get("oom", 0),
        unheard=bool(outcome.get("unheard", "ended" not in outcome)),
        alone=bool(outcome.get("alone")),
    )


def _stages(directory: str, found: dict[str, Any]) -> tuple[int, ...] | None:
    """The status of each stage of the last pipeline, as the command's own shell wrote it beside its output."""
    from outlast.storage.pipe_status import read_stages, stages

    code = found["code"].get("exit")
    return None if code is None else stages(code, read_stages(directory))


def _last_change(directory: str) -> float:
    return os.stat(os.path.join(directory, record.NAME)).st_mtime


def outcome_of(code: dict[str, object]) -> Outcome:
    """What the `code` slot says."""
    match code:
        case {"exit": int(number)}:
            return Exited(number)
        case {"signal": int(number)}:
            return Signalled(number)
    return NeverStarted(str(code.get("spawn")))


def write_code(outcome: Outcome, cpu: float | None = None, directory: str = ".", fd: int = -1) -> None:
    """Record how the command ended. Whoever writes it can only write the same."""
    match outcome:
        case Exited(code):
            record.write("code", {"exit": code, "cpu": cpu}, directory, fd)
        case Signalled(number):
            record.write("code", {"signal": number, "cpu": cpu}, directory, fd)
        case NeverStarted(why):
            record.write("code", {"spawn": _cut(why, 100)}, directory, fd)


def write_ending(by: str, rule: str, at: float, directory: str = ".") -> None:
    """Record who asks for the end, before it is brought about; the first one stays."""
    if "ending" not in record.read(directory):
        record.write("ending", {"by": by, "rule": _cut(rule, 360), "at": at}, directory)


def _cut(text: str, most: int) -> str:
    """As much of `text` as takes `most` bytes in a record, where one character can take twelve."""
    while len(json.dumps(text)) > most:
        text = text[: min(len(text) - 1, most)]
    return text


def write_guards(guards: Guards, directory: str = ".") -> None:
    who = {"supervisor": guards.supervisor, "keeper": guards.keeper, "command": guards.command}
    value = {
        **{name: [one.pid, one.tick] for name, one in who.items() if one},
        "boot": guards.command.boot,
        "started": guards.started,
        "monotonic": guards.monotonic,
        "recoveries": guards.recoveries,
    }
    record.write("guards", value, directory)


def guards_of(directory: str) -> Guards:
    """Who watches a task at the moment."""
    return _guards(directory, record.read(directory))


def watches_another(stat: Stat, task_id: str) -> bool:
    """Whether a process is a guard of another task than this one. Its name alone proves nothing."""
    if not stat.name.startswith("outlast-"):
        return False
    directory = ""
    try:
        directory = os.readlink(f"/proc/{stat.pid}/cwd")
        guards = guards_of(directory)
        if os.path.basename(os.path.dirname(directory)) == home.STAGING:
            return False  # of no task: it goes when who prepared it goes
    except KeyError:
        # One that is about to begin a pending task: the supervisor of another may have forked it.
        return os.path.basename(directory) != task_id and os.path.exists(os.path.join(directory, QUEUED))
    except (OSError, OutlastError, TypeError, ValueError):
        return False
    watching = [(who.pid, who.tick) for who in (guards.supervisor, guards.keeper) if who]
    return guards.task_id != task_id and (stat.pid, stat.tick) in watching


def _guards(directory: str, found: dict[str, Any]) -> Guards:
    slot = found["guards"]
    boot = process.join_boot(slot["boot"], slot["pidns"]) if "pidns" in slot else slot["boot"]

    def who(name: str) -> Identity | None:
        if name not in slot:
            return None
        pid, tick = slot[name]
        return Identity(pid, tick, boot)

    supervisor, command = who("supervisor"), who("command")
    if supervisor is None or command is None:
        raise ValueError("the record does not say who watches")
    return Guards(
        task_id=os.path.basename(os.path.abspath(directory)),
        supervisor=supervisor,
        keeper=who("keeper"),
        command=command,
        started=slot["started"],
        monotonic=slot["monotonic"],
        recoveries=slot["recoveries"],
    )
