"""From what a caller asks for to a task: request, grant, launch, start; and the shells of the commands after it."""

from __future__ import annotations

import os
import sys
import threading
import time
from _weakref import ref  # `weakref` would take each command line 1 ms to import

from outlast.errors import (
    AmbiguousTask,
    BadInput,
    SessionBusy,
    SessionMoved,
    StartFailed,
    UnknownTask,
    quote,
)
from outlast.launch_builder import ARRAY_INDEX, LaunchBuilder, SessionScope
from outlast.light import replace
from outlast.linux.files import get_cwd
from outlast.policy import MODES, YOLO, Policy, may_apply
from outlast.policy.decision import decide
from outlast.shell.context import SYSTEM_ERRORS
from outlast.shell.validation import build_request
from outlast.storage.registry import LEAST_SHARE_BYTES
from outlast.types import BRIDGE, LOCAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Unpack

    from outlast.policy import Mode
    from outlast.shell.context import Context
    from outlast.shell.gate import Gate
    from outlast.shell.options import CommandOptions, OpenOptions, TaskId
    from outlast.storage.task_directory import Hold
    from outlast.types import Grant, Launch, Request, Sandbox, Task

_TRIES = 100  # a session may change so often while one command of it is prepared
_PAUSE_S = 0.005  # commands with shorter pauses come in quick succession
_OPENED_PAUSE_S = 0.05  # a host that runs a command at once, or none, does not pay for a shell in advance
_NEVER = float("inf")


class Starter:
    """Judges and starts the commands of one shell."""

    def __init__(self, context: Context, policy: str | os.PathLike[str] | Policy | None, options: OpenOptions) -> None:
        self.context, self._ask = context, options.get("ask")
        self._mode: Mode = options.get("mode", "default")
        if self._mode not in MODES:
            raise BadInput(f"There is no mode {quote(self._mode)}; known are {', '.join(MODES)}.")
        self._policy = policy if policy is None or isinstance(policy, Policy) else os.fspath(policy)
        self._gates: dict[str, Gate | None] = {}
        if self._policy not in (None, YOLO, YOLO.name):
            self.gate()  # a policy that does not exist is an error at once
        self._builder = LaunchBuilder(context.settings, context.home, context.cwd)
        self._last: tuple[Grant, Launch] | None = None  # the latest command
        self._prepares, self._preparer = options.get("prepare", True), Preparer(self)

    def open(self) -> None:
        """Prepare the shell of the first command, if that does not come at once."""
        if self._prepares:
            self._preparer.request(_OPENED_PAUSE_S)

    def gate(self, cwd: str = "") -> Gate | None:
        """Return what judges a command in this directory; None if everything is allowed."""
        if cwd not in self._gates:
            self._gates[cwd] = self._make_gate(cwd)
        return self._gates[cwd]

    def _make_gate(self, cwd: str) -> Gate | None:
        context = self.context
        if cwd and (usual := self.gate()) is not None:
            return usual
        asked = os.path.abspath(os.path.join(context.cwd, os.path.expanduser(cwd))) if cwd else ""
        allows_all = self._policy in (None, YOLO, YOLO.name)
        if allows_all and not may_apply(context.home, context.settings.policy, asked or context.cwd or get_cwd()):
            return None
        from outlast.shell.gate import Gate, SessionOverrides  # loads the whole policy engine

        around = SessionOverrides(lambda: context.sessions, context.state_of, context.find_place)
        return Gate(context.home, context.settings, self._policy, self._mode, self._ask, around, context.cwd)

    def is_confined(self, cwd: str = "") -> bool:
        """Return whether the policy keeps commands in a sandbox unless the user says yes."""
        gate = self.gate(cwd)
        return gate is not None and gate.policy_for(cwd).confined

    @property
    def can_ask(self) -> bool:
        """Whether there is a user to ask, here or on a page."""
        from outlast.shell.approval_link import find_sockets

        return self._mode == "default" and (self._ask is not None or bool(find_sockets(self.context.home)))

    def is_kept_inside(self, options: Mapping[str, Any]) -> bool:
        """Return whether only the policy keeps a command in its sandbox: from that one the user can let it out."""
        context = self.context
        if options.get("sandbox") is not None or context.sandbox or context.settings.sandbox:
            return False
        return self.is_confined(os.fspath(options.get("cwd") or ""))

    def repeat(self, command: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return a command and its options; with `like` those of the earlier task, as far as none are given."""
        like = options.get("like")
        if like is None:
            return command, {**options}
        from outlast.shell.again import merge  # most commands are new

        context, task_id = self.context, self.context.find(like)
        command, found = merge(task_id, context.executor.registry.launch_of(task_id), command, options)
        if options.get("sandbox") is None and (context.sandbox or context.settings.sandbox or self.is_confined()):
            found.pop("sandbox", None)  # the one that is demanded now, not the one of then
        return command, found

    def launch(
        self,
        command: str,
        *,
        background: bool = True,
        keeps: bool = False,
        hold: Hold | None = None,
        agent: Mapping[str, str] | None = None,
        sandbox: Sandbox | bool | None = None,
        evidence: str = "",
        **options: Unpack[CommandOptions],
    ) -> tuple[Task, bool]:
        """Start a command, or find the task that has its name. Returns it, not redacted, and whether it is new.

        If it `keeps`, the session takes over what it changes. A foreground command needs no free slot. `evidence` is
        how it failed in its sandbox before, if it is to run outside now.
        """
        context, cwd = self.context, os.fspath(options.get("cwd") or "")
        if options.get("after"):
            options["after"] = self._find_all(options["after"])
        confined = self._sandbox(sandbox, cwd)
        is_local = options.get("executor") in (None, LOCAL)
        if confined is None and sandbox is False and self.is_confined(cwd) and is_local:
            options |= {"fresh": True, "cwd": cwd or self._session_directory()}
        how: dict[str, Any] = {"background": background, "agent": agent, "sandbox": confined}
        request = build_request(command, session=context.session, **how, **options)
        return self.launch_request(replace(request, evidence=evidence) if evidence else request, keeps, hold)

    def launch_array(self, command: str, indexes: Sequence[int], **options: Unpack[CommandOptions]) -> list[Task]:
        """Start a background task for each index, judged once; each has its index in a variable.

        Together they may keep half of what all tasks may: otherwise the first hundred would reserve all of it.
        """
        context = self.context
        how: dict[str, Any] = {"background": True, "sandbox": self._sandbox(None, os.fspath(options.get("cwd") or ""))}
        request = build_request(command, session=context.session, **how, **options)
        for _ in range(_TRIES):
            _, launch = self._grant(request, keeps=False)
            share = max(LEAST_SHARE_BYTES, context.settings.state_limit_bytes // (2 * len(indexes)))
            launch = replace(launch, output_limit=min(launch.output_limit, share))
            launches = [replace(launch, env={**launch.env, ARRAY_INDEX: str(index)}) for index in indexes]
            try:
                return context.executor.start_array(launches)
            except SessionMoved:
                continue
        raise SessionBusy(f"The session {quote(context.session)} changes too fast to run anything in it; try again.")

    def _sandbox(self, asked: Sandbox | bool | None, cwd: str) -> Sandbox | None:
        """Return the sandbox that a command in this directory gets: the caller's, the settings' or the policy's."""
        context = self.context
        imposed = context.sandbox or context.settings.sandbox
        if not imposed and self.is_confined(cwd):
            from outlast.sandbox.workspace import sandbox_for

            return sandbox_for(asked, context.settings, context.cwd)
        if not asked and not imposed:
            return None
        from outlast.sandbox.choice import choose_sandbox  # most commands run without

        return choose_sandbox(asked, context.sandbox, context.settings, cwd or None, context.cwd)

    def _session_directory(self) -> str | None:
        """Return where a command of the session begins. What the session defined may come from inside a sandbox."""
        context = self.context
        try:
            return context.sessions.read(context.state).directory if context.state else None
        except (OSError, ValueError):
            return None  # it has no state

    def launch_request(self, request: Request, keeps: bool = False, hold: Hold | None = None) -> tuple[Task, bool]:
        """As `launch`, of a request that was checked."""
        context = self.context
        self._preparer.cancel()
        for _ in range(_TRIES):
            grant, launch = self._grant(request, keeps)
            try:
                started = context.executor.start(launch, hold)
            except SessionMoved:
                continue  # the command was judged and prepared in a state that is gone
            is_first, self._last = self._last is None, (grant, launch)
            if request.background:
                self.prepare_next()
            elif self._prepares and not (is_first or context.executor.has_prepared()):
                self._preparer.request(0.0)  # commands follow each other without a pause in which to prepare
            if request.env:
                context.redactor.learn(request.env)
            return started
        raise SessionBusy(f"The session {quote(context.session)} changes too fast to run anything in it; try again.")

    def _grant(self, request: Request, keeps: bool) -> tuple[Grant, Launch]:
        """Judge a request, and build the launch for it."""
        # A bridge runs no command: there is nothing to judge.
        gate = self.gate(request.cwd) if request.shell != BRIDGE else None
        if gate is None:
            grant = decide(request, YOLO)
            return grant, self._build_launch(grant, keeps)
        return gate.grant(request, lambda grant: self._build_launch(grant, keeps))

    def _build_launch(self, grant: Grant, keeps: bool, state: str = "") -> Launch:
        """Return what exactly runs for a grant now, in the session's state or in this one."""
        context, fresh = self.context, grant.request.fresh
        try:
            if keeps and not fresh and not (state or context.state):
                context.begin_own_state()
            executor = grant.request.executor
            state = context.state_of(executor, state)
            scope = SessionScope(context.sessions, state, keeps) if state and not fresh else None
            environ = {**os.environ, **(context.trace() if context.trace else {})}
            secret_names = context.redactor.learn_environ(environ)
            launch = self._builder.build(grant, environ, scope, secret_names, context.executor.place(executor))
            if launch.state:
                # If the session has another snapshot by now, the start fails with `SessionMoved`.
                context.redactor.learn_state(launch.state, launch.snapshot)
            return launch
        except OSError as error:
            where = os.path.dirname(context.sessions.path)
            raise StartFailed(f"The task cannot be prepared in {where}: {error.strerror}.") from None

    def _find_all(self, tasks: Sequence[TaskId]) -> Sequence[TaskId]:
        try:
            return tasks if isinstance(tasks, str) else [self.context.find(one) for one in tasks]
        except (UnknownTask, AmbiguousTask) as error:
            raise BadInput(f"It cannot wait for that: {error.message_with('')}", error.hint) from None

    def prepare_next(self) -> None:
        """Prepare shells in the first pause: a thread that prepares would compete with a command that runs."""
        if self._prepares:
            self._preparer.request(_PAUSE_S)

    def close(self) -> None:
        self._preparer.close()

    def prepare(self) -> bool:
        """Prepare one shell for a command like the last one; return whether to prepare another one."""
        try:
            if self._last is None:
                self.context.executor.prepare(self._guess_launch())
                return False
            grant, launch = self._last
            if launch.state and self.context.sessions.read(launch.state, patience=0).mark != launch.snapshot:
                launch = self._build_launch(grant, launch.keeps)
            return self.context.executor.prepare(launch)
        except (*SYSTEM_ERRORS, ValueError):
            return False  # then the next command starts its own shell

    def _guess_launch(self) -> Launch:
        """Return what the first command will probably be like. OSError if its session has no state yet."""
        context = self.context
        if "BASH_ENV" in os.environ:
            raise FileNotFoundError  # a file that runs in a session's first shell must not run without a command
        state = context.state if context.named else context.prepare_own_state()
        if context.named:
            context.sessions.read(state, patience=0)
        request = build_request("true", session=context.session, background=False, sandbox=self._sandbox(None, ""))
        return self._build_launch(decide(request, YOLO), keeps=True, state=state)


class Preparer:
    """Lets a starter `prepare` in its own thread, some time after it was asked to, and again while that returns True.

    The latest request counts. The thread keeps no starter alive: a shell that is dropped without `close` takes its
    thread and its prepared shells with it.
    """

    def __init__(self, starter: Starter) -> None:
        self._starter, self._owner = ref(starter, self._abandon), os.getpid()
        self._changed = threading.Condition()
        self._due, self._closed = _NEVER, False
        self._wakes_at = 0.0  # when the thread looks again by itself; 0: it does not wait
        self._thread: threading.Thread | None = None

    def _abandon(self, _: object, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or self._owner != os.getpid():
            return  # the thread ended with the interpreter, or stayed behind in a fork, and may have held the lock
        with self._changed:  # reentrant: the garbage collector may run while this thread holds it
            self._closed = True
            self._changed.notify()

    def request(self, delay: float) -> None:
        """Prepare after `delay` seconds."""
        if self._owner != os.getpid():
            return  # a fork of the host has no such thread, and may have a copy of a held lock
        with self._changed:
            self._due = time.monotonic() + delay
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="outlast-preparer", daemon=True)
                self._thread.start()
            elif self._due < self._wakes_at:
                self._changed.notify()

    def cancel(self) -> None:
        """Forget the request: a command that starts now must not compete with it."""
        self._due = _NEVER

    def close(self) -> None:
        """End the thread."""
        if self._owner != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (due := self._wait()) is not None:
            if self._prepare():
                continue
            with self._changed:
                if self._due == due:
                    self._due = _NEVER

    def _prepare(self) -> bool:
        starter = self._starter()
        return starter is not None and starter.prepare()

    def _wait(self) -> float | None:
        """Wait until a request is due; returns None when it is closed."""
        with self._changed:
            while not self._closed and (left := self._due - time.monotonic()) > 0:
                self._wakes_at = self._due
                self._changed.wait(None if left == _NEVER else left)
            self._wakes_at = 0.0
            return None if self._closed else self._due
