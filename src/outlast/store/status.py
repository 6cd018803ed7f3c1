"""A task's status, derived from its files. Nothing stores a status, so nothing can contradict them."""

from __future__ import annotations

import fcntl
import os

from outlast import process
from outlast.model import (
    Ended,
    Ending,
    Exited,
    Guards,
    Identity,
    Lost,
    NeverStarted,
    Running,
    Signalled,
)
from outlast.store import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.model import Outcome, Status

LOCK = "lock"
STDIN = "stdin"
END_OF_INPUT = "stdin.eof"


def status_of(directory: str) -> tuple[Status, Guards, bool]:
    """What the files say: the status, who watches, and whether no more output will come."""
    found = record.read(directory)
    watched = is_watched(directory) if "outcome" not in found else None
    # The supervisor records the ending and only then lets go of the lock, so look at the
    # record again after the lock: a free lock without an ending can only mean that it died.
    if watched is False:
        found = record.read(directory)
    guards = _guards(directory, found)
    if "outcome" in found:
        return _ended(guards, found), guards, not is_watched(directory)
    if watched or _keeper_is_alive(guards):
        return Running(guards.started), guards, False
    # Both guards are gone. The keeper may have recorded the code as its last deed.
    found = record.read(directory)
    if "code" in found:
        return _ended(guards, found, _last_change(directory)), guards, True
    return Lost(guards.started), guards, True


def is_watched(directory: str) -> bool:
    """Whether a supervisor holds the task's lock."""
    fd = os.open(os.path.join(directory, LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Shared, so that two who look at the same time do not take each other for a supervisor.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _keeper_is_alive(guards: Guards) -> bool:
    # It lives but nobody holds the lock: it is just getting a new supervisor.
    return guards.keeper is not None and process.is_alive(guards.keeper)


def _ended(guards: Guards, found: dict[str, Any], fallback: float = 0.0) -> Ended:
    outcome = found.get("outcome", {})
    until = float(outcome.get("ended", fallback))
    pipes = outcome.get("pipes")
    ending = found.get("ending")
    return Ended(
        since=guards.started,
        until=until,
        elapsed=float(outcome.get("elapsed", max(0.0, until - guards.started))),
        outcome=outcome_of(found["code"]),
        ending=Ending(**ending) if ending else None,
        pipe_status=tuple(pipes) if pipes else None,
        cpu=found["code"].get("cpu"),
    )


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


def write_code(outcome: Outcome, cpu: float | None = None, directory: str = ".") -> None:
    """Record how the command ended. Whoever writes it can only write the same."""
    match outcome:
        case Exited(code):
            record.write("code", {"exit": code, "cpu": cpu}, directory)
        case Signalled(number):
            record.write("code", {"signal": number, "cpu": cpu}, directory)
        case NeverStarted(why):
            record.write("code", {"spawn": why[:80]}, directory)


def write_ending(by: str, rule: str, at: float, directory: str = ".") -> None:
    """Record who asks for the end, before it is brought about; the first one stays."""
    if "ending" not in record.read(directory):
        record.write("ending", {"by": by, "rule": rule[:300], "at": at}, directory)


def write_guards(guards: Guards, directory: str = ".") -> None:
    who = {"supervisor": guards.supervisor, "keeper": guards.keeper, "ender": guards.ender, "command": guards.command}
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


def _guards(directory: str, found: dict[str, Any]) -> Guards:
    slot = found["guards"]

    def who(name: str) -> Identity | None:
        if name not in slot:
            return None
        pid, tick = slot[name]
        return Identity(pid, tick, slot["boot"])

    supervisor, command = who("supervisor"), who("command")
    assert supervisor and command, "written by write_guards"
    return Guards(
        task_id=os.path.basename(os.path.abspath(directory)),
        supervisor=supervisor,
        keeper=who("keeper"),
        ender=who("ender"),
        command=command,
        started=slot["started"],
        monotonic=slot["monotonic"],
        recoveries=slot["recoveries"],
    )
