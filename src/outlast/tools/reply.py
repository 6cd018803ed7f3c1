"""Replies of the default profile: as few words as a model cannot misunderstand, then what the command printed, fenced.

`find_facts` asks the shell for what only some replies say; the rest is pure: a result in, text out. The id of a task
stands in a reply where the model needs it for its next call: the task goes on, left a process running, or printed more
than is shown.
"""

from __future__ import annotations

import time

from outlast.display.render import ending, signal_name, waits
from outlast.light import fields, frozen
from outlast.linux.activity import BUFFERED, INPUT
from outlast.output.cleaner import inline
from outlast.output.duration import duration
from outlast.tools.model import Reply
from outlast.tools.untrusted import fence, fence_marked, plain, show_invisible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.linux.activity import Activity
    from outlast.output.screen import Screen
    from outlast.shell.shell import Shell
    from outlast.storage.index import Usual
    from outlast.tools.model import ToolContext
    from outlast.types import Result, Task

FEW_LINES, FEW_CHARS = 60, 4_000  # of a failed command: so much is shown whole, without leading to its first error
LAST_LINES, LAST_CHARS = 20, 2_000  # else these are shown, behind the first error
_LONGEST_LINE, _TITLE = 300, 80


@frozen
class Facts:
    """What a reply says besides the task and its output."""

    activity: Activity | None = None
    printed_at: float | None = None
    usual: Usual | None = None
    last_line: str = ""
    first_error: str = ""
    error_line: int = 0
    last_lines: str = ""
    """The end of a long output of a failed command, marked."""
    screen: Screen | None = None
    """What a running task shows on its terminal; None if it has none, or if a part of its output was asked for."""


async def find_facts(box: ToolContext, result: Result, whole: bool) -> Facts:
    """Find what to say about a task that runs, or has failed. `whole`: no part of its output was selected."""
    if result.status in ("running", "pending"):
        return await box.do(_facts_of_running, box.shell, result, whole)
    if not whole or not _is_long(result):
        return Facts()
    return await box.do(_facts_of_long_output, box.shell, result)


def _is_long(result: Result) -> bool:
    """Return whether a reply begins with the first error: in long output of a failed command, or if it was cut."""
    if result.status == "completed":
        return result.truncated
    return result.truncated or len(result.output) > FEW_CHARS or result.output.count("\n") > FEW_LINES


def _facts_of_running(shell: Shell, result: Result, whole: bool) -> Facts:
    screen = shell.screen(result.task_id) if result.tty and whole and result.status == "running" else None
    last = "" if result.output.strip() else shell.read(result.task_id, tail=1, max_chars=_LONGEST_LINE).output
    return Facts(
        activity=shell.activity(result.task_id),
        printed_at=shell.reader.printed_at(result),
        usual=shell.reader.usual(result.command),
        last_line=show_invisible(last).strip("\n"),
        screen=screen,
    )


def _facts_of_long_output(shell: Shell, result: Result) -> Facts:
    found = shell.reader.first_error(result.task_id)
    if found is None:
        return Facts()
    last = ""
    if result.status != "completed":
        last = shell.read(result.task_id, tail=LAST_LINES, max_chars=LAST_CHARS, marked=True).output
    return Facts(first_error=show_invisible("\n".join(found.lines)), error_line=found.line_number, last_lines=last)


# --- pure --------------------------------------------------------------------------------


def data(result: Result) -> dict[str, Any]:
    """Return a result for programs, with why it failed."""
    texts = {name: value if value is None else plain(value) for name, value in _texts(result).items()}
    return {**fields(result), **texts, "error": why(result)}


def why(task: Task) -> str | None:
    """Return why a task did not go well, in a few words."""
    if task.status in ("running", "pending", "completed"):
        return None
    return f"timed out: {ending(task)}" if task.reason == "timeout" else ending(task)


def _texts(result: Result) -> dict[str, str | None]:
    return {"output": result.output, "stdout": result.stdout, "stderr": result.stderr}


def task_reply(result: Result, known: Facts, *remarks: str) -> Reply:
    """Return the reply about a task and what was read of its output."""
    lines = [headline(result, known, time.time()), *remarks, *_remarks(result)]
    head = "".join(f"{line}\n" for line in lines if line)
    failed = result.status in ("failed", "killed")
    more: dict[str, Any] = {"printed_at": known.printed_at} if not result.finished else {}
    if known.activity is not None:
        more |= {"activity": known.activity, "activity_evidence": known.activity.evidence}
    if known.screen is not None:
        more["screen"] = known.screen.to_dict()
    return Reply(head + _body(result, known), {**data(result), **more}, failed=failed)


def headline(task: Result, known: Facts, now: float) -> str:
    """Return how a task stands, in one line."""
    if task.status == "pending":
        return f"{task.task_id} is queued: it {waits(task)}."
    if task.status == "running":
        return f"{task.task_id} is running ({_running(task, known, now)})."
    said = f"{how_it_ended(task)} ({duration(task.elapsed_ms)})."
    needs_id = task.truncated or task.children or known.last_lines
    return f"{task.task_id}: {said[0].lower()}{said[1:]}" if needs_id else said


def how_it_ended(task: Task) -> str:
    """Return how a task ended, for the model that started it."""
    match task.reason:
        case "timeout" if task.limit:
            return f"Timed out: ended after {task.limit:g} s"
        case "timeout":
            return "Timed out: ended by the default timeout; give a longer timeout, or background"
        case "killed":
            return "Killed"
        case "exit":
            said = f"{'Exit' if task.status == 'completed' else 'Failed: exit'} code {task.exit_code}"
        case "signal":
            said = f"Failed: ended by {signal_name(task.signal or 0)}"
        case _:
            return f"Failed: {(task.error or task.reason or '').rstrip('.')}"
    stages = task.pipe_status or ()
    if len(stages) > 1 and any(stages):
        codes = " | ".join(map(str, stages))
        said += f", but a stage of the pipeline failed: {codes}" if task.exit_code == 0 else f", stages {codes}"
    return said + (f", {task.error.rstrip('.')}" if task.error else "")


def _running(task: Result, known: Facts, now: float) -> str:
    said = [duration(task.elapsed_ms), f"pid {task.pid}"]
    if known.activity:
        # Where the model has to act, it needs to know what it is that waits.
        told = known.activity in (INPUT, BUFFERED) and known.activity.evidence
        said.append(f"{known.activity}: {plain(told)}" if told else known.activity)
    if known.printed_at is not None and not task.output.strip():
        said.append(f"no output for {duration(round(max(0.0, now - known.printed_at) * 1000))}")
    if known.usual:
        said.append(f"usually takes {duration(known.usual.elapsed_ms)}")
    return ", ".join(said)


def _remarks(result: Result) -> list[str]:
    said = []
    if result.finished and result.children:
        pids = ", ".join(map(str, result.children))
        said.append(f"Processes that it started still run: {pids}. bash_kill ends them.")
    if result.hidden_lines:
        said.append(f"Lines that do not match: {result.hidden_lines}.")
    return said


def _body(result: Result, known: Facts) -> str:
    if known.screen is not None:
        return _draw(known.screen)
    if not result.output.strip("\n"):
        return _nothing(result, known)
    lead = f"First error, line {known.error_line}:\n{fence(known.first_error)}" if known.first_error else ""
    if lead and known.last_lines:
        return f"{lead}Last lines (bash_output with filter or cursor shows others):\n{fence_marked(known.last_lines)}"
    return lead + ("Output:\n" if lead else "") + fence_marked(result.output)


def _draw(screen: Screen) -> str:
    """Return a screen without the empty rows at its end. People count rows and columns from 1."""
    where = "hidden"
    if screen.cursor is not None:
        where = f"at row {screen.cursor[0] + 1}, column {screen.cursor[1] + 1}"
    title = f', title "{inline(show_invisible(screen.title), _TITLE)}"' if screen.title else ""
    text = "\n".join(screen.rows).rstrip("\n")
    return f"Screen ({screen.columns}x{len(screen.rows)}, cursor {where}{title}):\n{fence(show_invisible(text))}"


def _nothing(result: Result, known: Facts) -> str:
    if known.last_line:
        return f"Nothing new. Its last line:\n{fence(known.last_line)}"
    if result.hidden_lines:
        return ""
    printed = str(result.cursor) != "0"
    return "Nothing new.\n" if printed else "No output.\n" if result.finished else "No output yet.\n"
