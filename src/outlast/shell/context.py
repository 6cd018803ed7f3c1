"""What all parts of a `Shell` share: one state directory as one session sees it."""

from __future__ import annotations

import os
import threading

from outlast import validation
from outlast.errors import BadInput, OutlastError, SystemRefused
from outlast.executors.local import LocalExecutor
from outlast.light import sqlite3
from outlast.options import TypedDict
from outlast.output.redaction import Redactor
from outlast.settings import Settings, load
from outlast.storage.sessions import Sessions
from outlast.types import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from outlast.executors.base import Executor
    from outlast.gate import Ask
    from outlast.output.redaction import Mask
    from outlast.policy import Mode
    from outlast.types import Sandbox

    Method = TypeVar("Method", bound=Callable[..., Any])

SYSTEM_ERRORS = (OSError, sqlite3.Error, OutlastError)  # what `Context.translate` takes


def translate_errors(method: Method) -> Method:
    """Let a method of an object with a `context` raise translated errors. Not if it calls a function of the caller."""

    def translated(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except SYSTEM_ERRORS as error:
            if (told := args[0].context.translate(error)) is error:
                raise
            raise told from None

    translated.__name__, translated.__doc__ = method.__name__, method.__doc__
    translated.__wrapped__ = method  # type: ignore[attr-defined] # for `help` and `inspect.signature`
    return translated  # type: ignore[return-value]


class OpenOptions(TypedDict, total=False):
    """How a shell is opened: see `Shell.open`."""

    mode: Mode
    ask: Ask | None
    operator: bool
    sandbox: Sandbox | bool | None
    defaults: Mapping[str, object] | None
    cwd: str | os.PathLike[str] | None


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
        self._state_lock, self._state_fd, self._owner = threading.Lock(), -1, os.getpid()
        self.scope = None if operator else self.session  # whose tasks can be reached; None: all
        self.trace: Callable[[], Mapping[str, str]] | None = None  # variables that add a command to the caller's trace

    def open(self) -> None:
        """Open the state directory. Until then nothing is on disk, so a wrong policy leaves nothing behind."""
        self.executor: Executor = LocalExecutor(self.home, self.settings)
        self.sessions = Sessions(self.executor.registry.home.sessions)
        self.redactor = Redactor(self.settings, self.sessions.peek)

    def close(self) -> None:
        self.executor.close()
        # A forked child must not remove the state of its parent.
        if self.state and not self.named and self._owner == os.getpid():
            try:
                self.sessions.remove(self.state)
            except OSError:
                pass  # the next shell that begins a state sweeps
            self.state = ""
        if self._state_fd >= 0:
            os.close(self._state_fd)
            self._state_fd = -1

    def begin_own_state(self) -> None:
        """Give an unnamed shell a session of its own."""
        with self._state_lock:
            if not self.state:
                self.sessions.sweep()
                self.state, self._state_fd = self.sessions.create_private()

    def mask_for(self, task: Task) -> Mask:
        """Return the mask for a task's output: it also covers what the commands of its session have set."""
        return self.redactor.mask_for(task.session, self.state)

    def translate(self, error: Exception) -> Exception:
        """Return the error to raise instead of this one: an `OutlastError` without secrets."""
        if isinstance(error, OutlastError):
            self.redactor.redact_error(error)
            return error
        if hasattr(error, "of_the_caller"):
            return error
        if isinstance(error, OSError):
            what = f" ({error.filename})" if error.filename else ""
            return SystemRefused(f"The system refused what is needed: {error.strerror}{what}; try again.")
        return SystemRefused(f"The index of the state directory cannot be used: {error}; try again.")

    def find(self, task: str | Task) -> str:
        """Return the id of a task that can be reached, from the task or from a part of its id."""
        part = task.task_id if isinstance(task, Task) else task
        if not isinstance(part, str):
            raise BadInput(f"A task id is text, not {type(part).__name__}.")
        return self.executor.registry.find(part, self.scope)

    def check_reachable(self, task_id: str) -> None:
        """Raise `UnknownTask` if the task, named by its whole id, is another session's."""
        if self.scope is not None and not self.executor.registry.belongs(task_id, self.scope):
            self.find(task_id)
