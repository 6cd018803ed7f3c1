"""The verbs that end, feed and remove."""

from __future__ import annotations

import os

from outlast import asking, secrets, session_admin, showing
from outlast.errors import AlreadyEnded, BadInput, StillRunning
from outlast.shell.opened import telling
from outlast.shell.waiting import Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.types import Receipt, SessionState, Task


class Acting(Waiting):
    """On tasks that are there, and on what a session remembers."""

    def kill(self, task_id: str, grace: float | None = None) -> Receipt:
        """End a task's whole tree; returns when it is gone, with a receipt."""
        return self.kill_all([task_id], grace)[0]

    @telling
    def kill_all(self, task_ids: list[str], grace: float | None = None) -> list[Receipt]:
        """End several tasks at once. Nothing is done if one of them is unknown or has nothing left to end."""
        patience = self.settings.kill_grace_s if grace is None else asking.seconds("grace", grace)
        found = list(dict.fromkeys(self._find(task_id) for task_id in task_ids))
        for task_id in found:
            task = self.executor.status(task_id)
            if task.finished and not task.children:
                raise AlreadyEnded(f"{task_id} has ended already ({describe_end(task)}); there is nothing left to end.")
        if (gate := self._gate()) is not None:
            gate.may_kill(found, [self.executor.status(task_id).command for task_id in found])
        return self.end_now(found, patience)

    def end_now(self, task_ids: list[str], grace: float | None) -> list[Receipt]:
        """End tasks without asking: somebody was asked, or is at the keyboard and asked for it."""
        rule = f"kill by process {os.getpid()} of user {os.getuid()}"
        receipts = self.executor.signal(task_ids, float("inf") if grace is None else grace, "kill", rule)
        return [self._shown(receipt) for receipt in receipts]

    def end_for_limit(self, task_id: str) -> Receipt:
        """The default limit struck while somebody waited."""
        self._own(task_id)
        limit = self.settings.foreground_limit_s
        rule = f"default limit of {limit:g} s in the foreground"
        return self.executor.signal([task_id], self.settings.kill_grace_s, "limit", rule)[0]

    @telling
    def send(self, task_id: str, text: str | bytes = "", *, eof: bool = False) -> None:
        """Feed the input of a task that was started with it kept open; `eof` ends it."""
        self.executor.write(self._find(task_id), asking.input_bytes(text), eof)

    # --- keep --------------------------------------------------------------------------------

    @telling
    def clean(self, *, older_than_hours: float | None = None, all_finished: bool = False) -> int:
        """Remove finished tasks with their output; never a running one. How many."""
        if older_than_hours is not None and not (type(older_than_hours) in (int, float) and older_than_hours >= 0):
            raise BadInput(f"The age must be 0 hours or more, not {older_than_hours}.")
        hours = 0.0 if all_finished else self.settings.retention_hours if older_than_hours is None else older_than_hours
        registry = self.executor.registry
        registry.sweep()
        # Looked at first: only what was seen to be over is known to be over.
        for task in registry.tasks(self._scope):
            if task.finished and not task.closed and not task.children:
                self._await_closed(task.task_id)
        damaged = sum(registry.remove(task_id) for task_id in list(registry.damaged())) if self._scope is None else 0
        removed = damaged + registry.prune(hours * 3600, most=-1, session=self._scope)
        self.executor.forget_names()
        self.executor.advance()
        return removed

    @telling
    def remove(self, task: str | Task) -> Task:
        """Remove one finished task with its output; returns it as it was. `StillRunning` while anything of it runs."""
        task_id = self._find(task if isinstance(task, str) else task.task_id)
        found = self.executor.status(task_id)
        if not found.finished:
            raise StillRunning(f"{task_id} is {found.status}, so it cannot be removed; end it first.")
        if found.children:
            left = ", ".join(map(str, found.children))
            raise StillRunning(f"{task_id} left processes that still run ({left}), so it cannot be removed; end it.")
        if not found.closed:
            self._await_closed(task_id)
        if not self.executor.registry.remove(task_id):
            self._find(task_id)  # another process may have removed it: then this says so
            raise StillRunning(f"{task_id} is being reported by another call, so it cannot be removed; try again.")
        return self._shown(found)

    @telling
    def keep_newest(self, most: int) -> int:
        """Remove finished background tasks of this session, oldest first, while there are more than `most` in all."""
        tasks = [task for task in self.executor.registry.tasks(self.session) if task.background]
        old = [task.task_id for task in reversed(tasks) if task.finished and not task.children]
        return sum(self.executor.registry.remove(task_id) for task_id in old[: max(0, len(tasks) - most)])

    # --- what a session remembers ------------------------------------------------------------

    @telling
    def session_names(self) -> Sequence[str]:
        """The sessions that remember something (an operator: all; otherwise this one)."""
        return [name for name in self.sessions.names() if self._scope in (None, name)]

    @telling
    def session_state(self, name: str | None = None) -> SessionState:
        """What a session (by default this one) remembers; secrets are masked."""
        reached = self._reached(name)
        found = session_admin.show(self.sessions, reached, self._scope)
        self._showing.learn_state(reached, self.sessions.read(reached))  # with what its last command has set
        return showing.session(found, self.mask)

    @telling
    def reset_session(self, name: str | None = None) -> None:
        """Let a session begin anew, with this process' variables and directory."""
        environ = secrets.apart(dict(os.environ), self.settings).open
        session_admin.reset(self.sessions, self._reached(name), environ, self._scope)

    @telling
    def copy_session(self, name: str, target: str) -> None:
        """A new session in the state of another; only an operator reaches two."""
        session_admin.copy(self.sessions, self._reached(name), self._reached(target), self._scope)

    @telling
    def remove_session(self, name: str | None = None) -> None:
        """Forget a session; refused while tasks of it run."""
        found = self._reached(name)
        session_admin.remove(self.sessions, found, self.executor.registry.tasks(found), self._scope)


def describe_end(task: Task) -> str:
    """How a task ended, in a few words."""
    if task.reason == "exit":
        return f"exit code {task.exit_code}"
    if task.reason == "signal":
        return f"signal {task.signal}"
    if task.ended_by:
        return f"{task.reason}: {task.ended_by}"
    return task.reason or task.status
