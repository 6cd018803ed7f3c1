"""What all parts of a `Shell` share: one state directory as one session sees it."""

from __future__ import annotations

import os
import threading
from functools import wraps

from outlast.errors import BadInput, OutlastError, SystemRefused
from outlast.executors.router import Router
from outlast.light import sqlite3
from outlast.linux.files import get_cwd
from outlast.linux.process import read_umask
from outlast.output.redaction import Redactor
from outlast.settings import Settings, load
from outlast.shell import validation
from outlast.storage.sessions import Sessions
from outlast.types import LOCAL, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn, TypeVar

    from outlast.executors.base import Executors
    from outlast.output.redaction import Mask
    from outlast.shell.options import OpenOptions, TaskId
    from outlast.types import Place

    T = TypeVar("T")
    Method = TypeVar("Method", bound=Callable[..., Any])

SYSTEM_ERRORS = (OSError, sqlite3.Error, OutlastError)  # what `Context.raise_translated` takes


def translate_errors(method: Method) -> Method:
    """Let a method of an object with a `context` raise translated errors. Not if it calls a function of the caller."""

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except SYSTEM_ERRORS as error:
            args[0].context.raise_translated(error)

    return call  # type: ignore[return-value]


class Context:
    """Settings, executor, redaction and scope of one `Shell`."""

    def __init__(self, home: str, session: str | None, options: OpenOptions) -> None:
        cwd, operator, defaults = options.get("cwd"), options.get("operator", False), options.get("defaults")
        self.home, self.operator = home, operator
        self.sandbox = options.get("sandbox")  # of every command that names no other
        self.cwd = os.path.abspath(os.path.expanduser(os.fspath(cwd))) if cwd is not None else ""
        self.settings = load(home, os.environ, defaults)
        self.session = validation.session_name(session or self.settings.session)
        # The session whose state commands begin with. An unnamed shell gets one of its own with its first `run`.
        self.named = session is not None or self.session != Settings().session
        self.state = self.session if self.named else ""
        self._state_lock, self._owner = threading.Lock(), os.getpid()
        self._own_state: tuple[object, str, int] | None = None  # for what it was made, its name, a descriptor
        self.scope = None if operator else self.session  # whose tasks can be reached; None: all
        self.trace: Callable[[], Mapping[str, str]] | None = None  # variables that add a command to the caller's trace

    def open(self) -> None:
        """Open the state directory. Until then nothing is on disk, so a wrong policy leaves nothing behind."""
        self.executor: Executors = Router(self.home, self.settings)
        self.sessions = Sessions(self.executor.registry.home.sessions)
        self.redactor = Redactor(self.settings, self.sessions.peek)

    def close(self) -> None:
        self.executor.close()
        self._remove_own_state()

    def _remove_own_state(self) -> None:
        if self._own_state is None:
            return
        _, name, fd = self._own_state
        self._own_state, self.state = None, ""
        # A forked child must not remove the state of its parent.
        if self._owner == os.getpid():
            try:
                self.sessions.remove(name)
            except OSError:
                pass  # the next shell that begins a state sweeps
        os.close(fd)

    def begin_own_state(self) -> None:
        """Give an unnamed shell a session of its own."""
        self.state = self.prepare_own_state()

    def prepare_own_state(self) -> str:
        """Create the session that this unnamed shell will have if it begins it as this process is now."""
        made_for = os.getpid(), dict(os.environ), self.cwd or get_cwd(), read_umask()
        with self._state_lock:
            if self._own_state is not None and not self.state and self._own_state[0] != made_for:
                self._remove_own_state()
            if self._own_state is None:
                self.sessions.sweep()
                self._own_state = made_for, *self.sessions.create_private()
            return self._own_state[1]

    def state_of(self, executor: str, state: str = "") -> str:
        """Return the name of this session's state on an executor: each machine has variables of its own."""
        state = state or self.state
        return state if executor == LOCAL or not state else f"{state}@{executor}"

    def find_place(self, executor: str) -> Place | None:
        """Return where a command begins on another machine; None for this one."""
        return self.executor.place(executor)

    def mask_for(self, task: Task) -> Mask:
        """Return the mask for a task's output: it also covers what the commands of its session have set."""
        return self.redactor.mask_for(task.session, self.state)

    def call(self, work: Callable[[], T]) -> T:
        """Call this; errors of the system become an `OutlastError` without secrets."""
        try:
            return work()
        except SYSTEM_ERRORS as error:
            self.raise_translated(error)

    def raise_translated(self, error: Exception) -> NoReturn:
        """Raise an `OutlastError` without secrets instead of this error, unless it is the caller's own."""
        if isinstance(error, OutlastError):
            self.redactor.redact_error(error)
        if isinstance(error, OutlastError) or hasattr(error, "of_the_caller"):
            raise error
        if isinstance(error, OSError):
            what = f" ({error.filename})" if error.filename else ""
            raise SystemRefused(f"The system refused what is needed: {error.strerror}{what}; try again.") from None
        raise SystemRefused(f"The index of the state directory cannot be used: {error}; try again.") from None

    def find(self, task: TaskId) -> str:
        """Return the id of a task that can be reached, from the task or from a part of its id."""
        part = task.task_id if isinstance(task, Task) else task
        if not isinstance(part, str):
            raise BadInput(f"A task id is text, not {type(part).__name__}.")
        return self.executor.registry.find(part, self.scope)

    def check_reachable(self, task_id: str) -> None:
        """Raise `UnknownTask` if the task, named by its whole id, is another session's."""
        if self.scope is not None and not self.executor.registry.belongs(task_id, self.scope):
            self.find(task_id)
