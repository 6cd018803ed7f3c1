"""The default profile: the smallest complete set, written for today's models. Times are seconds."""

from __future__ import annotations

from outlast.display.render import ending
from outlast.display.table import in_order
from outlast.errors import AlreadyEnded, BadInput
from outlast.light import fields
from outlast.output.cleaner import inline
from outlast.output.duration import duration
from outlast.tools import operations, reply, synonyms
from outlast.tools.arguments import flag, integer, number, schema, text
from outlast.tools.model import Profile, Reply, Tool
from outlast.tools.reply_fields import survivors, task_list
from outlast.tools.untrusted import show_invisible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outlast.shell.options import ReadOptions
    from outlast.tools.model import Arguments, ToolContext
    from outlast.types import Result, Task, Waited

_HINT = "bash_output reads and waits, bash_kill ends it."
_READY_S = 30.0  # how long a call waits for a line if it does not say
_REACTION_S = 5.0  # how long bash_input waits for what the program does with it
_FINISHED_LISTED, _FOREGROUND_LISTED, _LISTED_BY_STATUS = 10, 3, 30
_COMMAND = 80


async def _bash(box: ToolContext, given: Arguments) -> Reply:
    how = {"cwd": given.get("cwd"), "description": given.get("description", "")}
    interactive = given.get("stdin_open") or given.get("tty") or "size" in given
    if interactive or given.get("background") or given.get("ready") is not None:
        return await _background(box, given, how)
    show: ReadOptions = {"new": True, "max_chars": given.get("max_chars")}
    result = await operations.run(
        box, given["command"], limit=given.get("timeout") or None, wait=given.get("wait"), show=show, **how
    )
    return await _task_reply(box, result, "" if result.finished else _HINT)


async def _background(box: ToolContext, given: Arguments, how: dict[str, str | None]) -> Reply:
    ready = given.get("ready")
    task = await operations.start(
        box,
        given["command"],
        limit=given.get("timeout") or None,
        stdin_open=given.get("stdin_open", False),
        tty=_terminal(given),
        **how,
    )
    remarks = []
    if same := await operations.find_same(box, task):
        remarks.append(f"The same command already runs in this directory as {same}.")
    if patience := given.get("wait", 0.0 if ready is None else _READY_S):
        waited = await operations.wait(box, task.task_id, patience, until=ready)
        remarks.append(_unmet(waited, ready))
    elif task.tty:
        await operations.send_and_wait(box, task.task_id, "", _REACTION_S)  # for what it does first
    result = await operations.read(box, task.task_id, new=True, max_chars=given.get("max_chars"))
    return await _task_reply(box, result, *remarks, "" if result.finished else _HINT)


def _terminal(given: Arguments) -> bool | str:
    """Return the size of the terminal that a command gets, if it gets one. A size alone asks for one, too."""
    tty = given.get("tty", "size" in given)
    if not tty and "size" in given:
        raise BadInput("size is the size of a terminal; give tty, too, or leave it out.")
    return given.get("size", True) if tty else False


async def _output(box: ToolContext, given: Arguments) -> Reply:
    task_id, until, cursor = given["task_id"], given.get("until"), given.get("cursor")
    remark = ""
    if given.get("wait") or until is not None:
        # What was read before is not waited for again: a watcher's second build is not its first one.
        new = {"new": cursor is None, "cursor": cursor} if until is not None else {}
        waited = await operations.wait(box, task_id, given.get("wait", _READY_S), until=until, **new)
        remark = _unmet(waited, until)
        if remark and cursor is None and (await operations.wait(box, task_id, 0, until=until)).met:
            remark = "No new line matched; one that you read before does."
    where: dict[str, Any] = {"tail": given["tail"]} if "tail" in given else {}
    if cursor is not None:
        where = {"cursor": cursor, "page": True}
    selects = bool(where) or given.get("filter") is not None
    result = await operations.read(
        box, task_id, new=not where, filter=given.get("filter"), max_chars=given.get("max_chars"), **where
    )
    more = f"More follows: cursor {result.cursor}." if cursor is not None and result.truncated else ""
    return await _task_reply(box, result, remark, more, whole=not selects)


def _unmet(waited: Waited, pattern: str | None) -> str:
    return "" if pattern is None or waited.met else "No line matched."


async def _task_reply(box: ToolContext, result: Result, *remarks: str, whole: bool = True) -> Reply:
    return reply.task_reply(result, await reply.find_facts(box, result, whole), *remarks)


async def _input(box: ToolContext, given: Arguments) -> Reply:
    task_id, text, end, until = given["task_id"], given.get("text", ""), given.get("end", False), given.get("until")
    if text and not text.endswith("\n") and given.get("newline", True):
        text += "\n"
    keys = given.get("keys") or None
    patience = given.get("wait", _REACTION_S if until is None else _READY_S)
    if text or end or keys:
        waited = await operations.send_and_wait(box, task_id, text, patience, eof=end, until=until, keys=keys)
    else:
        waited = await operations.wait(box, task_id, patience, until=until, **({} if until is None else {"new": True}))
    result = await operations.read(box, task_id, new=True, max_chars=given.get("max_chars"))
    return await _task_reply(box, result, _unmet(waited, until))


async def _kill(box: ToolContext, given: Arguments) -> Reply:
    task = await box.waiting.show(given["task_id"])
    if task.finished and not task.children:
        raise AlreadyEnded(f"{task.task_id} has ended already: {reply.how_it_ended(task)}.")
    receipt = await operations.kill(box, task.task_id)
    count = len(receipt.ended)
    if receipt.pid is None:
        said = f"{receipt.task_id} was taken out of the queue; it never ran."
    elif receipt.survivors:
        said = f"{receipt.task_id}: these are still alive: {survivors(receipt)}."
    else:
        said = f"{receipt.task_id} ended: {count} {'process' if count == 1 else 'processes'}."
    return Reply(f"{said}\n", fields(receipt), error=bool(receipt.survivors))


async def _list(box: ToolContext, given: Arguments) -> Reply:
    tasks = in_order(await box.waiting.list(status=given.get("status")), lambda task: task.background)
    shown = tasks[:_LISTED_BY_STATUS] if given.get("status") else _worth_listing(tasks)
    doing = {task.task_id: await box.waiting.activity(task) for task in shown if task.status == "running"}
    lines = [_line(task, doing.get(task.task_id, "")) for task in shown]
    if len(tasks) > len(shown):
        lines.append(f"... and {len(tasks) - len(shown)} more that ended; status lists them")
    return Reply("".join(f"{line}\n" for line in lines) or "No tasks.\n", task_list(tasks))


def _worth_listing(tasks: Sequence[Task]) -> list[Task]:
    """All that has not ended, or has left processes running; of the rest the newest, foreground commands last."""
    left = [task for task in tasks if not task.finished or task.children]
    over = [task for task in tasks if task.finished and not task.children]
    background = [task for task in over if task.background][:_FINISHED_LISTED]
    return [*left, *background, *[task for task in over if not task.background][:_FOREGROUND_LISTED]]


def _line(task: Task, activity: str) -> str:
    how: str = "queued" if task.status == "pending" else task.status
    if activity:
        how += f" ({activity})"
    if task.status == "failed":
        how += f" ({ending(task)})"
    elif task.reason == "timeout":
        how = "timed out"
    left = f", left running: {', '.join(map(str, task.children))}" if task.finished and task.children else ""
    # Quoted: a command is the model's own text, but may repeat what some output said.
    what = inline(show_invisible(task.description or task.command), _COMMAND).replace('"', "'")
    return f'{task.task_id} {how} {duration(task.elapsed_ms)}{left}: "{what}"'


def _render_error(tool: str, message: str, given: Arguments) -> str:
    return f"Error: {message}\n"


_ID = text()
_UNTIL = text("regular expression: wait for a new line that matches")
_MAX_CHARS = integer("characters of output to show (12000)", least=1)

PROFILE = Profile(
    name="default",
    policy="guarded",
    render_error=_render_error,
    settings={"shown_chars": 12_000},
    shows_notices=True,
    keeps_state=True,
    list_hint="bash_list lists them",
    tools=(
        Tool(
            name="bash",
            kind="run",
            description="""Run a bash command. Directory, variables and functions last from call to call. It is ended
            after 120 s, or timeout. For what takes longer, wait leaves it running in the background after so many
            seconds, and background starts it there. Of long output both ends are shown, of a failed command the first
            error and the end. {denied} To read, edit and search files use the tools made for it.""",
            schema=schema(
                ["command"],
                command=text(),
                timeout=number("seconds until it is ended, at most 600; in the background no limit is the default"),
                wait=number("seconds until it goes on in the background"),
                background=flag("return at once"),
                ready=text("background: return when a line of output matches this regular expression (30 s, or wait)"),
                stdin_open=flag("background, and bash_input can send input"),
                tty=flag("background, in a terminal: replies show its screen, and bash_input types"),
                size=text("of that terminal, as COLUMNSxROWS (80x24)"),
                cwd=text(),
                description=text("what it is for, in a few words"),
                max_chars=_MAX_CHARS,
            ),
            operation=_bash,
            normalise=synonyms.normalise,
        ),
        Tool(
            name="bash_output",
            kind="read",
            description="""Read what a task printed since you last read it, and how it stands. Rather than asking again
            and again, wait for its end or, with until, for a line.""",
            schema=schema(
                ["task_id"],
                task_id=_ID,
                wait=number("seconds to wait, at most 600"),
                until=_UNTIL,
                filter=text("regular expression: only lines that match"),
                tail=integer("the last lines, so many"),
                cursor=text("all from this place on; 0 is the start"),
                max_chars=_MAX_CHARS,
            ),
            operation=_output,
            normalise=synonyms.normalise,
        ),
        Tool(
            name="bash_input",
            kind="send",
            description="""Send a line, or keys, to a task started with stdin_open or tty, and read what the program
            answers.""",
            schema=schema(
                ["task_id"],
                task_id=_ID,
                text=text(),
                keys=text("instead of text: <C-c><Up>hello<Enter>, also Tab Esc Space PageUp F1 M-x S-Tab; < is <lt>"),
                newline=flag("false: send the text as it is"),
                end=flag("end the input after it"),
                wait=number("seconds to wait for the answer (5)"),
                until=_UNTIL,
            ),
            operation=_input,
            normalise=synonyms.normalise,
        ),
        Tool(
            name="bash_kill",
            kind="kill",
            description="End a task and every process that it started. Use this, not kill or pkill.",
            schema=schema(["task_id"], task_id=_ID),
            operation=_kill,
            normalise=synonyms.normalise,
        ),
        Tool(
            name="bash_list",
            kind="list",
            description="List your tasks, also those of before a restart: what runs first, then what ended.",
            schema=schema(
                status=text("only pending, running, completed, failed or killed ones"),
            ),
            operation=_list,
            normalise=synonyms.normalise,
        ),
    ),
)
