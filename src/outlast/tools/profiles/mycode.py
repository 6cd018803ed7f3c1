"""Profile D: `Bash`, `Task`, `TaskOutput`, `KillShell`. Replies are JSON, times milliseconds."""

from __future__ import annotations

from outlast.errors import AlreadyEnded
from outlast.light import fields
from outlast.tools import operations
from outlast.tools.arguments import IDS, flag, number, schema, text
from outlast.tools.model import Profile, Reply, Tool
from outlast.tools.reply import data
from outlast.tools.reply_fields import as_json, json_reply, survivors
from outlast.tools.untrusted import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Arguments, ToolContext
    from outlast.types import Result, Task

_WAIT_MS = 30_000
_COMMAND_TYPE = "Bash"  # a `Task` of this type runs its prompt as a command
_STATUSES = {"failed": "error", "killed": "cancelled"}


def _status(task: Task) -> str:
    return _STATUSES.get(task.status, task.status)


async def _bash(box: ToolContext, given: Arguments) -> Reply:
    limit = operations.seconds(given.get("timeout"))
    how = {"limit": limit, "description": given.get("description", "")}
    if not given.get("run_in_background"):
        return _task_reply(await operations.run(box, given["command"], **how))
    task = await operations.start(box, given["command"], **how)
    said = {
        "task_id": task.task_id,
        "command": task.command,
        "status": _status(task),
        "output_file": task.output_file,
    }
    return json_reply(said, fields(task))


async def _task(box: ToolContext, given: Arguments) -> Reply:
    if given["subagent_type"] == _COMMAND_TYPE:
        command = {"command": given["prompt"], "description": given["description"]}
        if not given.get("run_in_background"):
            return _task_reply(await operations.run(box, **command))
        task = await operations.start(box, **command)
    else:
        task = await operations.start_agent(box, given["subagent_type"], given["prompt"], given["description"])
    if given.get("run_in_background"):
        return json_reply({"task_id": task.task_id, "output_file": task.output_file}, fields(task))
    await operations.wait(box, task.task_id, box.shell.settings.max_wait_s)
    return _task_reply(await operations.read(box, task.task_id))


async def _output(box: ToolContext, given: Arguments) -> Reply:
    if given.get("block", True):
        await operations.wait(box, given["task_id"], given.get("timeout", _WAIT_MS) / 1000)
    return _task_reply(await operations.read(box, given["task_id"]))


def _task_reply(result: Result) -> Reply:
    known = data(result)
    said = {
        "success": True,
        "task_id": result.task_id,
        "status": _status(result),
        "output": plain(result.output),
        "exit_code": -1 if result.exit_code is None else result.exit_code,
        "error": known["error"],
        "elapsed_ms": result.elapsed_ms,
        "truncated": result.truncated,
    }
    if result.metadata is not None:
        others = {name: value for name, value in result.metadata.items() if name not in ("type", "prompt")}
        kind, prompt = result.metadata.get("type"), result.metadata.get("prompt")
        said["metadata"] = {"subagentType": kind, "prompt": prompt, **others}
    return json_reply(said, known, failed=result.status in ("failed", "killed"))


async def _kill(box: ToolContext, given: Arguments) -> Reply:
    task = await box.waiting.show(given["task_id"])
    if task.finished and not task.children:
        ended = AlreadyEnded(f"{task.task_id} has ended already: its status is {_status(task)}.")
        said = {"success": False, "task_id": task.task_id, "status": _status(task), "error": ended.message}
        return json_reply(said, {**fields(task), "error": ended.message, "code": ended.code}, error=True)
    receipt = await operations.kill(box, task.task_id)
    said = {"success": not receipt.survivors, "task_id": receipt.task_id, "status": _status(receipt)}
    if receipt.survivors:
        said["error"] = f"Still alive: {survivors(receipt)}."
    return json_reply(said, fields(receipt), error=bool(receipt.survivors))


def _render_error(tool: str, message: str, given: Arguments) -> str:
    task_id = next((given[name] for name in IDS if name in given), None)
    return as_json({"success": False, "task_id": task_id, "status": "error", "error": message})


_ID = text("The id of the task.")

PROFILE = Profile(
    name="mycode",
    policy="guarded",
    render_error=_render_error,
    settings={"max_running": 10, "output_limit_bytes": 10 * 1024 * 1024, "retention_hours": 24.0},
    shows_notices=True,
    tools=(
        Tool(
            name="Bash",
            kind="run",
            description="""Run a bash command. In the foreground it is ended after 2 minutes, or after timeout
            (milliseconds, at most 600000). run_in_background returns a task_id at once, without a limit unless timeout
            is given; 10 run at once, more are pending. Then TaskOutput waits and reads, KillShell ends it. Of long
            output both ends are shown, 30,000 characters. {denied} To read or search files use the tools made for
            that, not cat, grep or find.""",
            schema=schema(
                ["command"],
                command=text("The command."),
                timeout=number("Milliseconds until it is ended."),
                run_in_background=flag("Run it in the background."),
                description=text("What it is for."),
            ),
            operation=_bash,
        ),
        Tool(
            name="Task",
            kind="run",
            description="""Have an agent do something by itself, and get what it prints and how it ended. It knows
            nothing but the prompt. run_in_background returns a task_id at once; then TaskOutput waits and reads,
            KillShell ends it with everything it started.""",
            schema=schema(
                ["description", "prompt", "subagent_type"],
                description=text("What it is for, in a few words."),
                prompt=text("What it is to do."),
                subagent_type=text("Which agent: claude, codex, one that the user has set up, or Bash to run prompt."),
                run_in_background=flag("Do not wait for its end."),
            ),
            operation=_task,
        ),
        Tool(
            name="TaskOutput",
            kind="read",
            description="Wait for a task's end, and read its status and output. If the wait runs out, it goes on.",
            schema=schema(
                ["task_id"],
                task_id=_ID,
                block=flag("Wait for its end (default true)."),
                timeout=number("Milliseconds to wait, 30000 by default, 0 to 600000."),
            ),
            operation=_output,
        ),
        Tool(
            name="KillShell",
            kind="kill",
            description="End a task and everything it started.",
            schema=schema(["task_id"], task_id=_ID),
            operation=_kill,
        ),
    ),
)
