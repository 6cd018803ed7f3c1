"""Build a launch from a grant: exactly what will run, with which variables, where.

A command that a machine runs must not wait for a person: no pager, no editor, no prompt for a password, and no
colours for a terminal that does not exist. Variables that the caller gives for one command override all of that.
"""

from __future__ import annotations

import os
import resource
import stat
import time
from contextvars import ContextVar
from functools import partial

from outlast.errors import BadInput, Unsupported, named
from outlast.light import frozen
from outlast.linux.files import find_program
from outlast.output.redaction import split_variables
from outlast.storage import snapshot
from outlast.types import AGENT, BRIDGE, NO_SHELL, Grant, Launch, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.output.redaction import SplitVariables
    from outlast.settings import Settings
    from outlast.storage.sessions import Sessions
    from outlast.storage.snapshot import Snapshot
    from outlast.types import Place, Request, Sandbox

TASK_ID = "OUTLAST_TASK_ID"  # the variable that says which task a process belongs to
ARRAY_INDEX = "OUTLAST_ARRAY_INDEX"  # and the one that says which of an array it is
_NON_INTERACTIVE = {
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"), "cat"),
    "LESS": "-FRX",
    # An editor that changes nothing and succeeds: git takes its prepared message, or refuses an empty one.
    **dict.fromkeys(("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"), "true"),
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
}
_ON_A_TERMINAL = {"TERM": "xterm-256color"}  # what `screen` understands; pagers, editors and prompts as they are
_SIZES = ("COLUMNS", "LINES")  # programs ask the terminal, whose size may change
# Not FORCE_COLOR=0: node warns about it beside NO_COLOR, and Python takes any value for a yes.
_FORCE_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE")
_UNSET = (*_FORCE_COLOURS, "COLORTERM", "LS_COLORS", TASK_ID)
_NO_COLOURS = ("NO_COLOR", "CLICOLOR")
_RESOURCES = {  # the limits that a command can have: the setting and the rlimit of each
    "memory": ("memory_limit_bytes", "RLIMIT_AS"),
    "processes": ("process_limit", "RLIMIT_NPROC"),
    "cpu_time": ("cpu_limit_s", "RLIMIT_CPU"),
    "file_size": ("file_size_limit_bytes", "RLIMIT_FSIZE"),
}
_RLIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
_AFTER_XCPU_S = 5
_MOST_SENT_BYTES = 32 << 20  # of an input file that goes to another machine with the start
_TRACE = "TRACEPARENT"  # W3C trace context
_TRACES = (_TRACE, "TRACESTATE")
_AS_REQUESTED = (
    *("command", "session", "stdin", "split", "limit", "description", "background", "name", "after", "after_failed"),
    *("agent", "tty", "like", "executor", "needs"),
)
_MOST_REASONS, _LONGEST_REASON = 20, 200  # that a task keeps of how it was judged, and characters of each
_LONG_LIMIT_S = 60.0  # below that a notice that the time limit is near helps nobody
_NOT_IN_SNAPSHOTS = ("OUTLAST_SESSION", TASK_ID)  # every command gets its own
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
        if place is not None:
            return self._build_elsewhere(grant, environ, scope, place)
        if request.send:
            raise BadInput(
                "Files are sent to another machine only; name it with the executor, or leave out what to send."
            )
        shell = _find_shell(request.shell or settings.shell, environ)
        variables = _split_secrets(environ, settings, request, secret_names)
        if scope is None:
            inherited = {**variables.open, **variables.passed, **variables.asked}
            env = compose_environment(inherited, request.env, request.session, request.tty is not None)
            mark, held_back = "", variables.held
            cwd = _find_directory(request.cwd, self._base)
        else:
            cwd, found, given = self._enter_session(scope, request, environ, variables)
            compose = _compose_overlay if _is_bash(shell) else _compose_exported
            env, mark = compose(found, request, given), found.mark
            held_back = frozenset(_select_undeclared(found, dict.fromkeys(variables.held, "")))
        sandbox, cwd = _resolve_sandbox(request, cwd, self._home, environ)
        _check_stdin(request, cwd)
        restored = scope if _is_bash(shell) else None
        resources = _select_resources(request, settings)
        groups = _plan_groups(resources) if resources else {}
        return Launch(
            kind="agent" if request.agent else "bash",
            **{name: request.__dict__[name] for name in _AS_REQUESTED},
            cwd=cwd,
            env=env,
            shell=shell,
            grace=settings.kill_grace_s,
            umask=read_umask(),
            output_limit=settings.output_limit_bytes,
            free_floor=settings.free_floor_bytes,
            max_running=settings.max_running,
            rlimits={**_read_rlimits(), **_compute_rlimits(resources, groups)},
            nice=os.getpriority(os.PRIO_PROCESS, 0),
            state=restored.name if restored else "",
            snapshot=mark if restored else "",
            keeps=restored is not None and restored.keeps,
            held_back=tuple(sorted(held_back - request.env.keys())),
            sandbox=sandbox,
            resources=resources,
            groups=groups,
            notify=_select_notices(request, settings),
            trace=request.env.get(_TRACE, environ.get(_TRACE, "")),
            given=_describe_given(request),
            parent=_agent.get() or environ.get(TASK_ID, ""),
            judged=_describe_judgement(grant),
        )

    def _enter_session(
        self, scope: SessionScope, request: Request, environ: Mapping[str, str], variables: SplitVariables
    ) -> tuple[str, Snapshot, Mapping[str, str]]:
        """Return the directory, the snapshot to begin with, and the variables that override those of the session."""
        # A command belongs to the trace of its caller, never to that of its session's first caller.
        trace = {name: environ[name] for name in _TRACES if name in environ}
        cwd = _find_directory(request.cwd, self._base) if request.cwd else ""

        def compose_first() -> bytes:
            untraced = {name: value for name, value in variables.open.items() if name not in trace}
            return compose_first_snapshot(untraced, request.session, cwd, self._base)

        found = scope.sessions.read_or_create(scope.name, compose_first)
        terminal = _restore_interactive(found, variables.open) if request.tty is not None else {}
        given = {**trace, **terminal, **_select_undeclared(found, variables.passed), **variables.asked, **request.env}
        return cwd or _find_remaining_directory(found.directory, environ), found, given

    def _build_elsewhere(
        self, grant: Grant, environ: Mapping[str, str], scope: SessionScope | None, place: Place
    ) -> Launch:
        """Return what runs on another machine. Nothing of this one goes there that the request does not name."""
        request = grant.request
        if request.sandbox is not None:
            raise Unsupported(f"There is no sandbox on {place.executor}; run it without one, or on this machine.")
        settings, shell = self._settings, request.shell or place.shell
        asked = _split_secrets({**place.environ, **environ}, settings, request, None).asked
        variables = split_variables(place.environ, settings)
        given, mark, held_back = {**variables.passed, **asked}, "", variables.held
        cwd = os.path.normpath(os.path.join(place.home, request.cwd.replace("~", place.home, request.cwd[:1] == "~")))
        if scope is None:
            inherited = {**variables.open, **given}
            env = compose_environment(inherited, request.env, request.session, request.tty is not None)
        else:
            first = partial(_compose_first, variables.open, request.session, cwd, place.umask)
            found = scope.sessions.read_or_create(scope.name, first)
            terminal = _restore_interactive(found, variables.open) if request.tty is not None else {}
            given = {**terminal, **_select_undeclared(found, variables.passed), **asked, **request.env}
            compose = _compose_overlay if _is_bash(shell) else _compose_exported
            env, mark, cwd = compose(found, request, given), found.mark, cwd if request.cwd else found.directory
            held_back = frozenset(_select_undeclared(found, dict.fromkeys(held_back, "")))
        restored = scope if _is_bash(shell) else None
        resources = _select_resources(request, settings)
        return Launch(
            kind="bash",
            **{name: request.__dict__[name] for name in _AS_REQUESTED if name != "stdin"},
            stdin=_read_stdin(request, self._base),
            send=tuple(_find_sent(path, self._base) for path in request.send),
            cwd=cwd,
            env=env,
            shell=shell,
            grace=settings.kill_grace_s,
            umask=place.umask,
            output_limit=settings.output_limit_bytes,
            free_floor=settings.free_floor_bytes,
            rlimits=_limit_elsewhere(resources),
            state=restored.name if restored else "",
            snapshot=mark if restored else "",
            keeps=restored is not None and restored.keeps,
            held_back=tuple(sorted(held_back - request.env.keys())),
            resources=resources,
            notify=_select_notices(request, settings),
            trace=request.env.get(_TRACE, environ.get(_TRACE, "")),
            given=_describe_given(request),
            parent=_agent.get() or environ.get(TASK_ID, ""),
            judged=_describe_judgement(grant),
        )


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


def _limit_elsewhere(resources: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    beyond = {"cpu_time": _AFTER_XCPU_S}
    return {_RESOURCES[name][1]: (most, most + beyond.get(name, 0)) for name, most in resources.items()}


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


# --- variables ---------------------------------------------------------------------------


def compose_environment(
    inherited: Mapping[str, str], given: Mapping[str, str], session: str, tty: bool = False
) -> dict[str, str]:
    """Return a command's variables: those that it inherits and those that the caller gave for it."""
    env = {name: value for name, value in inherited.items() if name not in _UNSET}
    if tty:
        env = {name: value for name, value in env.items() if name not in (*_NO_COLOURS, *_SIZES)}
        return {**env, **_ON_A_TERMINAL, "OUTLAST_SESSION": session, **given}
    env.update(_NON_INTERACTIVE)
    if _wants_colours(given):
        for name in _NO_COLOURS:
            del env[name]
    return {**env, "OUTLAST_SESSION": session, **given}


def _wants_colours(given: Mapping[str, str]) -> bool:
    return any(given.get(name, "0") not in ("", "0") for name in _FORCE_COLOURS)


def compose_first_snapshot(environ: Mapping[str, str], session: str, fallback: str = "", base: str = "") -> bytes:
    """Return the snapshot of a new session: the caller's variables, and its directory or else `fallback`."""
    env = compose_environment(environ, {}, session)
    try:
        cwd = _find_directory("", base)
    except BadInput:
        if not fallback:
            raise
        cwd = fallback
    return _compose_first_of(env, cwd, read_umask())


def _compose_first(environ: Mapping[str, str], session: str, cwd: str, umask: int) -> bytes:
    return _compose_first_of(compose_environment(environ, {}, session), cwd, umask)


def _compose_first_of(env: Mapping[str, str], cwd: str, umask: int) -> bytes:
    state = snapshot.compose_first_state(env, cwd, umask)
    return snapshot.compose(state, generation=0, task="", made=time.time(), environ=env, first=True)


def _compose_overlay(found: Snapshot, request: Request, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a bash, which restores the others from the snapshot."""
    env = {**found.environ, "OUTLAST_SESSION": request.session}
    for name, value in given.items():
        is_overlaid = snapshot.is_name(name) and name not in _NOT_IN_SNAPSHOTS
        env[snapshot.OVERLAY + name if is_overlaid else name] = value
    if request.tty is not None:
        dropped = [*_find_non_interactive(found), *_SIZES]
        env[snapshot.DROPPED] = " ".join(name for name in dropped if name not in given)
    elif _wants_colours(request.env):
        env[snapshot.DROPPED] = " ".join(name for name in _NO_COLOURS if name not in request.env)
    return env


def _find_non_interactive(found: Snapshot) -> list[str]:
    """Return which variables of the session are as we set them, because most of its commands have no terminal."""
    plain = {os.fsencode(name): os.fsencode(value) for name, value in _NON_INTERACTIVE.items()}
    return [os.fsdecode(name) for name, value in plain.items() if b' -x %s="%s"' % (name, value) in found.script]


def _restore_interactive(found: Snapshot, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command with a terminal that the session has for commands without one."""
    ours = {name: environ[name] for name in _find_non_interactive(found) if name in environ}
    return {name: value for name, value in ours.items() if name not in _NO_COLOURS} | _ON_A_TERMINAL


def _compose_exported(found: Snapshot, request: Request, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for another shell: those that the session exports."""
    env = {**snapshot.exported_variables(found.state()), **found.environ, "OUTLAST_SESSION": request.session}
    if request.tty is not None:
        env = {name: value for name, value in env.items() if name not in (*_find_non_interactive(found), *_SIZES)}
    elif _wants_colours(request.env):
        env = {name: value for name, value in env.items() if name not in _NO_COLOURS}
    return {**env, **given}


def _split_secrets(
    environ: Mapping[str, str], settings: Settings, request: Request, secret_names: Sequence[str] | None
) -> SplitVariables:
    missing = [name for name in request.pass_secrets if "*" not in name and name not in environ]
    if missing:
        raise BadInput(
            f"The variable {named(missing[0])} is not set here, so it cannot be passed on; "
            "set it, or give its value with env (--env NAME=VALUE)."
        )
    return split_variables(environ, settings, request.pass_secrets, secret_names)


def _select_undeclared(found: Snapshot, variables: Mapping[str, str]) -> dict[str, str]:
    """Select variables that the session does not declare: one that a command of it set stays as it is."""
    return {name: value for name, value in variables.items() if b" %s=" % os.fsencode(name) not in found.script}


# --- directory and shell -----------------------------------------------------------------


def _find_directory(asked: str, base: str = "") -> str:
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


def _find_remaining_directory(path: str, environ: Mapping[str, str]) -> str:
    """Return a session's directory, or its nearest parent that still exists: a session outlives its directory."""
    while path and not _can_enter(path):
        path = os.path.dirname(path) if path != "/" else ""
    home = environ.get("HOME", "")
    return path or (home if _can_enter(home) else "/")


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
        raise BadInput(f"There is no shell {named(asked)}; give the path of one that is installed.")
    return os.path.abspath(found)


def _is_bash(shell: str) -> bool:
    return os.path.basename(shell) == "bash"


# --- limits and sandbox ------------------------------------------------------------------


def _resolve_sandbox(request: Request, cwd: str, home: str, environ: Mapping[str, str]) -> tuple[Sandbox | None, str]:
    """Return the sandbox, and the directory inside it: the session's may be hidden there."""
    if request.sandbox is None:
        return None, cwd
    from outlast.sandbox.choice import nearest_seen, refuse_input, settled  # most commands run without

    found = settled(request.sandbox, home, environ)
    cwd = nearest_seen(found, cwd, home, asked=bool(request.cwd))
    if request.stdin.file is not None:
        refuse_input(os.path.join(cwd, request.stdin.file), home)
    return found, cwd


def _select_resources(request: Request, settings: Settings) -> Mapping[str, int]:
    """Return the limits of a command: those of the request, otherwise those of the settings."""
    limits = {name: getattr(settings, setting) for name, (setting, _) in _RESOURCES.items()} | dict(request.resources)
    return {name: value for name, value in limits.items() if value}


def _plan_groups(resources: Mapping[str, int]) -> dict[str, dict[str, str]]:
    from outlast.sandbox import cgroup  # most commands have no limits

    found = cgroup.planned(resources)
    if "processes" in resources and not found and os.geteuid() == 0:
        raise Unsupported(
            "The kernel holds root to a number of processes only where control groups can be made, and here they "
            "cannot; run it as another user, or leave it out."
        )
    return found


def _read_rlimits() -> dict[str, tuple[int, int]]:
    """Return this process' limits: the one that starts a pending command may have others."""
    return {name: resource.getrlimit(number) for name, number in _RLIMITS.items()}


def _compute_rlimits(resources: Mapping[str, int], groups: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Return the soft and hard limits for resources that no control group limits."""
    found = {}
    for name, value in resources.items():
        if groups and name in ("memory", "processes"):
            continue
        rlimit = _RESOURCES[name][1]
        _, hard = resource.getrlimit(getattr(resource, rlimit))
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At the soft limit of CPU time the kernel sends SIGXCPU, which says why; at the hard limit SIGKILL.
        beyond = most + _AFTER_XCPU_S if name == "cpu_time" else most
        found[rlimit] = (most, beyond if hard == resource.RLIM_INFINITY else min(beyond, hard))
    return found


def read_umask() -> int:
    """Return the umask of this process. os.umask would have to change it, which other threads could notice."""
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 4096).partition(b"\nUmask:")[2].split(None, 1)[0], 8)
    finally:
        os.close(fd)
