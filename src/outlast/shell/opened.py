"""An open state directory, as one session: its settings, its policy, what of it may be seen."""

from __future__ import annotations

import os
import sys
import threading

from outlast import asking, session_admin, showing
from outlast.errors import BadInput, OutlastError, SystemRefused, Unsupported, named
from outlast.executors.local import LocalExecutor
from outlast.frozen import replaced
from outlast.launch_builder import LaunchBuilder
from outlast.light import sqlite3
from outlast.permissions import MODES, YOLO, Policy, has_a_say
from outlast.settings import Settings, default_home, load
from outlast.storage.sessions import Sessions
from outlast.types import NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from outlast.gate import Ask, Gate
    from outlast.masking import Mask
    from outlast.permissions import Mode
    from outlast.permissions.judge import Judgement
    from outlast.types import Grant, Launch, Sandbox, Task

    Verb = TypeVar("Verb", bound=Callable[..., Any])
    Seen = TypeVar("Seen", bound=Task)


def telling(verb: Verb) -> Verb:
    """What the system refuses in the midst of a verb becomes an error of ours. Not for what calls the caller back."""

    def told(*args: Any, **how: Any) -> Any:
        try:
            return verb(*args, **how)
        except OSError as error:
            if hasattr(error, "of_the_caller"):
                raise
            what = f" ({error.filename})" if error.filename else ""
            raise SystemRefused(f"The system refused what is needed: {error.strerror}{what}; try again.") from None
        except sqlite3.Error as error:
            raise SystemRefused(f"The index of the state directory cannot be used: {error}; try again.") from None
        except OutlastError as error:
            showing.error(error, args[0].mask)
            raise

    told.__name__, told.__doc__ = verb.__name__, verb.__doc__
    told.__wrapped__ = verb  # type: ignore[attr-defined] # for `help` and `inspect.signature`
    return told  # type: ignore[return-value]


class Opened:
    """Commands of one session in one state directory: what all verbs need."""

    trace: Callable[[], Mapping[str, str]] | None = None
    """The variables that make a command a part of the caller's trace, if somebody traces."""

    def __init__(
        self,
        home: str,
        session: str | None,
        policy: str | os.PathLike[str] | Policy | None = None,
        *,
        mode: Mode = "default",
        ask: Ask | None = None,
        operator: bool = False,
        sandbox: Sandbox | bool | None = None,
        defaults: Mapping[str, object] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.cwd = os.path.abspath(os.path.expanduser(os.fspath(cwd))) if cwd is not None else ""
        self.settings = load(home, os.environ, defaults)
        self.sandbox = sandbox  # of every command that says nothing else
        self.session = asking.session_name(session or self.settings.session)
        self._home, self._ask, self._mode = home, ask, mode
        if mode not in MODES:
            raise BadInput(f"There is no mode {named(mode)}; known are {', '.join(MODES)}.")
        self._call_policy = policy if policy is None or isinstance(policy, Policy) else os.fspath(policy)
        self._gates: dict[str, Gate | None] = {}
        if self._call_policy not in (None, YOLO, YOLO.name):
            self._gate()  # a policy that is not there is an error at once
        self.operator = operator
        self._scope = None if operator else self.session
        self.executor = LocalExecutor(home, self.settings)
        self.named = session is not None or self.session != Settings().session
        self.sessions = Sessions(self.executor.registry.home.sessions)
        self._state = self.session if self.named else ""  # of its own, from the first `run` on
        self._owner = os.getpid()
        self._guard = threading.Lock()
        self._showing = showing.Showing(self.settings)
        self._builder = LaunchBuilder(self.settings, self.executor.registry.home.path, self.cwd)
        self._asked: tuple[Grant, Launch] | None = None  # the last launch, and
        self._asked_before: tuple[Grant, Launch] | None = None

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        *,
        mode: Mode = "default",
        ask: Ask | None = None,
        operator: bool = False,
        sandbox: Sandbox | bool | None = None,
        defaults: Mapping[str, object] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        early: bool = True,
    ) -> Self:
        """Open the state directory `home` as `session`. An operator reaches every session's tasks.

        `policy` is a name, a file or a `Policy` that holds besides the user's and the project's; `ask` is called with
        an `Approval` for what they do not allow outright. In mode "yolo" nothing is asked, and what is denied stays so.
        With a `sandbox` every command runs in one. `defaults` are settings that hold unless the user has set them.
        Commands run in `cwd` instead of the caller's directory, and a new session begins there. What it takes
        to run a command is started at once, so that the first one need not wait for it; if not `early`, by the first
        command.
        """
        if not sys.platform.startswith("linux"):
            raise Unsupported("Outlast needs Linux (5.4 or newer) so far; on Windows run it inside WSL.")
        path = os.path.abspath(os.fspath(home)) if home is not None else default_home(os.environ)
        how: dict[str, Any] = {"operator": operator, "sandbox": sandbox, "defaults": defaults, "cwd": cwd}
        return cls(path, session, policy, mode=mode, ask=ask, **how)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything. Tasks go on."""
        self.executor.close()
        if self._state and not self.named and self._owner == os.getpid():
            try:
                self.sessions.remove(self._state)
            except OSError:
                pass  # whoever opens the next one sweeps
            self._state = ""

    # --- policy ------------------------------------------------------------------------------

    def _gate(self, cwd: str = "") -> Gate | None:
        """Who judges a command in this directory; nobody if all is allowed."""
        if cwd not in self._gates:
            self._gates[cwd] = self._gate_for(cwd)
        return self._gates[cwd]

    def _gate_for(self, cwd: str) -> Gate | None:
        if cwd and (usual := self._gate()) is not None:
            return usual
        here = os.path.abspath(os.path.join(self.cwd, os.path.expanduser(cwd))) if cwd else self.cwd or asking.here()
        calm = self._call_policy in (None, YOLO, YOLO.name)
        if calm and not has_a_say(self._home, self.settings.policy, here):
            return None
        from outlast.gate import Around, Gate  # and all that judges

        around = Around(lambda: self.sessions, lambda: self._state)
        return Gate(self._home, self.settings, self._call_policy, self._mode, self._ask, around, self.cwd)

    @property
    def policy(self) -> str:
        """The name of what is in force."""
        gate = self._gate()
        return gate.policy_for("").name if gate else YOLO.name

    def broken_policies(self) -> Sequence[str]:
        """What is wrong with policies that have a say; while there is anything, everything is asked about."""
        gate = self._gate()
        return [layer.broken for layer in gate.policy_for("").layers if layer.broken] if gate else []

    @telling
    def check(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, shell: str | None = None
    ) -> Judgement:
        """What would be decided of a command now, with a reason for each part of it. Nothing runs, nobody is asked."""
        from outlast.gate import unjudged

        how: dict[str, Any] = {"session": self.session, "cwd": cwd, "env": env, "shell": shell}
        try:
            request = asking.request(command, **how)
        except BadInput:
            if not command.strip() or shell == NO_SHELL:
                raise
            request = replaced(asking.request("true", **how), command=command)  # it could never run: still, what of it?
        gate = self._gate(request.cwd)
        return unjudged() if gate is None else gate.judged(request)

    # --- what is shown, and of what ----------------------------------------------------------

    @property
    def mask(self) -> Mask:
        """What is masked in all that is shown."""
        return self._showing.mask

    def mask_for(self, task: Task) -> Mask:
        """The mask for a task's output: with what its session's commands have set."""
        for name in {task.session, self._state} - {""}:
            if not self._showing.knows(name):
                self._showing.knows_nothing_of(name)
                self._learn_secrets(name)
        return self.mask

    def _learn_secrets(self, session: str) -> None:
        try:
            self._showing.learn_state(session, self.sessions.peek(session))
        except (OSError, ValueError):
            pass  # it has no state

    def _shown(self, task: Seen) -> Seen:
        return showing.task(task, self.mask)

    @telling
    def _find(self, part: str) -> str:
        if not isinstance(part, str):
            raise BadInput(f"A task id is text, not {type(part).__name__}.")
        return self.executor.registry.find(part, self._scope)

    def _own(self, task_id: str) -> None:
        """For what takes whole ids only, and is called often."""
        if self._scope is not None and not self.executor.registry.belongs(task_id, self._scope):
            self._find(task_id)  # which says what is wrong

    def _reached(self, name: str | None) -> str:
        if name is None:
            return self._state or self.session
        session_admin.check_reach(asking.session_name(name), self._scope)
        return name
