"""Profile C: `run_command`, `bash_output`, `kill_shell`, `list_shells`. Blank lines do not count."""

from __future__ import annotations

from outlast.display import render
from outlast.light import fields
from outlast.output.cleaner import inline
from outlast.output.line_filter import LineFilter
from outlast.tools import operations
from outlast.tools.arguments import flag, number, schema, text
from outlast.tools.model import Profile, Reply, Tool
from outlast.tools.reply import data, why
from outlast.tools.reply_fields import as_json, iso_time, json_reply, runtime, shown_pid, shown_status, task_list
from outlast.tools.untrusted import label, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Arguments, ToolContext
    from outlast.types import Result

_STARTUP_S = 1.5
_BACKGROUND_LIMIT_S = 600.0
_REMEMBERED = 20
_COMMAND = 50


async def _run(box: ToolContext, given: Arguments) -> Reply:
    how = {"cwd": given.get("cwd"), "description": given.get("description", ""), "split": True}
    limit = operations.seconds(given.get("timeout"))
    if given.get("run_in_background"):
        task = await operations.start(
            box, given["command"], limit=limit or _BACKGROUND_LIMIT_S, startup_wait=_STARTUP_S, **how
        )
        reply = await _report_start(box, await operations.read(box, task.task_id))
    else:
        result = await operations.run(box, given["command"], limit=limit, **how)
        reply = _report_end(result) if result.finished else await _report_start(box, result)
    await box.do(box.shell.control.keep_newest, _REMEMBERED)
    return reply


def _report_end(result: Result) -> Reply:
    said = label("Command", result.command, "(none)")
    said += label("Stdout", result.stdout or "", "(empty)") + label("Stderr", result.stderr or "", "(empty)")
    said += _how_it_ended(result)
    return Reply(said, data(result), failed=result.status != "completed")


def _how_it_ended(result: Result) -> str:
    if result.reason == "exit":
        return f"Exit Code: {result.exit_code}\n"
    return f"Exit Code: {'(none)' if result.exit_code is None else result.exit_code}\nError: {why(result)}\n"


async def _report_start(box: ToolContext, result: Result) -> Reply:
    command = f"ID: {result.task_id}\n" + label("Command", result.command, "(none)")
    if result.status in ("failed", "killed"):
        said = "Command failed at once in the background.\n" + command
        said += label("Stderr", result.stderr or "", "(empty)") + _how_it_ended(result)
        return Reply(said, data(result), failed=True)
    counts = await operations.count_lines(box, result)
    lines = _first("Stdout", result.stdout or "", render.FIRST_LINES[0], counts[0])
    lines += _first("Stderr", result.stderr or "", render.FIRST_LINES[1], counts[1])
    if result.finished:
        return Reply(f"Command completed already.\n{command}{lines}Exit Code: {result.exit_code}\n", data(result))
    queued = "queued, " if result.status == "pending" else ""
    said = (
        f"Command is running in the background ({queued}pid {shown_pid(result) or 'none'}).\n"
        f'{command}{lines}Read what is new with bash_output {{"bash_id": "{result.task_id}"}}; '
        f'end it with kill_shell {{"shell_id": "{result.task_id}"}}.\n'
    )
    return Reply(said, data(result))


def _first(name: str, marked: str, most: int, count: int) -> str:
    """The first lines of a stream, and how many more there are."""
    lines = _fill(marked)[:most]
    more = max(0, count - len(lines))
    said = label(name, "\n".join(lines), "(empty)")
    return said + (f"... and {more} more {'line' if more == 1 else 'lines'} of {name.lower()}\n" if more else "")


def _fill(marked: str) -> list[str]:
    return [line for line in plain(marked).split("\n") if line.strip()]


async def _output(box: ToolContext, given: Arguments) -> Reply:
    pattern = given.get("filter")
    result = await operations.read(box, given["bash_id"], new=True, page=True, filter=pattern, ignore_case=True)
    # A task of another profile may have kept both in one.
    out, err = (result.output, "") if result.stdout is None else (result.stdout, result.stderr or "")
    errors = _fill(err)
    if result.reason == "timeout" and not result.truncated:
        errors += await box.do(_limit_note, box, result, pattern)
    said = {
        "id": result.task_id,
        "status": shown_status(result),
        "newOutput": "\n".join(_fill(out)),
        "newErrors": "\n".join(errors),
        "exitCode": result.exit_code,
    }
    if result.truncated:
        said["hasMore"] = True
    return json_reply(said, data(result))


def _limit_note(box: ToolContext, result: Result, pattern: str | None) -> list[str]:
    """The line about the limit, if it passes the filter and no reply has had it yet."""
    note = f"[outlast: killed: {result.ended_by}]"
    sieve = LineFilter(pattern, None, ignore_case=True)
    if not sieve.feed(f"{note}\n") + sieve.finish():
        return []
    return [note] if box.shell.reader.is_first_time(result.task_id, "limit note") else []


async def _kill(box: ToolContext, given: Arguments) -> Reply:
    ended = "{task.task_id} has finished already: its status is {task.status}."
    task = await operations.show_alive(box, given["shell_id"], ended)
    receipt = await operations.kill(box, task.task_id)
    left = bool(receipt.survivors)
    done = f"{task.task_id} was ended with everything it started."
    said = {"success": not left, "message": render.receipt(receipt).strip() if left else done}
    return json_reply(said, fields(receipt), error=left)


async def _list(box: ToolContext, given: Arguments) -> Reply:
    tasks = [task for task in await box.waiting.list(kind="bash") if task.background]
    said = []
    for task in tasks:
        lines = await operations.count_lines(box, task)
        said.append(
            {
                "id": task.task_id,
                "pid": shown_pid(task),
                "command": inline(task.command, _COMMAND),
                "status": shown_status(task),
                "startedAt": iso_time(task.started_at),
                "runtime": runtime(task.elapsed_ms),
                "outputLines": lines[0],
                "errorLines": lines[1],
            }
        )
    return json_reply(said, task_list(tasks))


def _render_error(tool: str, message: str, given: Arguments) -> str:
    if tool == "kill_shell":
        return as_json({"success": False, "message": message})
    return f"Error: {message}\n" if tool == "run_command" else as_json({"error": message})


PROFILE = Profile(
    name="registry",
    policy="guarded",
    render_error=_render_error,
    settings={"kill_grace_s": 5.0, "max_running": 0},
    list_hint="list_shells lists them",
    tools=(
        Tool(
            name="run_command",
            kind="run",
            description="""Run a bash command. In the foreground it is ended after 2 minutes, or after timeout
            (milliseconds, at most 600000). With run_in_background you learn within 1.5 s whether it failed at once;
            then bash_output reads what is new and kill_shell ends it. A background command may run 10 minutes unless
            timeout says otherwise. {denied} To read or search files use the tools made for that, not cat, grep or
            find.""",
            schema=schema(
                ["command"],
                command=text("The command."),
                cwd=text("The directory to run it in."),
                timeout=number("Milliseconds until it is ended."),
                description=text("What it is for."),
                run_in_background=flag("Run it in the background."),
            ),
            operation=_run,
        ),
        Tool(
            name="bash_output",
            kind="read",
            description="""Read what a background command printed since you last read it. hasMore: read again for the
            rest.""",
            schema=schema(
                ["bash_id"],
                bash_id=text("Its id, or a part of it."),
                filter=text("Regular expression, case ignored: only lines that match."),
            ),
            operation=_output,
        ),
        Tool(
            name="kill_shell",
            kind="kill",
            description="End a background command and everything it started.",
            schema=schema(["shell_id"], shell_id=text("Its id, or a part of it.")),
            operation=_kill,
        ),
        Tool(
            name="list_shells",
            kind="list",
            description="List the background commands.",
            schema=schema(),
            operation=_list,
        ),
    ),
)
