"""From a grant to a launch: exactly what will run, with which variables, where.

A command that a machine runs must not wait for a person: no pager, no editor, no
prompt for a password, and no colour for a terminal that is not there. What the caller
sets by hand wins over all of it.
"""

from __future__ import annotations

import os
import stat

from outlast.errors import BadInput, named
from outlast.model import Grant, Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.model import Request
    from outlast.settings import Settings

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
_OWN = ("OUTLAST_TASK_ID",)


def prepare(grant: Grant, settings: Settings, environ: Mapping[str, str]) -> Launch:
    """What exactly will run for a grant."""
    request = grant.request
    cwd = _directory(request.cwd)
    _check_stdin(request, cwd)
    return Launch(
        kind="bash",
        command=request.command,
        session=request.session,
        cwd=cwd,
        env=environment(environ, request.env, request.session),
        stdin=request.stdin,
        shell=_shell(request.shell or settings.shell, environ),
        split=request.split,
        limit=request.limit,
        grace=settings.kill_grace_s,
        umask=_umask(),
        description=request.description,
        output_limit=settings.output_limit_bytes,
        free_floor=settings.free_floor_bytes,
        background=request.background,
        name=request.name,
        after=request.after,
        after_failed=request.after_failed,
        max_running=settings.max_running,
        rlimits=_rlimits(),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
    )


def _rlimits() -> dict[str, tuple[int, int]]:
    """Soft and hard, by name: whoever starts the command may be a stranger with others."""
    import resource

    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def environment(inherited: Mapping[str, str], asked: Mapping[str, str], session: str) -> dict[str, str]:
    """The command's variables."""
    env = {name: value for name, value in inherited.items() if name not in _UNSET and name not in _OWN}
    env.update(_QUIET)
    if any(asked.get(name, "0") not in ("", "0") for name in _ASKS_FOR_COLOUR):
        del env["NO_COLOR"], env["CLICOLOR"]
    env["OUTLAST_SESSION"] = session
    env.update(asked)
    return env


def _directory(asked: str) -> str:
    try:
        path = os.path.abspath(os.path.expanduser(asked)) if asked else os.getcwd()
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


def _shell(asked: str, environ: Mapping[str, str]) -> str:
    import shutil

    if not asked:
        return shutil.which("bash", path=environ.get("PATH")) or "/bin/sh"
    found = shutil.which(os.path.expanduser(asked), path=environ.get("PATH"))
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


def _umask() -> int:
    # There is no way to ask without setting; /proc tells without a race against other threads.
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
