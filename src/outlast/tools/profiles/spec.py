"""Profile E: `Bash`, `BashOutput`, `KillBash`. The reply is the output itself; lines of ours begin with `[outlast`."""

from __future__ import annotations

from outlast.display import render
from outlast.light import fields
from outlast.output.duration import duration
from outlast.tools import operations
from outlast.tools.arguments import flag, number, schema, text
from outlast.tools.model import Profile, Reply, Tool
from outlast.tools.reply import data
from outlast.tools.reply_fields import json_reply, shown_status
from outlast.tools.untrusted import bracket, bracketed_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Arguments, ToolContext
    from outlast.types import Result

_LIMIT_S = 120.0


async def _bash(box: ToolContext, given: Arguments) -> Reply:
    limit = operations.seconds(given.get("timeout"))
    if given.get("run_in_background"):
        task = await operations.start(box, given["command"], limit=limit)
        return json_reply({"bash_id": task.task_id}, fields(task))
    result = await operations.run(box, given["command"], limit=limit)
    if not result.finished:
        said = f"{result.task_id} goes on in the background; BashOutput reads on, KillBash ends it"
        return Reply(bracketed_line(said) + bracket(result.output), data(result))
    if result.reason == "timeout":
        said = f"error: timed out after {duration(result.elapsed_ms)} and was ended ({result.ended_by})"
        return Reply(bracketed_line(said) + bracket(result.output), data(result), error=True, failed=True)
    return Reply(_how(result) + bracket(result.output), data(result), failed=result.status != "completed")


def _how(result: Result) -> str:
    """Nothing if all went well: the reply is then what the command printed."""
    left = f"; left running: {', '.join(map(str, result.children))}" if result.children else ""
    if result.status != "completed":
        return bracketed_line(f"{result.status}: {render.ending(result)}{left}")
    return bracketed_line(f"exit code 0{left}") if left else ""


async def _output(box: ToolContext, given: Arguments) -> Reply:
    result = await operations.read(box, given["bash_id"], filter=given.get("filter"))
    how = f": {render.ending(result)}" if result.finished else ""
    hidden = f"; lines that do not match: {result.hidden_lines}" if result.hidden_lines else ""
    said = f"{result.task_id} {shown_status(result)}{how}, {duration(result.elapsed_ms)}{hidden}"
    return Reply(bracketed_line(said) + bracket(result.output), data(result))


async def _kill(box: ToolContext, given: Arguments) -> Reply:
    receipt = await operations.kill(box, given["bash_id"])
    return Reply(bracketed_line(render.receipt(receipt).strip()), fields(receipt), error=bool(receipt.survivors))


def _render_error(tool: str, message: str, given: Arguments) -> str:
    return bracketed_line(f"error: {message}")


_ID = text("The id of the background shell.")

PROFILE = Profile(
    name="spec",
    policy="guarded",
    render_error=_render_error,
    settings={"foreground_limit_s": _LIMIT_S, "max_running": 0},
    keeps_state=True,
    render_remark=bracketed_line,
    tools=(
        Tool(
            name="Bash",
            kind="run",
            description="""Run a bash command and return what it prints, at most 30,000 characters. Environment
            variables last from call to call. It is ended after timeout milliseconds (120000 by default, at most
            600000). run_in_background returns a bash_id at once, for BashOutput and KillBash; it then has no limit
            unless timeout is given. {denied} To read or search files use the tools made for that, not cat, grep or
            find.""",
            schema=schema(
                ["command"],
                command=text("The command."),
                timeout=number("Milliseconds until it is ended."),
                run_in_background=flag("Run it in the background."),
            ),
            operation=_bash,
        ),
        Tool(
            name="BashOutput",
            kind="read",
            description="Read all that a background shell has printed so far.",
            schema=schema(
                ["bash_id"],
                bash_id=_ID,
                filter=text("Regular expression: only lines that match."),
            ),
            operation=_output,
        ),
        Tool(
            name="KillBash",
            kind="kill",
            description="End a background shell and its whole process group.",
            schema=schema(["bash_id"], bash_id=_ID),
            operation=_kill,
        ),
    ),
)
