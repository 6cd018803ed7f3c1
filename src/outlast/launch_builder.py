"""Build a launch from a grant: exactly what will run, with which variables, where, held to which limits."""

from __future__ import annotations

import os
import stat
from contextvars import ContextVar

from outlast.environment import (
    TASK_ID,
    compose_environment,
    compose_exported,
    compose_first_snapshot,
    compose_overlay,
    restore_interactive,
    select_undeclared,
    split_secrets,
)
from outlast.errors import BadInput, Unsupported, quote
from outlast.light import frozen, replace
from outlast.linux.files import find_program
from outlast.linux.process import read_umask
from outlast.output.redaction import split_variables
from outlast.resource_limits import compute_rlimits, limit_elsewhere, plan_groups, read_rlimits, select_resources
from outlast.types import AGENT, BRIDGE, NO_SHELL, Grant, Launch, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.settings import Settings
    from outlast.storage.sessions import Sessions
    from outlast.types import Place, Request, Sandbox

ARRAY_INDEX = "OUTLAST_ARRAY_INDEX"  # the variable that says which of an array a task is
_MOST_SENT_BYTES = 32 << 20  # of an input file that goes to another machine with the start
_TRACE = "TRACEPARENT"  # W3C trace context
_TRACES = (_TRACE, "TRACESTATE")
_AS_REQUESTED = (
    *("command", "session", "split", "limit", "description", "background", "name", "after", "after_failed"),
    *("agent", "tty", "like", "executor", "needs"),
)
_MOST_REASONS, _LONGEST_REASON = 20, 200  # that a task keeps of how it was judged, and characters of each
_LONG_LIMIT_S = 60.0  # below that a notice that the time limit is near is of no use
# The agent that runs as a coroutine here: it has no environment of its own. Threads that it has work done in get a
# copy of its context.
_agent: ContextVar[str] = ContextVar("agent", default="")


def enter_agent(task_id: str) -> None:
    """From here on, and in all that is begun from here, we are this agent."""
    _agent.set(task_id)


@frozen
class SessionScope:
    """The session whose state a command begins with, and whether the session keeps what the command changes."""

    sessions: Sessions
    name: str
    keeps: bool


class LaunchBuilder:
    """Builds the launches of one shell. `home` is the state directory; `base` replaces the caller's directory."""

    def __init__(self, settings: Settings, home: str, base: str = "") -> None:
        self._settings, self._home, self._base = settings, home, base

    def build(
        self,
        grant: Grant,
        environ: Mapping[str, str],
        scope: SessionScope | None = None,
        secret_names: Sequence[str] | None = None,
        place: Place | None = None,
    ) -> Launch:
        """Return what exactly will run: in the state of a session, or with the caller's variables and directory.

        `secret_names` are the names of the secret variables in `environ`, if the caller knows them already. At another
        `place` its variables count, and of `environ` only those that the request names.
        """
        request, settings = grant.request, self._settings
        site: _Here | _Elsewhere
        if place is None:
            site = _Here(request, settings, self._home, self._base, environ, secret_names)
        else:
            site = _Elsewhere(request, settings, self._base, environ, place)
        state = _compose_state(request, site, scope)
        kept = scope if _is_bash(site.shell) else None
        resources = select_resources(request, settings)
        return Launch(
            kind="agent" if request.agent else "bash",
            **{name: request.__dict__[name] for name in _AS_REQUESTED},
            **site.describe(state.cwd, resources),
            env=state.env,
            shell=site.shell,
            umask=site.umask,
            grace=settings.kill_grace_s,
            output_limit=settings.output_limit_bytes,
            free_floor=settings.free_floor_bytes,
            state=kept.name if kept else "",
            snapshot=state.mark if kept else "",
            keeps=kept is not None and kept.keeps,
            held_back=tuple(sorted(state.held_back - request.env.keys())),
            resources=resources,
            notify=_select_notices(request, settings),
            trace=request.env.get(_TRACE, environ.get(_TRACE, "")),
            given=_describe_given(request),
            parent=_agent.get() or environ.get(TASK_ID, ""),
            judged=_describe_judgement(grant),
        )


@frozen
class _State:
    """What a command begins with: of its session, or of its caller."""

    env: Mapping[str, str]
    cwd: str
    mark: str  # of the session's snapshot
    held_back: frozenset[str]


def _compose_state(request: Request, site: _Here | _Elsewhere, scope: SessionScope | None) -> _State:
    variables = site.variables
    if scope is None:
        inherited = {**variables.open, **variables.passed, **variables.asked}
        env = compose_environment(inherited, request.env, request.session, request.tty is not None)
        return _State(env, site.find_directory(request.cwd), "", variables.held)
    # A command belongs to the trace of its caller, never to that of its session's first caller.
    trace = {name: variables.open[name] for name in _TRACES if name in variables.open}
    cwd = site.find_directory(request.cwd) if request.cwd else ""

    def compose_first() -> bytes:
        untraced = {name: value for name, value in variables.open.items() if name not in trace}
        return compose_first_snapshot(untraced, request.session, site.find_first_directory(cwd), site.umask)

    found = scope.sessions.read_or_create(scope.name, compose_first)
    terminal = restore_interactive(found, variables.open) if request.tty is not None else {}
    given = {**trace, **terminal, **select_undeclared(found, variables.passed), **variables.asked, **request.env}
    compose = compose_overlay if _is_bash(site.shell) else compose_exported
    held_back = frozenset(select_undeclared(found, dict.fromkeys(variables.held, "")))
    return _State(
        compose(found, request, given), cwd or site.find_remaining_directory(found.directory), found.mark, held_back
    )


class _Here:
    """This machine: what a command begins with here, and how it is held to its limits."""

    def __init__(
        self,
        request: Request,
        settings: Settings,
        home: str,
        base: str,
        environ: Mapping[str, str],
        secret_names: Sequence[str] | None,
    ) -> None:
        if request.send:
            raise BadInput(
                "Files are sent to another machine only; name it with the executor, or leave out what to send."
            )
        self._request, self._settings, self._home, self._base = request, settings, home, base
        self._environ = environ
        self.shell = _find_shell(request.shell or settings.shell, environ)
        self.variables = split_secrets(environ, settings, request, secret_names)
        self.umask = read_umask()

    def find_directory(self, asked: str) -> str:
        return find_directory(asked, self._base)

    def find_first_directory(self, fallback: str) -> str:
        """Return where a new session begins: in the caller's directory, or `fallback` if that is gone."""
        try:
            return find_directory("", self._base)
        except BadInput:
            if not fallback:
                raise
            return fallback

    def find_remaining_directory(self, path: str) -> str:
        """Return a session's directory, or its nearest parent that still exists: a session outlives its directory."""
        while path and not _can_enter(path):
            path = os.path.dirname(path) if path != "/" else ""
        home = self._environ.get("HOME", "")
        return path or (home if _can_enter(home) else "/")

    def describe(self, cwd: str, resources: Mapping[str, int]) -> dict[str, Any]:
        """Return what a launch has on this machine only."""
        request = self._request
        sandbox, cwd = _resolve_sandbox(request, cwd, self._home, self._environ)
        _check_stdin(request, cwd)
        groups = plan_groups(resources) if resources else {}
        return {
            "cwd": cwd,
            "stdin": request.stdin,
            "sandbox": sandbox,
            "groups": groups,
            "rlimits": {**read_rlimits(), **compute_rlimits(resources, groups)},
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "max_running": self._settings.max_running,
        }


class _Elsewhere:
    """Another machine: a login there says what a command begins with. Nothing goes there that is not named."""

    def __init__(
        self, request: Request, settings: Settings, base: str, environ: Mapping[str, str], place: Place
    ) -> None:
        if request.sandbox is not None:
            raise Unsupported(f"There is no sandbox on {place.executor}; run it without one, or on this machine.")
        self._request, self._base, self._home = request, base, place.home
        self.shell, self.umask = request.shell or place.shell, place.umask
        asked = split_secrets({**place.environ, **environ}, settings, request, None).asked
        self.variables = replace(split_variables(place.environ, settings), asked=asked)

    def find_directory(self, asked: str) -> str:
        return os.path.normpath(os.path.join(self._home, asked.replace("~", self._home, asked[:1] == "~")))

    def find_first_directory(self, fallback: str) -> str:
        return fallback or self._home

    def find_remaining_directory(self, path: str) -> str:
        return path  # the far guard finds out

    def describe(self, cwd: str, resources: Mapping[str, int]) -> dict[str, Any]:
        """Return what a launch has on another machine only."""
        return {
            "cwd": cwd,
            "stdin": _read_stdin(self._request, self._base),
            "send": tuple(_find_sent(path, self._base) for path in self._request.send),
            "rlimits": limit_elsewhere(resources),
        }


def _read_stdin(request: Request, base: str) -> Stdin:
    """Return the input of a command elsewhere: a file is one of this machine, and what it holds is sent."""
    if request.stdin.file is None:
        return request.stdin
    _check_stdin(request, base)
    path = os.path.join(base, request.stdin.file)
    if os.path.getsize(path) > _MOST_SENT_BYTES:
        raise BadInput(f"{path} is larger than {_MOST_SENT_BYTES} bytes; send it with --send, and read it there.")
    with open(path, "rb") as file:
        return Stdin(text=file.read())


def _find_sent(path: str, base: str) -> str:
    found = os.path.abspath(os.path.join(base, os.path.expanduser(path)))
    if not os.access(found, os.R_OK):
        raise BadInput(f"{path} cannot be sent: it does not exist, or cannot be read.")
    return found


def _describe_given(request: Request) -> Mapping[str, object]:
    """Return the names of the variables that the caller gave or passed; values stay off the disk, any may be secret."""
    found = {"env": sorted(request.env), "pass": list(request.pass_secrets)}
    return {name: value for name, value in found.items() if value}


def _describe_judgement(grant: Grant) -> Mapping[str, object]:
    """Return under which policy a command runs, and why, in short; nothing if there is nothing that judges."""
    decision: Any = grant.decision
    if decision is None and grant.policy == "yolo":
        return {}
    parts = sorted(decision.parts, key=lambda part: part.verdict == "allow")[:_MOST_REASONS] if decision else ()
    names = ("command", "verdict", "why", "rule")
    return {
        "policy": grant.policy,
        "verdict": decision.verdict if decision else "allow",
        "approved": grant.approved,
        "reasons": [{name: getattr(part, name)[:_LONGEST_REASON] for name in names} for part in parts],
    }


def _select_notices(request: Request, settings: Settings) -> Mapping[str, object]:
    """Select what to send notices about: what the caller asked for, and what a background task may need."""
    found = dict(request.notify)
    if request.background and request.limit is not None and request.limit >= _LONG_LIMIT_S:
        found["limit"] = True
    if request.background and request.stdin.open and request.shell != BRIDGE:
        found["input"] = True
    if found.get("patterns"):
        found |= {"cooldown": settings.notify_cooldown_s, "most": settings.notify_most}
    return found


def _check_stdin(request: Request, cwd: str) -> None:
    if request.stdin.file is None:
        return
    path = os.path.join(cwd, request.stdin.file)
    if not os.path.exists(path):
        raise BadInput(f"The input file {path} does not exist; give another one.")
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise BadInput(f"{path} is a directory; give a file to read the input from.")
    if stat.S_ISFIFO(mode):  # its other end may never be opened, and the supervisor would wait for that
        raise BadInput(f"{path} is a pipe; read it, and give what it holds as text.")
    if not os.access(path, os.R_OK):
        raise BadInput(f"The input file {path} cannot be read: Permission denied; give another one.")


# --- directory and shell -----------------------------------------------------------------


def find_directory(asked: str, base: str = "") -> str:
    """Return the directory that the caller asked for, by default `base` or else its own. Raises `BadInput`."""
    try:
        path = os.path.abspath(os.path.join(base, os.path.expanduser(asked))) if asked else base or os.getcwd()
        found = os.stat(path)
    except FileNotFoundError:
        if not asked:
            raise BadInput("The current directory does not exist any more; name another one to run in.") from None
        raise BadInput(f"The directory {asked} does not exist; create it or give another one.") from None
    except OSError as error:
        raise BadInput(f"The directory {asked} cannot be used: {error.strerror}; give another one.") from None
    if not stat.S_ISDIR(found.st_mode):
        raise BadInput(f"{path} is not a directory; give one to run in.")
    if not os.access(path, os.X_OK):
        raise BadInput(f"The directory {path} cannot be entered: Permission denied; give another one.")
    return path


def _can_enter(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.X_OK)


def _find_shell(asked: str, environ: Mapping[str, str]) -> str:
    """Return the path of the program that reads a command, by default bash. Raises `BadInput`."""
    if asked in (NO_SHELL, AGENT, BRIDGE):
        return asked
    found = find_program(os.path.expanduser(asked or "bash"), environ.get("PATH"))
    if not asked:
        return found or "/bin/sh"
    if not found:
        raise BadInput(f"There is no shell {quote(asked)}; give the path of one that is installed.")
    return os.path.abspath(found)


def _is_bash(shell: str) -> bool:
    return os.path.basename(shell) == "bash"


# --- sandbox ------------------------------------------------------------------------


def _resolve_sandbox(request: Request, cwd: str, home: str, environ: Mapping[str, str]) -> tuple[Sandbox | None, str]:
    """Return the sandbox, and the directory inside it: the session's may be hidden there."""
    if request.sandbox is None:
        return None, cwd
    from outlast.sandbox.choice import nearest_seen, refuse_input, resolve_sandbox  # most commands run without

    found = resolve_sandbox(request.sandbox, home, environ)
    cwd = nearest_seen(found, cwd, home, asked=bool(request.cwd))
    if request.stdin.file is not None:
        refuse_input(os.path.join(cwd, request.stdin.file), home)
    return found, cwd
