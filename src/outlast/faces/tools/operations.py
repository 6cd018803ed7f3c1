"""What tools do, over the shell: run, start, read, wait, end, list. Profiles give it names and shape the replies."""

from __future__ import annotations

import os

from outlast.errors import BadInput, named
from outlast.faces.tools.toolbox import awaited
from outlast.types import NO_SHELL, STREAMS, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outlast.faces.tools.toolbox import Toolbox
    from outlast.shell.options import ReadOptions
    from outlast.types import Receipt, Result, Task, Waited

MARKED: ReadOptions = {"marked": True}
_STRIKING_S = 0.1  # so near to its limit a task is as good as struck
_RECORDING_S = 5.0  # from the moment that a limit strikes until its task is over


def seconds(milliseconds: float | None, most: float | None = None) -> float | None:
    """A time that a model gave; 0 is as if it gave none, and what is too long is cut."""
    if not milliseconds:
        return None
    asked = milliseconds / 1000
    return asked if most is None else min(asked, most)


async def run(box: Toolbox, command: str, *, limit: float | None = None, **how: Any) -> Result:
    """Run a command and wait as long as this call may; it then goes on in the background."""
    settings = box.shell.settings
    if limit is not None:
        limit = min(limit, settings.max_wait_s)
    allowed = settings.foreground_limit_s if limit is None else limit
    asked = how.pop("wait", None)
    wait = min(allowed if asked is None else asked, box.longest_wait)
    if limit is not None and wait >= limit:
        # The guard ends it at its limit. Leaving at that same moment would make it a background task.
        wait += settings.kill_grace_s + _RECORDING_S
    # Without a limit of its own, waiting for all of the default one means that it ends the task.
    show: ReadOptions = {**MARKED, **how.pop("show", {})}
    given = None if wait >= allowed and limit is None else wait
    how["fresh"] = not box.profile.keeps_state
    result = await box.waiting.run(command, limit=limit, wait=given, show=show, **how)
    return await _once_struck(box, result, show) if _is_being_struck(result, limit) else result


def _is_being_struck(result: Result, limit: float | None) -> bool:
    """Whether its limit strikes this very moment: it is about to end, or what it started is."""
    if result.status == "running":
        return limit is not None and result.elapsed_ms >= (limit - _STRIKING_S) * 1000
    return result.reason == "timeout" and not result.closed


async def _once_struck(box: Toolbox, result: Result, show: ReadOptions) -> Result:
    patience = box.shell.settings.kill_grace_s + _RECORDING_S
    async for _ in box.waiting.follow(result.task_id, cursor=result.cursor, timeout=patience):
        pass
    ended = await read(box, result.task_id)
    if show.get("new"):
        await read(box, result.task_id, new=True)  # whoever asks what is new has seen it all
    return ended


async def start(box: Toolbox, command: str, *, stdin_open: bool = False, **how: Any) -> Task:
    """Run a command in the background."""
    how["fresh"] = not box.profile.keeps_state
    return await box.waiting.start(command, stdin=Stdin(open=True) if stdin_open else None, **how)


async def start_agent(box: Toolbox, type: str, prompt: str, description: str) -> Task:
    """Start an agent in the background."""
    return await box.waiting.agent.start(type, prompt, description, here=False)


async def read(box: Toolbox, task_id: str, **what: Any) -> Result:
    return await box.waiting.read(task_id, **MARKED, **what)


async def wait(box: Toolbox, task_id: str, patience: float, **until: Any) -> Waited:
    """Wait for the end or for a condition, as long as this call may."""
    return await box.waiting.wait(task_id, timeout=awaited(box, patience), **until)


async def send_and_wait(box: Toolbox, task_id: str, text: str, patience: float, **how: Any) -> Waited:
    """Send input, and wait for what the program does with it, as long as this call may."""
    return await box.waiting.send_and_wait(task_id, text, awaited(box, patience), **how)


async def twin(box: Toolbox, task: Task) -> str:
    """The id of another task that runs the same command in the same directory."""
    others = await tasks(box, status="running")
    same = (one for one in others if one.task_id != task.task_id and (one.command, one.cwd) == (task.command, task.cwd))
    return next((one.task_id for one in same), "")


async def kill(box: Toolbox, task_id: str) -> Receipt:
    return await box.waiting.kill(task_id)


async def tasks(box: Toolbox, **which: Any) -> Sequence[Task]:
    return await box.waiting.list(**which)


# --- one program, no shell ---------------------------------------------------------------


def program(box: Toolbox, command: str, words: Sequence[str]) -> dict[str, Any]:
    """How to run one program with its arguments as they are, in the project's directory."""
    import shlex
    import shutil

    root = box.shell.cwd or os.getcwd()
    found = shutil.which(command, path=os.environ.get("PATH")) if "/" not in command else os.path.join(root, command)
    if not found or not os.access(found, os.X_OK) or os.path.isdir(found):
        hint = "put its arguments into args" if len(command.split()) > 1 else "install it, or give another one"
        raise BadInput(f"There is no program {named(command)}; {hint}.")
    return {"command": shlex.join([command, *words]), "shell": NO_SHELL}


async def together(box: Toolbox, task_id: str, **what: Any) -> Result:
    """A task with both streams as one text, in the order they came."""
    return await read(box, task_id, interleaved=True, **what)


async def filled_lines(box: Toolbox, task: Task) -> tuple[int, int]:
    """How many lines of stdout and of stderr are not blank; counts on from where this toolbox last counted."""
    return await box.do(_filled_lines, box, task)


def _filled_lines(box: Toolbox, task: Task) -> tuple[int, int]:
    counts = dict.fromkeys(STREAMS, 0)
    for stream in STREAMS if task.split else STREAMS[:1]:
        place, count = box.counted.get((task.task_id, stream), (0, 0))
        rest = b""
        for piece in box.shell.reader.read_fresh(task.task_id, {stream: place}):
            *lines, rest = (rest + piece.data).split(b"\n")
            count += sum(1 for line in lines if line.strip())
            place = piece.next - len(rest)
        box.counted[task.task_id, stream] = (place, count)
        counts[stream] = count + bool(rest.strip())
    return counts["stdout"], counts["stderr"]
