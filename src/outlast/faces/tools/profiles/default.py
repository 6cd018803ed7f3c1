"""The default profile: the smallest complete set, written for today's models. Times are seconds."""

from __future__ import annotations

from outlast.faces import render
from outlast.faces.tools import operations, reply
from outlast.faces.tools.arguments import flag, number, schema, text, whole
from outlast.faces.tools.model import Profile, Reply, Tool
from outlast.faces.tools.words import harmless
from outlast.frozen import fields
from outlast.text import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.errors import OutlastError
    from outlast.faces.tools.model import Given
    from outlast.faces.tools.toolbox import Toolbox
    from outlast.model import Result, Task, Waited

_HINT = "bash_output reads on and waits, bash_kill ends it."
_OPENING_S = 30.0  # how long a start waits for `ready`, as everywhere
_LISTED = 30
_COMMAND = 80


async def _bash(box: Toolbox, given: Given) -> Reply:
    how = {"cwd": given.get("cwd"), "description": given.get("description", "")}
    if given.get("background") or given.get("ready") is not None or given.get("stdin_open"):
        return await _background(box, given, how)
    result = await operations.run(
        box, given["command"], limit=given.get("timeout") or None, wait=given.get("wait"), show={"new": True}, **how
    )
    return await _told(box, result)


async def _background(box: Toolbox, given: Given, how: dict[str, str | None]) -> Reply:
    task = await operations.start(
        box,
        given["command"],
        limit=given.get("timeout") or None,
        stdin_open=given.get("stdin_open", False),
        **how,
    )
    patience = given.get("wait", _OPENING_S if given.get("ready") is not None else 0.0)
    twin = await operations.twin(box, task)
    remark = f"The same command already runs in this directory as {twin}." if twin else ""
    if patience:
        waited = await operations.wait(box, task.task_id, patience, until=given.get("ready"))
        remark = f"{remark}\n{_met(waited, given.get('ready'))}".strip()
    return await _told(box, await operations.read(box, task.task_id, new=True), remark)


async def _output(box: Toolbox, given: Given) -> Reply:
    task_id = given["task_id"]
    remark = ""
    if given.get("wait") or given.get("until") is not None:
        waited = await operations.wait(box, task_id, given.get("wait", _OPENING_S), until=given.get("until"))
        remark = _met(waited, given.get("until"))
    where = {"cursor": given["cursor"]} if "cursor" in given else {"tail": given["tail"]} if "tail" in given else {}
    result = await operations.read(box, task_id, new=not where, filter=given.get("filter"), **where)
    return await _told(box, result, remark)


def _met(waited: Waited, pattern: str | None) -> str:
    if pattern is None:
        return ""
    return "A line matches." if waited.met else "No line has matched yet."


async def _told(box: Toolbox, result: Result, remark: str = "") -> Reply:
    return reply.told(result, await reply.facts(box, result), _HINT, remark)


async def _input(box: Toolbox, given: Given) -> Reply:
    said = given.get("text", "")
    end = given.get("end", False)
    newline = "\n" if said and given.get("newline", True) else ""
    await box.waiting.send(given["task_id"], said + newline, eof=end)
    task = await box.waiting.show(given["task_id"])
    sent = f"Sent {len(said + newline)} characters to {task.task_id}" + (" and ended its input." if end else ".")
    return Reply(f"{sent} bash_output shows what it answers.\n", {**fields(task)})


async def _kill(box: Toolbox, given: Given) -> Reply:
    receipt = await operations.kill(box, given["task_id"])
    return Reply(render.receipt(receipt), fields(receipt), error=bool(receipt.survivors))


async def _list(box: Toolbox, given: Given) -> Reply:
    tasks = await operations.tasks(box, status=given.get("status"))
    lines = [_line(task) for task in tasks[:_LISTED]]
    if len(tasks) > _LISTED:
        lines.append(f"... and {len(tasks) - _LISTED} older ones")
    return Reply("".join(f"{line}\n" for line in lines) or "No tasks.\n", {"tasks": [fields(task) for task in tasks]})


def _line(task: Task) -> str:
    how = "queued" if task.status == "pending" else task.status
    ended = f" ({render.ending(task)})" if task.status in ("failed", "killed") else ""
    left = f", left running: {', '.join(map(str, task.children))}" if task.finished and task.children else ""
    # Quoted: a command is the model's own text, but may repeat what some output said.
    what = inline(harmless(task.description or task.command), _COMMAND).replace('"', "'")
    return f'{task.task_id} {how}{ended} {render.duration(task.elapsed_ms)}{left}: "{what}"'


def _complain(tool: str, error: OutlastError, given: Given) -> str:
    return f"Error: {error.message}\n"


_ID = text("the task's id, or a part of it")

PROFILE = Profile(
    name="default",
    policy="guarded",
    complain=_complain,
    settings={},
    tells=True,
    keeps_state=True,
    lists="bash_list lists them",
    tools=(
        Tool(
            name="bash",
            description="""Run a bash command. Variables, directory and functions last from call to call. It is ended
            after 120 s, or after timeout. If it may take longer: wait leaves it running in the background after so
            many seconds; background starts it there, without a limit unless timeout is given (10 at once, more are
            queued). Of long output both ends are shown, 30,000 characters. {denied} Use the tools made for it, not
            cat, sed, grep or find, to read, edit and search files.""",
            schema=schema(
                ["command"],
                command=text("the command"),
                timeout=number("seconds until it is ended; in the foreground at most 600"),
                wait=number("seconds to wait before it goes on in the background"),
                background=flag("return at once"),
                ready=text("background: wait (30 s, or wait) until a line of output matches this regular expression"),
                stdin_open=flag("background, with input kept open for bash_input"),
                cwd=text("directory"),
                description=text("what it is for, in a few words"),
            ),
            operation=_bash,
            label=lambda given: given.get("description") or given["command"],
        ),
        Tool(
            name="bash_output",
            description="""Read what a task printed since you last read it, and how it stands. wait waits for its end,
            with until for a matching line: do that instead of asking again and again.""",
            schema=schema(
                ["task_id"],
                task_id=_ID,
                wait=number("seconds to wait, at most 600"),
                until=text("regular expression: wait (30 s, or wait) for a line that matches"),
                filter=text("regular expression: show only lines that match"),
                tail=whole("show the last lines instead, so many"),
                cursor=text("show all from this cursor on instead; 0 is the start"),
            ),
            operation=_output,
            label=lambda given: f"Read the output of {given['task_id']}",
            acts=False,
        ),
        Tool(
            name="bash_input",
            description="Send text to a task that was started with stdin_open.",
            schema=schema(
                ["task_id"],
                task_id=_ID,
                text=text("what to send"),
                newline=flag("end it with a newline (default true)"),
                end=flag("then end the input"),
            ),
            operation=_input,
            label=lambda given: f"Send input to {given['task_id']}",
        ),
        Tool(
            name="bash_kill",
            description="End a task and every process that it started. Use this, not kill or pkill.",
            schema=schema(["task_id"], task_id=_ID),
            operation=_kill,
            label=lambda given: f"End {given['task_id']}",
        ),
        Tool(
            name="bash_list",
            description="List your tasks, newest first: id, status, time, command.",
            schema=schema(
                status=text("only pending, running, completed, failed or killed ones"),
            ),
            operation=_list,
            label=lambda given: "List the tasks",
            acts=False,
        ),
    ),
)
