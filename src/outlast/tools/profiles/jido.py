"""Profile B: `bash_background`, `bash_output`, `kill_shell`. One program, no shell; replies are JSON."""

from __future__ import annotations

from outlast.light import fields
from outlast.output.head_tail import BUDGET
from outlast.tools import operations
from outlast.tools.arguments import flag, number, schema, text, texts
from outlast.tools.model import Profile, Reply, Tool
from outlast.tools.reply import data
from outlast.tools.reply_fields import as_json, json_reply, shown_status, task_list
from outlast.tools.untrusted import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Arguments, ToolContext
    from outlast.types import Result

_WAIT_MS = 30_000
_MOST_BYTES = BUDGET


async def _background(box: ToolContext, given: Arguments) -> Reply:
    how = operations.program(box, given["command"], given.get("args", ()))
    task = await operations.start(box, description=given.get("description", ""), **how)
    return json_reply({"shell_id": task.task_id, "description": task.description}, fields(task))


async def _output(box: ToolContext, given: Arguments) -> Reply:
    if given.get("block"):
        await operations.wait(box, given["shell_id"], given.get("timeout", _WAIT_MS) / 1000)
    return _task_reply(await _within_bytes(box, given["shell_id"]))


async def _run(box: ToolContext, given: Arguments) -> Reply:
    how = operations.program(box, given["command"], given.get("args", ()))
    result = await operations.run(
        box, limit=operations.seconds(given.get("timeout")), description=given.get("description", ""), **how
    )
    return _task_reply(await _within_bytes(box, result.task_id))


async def _within_bytes(box: ToolContext, shell_id: str) -> Result:
    """This design counts bytes; a character can have four."""
    budget = _MOST_BYTES
    while True:
        result = await operations.read(box, shell_id, max_chars=budget)
        size = len(plain(result.output).encode(errors="replace"))
        if size <= _MOST_BYTES:
            return result
        budget = max(1, budget * _MOST_BYTES // (size + 1))


def _task_reply(result: Result) -> Reply:
    said = {
        "status": shown_status(result),
        "output": plain(result.output),
        "exit_code": result.exit_code,
        "truncated": result.truncated,
    }
    return json_reply(said, data(result), failed=result.status in ("failed", "killed"))


async def _kill(box: ToolContext, given: Arguments) -> Reply:
    receipt = await operations.kill(box, given["shell_id"])
    said = {"success": not receipt.survivors, "shell_id": receipt.task_id, "status": receipt.status}
    return json_reply(said, fields(receipt), error=bool(receipt.survivors))


async def _list(box: ToolContext, given: Arguments) -> Reply:
    tasks = [task for task in await box.waiting.list() if task.background]
    said = [
        {
            "shell_id": task.task_id,
            "command": task.command,
            "description": task.description,
            "status": shown_status(task),
        }
        for task in tasks
    ]
    return json_reply(said, task_list(tasks))


async def _clear(box: ToolContext, given: Arguments) -> Reply:
    removed = await box.waiting.clean(all_finished=True)
    return json_reply({"cleared": removed}, {"removed": removed})


def _render_error(tool: str, message: str, given: Arguments) -> str:
    return as_json({"error": message})


_ID = text("The id of the background shell.")
_PROGRAM = {
    "command": text("One program, without arguments; no shell is in between."),
    "args": texts("Its arguments, as they are."),
    "description": text("What it is for."),
}

PROFILE = Profile(
    name="jido",
    policy="programs",
    render_error=_render_error,
    settings={"max_running": 0},
    events={
        "task.started": "jido_code.shell.background_start",
        "task.ended": "jido_code.shell.background_complete",
        "task.killed": "jido_code.shell.background_kill",
        "tool.call": "jido_code.shell.",
    },
    tools=(
        Tool(
            name="bash_background",
            kind="run",
            description="""Start one program in the background, in the project's directory, and return its shell_id.
            There is no shell: no pipes, no redirections, no variables. It has no time limit; bash_output reads what it
            prints (30,000 bytes), kill_shell ends it. {denied} To read or search files use the tools made for that.""",
            schema=schema(["command"], **_PROGRAM),
            operation=_background,
        ),
        Tool(
            name="bash_output",
            kind="read",
            description="Read a background shell's status, output and exit code; with block, wait for its end first.",
            schema=schema(
                ["shell_id"],
                shell_id=_ID,
                block=flag("Wait for its end (default false)."),
                timeout=number("Milliseconds to wait, 30000 by default, at most 600000."),
            ),
            operation=_output,
        ),
        Tool(
            name="kill_shell",
            kind="kill",
            description="End a background shell and everything it started.",
            schema=schema(["shell_id"], shell_id=_ID),
            operation=_kill,
        ),
        Tool(
            name="run_command",
            kind="run",
            description="Run one program to its end, as bash_background does in the background. {denied}",
            schema=schema(["command"], **_PROGRAM, timeout=number("Milliseconds, at most 600000.")),
            operation=_run,
            listed=False,
        ),
        Tool(
            name="list_shells",
            kind="list",
            description="List this session's background shells.",
            schema=schema(),
            operation=_list,
            listed=False,
        ),
        Tool(
            name="clear_finished",
            kind="clear",
            description="Forget this session's finished shells and their output.",
            schema=schema(),
            operation=_clear,
            listed=False,
        ),
    ),
)
