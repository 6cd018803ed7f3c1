"""Ends, feeds and removes tasks."""

from __future__ import annotations

import os

from outlast.errors import AlreadyEnded, BadInput, StillRunning
from outlast.shell import validation
from outlast.shell.context import translate_errors
from outlast.storage.queue import Queue
from outlast.storage.watch import Deadline, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outlast.output.screen import Screen
    from outlast.shell.context import Context
    from outlast.shell.gate import Gate
    from outlast.shell.options import TaskId
    from outlast.types import Receipt, Task

_CLOSE_WAIT_S = 1.0  # guards exit within milliseconds of the end, if nothing of the command is left


class Control:
    """Acts on the tasks of one shell."""

    def __init__(self, context: Context, gate: Callable[[], Gate | None], screen: Callable[[str], Screen]) -> None:
        self.context, self._executor, self._gate, self._screen = context, context.executor, gate, screen

    @translate_errors
    def kill_all(self, tasks: Sequence[TaskId], grace: float | None = None) -> list[Receipt]:
        """End several tasks at once. Nothing is done if one of them is unknown or has nothing left to end."""
        seconds = self.context.settings.kill_grace_s if grace is None else validation.seconds("grace", grace)
        found = [self._executor.status(one) for one in dict.fromkeys(map(self.context.find, tasks))]
        if over := next((task for task in found if task.finished and not task.children), None):
            raise AlreadyEnded(
                f"{over.task_id} has ended already ({describe_end(over)}); there is nothing left to end."
            )
        ids = [task.task_id for task in found]
        if (gate := self._gate()) is not None:
            gate.may_kill(ids, [task.command for task in found])
        return self.end_now(ids, seconds)

    def end_now(self, task_ids: Sequence[str], grace: float | None) -> list[Receipt]:
        """End tasks without asking for approval: it was given, or a person at the keyboard ends them."""
        rule = f"kill by process {os.getpid()} of user {os.getuid()}"
        receipts = self._executor.kill(task_ids, float("inf") if grace is None else grace, "kill", rule)
        return [self.context.redactor.redact(receipt) for receipt in receipts]

    def end_for_limit(self, task_id: str) -> Receipt:
        """End a foreground task because the default limit is over."""
        self.context.check_reachable(task_id)
        settings = self.context.settings
        rule = f"default limit of {settings.foreground_limit_s:g} s in the foreground"
        return self._executor.kill([task_id], settings.kill_grace_s, "limit", rule)[0]

    @translate_errors
    def release(self, task_id: str) -> None:
        """Stop waiting for a foreground task: it goes on in the background and changes nothing in its session."""
        self.context.check_reachable(task_id)
        self._executor.release(task_id)

    @translate_errors
    def send(self, task: TaskId, text: str | bytes = "", *, eof: bool = False, keys: str | None = None) -> None:
        """As `Shell.send`."""
        task_id, data = self.context.find(task), validation.input_bytes(text)
        has_terminal = self._executor.registry.launch_of(task_id).tty is not None
        if keys is not None:
            self._press(task_id, keys, has_terminal, bool(text) or eof)
        elif has_terminal and isinstance(text, str):
            from outlast.shell.keys import encode_typed

            self._executor.write(task_id, encode_typed(text), eof)
        else:
            self._executor.write(task_id, data, eof)

    def _press(self, task_id: str, text: str, has_terminal: bool, and_more: bool) -> None:
        from outlast.shell import keys  # most input is text

        if and_more:
            raise BadInput("Text, the end of the input and keys are sent by calls of their own; leave out one.")
        found = keys.parse(text)
        if has_terminal:
            in_mode = keys.needs_mode(found) and self._screen(task_id).application_keys
            self._executor.write(task_id, keys.encode(found, in_mode), False)
            return
        for step in keys.without_terminal(task_id, found):
            if isinstance(step, keys.Interrupt):
                if not self._executor.interrupt(task_id):
                    raise AlreadyEnded(f"{task_id} has ended; there is nothing left to interrupt.")
            else:
                self._executor.write(task_id, step if isinstance(step, bytes) else b"", isinstance(step, keys.End))

    @translate_errors
    def resize(self, task: TaskId, columns: int, rows: int) -> None:
        """As `Shell.resize`."""
        self._executor.resize(self.context.find(task), *validation.terminal_size((columns, rows)))

    @translate_errors
    def fetch(self, task: TaskId, paths: Sequence[str], into: str) -> None:
        """Copy files and directories from a task's directory on another machine into one of this machine."""
        self._executor.fetch(self.context.find(task), paths, into)

    @translate_errors
    def clean(self, *, older_than_hours: float | None = None, all_finished: bool = False) -> int:
        """As `Shell.clean`."""
        if older_than_hours is not None and not (type(older_than_hours) in (int, float) and older_than_hours >= 0):
            raise BadInput(f"The age must be 0 hours or more, not {older_than_hours}.")
        hours = self.context.settings.retention_hours if older_than_hours is None else older_than_hours
        registry, scope = self._executor.registry, self.context.scope
        # Looked at first: only what was seen to be over is known to be over.
        for task in registry.tasks(scope):
            if task.finished and not task.closed and not task.children:
                self._await_closed(task.task_id)
        removed = sum(registry.remove(task_id) for task_id in list(registry.list_damaged())) if scope is None else 0
        removed += registry.prune(0.0 if all_finished else hours * 3600, most=-1, session=scope)
        Queue(registry.home.path).forget_names()
        self._executor.advance()
        return removed

    @translate_errors
    def remove(self, task: TaskId) -> Task:
        """As `Shell.remove`."""
        task_id = self.context.find(task)
        found = self._executor.status(task_id)
        if not found.finished:
            raise StillRunning(f"{task_id} is {found.status}, so it cannot be removed; end it first.")
        if found.children:
            left = ", ".join(map(str, found.children))
            raise StillRunning(f"{task_id} left processes that still run ({left}), so it cannot be removed; end it.")
        if not found.closed:
            self._await_closed(task_id)
        if not self._executor.registry.remove(task_id):
            self.context.find(task_id)  # another process may have removed it: then this says so
            raise StillRunning(f"{task_id} is being reported by another call, so it cannot be removed; try again.")
        return self.context.redactor.redact(found)

    @translate_errors
    def keep_newest(self, most: int) -> int:
        """Remove finished background tasks of this session, oldest first, while there are more than `most` in all."""
        tasks = [task for task in self._executor.registry.tasks(self.context.session) if task.background]
        old = [task.task_id for task in reversed(tasks) if task.finished and not task.children]
        return sum(self._executor.registry.remove(task_id) for task_id in old[: max(0, len(tasks) - most)])

    def _await_closed(self, task_id: str) -> None:
        """Wait for the guards of a task that ended a moment ago to exit."""
        with self._executor.watch(task_id) as watch:
            until(watch, lambda: self._executor.has_reached(task_id, "closed"), Deadline(_CLOSE_WAIT_S))
        self._executor.status(task_id)


def describe_end(task: Task) -> str:
    """Return how a task ended, in a few words."""
    if task.reason in ("exit", "signal"):
        return f"exit code {task.exit_code}" if task.reason == "exit" else f"signal {task.signal}"
    return f"{task.reason}: {task.ended_by}" if task.ended_by else task.reason or task.status
