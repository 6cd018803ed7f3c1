"""From a grant to a launch: exactly what will run, with which variables, where.

A command that a machine runs must not wait for a person: no pager, no editor, no
prompt for a password, and no colour for a terminal that is not there. What the caller
sets by hand wins over all of it.
"""

from __future__ import annotations

import os
import stat
import time

from outlast import current_task
from outlast.errors import BadInput, Unsupported, named
from outlast.frozen import frozen
from outlast.linux.files import find_program
from outlast.secrets import apart
from outlast.storage import snapshot
from outlast.types import AGENT, BRIDGE, NO_SHELL, Grant, Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlast.secrets import Apart
    from outlast.settings import Settings
    from outlast.storage.sessionfile import Sessions
    from outlast.storage.snapshot import Snapshot
    from outlast.types import Request, Sandbox

_QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "LESS": "-FRX",
    # An editor that changes nothing and succeeds: git takes its prepared message, or refuses an empty one.
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
}
# Not FORCE_COLOR=0: node warns when it stands beside NO_COLOR, and Python takes any value for a yes.
_UNSET = ("FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "LS_COLORS")
_ASKS_FOR_COLOUR = ("FORCE_COLOR", "CLICOLOR_FORCE")
_NO_COLOUR = ("NO_COLOR", "CLICOLOR")
_RESOURCES = {  # what a command can be held to, and the setting of each
    "memory": "memory_limit_bytes",
    "processes": "process_limit",
    "cpu_time": "cpu_limit_s",
    "file_size": "file_size_limit_bytes",
}
_RLIMITS = {
    "memory": "RLIMIT_AS",
    "processes": "RLIMIT_NPROC",
    "cpu_time": "RLIMIT_CPU",
    "file_size": "RLIMIT_FSIZE",
}
_AFTER_XCPU_S = 5
_BASH: dict[str | None, str] = {}  # where it was last found, by PATH
_LIMITS: dict[str, int] = {}  # what the system has, by name
_TRACE = "TRACEPARENT"  # W3C trace context
_TRACES = (_TRACE, "TRACESTATE")
_LONG_LIMIT_S = 60.0  # of a shorter limit nobody has to be told that it is near
_OWN = ("OUTLAST_TASK_ID",)
_GIVEN = ("OUTLAST_SESSION", *_OWN)  # by us to each command, and in no snapshot


@frozen
class Place:
    """Which session's state a command begins with, and whether the next one begins with what it leaves."""

    sessions: Sessions
    name: str
    keeps: bool


def prepare(
    grant: Grant,
    settings: Settings,
    environ: Mapping[str, str],
    place: Place | None = None,
    home: str = "",
    secret: Sequence[str] | None = None,
    base: str = "",
) -> Launch:
    """What exactly will run for a grant: in a session's state, or with the caller's variables and directory.

    `home` is the state directory that a sandbox hides, `secret` the names of the caller's secret variables, if they
    are known already, `base` the directory that stands for the caller's own (empty: that one itself).
    """
    request = grant.request
    shell = shell_for(request.shell or settings.shell, environ)
    variables = _apart(environ, settings, request, secret)
    mark, held = "", variables.held
    if place is None:
        inherited = {**variables.open, **variables.passed, **variables.asked}
        cwd, env = _directory(request.cwd, base), environment(inherited, request.env, request.session)
    else:
        mark, cwd, env, held = _in_session(place, request, shell, environ, variables, base)
    sandbox, cwd = _sandbox(request, cwd, home, environ) if request.sandbox else (None, cwd)
    _check_stdin(request, cwd)
    kept = place if place and is_bash(shell) else None
    resources = _resources(request, settings)
    groups = _groups(resources) if resources else {}
    return Launch(
        kind="agent" if request.agent else "bash",
        command=request.command,
        session=request.session,
        cwd=cwd,
        env=env,
        stdin=request.stdin,
        shell=shell,
        split=request.split,
        limit=request.limit,
        grace=settings.kill_grace_s,
        umask=umask(),
        description=request.description,
        output_limit=settings.output_limit_bytes,
        free_floor=settings.free_floor_bytes,
        background=request.background,
        name=request.name,
        after=request.after,
        after_failed=request.after_failed,
        max_running=settings.max_running,
        rlimits={**rlimits(), **_held_to(resources, groups)} if resources else rlimits(),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        state=kept.name if kept else "",
        snapshot=mark if kept else "",
        keeps=kept is not None and kept.keeps,
        held_back=tuple(sorted(held - request.env.keys())),
        sandbox=sandbox,
        resources=resources,
        groups=groups,
        notify=_notify(request, settings),
        trace=request.env.get(_TRACE, environ.get(_TRACE, "")),
        agent=request.agent,
        parent=current_task.task(environ),
    )


def _in_session(
    place: Place, request: Request, shell: str, environ: Mapping[str, str], variables: Apart, base: str
) -> tuple[str, str, dict[str, str], frozenset[str]]:
    """What a command of a session begins with: which snapshot, where, with which variables, without which."""
    here = _directory(request.cwd, base) if request.cwd else ""
    found = place.sessions.snapshot(
        place.name, lambda: first_snapshot(_untraced(variables.open), request.session, here, base)
    )
    given = {**_traced(environ), **_not_in(found, variables.passed), **variables.asked, **request.env}
    env = _overlay(found, request, given) if is_bash(shell) else _exported(found, request, given)
    held = frozenset(_not_in(found, dict.fromkeys(variables.held, "")))
    return found.mark, here or nearest(found.directory, environ), env, held


def _traced(environ: Mapping[str, str]) -> dict[str, str]:
    """The trace that a command is a part of: that of its caller, never of its session's first one."""
    return {name: environ[name] for name in _TRACES if name in environ}


def _untraced(environ: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environ.items() if name not in _TRACES} if _traced(environ) else environ


def _notify(request: Request, settings: Settings) -> Mapping[str, object]:
    """What somebody is to be told of while it runs: what was asked for, and of a background task what it may need."""
    found = dict(request.notify)
    if request.background and request.limit is not None and request.limit >= _LONG_LIMIT_S:
        found["limit"] = True
    if request.background and request.stdin.open and request.shell != BRIDGE:
        found["input"] = True
    if found.get("patterns"):
        found |= {"cooldown": settings.notify_cooldown_s, "most": settings.notify_most}
    return found


def _sandbox(request: Request, cwd: str, home: str, environ: Mapping[str, str]) -> tuple[Sandbox | None, str]:
    """The sandbox it runs in, and where. What a session remembers may not be there, as any directory may be gone."""
    from outlast.sandbox.choice import nearest_seen, refuse_input, settled  # most commands run without

    assert request.sandbox is not None
    found = settled(request.sandbox, home, environ)
    cwd = nearest_seen(found, cwd, home, asked=bool(request.cwd))
    if request.stdin.file is not None:
        refuse_input(os.path.join(cwd, request.stdin.file), home)
    return found, cwd


def _resources(request: Request, settings: Settings) -> Mapping[str, int]:
    """What a command is held to: what was asked for it, otherwise what the settings say."""
    if not any(getattr(settings, name) for name in _RESOURCES.values()) and not request.resources:
        return {}
    usual = {name: getattr(settings, setting) for name, setting in _RESOURCES.items()}
    return {name: value for name, value in {**usual, **request.resources}.items() if value}


def _groups(resources: Mapping[str, int]) -> dict[str, dict[str, str]]:
    from outlast.sandbox import cgroup  # most commands are held to nothing

    found = cgroup.planned(resources)
    if "processes" in resources and not found and os.geteuid() == 0:
        raise Unsupported(
            "The kernel holds root to a number of processes only where control groups can be made, and here they "
            "cannot; run it as another user, or leave it out."
        )
    return found


def _held_to(resources: Mapping[str, int], groups: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Soft and hard, by name; without what a control group holds."""
    import resource

    found = {}
    for name, value in resources.items():
        if groups and name in ("memory", "processes"):
            continue
        _, hard = resource.getrlimit(getattr(resource, _RLIMITS[name]))
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At the soft limit of CPU comes a signal that says why, at the hard one only an end.
        beyond = most + _AFTER_XCPU_S if name == "cpu_time" else most
        found[_RLIMITS[name]] = (most, beyond if hard == resource.RLIM_INFINITY else min(beyond, hard))
    return found


def _apart(environ: Mapping[str, str], settings: Settings, request: Request, secret: Sequence[str] | None) -> Apart:
    missing = [name for name in request.pass_secrets if "*" not in name and name not in environ]
    if missing:
        raise BadInput(
            f"The variable {named(missing[0])} is not set here, so it cannot be passed on; "
            "set it, or give its value with env (--env NAME=VALUE)."
        )
    return apart(environ, settings, request.pass_secrets, secret)


def _not_in(found: Snapshot, variables: Mapping[str, str]) -> dict[str, str]:
    """Those that a session has none of its own of: what a command of it set by hand stays."""
    return {name: value for name, value in variables.items() if b" %s=" % os.fsencode(name) not in found.script}


def rlimits() -> dict[str, tuple[int, int]]:
    """Soft and hard, by name: whoever starts the command may be a stranger with others."""
    import resource

    if not _LIMITS:
        _LIMITS.update({name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
    return {name: resource.getrlimit(which) for name, which in _LIMITS.items()}


def first_snapshot(environ: Mapping[str, str], session: str, fallback: str = "", base: str = "") -> bytes:
    """What a new session begins with: the caller's variables and directory."""
    env = environment(environ, {}, session)
    try:
        cwd = _directory("", base)
    except BadInput:
        if not fallback:
            raise
        cwd = fallback
    state = snapshot.beginning(env, cwd, umask())
    return snapshot.compose(state, generation=0, task="", made=time.time(), environ=env, first=True)


def _overlay(found: Snapshot, request: Request, given: Mapping[str, str]) -> dict[str, str]:
    """For bash, which gets its variables from the snapshot: only what the snapshot cannot give it."""
    env = {**found.environ, "OUTLAST_SESSION": request.session}
    for name, value in given.items():
        plain = name.isidentifier() and name.isascii() and name not in _GIVEN
        env[snapshot.OVERLAY + name if plain else name] = value
    if wants_colour(request.env):
        env[snapshot.DROPPED] = " ".join(name for name in _NO_COLOUR if name not in request.env)
    return env


def _exported(found: Snapshot, request: Request, given: Mapping[str, str]) -> dict[str, str]:
    """For another shell: the variables that the session exports."""
    env = {**snapshot.exported(found.state()), **found.environ, "OUTLAST_SESSION": request.session}
    if wants_colour(request.env):
        env = {name: value for name, value in env.items() if name not in _NO_COLOUR}
    return {**env, **given}


def nearest(path: str, environ: Mapping[str, str]) -> str:
    """A session's directory, or what is left of the way to it: a session must not end with a directory."""
    while path and not _can_enter(path):
        path = os.path.dirname(path) if path != "/" else ""
    home = environ.get("HOME", "")
    return path or (home if _can_enter(home) else "/")


def _can_enter(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.X_OK)


def is_bash(shell: str) -> bool:
    return os.path.basename(shell) == "bash"


def environment(inherited: Mapping[str, str], asked: Mapping[str, str], session: str) -> dict[str, str]:
    """The command's variables."""
    env = {name: value for name, value in inherited.items() if name not in _UNSET and name not in _OWN}
    env.update(_QUIET)
    if wants_colour(asked):
        for name in _NO_COLOUR:
            del env[name]
    env["OUTLAST_SESSION"] = session
    env.update(asked)
    return env


def wants_colour(asked: Mapping[str, str]) -> bool:
    return any(asked.get(name, "0") not in ("", "0") for name in _ASKS_FOR_COLOUR)


def _directory(asked: str, base: str = "") -> str:
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


def shell_for(asked: str, environ: Mapping[str, str]) -> str:
    """The program that reads a command."""
    if asked in (NO_SHELL, AGENT, BRIDGE):
        return asked
    path = environ.get("PATH")
    if not asked:
        if path not in _BASH or not os.access(_BASH[path], os.X_OK):
            _BASH[path] = find_program("bash", path) or "/bin/sh"
        return _BASH[path]
    found = find_program(os.path.expanduser(asked), path)
    if not found:
        raise BadInput(f"There is no shell {named(asked)}; give the path of one that is installed.")
    return os.path.abspath(found)


def _check_stdin(request: Request, cwd: str) -> None:
    if request.stdin.file is None:
        return
    path = os.path.join(cwd, request.stdin.file)
    if not os.path.exists(path):
        raise BadInput(f"The input file {path} does not exist; give another one.")
    if os.path.isdir(path):
        raise BadInput(f"{path} is a directory; give a file to read the input from.")
    if stat.S_ISFIFO(os.stat(path).st_mode):
        # Its other end may never be opened, and the supervisor would wait for that.
        raise BadInput(f"{path} is a pipe; read it, and give what it holds as text.")
    if not os.access(path, os.R_OK):
        raise BadInput(f"The input file {path} cannot be read: Permission denied; give another one.")


def umask() -> int:
    """That of this process."""
    # There is no way to ask without setting; /proc tells without a race against other threads.
    try:
        fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _, found, rest = os.read(fd, 512).partition(b"\nUmask:")
        finally:
            os.close(fd)
        if found:
            return int(rest.split(None, 1)[0], 8)
    except OSError:
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
