"""What all parts of a `Shell` share: one state directory as one session sees it."""

from __future__ import annotations

import os
import threading

from outlast import validation
from outlast.errors import BadInput, OutlastError, SystemRefused, named
from outlast.executors.local import LocalExecutor
from outlast.light import sqlite3
from outlast.output.redaction import Redactor
from outlast.permissions import MODES, YOLO, Policy, has_a_say
from outlast.settings import Settings, load
from outlast.storage.sessions import Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from outlast.executors.base import Executor
    from outlast.gate import Ask, Gate
    from outlast.output.redaction import Mask
    from outlast.permissions import Mode
    from outlast.types import Sandbox, Task

    Method = TypeVar("Method", bound=Callable[..., Any])
    Seen = TypeVar("Seen", bound=Task)


def translate_errors(method: Method) -> Method:
    """Turn errors of the system into an `OutlastError`, and mask secrets in its message.

    For methods of objects with a `context`. Not for methods that call a function of the caller.
    """

    def translated(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except OSError as error:
            if hasattr(error, "of_the_caller"):
                raise
            what = f" ({error.filename})" if error.filename else ""
            raise SystemRefused(f"The system refused what is needed: {error.strerror}{what}; try again.") from None
        except sqlite3.Error as error:
            raise SystemRefused(f"The index of the state directory cannot be used: {error}; try again.") from None
        except OutlastError as error:
            args[0].context.redactor.redact_error(error)
            raise

    translated.__name__, translated.__doc__ = method.__name__, method.__doc__
    translated.__wrapped__ = method  # type: ignore[attr-defined] # for `help` and `inspect.signature`
    return translated  # type: ignore[return-value]


class Context:
    """Settings, executor, policy, redaction and scope of one `Shell`."""

    def __init__(
        self,
        home: str,
        session: str | None,
        policy: str | os.PathLike[str] | Policy | None,
        *,
        mode: Mode,
        ask: Ask | None,
        operator: bool,
        sandbox: Sandbox | bool | None,
        defaults: Mapping[str, object] | None,
        cwd: str | os.PathLike[str] | None,
    ) -> None:
        self.home, self.operator = home, operator
        self.sandbox = sandbox  # of every command that names no other
        self.cwd = os.path.abspath(os.path.expanduser(os.fspath(cwd))) if cwd is not None else ""
        self.settings = load(home, os.environ, defaults)
        self.session = validation.session_name(session or self.settings.session)
        if mode not in MODES:
            raise BadInput(f"There is no mode {named(mode)}; known are {', '.join(MODES)}.")
        self._ask, self._mode = ask, mode
        self._policy = policy if policy is None or isinstance(policy, Policy) else os.fspath(policy)
        self._gates: dict[str, Gate | None] = {}
        # The session whose state commands begin with. An unnamed shell gets one of its own with its first `run`.
        self.named = session is not None or self.session != Settings().session
        self.state = self.session if self.named else ""
        self._state_lock, self._owner = threading.Lock(), os.getpid()
        if self._policy not in (None, YOLO, YOLO.name):
            self.gate()  # a policy that does not exist is an error at once
        self.scope = None if operator else self.session  # whose tasks can be reached; None: all
        self.executor: Executor = LocalExecutor(home, self.settings)
        self.sessions = Sessions(self.executor.registry.home.sessions)
        self.redactor = Redactor(self.settings, self.sessions.peek)
        self.trace: Callable[[], Mapping[str, str]] | None = None  # variables that add a command to the caller's trace

    def close(self) -> None:
        self.executor.close()
        # A forked child must not remove the state of its parent.
        if self.state and not self.named and self._owner == os.getpid():
            try:
                self.sessions.remove(self.state)
            except OSError:
                pass  # the next shell that begins a state sweeps
            self.state = ""

    def begin_own_state(self) -> None:
        """Give an unnamed shell a session of its own."""
        with self._state_lock:
            if not self.state:
                self.sessions.sweep()
                self.state = self.sessions.new_private_name()

    # --- policy ------------------------------------------------------------------------------

    def gate(self, cwd: str = "") -> Gate | None:
        """What judges a command in this directory; None if everything is allowed."""
        if cwd not in self._gates:
            self._gates[cwd] = self._make_gate(cwd)
        return self._gates[cwd]

    def _make_gate(self, cwd: str) -> Gate | None:
        if cwd and (usual := self.gate()) is not None:
            return usual
        here = (
            os.path.abspath(os.path.join(self.cwd, os.path.expanduser(cwd))) if cwd else self.cwd or validation.here()
        )
        allows_all = self._policy in (None, YOLO, YOLO.name)
        if allows_all and not has_a_say(self.home, self.settings.policy, here):
            return None
        from outlast.gate import Around, Gate  # loads the whole policy engine

        around = Around(lambda: self.sessions, lambda: self.state)
        return Gate(self.home, self.settings, self._policy, self._mode, self._ask, around, self.cwd)

    # --- redaction ---------------------------------------------------------------------------

    @property
    def mask(self) -> Mask:
        """What is masked in everything that is shown."""
        return self.redactor.mask

    def mask_for(self, task: Task) -> Mask:
        """The mask for a task's output: also knows what the commands of its session have set."""
        return self.redactor.mask_for(task.session, self.state)

    def redact(self, task: Seen) -> Seen:
        return self.redactor.redact(task)

    # --- scope -------------------------------------------------------------------------------

    def find(self, part: str) -> str:
        """The id of the task that a part of an id names, among those that can be reached."""
        if not isinstance(part, str):
            raise BadInput(f"A task id is text, not {type(part).__name__}.")
        return self.executor.registry.find(part, self.scope)

    def check_reachable(self, task_id: str) -> None:
        """Raise `UnknownTask` if the task, named by its whole id, is another session's."""
        if self.scope is not None and not self.executor.registry.belongs(task_id, self.scope):
            self.find(task_id)
