"""Replies in Outlast's own shape: a header with what matters, then what the command printed, set off.

`facts` asks the shell for what only some replies say; the rest is pure: a result in, text out.
"""

from __future__ import annotations

import time

from outlast.faces.render import duration, ending
from outlast.faces.tools.model import Reply
from outlast.faces.tools.words import fence, fenced, harmless, unmarked
from outlast.frozen import fields, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.faces.tools.toolbox import Toolbox
    from outlast.model import Result, Task, Usual
    from outlast.shell import Shell

LAST_LINES = 20  # of a command that failed: they come before all that it printed earlier
FEW_LINES = 3  # nobody has to be led through these
_LONGEST_LINE = 500
_SILENT_MS = 10_000  # a program that prints into a pipe often keeps some kilobytes back
# Case matters in the last one: NameError, but not "terror".
_ERROR_LINE = (
    r"(?i:(^|[^a-z0-9_])(error|fatal|panic|exception|traceback|failed|failure|cannot|can't|could not|not found|"
    r"no such|denied|undefined|unrecognized|invalid|segmentation fault|assertion)([^a-z0-9_]|$))"
    r"|[a-z](Error|Exception)\b"
)


@frozen
class Facts:
    """What a reply says besides the task and its output."""

    activity: str = ""
    printed_at: float | None = None
    usual: Usual | None = None
    last_line: str = ""
    first_error: str = ""


async def facts(box: Toolbox, result: Result) -> Facts:
    """What is worth saying about a task that runs, or has failed."""
    if result.status in ("running", "pending"):
        return await box.do(_of_running, box.shell, result)
    if result.status == "failed" and result.reason in ("exit", "signal"):
        found = await box.waiting.wait(result.task_id, timeout=0, until=_ERROR_LINE)
        return Facts(first_error=harmless(found.matched or "")[:_LONGEST_LINE])
    return Facts()


def _of_running(shell: Shell, result: Result) -> Facts:
    last = "" if result.output.strip() else shell.read(result.task_id, tail=1, max_chars=_LONGEST_LINE).output
    return Facts(
        activity=shell.activity(result.task_id),
        printed_at=shell.printed_at(result),
        usual=shell.usual(result.command),
        last_line=harmless(last).strip("\n"),
    )


# --- pure --------------------------------------------------------------------------------


def data(result: Result) -> dict[str, Any]:
    """A result for programs, with why it failed."""
    texts = {name: value if value is None else unmarked(value) for name, value in _texts(result).items()}
    return {**fields(result), **texts, "error": why(result)}


def why(task: Task) -> str | None:
    """Why a task did not go well, in a few words."""
    if task.status in ("running", "pending", "completed"):
        return None
    return f"timed out: {ending(task)}" if task.reason == "timeout" else ending(task)


def _texts(result: Result) -> dict[str, str | None]:
    return {"output": result.output, "stdout": result.stdout, "stderr": result.stderr}


def told(result: Result, known: Facts, hint: str, remark: str = "") -> Reply:
    """A task and what was read of its output. `hint` says how to go on while it runs."""
    lines = [headline(result, known, time.time()), remark, *_remarks(result)]
    if not result.finished:
        lines.append(hint)
    head = "".join(f"{line}\n" for line in lines if line)
    failed = result.status in ("failed", "killed")
    more = {"activity": known.activity, "printed_at": known.printed_at} if not result.finished else {}
    return Reply(head + _body(result, known), {**data(result), **more}, failed=failed)


def headline(task: Task, known: Facts, now: float) -> str:
    """How it stands, in one line."""
    if task.status == "pending":
        return f"{task.task_id} queued: {ending(task)}."
    if task.status == "running":
        return f"{task.task_id} running {_running(task, known, now)}."
    cpu = f" ({task.cpu_ms / 1000:.1f}s of CPU)" if task.cpu_ms is not None and task.status != "completed" else ""
    return f"{task.task_id} {task.status}: {ending(task)}, after {duration(task.elapsed_ms)}{cpu}."


def _running(task: Task, known: Facts, now: float) -> str:
    said = [f"since {time.strftime('%H:%M:%S', time.localtime(task.started_at))} ({duration(task.elapsed_ms)})"]
    said.append(f"pid {task.pid}")
    if known.activity:
        said.append(known.activity)
    if known.printed_at is None:
        said.append("no output yet" + (" (it may be buffered)" if task.elapsed_ms > _SILENT_MS else ""))
    else:
        said.append(f"last output {duration(round(max(0.0, now - known.printed_at) * 1000))} ago")
    if known.usual:
        runs = "1 earlier run" if known.usual.runs == 1 else f"{known.usual.runs} earlier runs"
        said.append(f"usually takes {duration(known.usual.elapsed_ms)} ({runs})")
    return ", ".join(said)


def _remarks(result: Result) -> list[str]:
    said = []
    if result.finished and result.children:
        said.append(f"Left behind and still running: {', '.join(map(str, result.children))}.")
    if result.hidden_lines:
        said.append(f"Lines that do not match and are not shown: {result.hidden_lines}")
    if result.truncated:
        said.append(f"Not all is shown; the whole output: {result.output_file}")
    if said or not result.finished:
        said.append(f"Next cursor: {result.cursor}")
    return said


def _body(result: Result, known: Facts) -> str:
    if not result.output.strip("\n"):
        if known.last_line:
            return f"Nothing new. Its last line:\n{fence(known.last_line)}"
        return "(no output)\n" if result.finished else "(no new output)\n"
    if result.status != "failed":
        return fenced(result.output)
    return _failure(result.output, known.first_error)


def _failure(output: str, first_error: str) -> str:
    """First what went wrong, then the end, then what came before it."""
    lines = output.removesuffix("\n").split("\n")  # not `splitlines`: a mark of ours would count as the end of a line
    lead = f"First line that looks like an error:\n{fence(first_error)}" if first_error else ""
    if len(lines) <= FEW_LINES:
        return fenced(output)
    if len(lines) <= LAST_LINES:
        return lead + ("Output:\n" if lead else "") + fenced(output)
    before, last = "\n".join(lines[:-LAST_LINES]), "\n".join(lines[-LAST_LINES:])
    return f"{lead}Last {LAST_LINES} lines:\n{fenced(last)}Before them:\n{fenced(before)}"
