"""Everything about one task that its page shows: processes, how it was judged, variables, events, an agent's turns."""

from __future__ import annotations

import os
import re

from outlast.errors import OutlastError
from outlast.linux import process
from outlast.output.cleaner import inline
from outlast.output.redaction import names_of_secrets
from outlast.storage import agentfile, task_events
from outlast.types import Identity
from outlast.web.usage import members_of, memory_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from outlast.output.redaction import Mask
    from outlast.shell.shell import Shell
    from outlast.types import Task

_COMMAND_LINE = 500  # characters of a process' arguments
_MOST_PROCESSES = 500
_MOST_TURNS = 200
_TURNS_CHARS = 100_000  # of an agent's output
_TOOL = re.compile(r"\s*\[[^\]\n]{1,80}\]( |$)")


def describe(shell: Shell, task: Task, cpu: Mapping[int, float]) -> dict[str, Any]:
    """Return it as the page gets it; `cpu` is what each process used lately."""
    mask = shell.context.redactor.mask_for(task.session)
    try:
        launch = shell.executor.registry.launch_of(task.task_id)
    except OutlastError:
        launch = None
    judged = dict(launch.judged) if launch else {}
    return {
        "processes": list_processes(shell, task, cpu, mask) if not task.closed else [],
        "judged": _show_judged(judged, mask) if launch else None,
        "environment": read_environment(shell, task, mask) if task.status == "running" else None,
        "held_back": task.held_back,
        "takes_input": bool(launch and task.status == "running" and (launch.stdin.open or launch.tty)),
        "events": list_events(shell, task, mask),
        "agent": describe_agent(shell, task, mask) if task.metadata is not None else None,
    }


def _show_judged(judged: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """Return under which policy it ran, and why. A task of an older version says nothing of it."""
    reasons = [{name: mask.text(str(text)) for name, text in one.items()} for one in judged.get("reasons", ())]
    usual = {"policy": "yolo", "verdict": "allow", "approved": False}
    return {**usual, **judged, "reasons": reasons}


def list_processes(shell: Shell, task: Task, cpu: Mapping[int, float], mask: Mask) -> list[dict[str, Any]]:
    """Return the living processes of a task, parents first."""
    members = list(members_of(shell, task.task_id).values())[:_MOST_PROCESSES]
    return [
        {
            "pid": stat.pid,
            "parent": stat.parent,
            "name": inline(stat.name, 100),
            # The shell shows the user's text, not how it is brought to run it.
            "command": inline(
                task.command if stat.pid == task.pid else mask.text(_command_line(stat.pid)), _COMMAND_LINE
            ),
            "cpu": cpu.get(stat.pid),
            "memory": memory_of(stat.pid),
            "state": stat.state,
        }
        for stat in sorted(members, key=lambda stat: stat.tick)
    ]


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(4 * _COMMAND_LINE)
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def read_environment(shell: Shell, task: Task, mask: Mask) -> dict[str, str] | None:
    """Return the variables of a running command without secrets; None if they cannot be seen.

    They are read off the oldest program that the command started: its shell takes the variables of the session from a
    file, and the kernel knows only those that a process began with.
    """
    members = sorted(members_of(shell, task.task_id).values(), key=lambda stat: (stat.pid == task.pid, stat.tick))
    for stat in members:
        found = process.environment(stat.pid)
        pairs = (os.fsdecode(one).partition("=") for one in found if b"=" in one)
        variables = {name: value for name, _, value in pairs}
        # Its number may have gone to another process meanwhile.
        if variables and process.is_alive(Identity(stat.pid, stat.tick, process.boot_id())):
            secret = set(names_of_secrets(variables, shell.settings))
            return {name: mask.text(value) for name, value in sorted(variables.items()) if name not in secret}
    return None


def list_events(shell: Shell, task: Task, mask: Mask) -> list[dict[str, Any]]:
    """Return what happened to a task, oldest first."""
    seen = task_events.observe(shell.executor.registry, task.task_id)
    names = ("status", "reason", "exit_code", "signal", "ended_by", "error", "pid")
    found = []
    for event in task_events.list_events(seen) if seen else ():
        facts = {name: event.facts.get(name) for name in names}
        shown = {name: mask.text(value) if isinstance(value, str) else value for name, value in facts.items()}
        found.append({"type": event.type, "at": event.at, **shown})
    return sorted(found, key=lambda one: one["at"])


# --- agents ------------------------------------------------------------------------------


def describe_agent(shell: Shell, task: Task, mask: Mask) -> dict[str, Any]:
    """Return an agent's prompt, its turns and its answer."""
    launch = shell.executor.registry.launch_of(task.task_id)
    report = agentfile.read(shell.executor.registry.home.task(task.task_id))
    known = {**launch.agent, **report}
    prompt = str(known.get("prompt") or "")
    said = shell.read(task, max_chars=_TURNS_CHARS).output
    texts = {name: mask.text(str(known[name]))[:_TURNS_CHARS] if known.get(name) else None for name in _TOLD}
    return {**texts, "turns": split_turns(mask.text(prompt), said)}


_TOLD = ("type", "prompt", "result", "model", "error", "progress")


def split_turns(prompt: str, said: str) -> list[dict[str, str]]:
    """Return who said what: the prompt, then what the agent said and which tools it called. Pure.

    The runner of an agent shows a call as a line that begins with its name in brackets.
    """
    turns = [{"role": "user", "text": prompt}] if prompt else []
    for line in said.splitlines():
        role = "tool" if _TOOL.match(line) else "assistant"
        if role == "assistant" and turns and turns[-1]["role"] == "assistant":
            turns[-1]["text"] += f"\n{line}"
        elif line.strip():
            turns.append({"role": role, "text": line})
    return turns if len(turns) <= _MOST_TURNS else [*turns[:1], *turns[1 - _MOST_TURNS :]]
