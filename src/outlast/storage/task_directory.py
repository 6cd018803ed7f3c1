"""The directory of a task: what the caller writes into it before it starts, what keeps it; the task as callers see it.

launch.json   what runs; the following are not part of it. A shared lock on it keeps an ended task from being removed
command       the text of the command, never in an argument list
offspring     the ids of tasks that were started from inside of this one, a line for each
environ       its variables, and
input         its input if that was given as text: only while it is pending, because they may
              hold secrets; otherwise the guard gets them in memory
moved         empty: its caller stopped waiting
size          the size that its terminal is to have; if it was ever changed
"""

from __future__ import annotations

import os
import time
from fcntl import LOCK_SH

from outlast.categories import category
from outlast.errors import NewerTask
from outlast.light import fields, from_json, json, replace
from outlast.linux.files import (
    create_file,
    open_locked,
    open_regular,
    read_file,
    remove_file,
    unlock_and_close,
    write_and_close,
)
from outlast.linux.process import is_alive
from outlast.linux.process_tree import look
from outlast.storage.layout import FORMAT, LAUNCH, SIZE
from outlast.storage.output import FILES
from outlast.storage.record import UNREADABLE, explain_error, is_foreign_guard, read_mirror, status_of
from outlast.types import (
    BUBBLEWRAP,
    LOCAL,
    Ended,
    Exited,
    Launch,
    Lost,
    Pending,
    Running,
    Sandbox,
    Signalled,
    Stdin,
    Task,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from outlast.linux.process import Stat, Table
    from outlast.types import Guards, Status

SECRETS = _ENVIRON, _INPUT = "environ", "input"
MOVED = "moved"
_COMMAND = "command"
_OFFSPRING = "offspring"
_IN_OTHER_FILES = ("command", "env", "stdin")
_REMOVAL_S = 1.0  # a removal holds the lock for the length of one rename
_PAUSE_S = 0.0005
_DUMP_S = 5.0  # how long the shell may take to dump its state after the end of the command
_BLANK: dict[str, Any] = {
    **dict.fromkeys(("reason", "exit_code", "signal", "pipe_status", "ended_by", "error", "ended_at", "cpu_ms")),
    "elapsed_ms": 0,
}
_FROM_LAUNCH = (
    *("kind", "command", "description", "name", "session", "cwd", "shell", "limit", "split", "parent", "executor"),
)
_LOST = "its supervisor and its keeper both ended before it did, so it is unknown how it ended"


# --- the launch --------------------------------------------------------------------------


def write_launch(directory: str, launch: Launch, created: float) -> None:
    """Write the launch into a staged directory, without its variables and its input."""
    values = {name: value for name, value in fields(launch).items() if name not in _IN_OTHER_FILES}
    values["sandbox"] = fields(launch.sandbox) if launch.sandbox else None
    stdin = {"file": launch.stdin.file, "open": launch.stdin.open, "text": launch.stdin.text is not None}
    text = json.dumps({"format": FORMAT, "created": created, "stdin": stdin, **values})
    _write_staged(directory, LAUNCH, text.encode())
    _write_staged(directory, _COMMAND, os.fsencode(launch.command))


def create_empty(directory: str) -> None:
    """Create what `write_launch` writes, for a prepared shell: creating a file takes longer than writing to it."""
    for name in (LAUNCH, _COMMAND):
        _write_staged(directory, name, b"")


def _write_staged(directory: str, name: str, data: bytes) -> None:
    # Not a new file if there is one: a sandbox with a prepared shell shows that very file.
    write_and_close(open_regular(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT), data)


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
        values["sandbox"] = from_json(Sandbox, values["sandbox"]) if values.get("sandbox") else None
        return from_json(Launch, values), created
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise explain_error(directory, error) from None


def read_values(directory: str) -> dict[str, Any]:
    """Return what `launch.json` holds, as it is."""
    values: dict[str, Any] = json.loads(read_file(f"{directory}/{LAUNCH}"))
    return values


def has_terminal(directory: str) -> bool:
    """Return whether a task has a terminal."""
    try:
        return read_values(directory).get("tty") is not None
    except UNREADABLE:
        return False  # what is damaged can still be ended


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
    return replace(launch, env=env, stdin=stdin)


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


def is_moved(directory: str) -> bool:
    """Return whether the caller of a foreground task stopped waiting for it."""
    return os.path.exists(f"{directory}/{MOVED}")


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

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, directory: str) -> Hold:
        """Hold the task in `directory`, if it can be held; a later look at the task reports what is wrong with it."""
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                fd = open_locked(f"{directory}/{LAUNCH}", LOCK_SH)
            except OSError:
                return self
            if fd is not None:
                self._fds.append(fd)
                return self
            if time.monotonic() >= deadline:  # until then open it again: after the removal there is no such file
                return self
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        while self._fds:
            unlock_and_close(self._fds.pop())


# --- as callers see it: launch and status in one flat `Task` -----------------------------


def view_task(directory: str, launch: Launch, table: Callable[[], Table] | None) -> tuple[Task, Status]:
    """Return what the files say about a task now.

    Looking for processes that a task left behind takes a scan of the process `table`; with None it is left out.
    """
    status, guards, closed = status_of(directory)
    children: tuple[int, ...] = ()
    if launch.executor != LOCAL:
        return _view_mirror(directory, launch, status, guards, closed), status
    if table is not None and guards and _may_have_left_processes(status, closed):
        children = _children(launch, guards, status, table)
    waits_for: tuple[str, ...] = ()
    if table is not None and isinstance(status, Pending):
        waits_for = tuple(one for one in launch.after if _is_unfinished(f"{os.path.dirname(directory)}/{one}"))
    values = {"children": children, "closed": closed, "waits_for": waits_for, **_describe_status(status, guards)}
    return _create_task(directory, launch, guards.command.pid if guards else None, status.since, values), status


def _view_mirror(directory: str, launch: Launch, status: Status, guards: Guards | None, closed: bool) -> Task:
    """Return what is known here of a task that runs elsewhere, and since when nothing new was heard of it."""
    known, values = read_mirror(directory), _describe_status(status, guards)
    if not values["ended_at"]:
        if isinstance(status, Running):
            values["elapsed_ms"] = round(max(0.0, time.time() - status.since) * 1000)
        if problem := known.get("problem"):
            values["error"] = f"as of {time.strftime('%H:%M:%S', time.localtime(known['seen']))}: {problem}"
    if isinstance(status, Lost):
        gone = f"its guards on {launch.executor} died before it, or its files there are gone"
        values["error"] = known.get("problem") or gone
    values |= {"children": tuple(known.get("children", ())), "closed": closed, "waits_for": ()}
    return _create_task(directory, launch, guards.command.pid if guards else None, status.since, values)


def view_started(directory: str, launch: Launch, pid: int | None, started: float, status: str = "running") -> Task:
    """Return a task that was started a moment ago, without reading its files."""
    values = {"children": (), "waits_for": (), "closed": False, **_BLANK, "status": status}
    return _create_task(directory, launch, pid, started, values)


def _create_task(directory: str, launch: Launch, pid: int | None, started: float, values: dict[str, Any]) -> Task:
    about_agent: dict[str, Any] = {"metadata": None}
    if launch.agent:
        from outlast.storage import agentfile  # most tasks are no agents

        about_agent = agentfile.describe_end(directory, launch.agent, values)
    return Task(
        task_id=os.path.basename(directory),
        category=launch.kind if launch.agent else category(launch.command),
        pid=pid,
        pgid=pid,
        started_at=started,
        resources=_describe_resources(launch),
        sandbox=describe_sandbox(launch.sandbox),
        output_file=f"{directory}/{FILES['stdout']}",
        background=launch.background or is_moved(directory),
        held_back=launch.held_back,
        like=launch.like or None,
        tty=_describe_terminal(directory, launch),
        **{name: getattr(launch, name) for name in _FROM_LAUNCH},
        **{**values, **about_agent},
    )


def _describe_terminal(directory: str, launch: Launch) -> str | None:
    if launch.tty is None:
        return None
    try:
        columns, _, rows = read_file(f"{directory}/{SIZE}", 64).partition(b"x")
        return f"{int(columns)}x{int(rows)}"
    except (OSError, ValueError):
        return "{}x{}".format(*launch.tty)  # it was never changed


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


def _is_unfinished(directory: str) -> bool:
    try:
        return isinstance(status_of(directory)[0], (Pending, Running))
    except UNREADABLE:
        return False


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
    if isinstance(status, Ended):
        return _describe_end(status)
    if isinstance(status, Pending):
        return {**_BLANK, "status": "pending"}
    if isinstance(status, Running) and guards:
        elapsed = max(0.0, time.monotonic() - guards.monotonic)
        return {**_BLANK, "status": "running", "elapsed_ms": round(elapsed * 1000)}
    return {**_BLANK, "status": "failed", "reason": "lost", "error": _LOST}


def _describe_end(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = {
        **_BLANK,
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
        case never_started:
            error = f"It could not be started: {never_started.why}."
            found |= {"status": "failed", "reason": "spawn-error", "error": error}
    if ended.without_memory:
        many = "a process" if ended.without_memory == 1 else f"{ended.without_memory} processes"
        found["error"] = f"The kernel ended {many} of it: it used all the memory that it may."
    if ended.ending:
        reason = "timeout" if ended.ending.by == "limit" else "killed"
        found |= {"status": "killed", "reason": reason, "ended_by": ended.ending.rule}
    return found


def dump_task(task: Task) -> str:
    """Return a task as JSON."""
    return json.dumps(fields(task))


def load_task(text: str, directory: str) -> Task:
    """Parse a finished task. ValueError, TypeError or KeyError if another version of Outlast wrote it."""
    values = json.loads(text)
    # The state directory may have moved.
    return from_json(Task, {**values, "output_file": f"{directory}/{FILES['stdout']}"})
