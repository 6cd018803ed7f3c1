"""A task as others see it: launch and status, flat, under the names that others rely on."""

from __future__ import annotations

import os
import time

from outlast.categories import category
from outlast.errors import OutlastError
from outlast.frozen import fields
from outlast.light import json
from outlast.linux.process import is_alive
from outlast.linux.process_tree import look
from outlast.storage import output
from outlast.storage.sessions import MOVED
from outlast.storage.status import status_of, watches_another
from outlast.types import BUBBLEWRAP, Ended, Exited, Lost, NeverStarted, Pending, Running, Signalled, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from outlast.linux.process import Stat, Table
    from outlast.types import Guards, Launch, Sandbox, Status

_TELLING_S = 5.0
_BLANK = dict.fromkeys(("reason", "exit_code", "signal", "pipe_status", "ended_by", "error", "ended_at", "cpu_ms"))


def view(directory: str, launch: Launch, table: Callable[[], Table]) -> Task:
    """What the files say about a task now."""
    status, guards, closed = status_of(directory)
    # Of a lost task nobody looks after what is left, so it has to be found.
    left = isinstance(status, Lost) or (isinstance(status, Ended) and not closed and not _left_nothing(status))
    children = _children(launch, guards, status, table) if left and guards else ()
    waits_for = _unmet(directory, launch) if isinstance(status, Pending) else ()
    return _seen(directory, launch, status, guards, {"children": children, "closed": closed, "waits_for": waits_for})


def glance(directory: str, launch: Launch) -> tuple[Task, Status]:
    """As `view`, but what is left of it is not looked for: that takes a look at every process there is."""
    status, guards, closed = status_of(directory)
    return _seen(directory, launch, status, guards, {"children": (), "closed": closed, "waits_for": ()}), status


def _seen(directory: str, launch: Launch, status: Status, guards: Guards | None, how: dict[str, Any]) -> Task:
    how |= _how(status, guards)
    if launch.agent:
        how |= _of_agent(directory, launch, how)
    return _task(directory, launch, guards.command.pid if guards else None, status.since, how)


def _of_agent(directory: str, launch: Launch, how: dict[str, Any]) -> dict[str, Any]:
    """What an agent, or who stood for it, told; also of its end, if its exit code does not say it."""
    from outlast.storage import agentfile  # most tasks are no agents

    told = agentfile.read(directory)
    found: dict[str, Any] = {"metadata": agentfile.metadata(launch.agent, told)}
    if how["status"] != "failed" or how["reason"] != "exit":
        return found
    if why := told.get(agentfile.LOST):
        return {**found, "reason": "lost", "exit_code": None, "pipe_status": None, "error": str(why)}
    return {**found, "error": str(told["error"])} if told.get("error") else found


def _children(launch: Launch, guards: Guards, status: Status, table: Callable[[], Table]) -> tuple[int, ...]:
    found = _left(guards, status, table) if isinstance(status, Ended) else look(guards, watches_another, table).members
    if launch.sandbox and launch.sandbox.kind == BUBBLEWRAP:
        # What the command left behind has the sandbox's own init as its parent, and that is none of it.
        watching = [who.pid for who in (guards.supervisor, guards.keeper) if who]
        outer = {pid for pid, stat in found.items() if stat.parent in watching}
        inner = {pid for pid, stat in found.items() if stat.parent in outer and stat.session == pid}
        wrappers = outer | {pid for pid in inner if found[pid].name == "bwrap"}
        return tuple(sorted(found.keys() - wrappers))
    return tuple(sorted(found))


def _left_nothing(ended: Ended) -> bool:
    """Whether nobody has to look for what a command left running; only while its shell may be telling its state."""
    return ended.alone and _is_telling(ended)


def _is_telling(ended: Ended) -> bool:
    return abs(time.time() - ended.until) < _TELLING_S


def _left(guards: Guards, ended: Ended, table: Callable[[], Table]) -> dict[int, Stat]:
    """What a command left running. Its shell may still be there for a moment, to tell its state; not for long."""
    while True:
        there = is_alive(guards.command)
        found = look(guards, watches_another, table).members
        if not there:
            return found
        if is_alive(guards.command):  # otherwise its children went to its keeper behind our back
            hidden = guards.command.pid if _is_telling(ended) else 0
            return {pid: stat for pid, stat in found.items() if pid != hidden}


def _unmet(directory: str, launch: Launch) -> tuple[str, ...]:
    """Those that a pending task waits for and that have not ended."""
    return tuple(one for one in launch.after if _goes_on(os.path.join(os.path.dirname(directory), one)))


def _goes_on(directory: str) -> bool:
    try:
        return isinstance(status_of(directory)[0], (Pending, Running))
    except (OSError, OutlastError, KeyError, TypeError, ValueError):
        return False


def announced(directory: str, launch: Launch, pid: int | None, started: float, status: str = "running") -> Task:
    """A task of which only is known that it was started."""
    how = {"children": (), "waits_for": (), "closed": False, **_BLANK, "status": status, "elapsed_ms": 0}
    if launch.agent:
        how |= _of_agent(directory, launch, how)
    return _task(directory, launch, pid, started, how)


def _task(directory: str, launch: Launch, pid: int | None, started: float, how: dict[str, Any]) -> Task:
    return Task(
        task_id=os.path.basename(directory),
        kind=launch.kind,
        category=launch.kind if launch.agent else category(launch.command),
        command=launch.command,
        description=launch.description,
        name=launch.name,
        session=launch.session,
        cwd=launch.cwd,
        shell=launch.shell,
        executor="local",
        pid=pid,
        pgid=pid,
        started_at=started,
        limit=launch.limit,
        held_back=launch.held_back,
        resources=_resources(launch),
        sandbox=in_words(launch.sandbox),
        split=launch.split,
        output_file=os.path.join(directory, output.FILES["stdout"]),
        parent=launch.parent,
        background=launch.background or os.path.lexists(os.path.join(directory, MOVED)),
        **{"metadata": None, **how},
    )


def _resources(launch: Launch) -> str | None:
    text = ", ".join(f"{name} {value}" for name, value in launch.resources.items())
    return (text + (" (all together)" if launch.groups else "")) or None


def in_words(sandbox: Sandbox | None) -> str | None:
    """How a task is kept from the rest of the machine, in a few words."""
    if sandbox is None:
        return None
    # Landlock alone knows no other protocol.
    refused = "no network" if sandbox.program else "no TCP"
    where = ", ".join(sandbox.writable) or "nothing but its own /tmp"
    return f"{sandbox.kind}: {'network' if sandbox.network else refused}, writes to {where}"


def _how(status: Status, guards: Guards | None) -> dict[str, Any]:
    """The names that depend on where the task is in its life."""
    match status:
        case Pending():
            return {**_BLANK, "status": "pending", "elapsed_ms": 0}
        case Running() if guards:
            elapsed = max(0.0, time.monotonic() - guards.monotonic)
            return {**_BLANK, "status": "running", "elapsed_ms": round(elapsed * 1000)}
        case Ended() as ended:
            return {**_BLANK, **_ended(ended)}
    why = "its supervisor and its keeper both ended before it did, so nobody knows how it ended"
    return {**_BLANK, "status": "failed", "reason": "lost", "elapsed_ms": 0, "error": why}


def _ended(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ended_at": ended.until,
        "elapsed_ms": round(ended.elapsed * 1000),
        "cpu_ms": None if ended.cpu is None else round(ended.cpu * 1000),
        "pipe_status": ended.pipe_status,
    }
    match ended.outcome:
        case Exited(code):
            found |= {"status": "failed" if code else "completed", "reason": "exit", "exit_code": code}
        case Signalled(number):
            found |= {"status": "failed", "reason": "signal", "signal": number}
        case NeverStarted(why):
            found |= {"status": "failed", "reason": "spawn-error", "error": f"It could not be started: {why}."}
    if ended.without_memory:
        many = "a process" if ended.without_memory == 1 else f"{ended.without_memory} processes"
        found["error"] = f"The kernel ended {many} of it: it used all the memory that it may."
    if ended.ending:
        reason = "timeout" if ended.ending.by == "limit" else "killed"
        found |= {"status": "killed", "reason": reason, "ended_by": ended.ending.rule}
    return found


def dump(task: Task) -> str:
    return json.dumps(fields(task))


def said(command: str) -> str:
    """What the `dump` of every task with this command contains, and of no other: quotes in a text are escaped there."""
    return f'"command":{json.dumps(command)},"description":'


def load(text: str, directory: str) -> Task:
    """A finished task from the index. ValueError or TypeError if another version wrote it."""
    values = json.loads(text)
    values["output_file"] = os.path.join(directory, output.FILES["stdout"])  # the state directory may have moved
    for name in ("children", "pipe_status", "waits_for", "held_back"):
        if values[name] is not None:
            values[name] = tuple(values[name])
    return Task(**values)
