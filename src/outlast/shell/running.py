"""The verbs that run a command, and its way there: request, grant, launch, task.

A foreground command is a background task that somebody waits for: `run` is `start`, a
wait, and a read.
"""

from __future__ import annotations

import os

from outlast import asking, conditions
from outlast.errors import (
    AmbiguousTask,
    BadInput,
    OutlastError,
    SessionBusy,
    SessionMoved,
    StartFailed,
    UnknownTask,
    named,
)
from outlast.launch_builder import Place
from outlast.permissions import YOLO, decide
from outlast.settings import development_commands
from outlast.shell.acting import Acting
from outlast.shell.opened import telling
from outlast.storage.hold import Hold
from outlast.types import BRIDGE
from outlast.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from outlast.conditions import UnderWay
    from outlast.shell.agents import Agents
    from outlast.types import Grant, Launch, Request, Result, Sandbox, Slice, Stdin, Task


_MOVES = 100  # a session may change so often while one command of it is prepared


class Running(Acting):
    """New tasks."""

    _agents: Agents | None = None

    @telling
    def start(
        self,
        command: str,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | Stdin | None = None,
        shell: str | None = None,
        split: bool = False,
        limit: float | None = None,
        description: str = "",
        name: str | None = None,
        after: Sequence[str] = (),
        after_failed: str = asking.SKIP,
        pass_secrets: Sequence[str] = (),
        sandbox: Sandbox | bool | None = None,
        memory: int | None = None,
        processes: int | None = None,
        cpu_time: float | None = None,
        file_size: int | None = None,
        notify: str | Sequence[str] = (),
        silent_after: float | None = None,
        startup_wait: float | None = None,
        ready: str | None = None,
        fresh: bool = False,
        hold: Hold | None = None,
    ) -> Task:
        """Run a command in the background; returns when the task is durable.

        It begins with the session's state and does not change it. A `fresh` command (of `run`, too) neither sees the
        session's state nor changes it: it has the caller's variables and directory.

        It is pending while `max_running` others run, and until all tasks in `after` completed. If one of them fails,
        it ends unrun; with `after_failed="run"` it runs when all have ended. A `name` makes a second start of the
        same command in the same directory one task.

        Secret variables of the caller are held back from it, but for those named in `pass_secrets`.

        With `startup_wait` or `ready` it returns when the command has ended, when a line of
        its output matches `ready`, or when that time has passed, and is a `Waited`. While
        `hold` is open, the task is not removed.

        In a `sandbox` it writes to its directory only and reaches no network. `memory` and `file_size` are
        bytes, `cpu_time` is seconds; each holds for every process by itself.

        Subscribers get a notice when a line matches a pattern in `notify`, and when it prints nothing for
        `silent_after` seconds.
        """
        startup = self.startup(startup_wait, ready)
        task, _ = self.launch(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            shell=shell,
            split=split,
            limit=limit,
            description=description,
            name=name,
            after=after,
            after_failed=after_failed,
            pass_secrets=pass_secrets,
            sandbox=sandbox,
            memory=memory,
            processes=processes,
            cpu_time=cpu_time,
            file_size=file_size,
            notify=notify,
            silent_after=silent_after,
            fresh=fresh,
            hold=hold,
        )
        self.warm_up()
        if startup is None:
            return task
        return self._await(task.task_id, startup.condition, startup.seconds)

    def run(
        self,
        command: str,
        *,
        wait: float | None = None,
        on_output: Callable[[Slice], None] | None = None,
        auto_background: bool | None = None,
        show: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Result:
        """Run a command and wait for its end. `how` is as for `start`, `show` as for `read`.

        If `wait` runs out first, the task goes on and the result says running. If no
        `limit` was asked for and the default one strikes while we wait, it is ended. With
        `startup_wait` or `ready` it is only waited for as `start` does. With
        `auto_background` (by default a setting) a development command that has printed
        something after 2 s goes on as if `wait` had run out.
        """
        if how.get("startup_wait") is not None or how.get("ready") is not None:
            refuse_to_wait(wait, on_output)
            with Hold() as hold:
                return self.read(self.start(command, hold=hold, **how).task_id, **(show or {}))
        patience = self.patience(wait, how.get("limit"))
        with Hold() as hold:
            task, ours = self.launch(command, background=False, keeps=True, hold=hold, **how)
            try:
                if task.status == "pending":
                    patience = self._once_begun(task.task_id, patience, wait)
                leave = self.leaving(command, auto_background)
                ended = self._attend(task.task_id, patience, on_output, leave)
            except BaseException:
                self.release(task.task_id, ours)
                raise
            if not ended:
                if ours and patience.then_end and not (leave and leave.met):
                    self.end_for_limit(task.task_id)
                self.release(task.task_id, ours)
            result = self.read(task.task_id, **(show or {}))
        self.warm_up()
        return result

    def _attend(
        self, task_id: str, patience: Patience, on_output: Callable[[Slice], None] | None, leave: UnderWay | None
    ) -> bool:
        """Wait for a foreground command; whether it has ended."""
        if on_output is not None:
            for piece in self.follow(task_id, timeout=patience.seconds, to_end_of="command", leave=leave):
                on_output(piece)
        elif leave is None:
            return self.await_end(task_id, patience.seconds)
        else:
            self._await_condition(task_id, leave, patience.seconds)
        return self.executor.has_ended(task_id)

    def leaving(self, command: str, auto_background: bool | None) -> UnderWay | None:
        """When a foreground command is left alone before its end, if it is."""
        if not (self.settings.auto_background if auto_background is None else auto_background):
            return None
        from outlast.rootcommand import runs_any  # most callers do without

        wanted = runs_any(command, development_commands(self.settings))
        return conditions.UnderWay(self.settings.auto_background_after_s) if wanted else None

    def _once_begun(self, task_id: str, patience: Patience, wait: float | None) -> Patience:
        """The default limit is for running. Until a task runs we wait as long as a call may."""
        if self.executor.has_begun(task_id):
            return patience
        deadline = Deadline(self.settings.max_wait_s if wait is None else patience.seconds)
        begun = self.await_begin(task_id, deadline.left())
        if patience.then_end and begun:
            return patience
        return Patience(deadline.left() or 0.0, then_end=False)

    def patience(self, wait: float | None, limit: float | None) -> Patience:
        """How long a foreground call waits, and whether it then ends the task."""
        wait = asking.seconds("wait", wait)
        longest = self.settings.max_wait_s
        if limit is not None:
            return Patience(min(longest if wait is None else wait, longest), then_end=False)
        default = self.settings.foreground_limit_s
        if wait is not None and wait < default:
            return Patience(min(wait, longest), then_end=False)
        return Patience(default, then_end=True)

    def release(self, task_id: str, ours: bool = True) -> None:
        """Nobody waits for this one any more: it goes on in the background, and changes nothing in its session."""
        if ours:
            self._own(task_id)
            self.executor.release(task_id)

    # --- from a request to a task ------------------------------------------------------------

    @telling
    def launch(
        self,
        command: str,
        *,
        background: bool = True,
        keeps: bool = False,
        after: Sequence[str] = (),
        hold: Hold | None = None,
        sandbox: Sandbox | bool | None = None,
        **how: Any,
    ) -> tuple[Task, bool]:
        """Start a command, or find the task that has its name; whether it is new.

        A foreground one needs no place. What one that `keeps` changes is there for the session's next one.
        """
        request = asking.request(
            command,
            session=self.session,
            background=background,
            after=self._all_found(after),
            sandbox=self._sandbox_for(sandbox, how.get("cwd")),
            **how,
        )
        return self.launch_request(request, keeps, hold)

    def launch_request(self, request: Request, keeps: bool = False, hold: Hold | None = None) -> tuple[Task, bool]:
        """As `launch`, of what was checked."""
        for _ in range(_MOVES):
            grant, launch = self._granted(request, keeps)
            try:
                task, new = self.executor.start_or_find(launch, hold)
            except SessionMoved:
                continue  # it was judged and prepared in a state that is gone
            self._asked, self._asked_before = (grant, launch), self._asked
            self._showing.learn(request.env)
            if launch.state:
                self._showing.learn_state(launch.state, self.sessions.known(launch.state))
            return self._shown(task), new
        raise SessionBusy(f"The session {named(self.session)} changes too fast to run anything in it; try again.")

    def _granted(self, request: Request, keeps: bool) -> tuple[Grant, Launch]:
        """Whether it may run, and exactly what does."""
        # A bridge runs no command: there is nothing to judge.
        gate = self._gate(request.cwd) if request.shell != BRIDGE else None
        if gate is None:
            grant = decide(request, YOLO)
            return grant, self._prepared(grant, keeps)
        return gate.granted(request, lambda grant: self._prepared(grant, keeps))

    def _sandbox_for(self, asked: Sandbox | bool | None, cwd: str | None) -> Sandbox | None:
        if not asked and not self.sandbox and not self.settings.sandbox:
            return None
        from outlast.sandbox.choice import wanted  # most commands run without

        return wanted(asked, self.sandbox, self.settings, cwd, self.cwd)

    def _prepared(self, grant: Grant, keeps: bool) -> Launch:
        """What exactly runs for a grant now, in this session's state."""
        fresh = grant.request.fresh
        try:
            if keeps and not fresh and not self._state:
                self._begin_own_state()
            place = Place(self.sessions, self._state, keeps) if self._state and not fresh else None
            environ = self._preparing.environ()
            if self.trace:
                environ = {**environ, **self.trace()}
            return self._preparing.launch(grant, environ, place, self._showing.notice(environ))
        except OSError as error:
            where = os.path.dirname(self.sessions.path)
            raise StartFailed(f"The task cannot be prepared in {where}: {error.strerror}.") from None

    def _begin_own_state(self) -> None:
        with self._guard:
            if not self._state:
                self.sessions.sweep()
                self._state = self.sessions.private()

    def _all_found(self, ids: Sequence[str]) -> Sequence[str]:
        if not ids or isinstance(ids, str):
            return ids
        try:
            return [self._find(one) for one in ids]
        except (UnknownTask, AmbiguousTask) as error:
            raise BadInput(f"It cannot wait for that: {error.message}") from None

    # --- agents ------------------------------------------------------------------------------

    @property
    def agent(self) -> Agents:
        """Agents as tasks: start one, or follow one that somebody else started."""
        if self._agents is None:
            from outlast.shell.agents import Agents  # most shells run none

            self._agents = Agents(self)
        return self._agents

    def close(self) -> None:
        """Let go of everything. Tasks go on, but for agents that run in this process."""
        if self._agents is not None:
            self._agents.close()
        super().close()

    # --- the next one ------------------------------------------------------------------------
    @property
    def is_cold(self) -> bool:
        """Whether there is reason to prepare a task, and none is prepared."""
        asked, before = self._asked, self._asked_before
        return asked is not None and before is not None and _how_asked(*asked) == _how_asked(*before)

    def warm_up(self) -> None:
        """Have the next task prepared, if the last two were asked for alike: it then only has to be let go.

        So a host that runs one command does not pay for a second one, and a command that is like no
        other is no reason to throw away what was prepared.
        """
        if self._asked is None or not self.is_cold:
            return
        grant, launch = self._asked
        try:
            if launch.state and self.sessions.read(launch.state, patience=0).mark != launch.snapshot:
                launch = self._prepared(grant, launch.keeps)
            self.executor.prepare_shell(launch)
        except (OSError, ValueError, OutlastError):
            pass  # then the next one begins cold


def refuse_to_wait(wait: float | None, on_output: object) -> None:
    """A start that waits by itself leaves nothing else to wait for."""
    if wait is not None or on_output is not None:
        raise BadInput("`startup_wait` and `ready` say how long to wait; leave out `wait` and `on_output`.")


class Patience:
    """How long a foreground call waits, and whether it ends the task then."""

    def __init__(self, seconds: float, then_end: bool) -> None:
        self.seconds, self.then_end = seconds, then_end


def _how_asked(grant: Grant, launch: Launch) -> tuple[object, ...]:
    """What decides whether two launches can use the same preparation."""
    one = grant.request
    return launch.state, one.cwd, one.env, one.stdin, one.shell, one.split
