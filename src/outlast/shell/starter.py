"""From a request to a task: request, grant, launch, start."""

from __future__ import annotations

import os
import threading

from outlast import validation
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
from outlast.launch_builder import LaunchBuilder, SessionScope
from outlast.permissions import YOLO, decide
from outlast.shell.context import translate_errors
from outlast.types import BRIDGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from outlast.options import CommandOptions
    from outlast.shell.context import Context
    from outlast.storage.locks import Hold
    from outlast.types import Grant, Launch, Request, Sandbox, Task

_TRIES = 100  # a session may change so often while one command of it is prepared
_PREPARE_AFTER_S = 0.005
_FOREGROUND_BEFORE_PREPARING = 2  # a host that runs one command does not pay for the shell of a second one


class Starter:
    """Starts the commands of one shell."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._builder = LaunchBuilder(context.settings, context.executor.registry.home.path, context.cwd)
        self._foreground = 0  # commands that were started in the session's state
        self._last: tuple[Grant, Launch] | None = None  # the latest of them
        self._timer: threading.Timer | None = None

    @translate_errors
    def launch(
        self,
        command: str,
        *,
        background: bool = True,
        keeps: bool = False,
        hold: Hold | None = None,
        agent: Mapping[str, str] | None = None,
        sandbox: Sandbox | bool | None = None,
        **options: Unpack[CommandOptions],
    ) -> tuple[Task, bool]:
        """Start a command, or find the task that has its name. Returns it, and whether it is new.

        If it `keeps`, the session takes over what it changes. A foreground command needs no free slot.
        """
        options["after"] = self._find_all(options.get("after", ()))
        confined = self._sandbox(sandbox, options.get("cwd"))
        request = validation.request(
            command, session=self.context.session, background=background, agent=agent, sandbox=confined, **options
        )
        return self.launch_request(request, keeps, hold)

    def launch_request(self, request: Request, keeps: bool = False, hold: Hold | None = None) -> tuple[Task, bool]:
        """As `launch`, of a request that was checked."""
        context = self.context
        if self._timer is not None:
            self._timer.cancel()
        for _ in range(_TRIES):
            grant, launch = self._grant(request, keeps)
            try:
                task, new = context.executor.start_or_find(launch, hold)
            except SessionMoved:
                continue  # the command was judged and prepared in a state that is gone
            if launch.keeps:
                self._foreground, self._last = self._foreground + 1, (grant, launch)
            context.redactor.learn(request.env)
            return context.redact(task), new
        raise SessionBusy(f"The session {named(context.session)} changes too fast to run anything in it; try again.")

    def _grant(self, request: Request, keeps: bool) -> tuple[Grant, Launch]:
        """Judge a request, and build the launch for it."""
        # A bridge runs no command: there is nothing to judge.
        gate = self.context.gate(request.cwd) if request.shell != BRIDGE else None
        if gate is None:
            grant = decide(request, YOLO)
            return grant, self._build_launch(grant, keeps)
        return gate.granted(request, lambda grant: self._build_launch(grant, keeps))

    def _build_launch(self, grant: Grant, keeps: bool) -> Launch:
        """What exactly runs for a grant now, in the session's state."""
        context, fresh = self.context, grant.request.fresh
        try:
            if keeps and not fresh and not context.state:
                context.begin_own_state()
            scope = SessionScope(context.sessions, context.state, keeps) if context.state and not fresh else None
            environ = {**os.environ, **(context.trace() if context.trace else {})}
            launch = self._builder.build(grant, environ, scope, context.redactor.learn_environ(environ))
            if launch.state:
                # If the session has another snapshot by now, the start fails with `SessionMoved`.
                context.redactor.learn_state(launch.state, launch.snapshot)
            return launch
        except OSError as error:
            where = os.path.dirname(context.sessions.path)
            raise StartFailed(f"The task cannot be prepared in {where}: {error.strerror}.") from None

    def _sandbox(self, asked: Sandbox | bool | None, cwd: str | os.PathLike[str] | None) -> Sandbox | None:
        context = self.context
        if not asked and not context.sandbox and not context.settings.sandbox:
            return None
        from outlast.sandbox.choice import wanted  # most commands run without

        where = os.fspath(cwd) if cwd is not None else None
        return wanted(asked, context.sandbox, context.settings, where, context.cwd)

    def _find_all(self, ids: Sequence[str]) -> Sequence[str]:
        if not ids or isinstance(ids, str):
            return ids
        try:
            return [self.context.find(one) for one in ids]
        except (UnknownTask, AmbiguousTask) as error:
            raise BadInput(f"It cannot wait for that: {error.message}") from None

    def prepare_soon(self) -> None:
        """Prepare a shell for a command like the last foreground one, a moment later: the caller has its result.

        The next command cancels it, so that commands in quick succession do not compete with it.
        """
        if self._foreground >= _FOREGROUND_BEFORE_PREPARING:
            self._timer = threading.Timer(_PREPARE_AFTER_S, self._prepare)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _prepare(self) -> None:
        if self._last is None:
            return
        grant, launch = self._last
        try:
            if self.context.sessions.read(launch.state, patience=0).mark != launch.snapshot:
                launch = self._build_launch(grant, launch.keeps)
            self.context.executor.prepare_shell(launch)
        except (OSError, ValueError, OutlastError):
            pass  # then the next command starts its own shell
