"""Profile A: `bash`, `bash_output`, `kill_bash`. Times are milliseconds; stdout and stderr are kept apart."""

from __future__ import annotations

from outlast.display import render
from outlast.light import fields
from outlast.tools import operations
from outlast.tools.arguments import flag, schema, text
from outlast.tools.model import Profile, Reply, Tool
from outlast.tools.reply import data
from outlast.tools.reply_fields import iso_time, shown_pid, shown_status, survivors
from outlast.tools.untrusted import label, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Arguments, ToolContext
    from outlast.types import Result

_MOST_S = 600.0
_USER_CHARS = 1000
_NOTHING_YET = "(no output yet)"


async def _bash(box: ToolContext, given: Arguments) -> Reply:
    limit = operations.seconds(given.get("timeout"), _MOST_S)
    if given.get("run_in_background"):
        task = await operations.start(box, given["command"], limit=limit, split=True)
        return _report_move(await _read(box, task.task_id))
    result = await operations.run(box, given["command"], limit=limit, split=True)
    if not result.finished:
        return _report_move(await _read(box, result.task_id))
    if result.reason == "timeout":
        return _timed_out(await _read(box, result.task_id), limit or box.shell.settings.foreground_limit_s)
    return Reply(_describe_end(result), data(result), failed=result.status != "completed", user=_for_user(result))


async def _read(box: ToolContext, task_id: str) -> Result:
    """Read both streams as one text, in the order they came."""
    return await operations.read(box, task_id, interleaved=True)


def _describe_end(result: Result) -> str:
    error = "" if result.reason in ("exit", "signal") else render.ending(result)
    return (
        label("Command", result.command, "(none)")
        + label("Directory", result.cwd, "(none)")
        + label("Stdout", result.stdout or "", "(empty)")
        + label("Stderr", result.stderr or "", "(empty)")
        + label("Error", error, "(none)")
        + f"Exit Code: {'(none)' if result.exit_code is None else result.exit_code}\n"
        + f"Signal: {render.signal_name(result.signal) if result.signal else '(none)'}\n"
        + f"Background PIDs: {', '.join(map(str, result.children)) or '(none)'}\n"
        + f"Process Group PGID: {result.pgid or '(none)'}\n"
    )


def _for_user(result: Result) -> str:
    output = plain(result.output).strip()
    if output:
        return output if len(output) <= _USER_CHARS else output[: _USER_CHARS - 1] + "…"
    if result.signal:
        return f"Command ended by signal {render.signal_name(result.signal)}."
    if result.exit_code:
        return f"Command exited with code {result.exit_code}."
    return "Command succeeded." if result.status == "completed" else f"Command {render.ending(result)}."


def _timed_out(result: Result, limit: float) -> Reply:
    said = (
        f"Command timed out after {limit * 1000:.0f} ms and was ended.\n"
        + label("Command", result.command, "(none)")
        + label("Output before that", result.output, "(empty)")
    )
    return Reply(said, data(result), failed=True, user="Command timed out.")


def _report_move(result: Result) -> Reply:
    queued = "Status: running (queued)\n" if result.status == "pending" else ""
    said = (
        "Command was moved to the background, where it goes on.\n"
        f"Task ID: {result.task_id}\n"
        + label("Command", result.command, "(none)")
        + queued
        + label("Initial output", result.output, _NOTHING_YET)
        + f'Read on with bash_output {{"task_id": "{result.task_id}"}}; '
        f'end it with kill_bash {{"task_id": "{result.task_id}"}}.\n'
    )
    return Reply(said, data(result), user=f"Moved to the background as {result.task_id}.")


async def _output(box: ToolContext, given: Arguments) -> Reply:
    result = await _read(box, given["task_id"])
    known = result.exit_code is not None
    said = (
        label("Command", result.command, "(none)")
        + f"Status: {shown_status(result)}\n"
        + f"PID: {shown_pid(result) or '(none)'}\n"
        + f"Created: {iso_time(result.started_at)}\n"
        + label("Output", result.output, _NOTHING_YET)
        + (f"Exit Code: {result.exit_code}\n" if known else "")
    )
    return Reply(said, data(result), user=f"{result.task_id}: {shown_status(result)}")


async def _kill(box: ToolContext, given: Arguments) -> Reply:
    ended = "{task.task_id} is not running: its status is {task.status}."
    task = await operations.show_alive(box, given["task_id"], ended)
    receipt = await operations.kill(box, task.task_id)
    if receipt.survivors:
        said = f"Error: {task.task_id} could not be ended: still alive are {survivors(receipt)}.\n"
        return Reply(said, fields(receipt), error=True)
    said = f"Task was ended.\nTask ID: {task.task_id}\n" + label("Command", task.command, "(none)")
    return Reply(said, fields(receipt), user=f"Ended {task.task_id}.")


def _render_error(tool: str, message: str, given: Arguments) -> str:
    return f"Error: {message}\n"


_ID = text("The id of the background task.")

PROFILE = Profile(
    name="neovate",
    policy="banned",
    asks=("run", "kill"),
    render_error=_render_error,
    settings={"foreground_limit_s": _MOST_S, "kill_grace_s": 0.2, "auto_background": True, "max_running": 0},
    tools=(
        Tool(
            name="bash",
            kind="run",
            description="""Run a bash command in a fresh shell and return its stdout, stderr and exit code. timeout is
            in milliseconds, by default and at most 600000 (10 minutes). A development command (npm, pytest, make ...)
            that has printed something after 2 seconds moves to the background by itself; run_in_background does so at
            once. Then bash_output reads on and kill_bash ends it. {denied} Rules: put double quotes around paths with
            blanks; join commands with ; or && and not with newlines; each call starts in the same directory, so prefer
            absolute paths to cd; search with rg, not grep or find, and read, write and edit files with the tools made
            for that, not cat, head, tail, sed or echo; do not wrap the command in another shell (bash -c). Good:
            pytest /app/tests. Bad: cd /app && pytest tests.""",
            schema=schema(
                ["command"],
                command=text("The command."),
                timeout={"type": ["number", "null"], "minimum": 0, "description": "Milliseconds, at most 600000."},
                run_in_background=flag("Run it in the background at once."),
            ),
            operation=_bash,
        ),
        Tool(
            name="bash_output",
            kind="read",
            description="Read all that a background task has printed so far, and its status.",
            schema=schema(["task_id"], task_id=_ID),
            operation=_output,
            needs_write=True,
        ),
        Tool(
            name="kill_bash",
            kind="kill",
            description="End a background task and everything it started.",
            schema=schema(["task_id"], task_id=_ID),
            operation=_kill,
        ),
    ),
)
