"""What tools do, over the shell: run, start, read, wait, end, list. Profiles give it names and shape the replies."""

from __future__ import annotations

import os

from outlast.errors import AlreadyEnded, BadInput, quote
from outlast.types import NO_SHELL, STREAMS, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outlast.shell.options import ReadOptions
    from outlast.tools.model import ToolContext
    from outlast.types import Receipt, Result, Task, Waited

_RECORD_S = 5.0  # from the moment that a limit strikes until its task has ended


def seconds(milliseconds: float | None, most: float | None = None) -> float | None:
    """Return a time that a model gave in milliseconds; 0 is as if it gave none, and what is too long is cut."""
    if not milliseconds:
        return None
    asked = milliseconds / 1000
    return asked if most is None else min(asked, most)


async def run(
    box: ToolContext,
    command: str,
    *,
    limit: float | None = None,
    wait: float | None = None,
    show: ReadOptions | None = None,
    **how: Any,
) -> Result:
    """Run a command and wait as long as this call may; it then goes on in the background."""
    settings = box.shell.settings
    if limit is not None:
        limit = min(limit, settings.max_wait_s)
    allowed = settings.foreground_limit_s if limit is None else limit
    wait = min(allowed if wait is None else wait, box.longest_wait)
    waits_for_limit = wait >= allowed
    if limit is not None and waits_for_limit:
        # The guard ends it at its limit. Leaving at that same moment would make it a background task.
        wait += settings.kill_grace_s + _RECORD_S
    # Without a wait, the default limit ends the task.
    patience = None if limit is None and waits_for_limit else wait
    shown: ReadOptions = {"marked": True, **(show or {})}
    how["fresh"] = not box.profile.keeps_state
    result = await box.waiting.run(command, limit=limit, wait=patience, show=shown, **how)
    if result.reason == "timeout" and not result.closed:
        return await _read_closed(box, result, shown)
    return result


async def _read_closed(box: ToolContext, result: Result, shown: ReadOptions) -> Result:
    """Read a task again when its limit has ended all that it started: it would seem to have left processes running."""
    async for _ in box.waiting.follow(
        result.task_id, cursor=result.cursor, timeout=box.shell.settings.kill_grace_s + _RECORD_S
    ):
        pass
    closed = await read(box, result.task_id)
    if shown.get("new"):
        await read(box, result.task_id, new=True)  # this reply has shown all of it
    return closed


async def start(box: ToolContext, command: str, *, stdin_open: bool = False, **how: Any) -> Task:
    """Run a command in the background."""
    how["fresh"] = not box.profile.keeps_state
    return await box.waiting.start(command, stdin=Stdin(open=True) if stdin_open else None, **how)


async def start_agent(box: ToolContext, type: str, prompt: str, description: str) -> Task:
    """Start an agent in the background."""
    return await box.waiting.agent.start(type, prompt, description, here=False)


async def read(box: ToolContext, task_id: str, **what: Any) -> Result:
    """Read a task's output, with our lines in it marked."""
    if box.keeps_position:
        what["new"] = False
    return await box.waiting.read(task_id, marked=True, **what)


async def wait(box: ToolContext, task_id: str, patience: float, **until: Any) -> Waited:
    """Wait for the end or for a condition, as long as this call may."""
    return await box.waiting.wait(task_id, timeout=box.longest(patience), **until)


async def send_and_wait(box: ToolContext, task_id: str, text: str, patience: float, **how: Any) -> Waited:
    """Send input, and wait for what the program does with it, as long as this call may."""
    return await box.waiting.send_and_wait(task_id, text, box.longest(patience), **how)


async def find_same(box: ToolContext, task: Task) -> str:
    """Return the id of another task that runs the same command in the same directory, or nothing."""
    others = await box.waiting.list(status="running")
    same = (one for one in others if one.task_id != task.task_id and (one.command, one.cwd) == (task.command, task.cwd))
    return next((one.task_id for one in same), "")


async def show_alive(box: ToolContext, task_id: str, ended: str) -> Task:
    """Return a task of which something still runs; else raise `AlreadyEnded` with this sentence about the task."""
    task = await box.waiting.show(task_id)
    if task.finished and not task.children:
        raise AlreadyEnded(ended.format(task=task))
    return task


async def kill(box: ToolContext, task_id: str) -> Receipt:
    """End a task with its whole tree."""
    return await box.waiting.kill(task_id)


# --- one program, no shell ---------------------------------------------------------------


def program(box: ToolContext, command: str, words: Sequence[str]) -> dict[str, Any]:
    """Return how to run one program with its arguments as they are, in the project's directory."""
    import shlex
    import shutil

    root = box.shell.cwd or os.getcwd()
    found = shutil.which(command, path=os.environ.get("PATH")) if "/" not in command else os.path.join(root, command)
    if not found or not os.access(found, os.X_OK) or os.path.isdir(found):
        hint = "put its arguments into args" if len(command.split()) > 1 else "install it, or give another one"
        raise BadInput(f"There is no program {quote(command)}; {hint}.")
    return {"command": shlex.join([command, *words]), "shell": NO_SHELL}


# --- lines that are not blank ------------------------------------------------------------


async def count_lines(box: ToolContext, task: Task) -> tuple[int, int]:
    """Count the lines of stdout and of stderr that are not blank, from where this toolbox last counted on."""
    return await box.do(_count_lines, box, task)


def _count_lines(box: ToolContext, task: Task) -> tuple[int, int]:
    counts = dict.fromkeys(STREAMS, 0)
    for stream in STREAMS if task.split else STREAMS[:1]:
        offset, count = box.counted.get((task.task_id, stream), (0, 0))
        rest = b""
        for piece in box.shell.reader.read_fresh(task.task_id, {stream: offset}):
            *lines, rest = (rest + piece.data).split(b"\n")
            count += sum(1 for line in lines if line.strip())
            offset = piece.next - len(rest)
        box.counted[task.task_id, stream] = (offset, count)
        counts[stream] = count + bool(rest.strip())
    return counts["stdout"], counts["stderr"]
