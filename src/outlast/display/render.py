"""Task, receipt and error as text for people or JSON for programs. Pure: nothing here reads or asks."""

from __future__ import annotations

from outlast.light import fields
from outlast.output.cleaner import inline
from outlast.output.duration import duration
from outlast.types import LOCAL, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.errors import OutlastError
    from outlast.linux.activity import Activity
    from outlast.types import Receipt, Result, Waited

FIRST_LINES = (8, 4)  # of stdout and of stderr that the reply to a start shows
_LONGEST_FIRST_LINE = 500
# In what a command says that was not let in somewhere.
_OF_SECRETS = (
    "auth",
    "token",
    "credential",
    "password",
    "secret",
    "api key",
    "apikey",
    "forbidden",
    "denied",
    "log in",
    "login",
)
_PROMPT = 300
_COLUMNS = ("STATUS", "ID", "PID", "TIME", "LINES", "CATEGORY", "COMMAND")


def as_json(task: Task, **more: Any) -> str:
    """One task (or result, or receipt) as one line of JSON."""
    return _json({**fields(task), **more})


def error_json(error: OutlastError) -> str:
    """Return an error as one JSON object."""
    return _json({"error": error.code, "message": error.message})


def _json(value: Mapping[str, Any]) -> str:
    import json  # 3 ms that a table need not wait for

    return json.dumps(value, ensure_ascii=False)


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGTERM."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(task: Task) -> str:
    """How it stands or how it ended, in a few words."""
    match task.reason:
        case None:
            return waits(task) if task.status == "pending" else task.status
        case "exit":
            text = f"exit code {task.exit_code}"
        case "signal":
            text = f"ended by {signal_name(task.signal or 0)}"
        case "timeout" | "killed":
            text = task.ended_by or task.reason
        case _:
            text = task.error or task.reason
    if task.error and task.reason in ("exit", "signal"):
        text += f" ({task.error.rstrip('.')})"
    if task.pipe_status and len(task.pipe_status) > 1 and any(task.pipe_status):
        text += f" (stages: {' | '.join(map(str, task.pipe_status))})"
    return text


def waits(task: Task) -> str:
    """What a pending task waits for."""
    if task.waits_for:
        return f"waits for {', '.join(task.waits_for)}"
    return "waits for a place" if task.executor == LOCAL else f"waits to begin on {task.executor}"


def doing(activity: str) -> str:
    """What a running task does, as short as a table wants it."""
    return {"output probably buffered": "output buffered", "waiting for network or a timer": "waiting"}.get(
        activity, activity.replace("waiting for input", "needs input").removeprefix("waiting for ")
    )


def explain(activity: Activity | None) -> str:
    """What a running task does; where a person has to act, also which process shows it."""
    if not activity:
        return ""
    from outlast.linux.activity import BUFFERED, INPUT  # most calls are about tasks that have ended

    if activity in (INPUT, BUFFERED) and activity.evidence:
        return f"{activity}: {inline(activity.evidence, 300)}"
    return activity


def table(rows: Sequence[tuple[Task, tuple[int, int], str]], width: int) -> str:
    """The list of tasks, with the lines of their output, and what those do that run."""
    cells = [_COLUMNS, *(_row(task, lines, activity) for task, lines, activity in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_COLUMNS) - 1)]
    left = max(20, width - sum(widths) - 2 * len(widths))
    return "".join(
        "  ".join([*(cell.ljust(size) for cell, size in zip(row, widths, strict=False)), inline(row[-1], left)]) + "\n"
        for row in cells
    )


def _row(task: Task, lines: tuple[int, int], activity: str) -> tuple[str, ...]:
    status = task.status + (f" ({doing(activity)})" if activity else _why(task))
    if task.finished and task.children:
        status += f" +{len(task.children)}"
    count = f"{lines[0]}+{lines[1]}" if task.split else str(lines[0])
    what = saying(task)
    pid = "-" if task.closed or task.pid is None else str(task.pid)
    if not task.finished and task.error:  # its machine does not answer
        status += f" ({task.error.partition(': ')[0]})"
    kind = task.category if task.executor == LOCAL else f"{task.category} on {task.executor}"
    return status, task.task_id, pid, duration(task.elapsed_ms), count, kind, what


def saying(task: Task) -> str:
    """What a task is for, in one line. Of an agent: its type, what it is to do, what it used if it told that."""
    if task.metadata is None:
        return task.description or task.command
    known = task.metadata
    what = task.description or str(known.get("prompt") or known.get("output_file") or task.command)
    used = usage(known)
    name = known.get("id") or ""
    return f"{known.get('type')}{f' {name}' if name else ''}: {what}{f' ({used})' if used else ''}"


def usage(known: Mapping[str, Any]) -> str:
    """What an agent used, as far as it told: 1,234 tokens, $0.05."""
    tokens = [known[name] for name in ("input_tokens", "output_tokens") if name in known]
    said = [f"{sum(tokens):,} tokens"] if tokens else []
    if isinstance(cost := known.get("cost_usd"), (int, float)):
        said.append(f"${cost:.2f}" if cost >= 0.005 or not cost else f"${cost:.4f}")
    return ", ".join(said)


def _why(task: Task) -> str:
    """What a status alone does not say."""
    match task:
        case Task(status="pending") if task.waits_for:
            return f" ({waits(Task(**{**fields(task), 'waits_for': task.waits_for[:1]}))})"
        case Task(status="failed", reason="exit"):
            return f" ({task.exit_code})"
        case Task(status="failed", reason="signal"):
            return f" ({signal_name(task.signal or 0)})"
        case Task(reason="lost" | "timeout" | "spawn-error"):
            return f" ({task.reason})"
    return ""


def details(task: Task, lines: tuple[int, int], activity: Activity) -> str:
    """Everything about one task, a line each."""
    from time import localtime, strftime

    def moment(at: float | None) -> str:
        return strftime("%Y-%m-%d %H:%M:%S", localtime(at)) if at else "-"

    shown = {
        "id": task.task_id,
        "status": task.status if task.status == "running" else f"{task.status}, {ending(task)}",
        "known": "" if task.finished else inline(task.error or "", 300),
        "activity": f"{activity}: {inline(activity.evidence, 300)}" if activity else "",
        "command": inline(task.command, 300),
        "description": inline(task.description, 300),
        **_of_agent(task),
        "name": task.name,
        "again": f"as {task.like}" if task.like else "",
        "category": task.category,
        "directory": task.cwd,
        "session": task.session,
        "executor": "" if task.executor == LOCAL else task.executor,
        "shell": task.shell,
        "pid": f"{task.pid} (group {task.pgid})" if task.pid else "none",
        "queued" if task.pid is None else "started": moment(task.started_at),
        "ended": moment(task.ended_at),
        "took": duration(task.elapsed_ms) + (f", {task.cpu_ms / 1000:.2f}s of CPU" if task.cpu_ms is not None else ""),
        "limit": f"{task.limit:g} s" if task.limit else "none",
        "resources": task.resources or "",
        "sandbox": inline(task.sandbox or "", 300),
        "terminal": task.tty or "",
        "children": ", ".join(map(str, task.children)) or "none left",
        "held back": inline(", ".join(task.held_back), 300),
        "lines": f"{lines[0]} of stdout, {lines[1]} of stderr" if task.split else str(lines[0]),
        "output": task.output_file,
    }
    return "".join(f"{name:<12} {value}\n" for name, value in shown.items() if value)


def _of_agent(task: Task) -> dict[str, str]:
    known = task.metadata or {}
    return {
        "agent": str(known.get("type", "")) + (f" ({known['id']})" if known.get("id") else ""),
        "prompt": inline(str(known.get("prompt", "")), _PROMPT),
        "follows": str(known.get("output_file", "")),
        "progress": inline(str(known.get("progress", "")), _PROMPT),
        "used": usage(known),
        "result": inline(str(known.get("result", "")), _PROMPT),
        "parent": task.parent,
    }


def explain_missing_secret(task: Task, said: str) -> str:
    """A line about the secrets that a task did not get, if what it said sounds as if it missed one."""
    names = task.held_back
    said = f"{task.command}\n{said}"
    if not any(name in said for name in names) and not any(word in said.lower() for word in _OF_SECRETS):
        return ""
    return f"outlast: held back from it: {inline(', '.join(names), 300)} (`--pass NAME` lets it have one).\n"


def receipt(task: Receipt) -> str:
    """What a kill did."""
    if task.pid is None:
        return f"{task.task_id}: ended before it began\n"
    count = len(task.ended)
    text = f"{task.task_id}: ended {count} {'process' if count == 1 else 'processes'}"
    if task.ended:
        text += f" ({', '.join(map(str, task.ended))})"
    if task.survivors:
        text += f"; still alive: {', '.join(map(str, task.survivors))}"
    return text + "\n"


def describe_wait(task: Waited, condition: bool, activity: Activity | None) -> str:
    """What became of a wait: for the end, or for a condition. `activity`: of a task that runs."""
    took = duration(task.elapsed_ms)
    if not condition:
        return f"{task.task_id} {task.status} after {took}: {explain(activity) or ending(task)}\n"
    if task.met:
        return f"{task.task_id} ready after {took}: {inline(task.matched or '', 200)}\n"
    if task.finished:
        return f"{task.task_id} {task.status} after {took} and was not ready: {ending(task)}\n"
    doing = f" ({explain(activity)})" if activity else ""
    return f"{task.task_id} {task.status} for {took} and is not ready{doing}\n"


def opening(result: Result, counts: tuple[int, int]) -> dict[str, Any]:
    """The first lines of a task's output, and how many more there are. `result` begins at its start."""
    texts = (result.output, "") if result.stdout is None else (result.stdout, result.stderr or "")
    lines, errors = (
        [line[:_LONGEST_FIRST_LINE] for line in text.splitlines()[:most]]
        for text, most in zip(texts, FIRST_LINES, strict=True)
    )
    return {
        "first_lines": lines,
        "first_error_lines": errors,
        "more_lines": max(0, counts[0] - len(lines)),
        "more_error_lines": max(0, counts[1] - len(errors)),
    }


def opening_text(opening: dict[str, Any]) -> str:
    """`opening` for people and models."""
    text = "".join(f"  {line}\n" for line in opening["first_lines"]) + _and_more(opening["more_lines"], "lines")
    errors = "".join(f"  {line}\n" for line in opening["first_error_lines"])
    return text + ("stderr:\n" + errors + _and_more(opening["more_error_lines"], "lines of stderr") if errors else "")


def _and_more(count: int, what: str) -> str:
    return f"  ... and {count} more {what if count > 1 else what.replace('lines', 'line')}\n" if count else ""


def _still(task: Task, activity: Activity | None) -> str:
    if task.status == "pending":
        return f"is pending: it {waits(task)}"
    return f"is still running after {duration(task.elapsed_ms)}" + (f" ({explain(activity)})" if activity else "")


def hint(task: Task, activity: Activity | None) -> str:
    """How to go on with a task that was left running."""
    return (
        f"{task.task_id} {_still(task, activity)}.\n"
        f"  read on:  outlast {'attach' if task.tty else 'logs -f'} {task.task_id}\n"
        f"  wait:     outlast wait {task.task_id}\n"
        f"  end it:   outlast kill {task.task_id}\n"
    )
