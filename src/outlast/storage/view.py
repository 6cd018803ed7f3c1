"""A task as callers see it: launch and status in one flat `Task`, under the names that callers rely on."""

from __future__ import annotations

import os
import time

from outlast.categories import category
from outlast.light import fields, json
from outlast.linux.process import is_alive
from outlast.linux.process_tree import look
from outlast.storage import output
from outlast.storage.sessions import is_moved
from outlast.storage.status import UNREADABLE, is_foreign_guard, status_of
from outlast.types import BUBBLEWRAP, Ended, Exited, Lost, NeverStarted, Pending, Running, Signalled, Task, Usual

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from outlast.linux.process import Stat, Table
    from outlast.types import Guards, Launch, Sandbox, Status

_DUMP_S = 5.0  # how long the shell may take to dump its state after the end of the command
_BLANK = dict.fromkeys(("reason", "exit_code", "signal", "pipe_status", "ended_by", "error", "ended_at", "cpu_ms"))
_LOST = "its supervisor and its keeper both ended before it did, so nobody knows how it ended"


def view_task(directory: str, launch: Launch, table: Callable[[], Table] | None) -> tuple[Task, Status]:
    """Return what the files say about a task now.

    Looking for processes that a task left behind takes a scan of the process `table`; with None it is left out.
    """
    status, guards, closed = status_of(directory)
    children: tuple[int, ...] = ()
    if table is not None and guards and _may_have_left_processes(status, closed):
        children = _children(launch, guards, status, table)
    waits_for = _unfinished_predecessors(directory, launch) if table is not None and isinstance(status, Pending) else ()
    values = {"children": children, "closed": closed, "waits_for": waits_for, **_describe_status(status, guards)}
    if launch.agent:
        values |= _describe_agent(directory, launch, values)
    return _create_task(directory, launch, guards.command.pid if guards else None, status.since, values), status


def view_started(directory: str, launch: Launch, pid: int | None, started: float, status: str = "running") -> Task:
    """Return a task that was started a moment ago, without reading its files."""
    values = {"children": (), "waits_for": (), "closed": False, **_BLANK, "status": status, "elapsed_ms": 0}
    if launch.agent:
        values |= _describe_agent(directory, launch, values)
    return _create_task(directory, launch, pid, started, values)


def _create_task(directory: str, launch: Launch, pid: int | None, started: float, values: dict[str, Any]) -> Task:
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
        resources=_describe_resources(launch),
        sandbox=describe_sandbox(launch.sandbox),
        split=launch.split,
        output_file=os.path.join(directory, output.FILES["stdout"]),
        parent=launch.parent,
        background=launch.background or is_moved(directory),
        **{"metadata": None, **values},
    )


# --- what a task left behind, and what it waits for --------------------------------------


def _may_have_left_processes(status: Status, closed: bool) -> bool:
    if isinstance(status, Ended):
        # For a moment the shell may still dump its state: then trust what the guard saw.
        return not closed and not (status.left_no_processes and _may_be_dumping(status))
    return isinstance(status, Lost)  # it has no guard that looks after its processes


def _may_be_dumping(ended: Ended) -> bool:
    return abs(time.time() - ended.until) < _DUMP_S


def _children(launch: Launch, guards: Guards, status: Status, table: Callable[[], Table]) -> tuple[int, ...]:
    if isinstance(status, Ended):
        found = _find_left_behind(guards, status, table)
    else:
        found = look(guards, is_foreign_guard, table).members
    if launch.sandbox and launch.sandbox.kind == BUBBLEWRAP:
        # What the command left behind has bubblewrap's own processes as parents, which are none of the command's.
        watching = [guard.pid for guard in (guards.supervisor, guards.keeper) if guard]
        outer = {pid for pid, stat in found.items() if stat.parent in watching}
        inner = {pid for pid, stat in found.items() if stat.parent in outer and stat.session == pid}
        wrappers = outer | {pid for pid in inner if found[pid].name == "bwrap"}
        return tuple(sorted(found.keys() - wrappers))
    return tuple(sorted(found))


def _find_left_behind(guards: Guards, ended: Ended, table: Callable[[], Table]) -> dict[int, Stat]:
    """Find what a command left running. The shell itself does not count while it may dump its state."""
    while True:
        was_alive = is_alive(guards.command)
        found = look(guards, is_foreign_guard, table).members
        if not was_alive:
            return found
        if is_alive(guards.command):  # otherwise its children were reparented to the keeper during the scan
            shell = guards.command.pid if _may_be_dumping(ended) else 0
            return {pid: stat for pid, stat in found.items() if pid != shell}


def _unfinished_predecessors(directory: str, launch: Launch) -> tuple[str, ...]:
    """Return the tasks that a pending task waits for and that have not ended."""
    return tuple(one for one in launch.after if _is_unfinished(os.path.join(os.path.dirname(directory), one)))


def _is_unfinished(directory: str) -> bool:
    try:
        return isinstance(status_of(directory)[0], (Pending, Running))
    except UNREADABLE:
        return False


# --- in words ----------------------------------------------------------------------------


def _describe_agent(directory: str, launch: Launch, values: dict[str, Any]) -> dict[str, Any]:
    """Return what an agent reported, and how it ended if its exit code does not say that."""
    from outlast.storage import agentfile  # most tasks are no agents

    report = agentfile.read(directory)
    found: dict[str, Any] = {"metadata": agentfile.metadata(launch.agent, report)}
    if values["status"] != "failed" or values["reason"] != "exit":
        return found
    if why := report.get(agentfile.LOST):
        return {**found, "reason": "lost", "exit_code": None, "pipe_status": None, "error": str(why)}
    return {**found, "error": str(report["error"])} if report.get("error") else found


def _describe_resources(launch: Launch) -> str | None:
    text = ", ".join(f"{name} {value}" for name, value in launch.resources.items())
    return (text + (" (all together)" if launch.groups else "")) or None


def describe_sandbox(sandbox: Sandbox | None) -> str | None:
    """Return in a few words how a task is kept from the rest of the machine."""
    if sandbox is None:
        return None
    refused = "no network" if sandbox.program else "no TCP"  # Landlock alone knows no other protocol
    writable = ", ".join(sandbox.writable) or "nothing but its own /tmp"
    return f"{sandbox.kind}: {'network' if sandbox.network else refused}, writes to {writable}"


def _describe_status(status: Status, guards: Guards | None) -> dict[str, Any]:
    match status:
        case Pending():
            return {**_BLANK, "status": "pending", "elapsed_ms": 0}
        case Running() if guards:
            elapsed = max(0.0, time.monotonic() - guards.monotonic)
            return {**_BLANK, "status": "running", "elapsed_ms": round(elapsed * 1000)}
        case Ended() as ended:
            return {**_BLANK, **_describe_end(ended)}
    return {**_BLANK, "status": "failed", "reason": "lost", "elapsed_ms": 0, "error": _LOST}


def _describe_end(ended: Ended) -> dict[str, Any]:
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


# --- as JSON, for the index --------------------------------------------------------------


def dump(task: Task) -> str:
    return json.dumps(fields(task))


def command_in_dump(command: str) -> str:
    """Return a text that is in the `dump` of each task with this command, and in no other (quotes are escaped)."""
    return f'"command":{json.dumps(command)},"description":'


def load(text: str, directory: str) -> Task:
    """Parse a finished task. ValueError, TypeError or KeyError if another version of Outlast wrote it."""
    values = json.loads(text)
    values["output_file"] = os.path.join(directory, output.FILES["stdout"])  # the state directory may have moved
    for name in ("children", "pipe_status", "waits_for", "held_back"):
        if values[name] is not None:
            values[name] = tuple(values[name])
    return Task(**values)


def usual_duration(dumps: list[str]) -> Usual | None:
    """Return the median duration of those of these tasks that completed."""
    durations = []
    for text in dumps:
        try:
            task = load(text, "")
        except (TypeError, ValueError, KeyError):
            continue  # another version of Outlast wrote it
        if task.status == "completed":
            durations.append(task.elapsed_ms)
    return Usual(sorted(durations)[len(durations) // 2], len(durations)) if durations else None
