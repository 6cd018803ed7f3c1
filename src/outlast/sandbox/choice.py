"""Which sandbox a command runs in: what was asked for, what the settings demand, what works on this machine.

A command that is to run in a sandbox never runs without one: where none can be made, it is
refused with what to do.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput, Hint, Unsupported, quote
from outlast.light import frozen, replace
from outlast.linux.files import get_cwd
from outlast.sandbox import bubblewrap, landlock, seccomp
from outlast.types import BUBBLEWRAP, LANDLOCK, Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlast.settings import Settings

KINDS = (BUBBLEWRAP, LANDLOCK)
_PROBE_S = 20.0
_DOCTOR = Hint("`outlast doctor` says more", "`outlast doctor` says more")
_WHAT_TO_DO = "install bubblewrap and allow user namespaces, or use a kernel with Landlock"


def choose_sandbox(
    asked: Sandbox | bool | None, imposed: Sandbox | bool | None, settings: Settings, cwd: str | None, base: str = ""
) -> Sandbox | None:
    """The sandbox of a call, whose directory is `cwd` if it names one; `base` stands for the caller's own directory.

    Settings and host can impose one. A call then neither switches it off nor widens it: what a
    model can ask for must not reach further than what its host said. Otherwise the call decides.
    """
    for one in (asked, imposed):
        if one is not None and not isinstance(one, (bool, Sandbox)):
            raise BadInput(f"The sandbox is True, False or a Sandbox, not {type(one).__name__}.")
    if not (asked or imposed or settings.sandbox):
        return None
    if imposed or settings.sandbox:
        found = _of(imposed, settings, [], base)
        refuse_more(asked, found)
        return found
    return _of(asked, settings, [os.path.join(base, cwd)] if cwd else [], base)


def _of(said: Sandbox | bool | None, settings: Settings, more: list[str], base: str) -> Sandbox:
    found = said if isinstance(said, Sandbox) else Sandbox()
    here = base or get_cwd()
    own = [here] if here not in ("", "/") else []  # there: a server that was started nowhere in particular
    named_there = [path for path in settings.sandbox_writable.split(":") if path]
    return Sandbox(
        writable=tuple(existing_directory(path) for path in (*own, *more, *named_there, *_paths(found.writable))),
        network=bool(found.network or settings.sandbox_network),
        readable=_paths(found.readable),
        kind=known_kind(found.kind or settings.sandbox_kind),
    )


def existing_directory(path: str) -> str:
    """The real path of a directory. Raises `BadInput`."""
    whole = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(whole):
        raise BadInput(f"The directory {path} does not exist; create it or give another one.")
    return whole


def refuse_more(asked: Sandbox | bool | None, imposed: Sandbox) -> None:
    """Raise `BadInput` if a call asks for more than the sandbox that is imposed on it."""
    if asked is False:
        raise BadInput(
            "This sandbox is imposed from outside, and a call cannot switch it off; leave out sandbox=False."
        )
    if not isinstance(asked, Sandbox):
        return
    outside = [
        path for path in _paths(asked.writable) if not bubblewrap.is_within(existing_directory(path), imposed.writable)
    ]
    if outside or asked.readable or (asked.network and not imposed.network):
        raise BadInput("This sandbox is imposed from outside, and a call cannot widen it; change the settings.")


def known_kind(kind: str) -> str:
    """A kind of sandbox that there is, or none. Raises `BadInput`."""
    if kind not in ("", *KINDS):
        raise BadInput(f"{quote(kind)} is no kind of sandbox; use {' or '.join(KINDS)}.")
    return kind


def _paths(paths: Sequence[str]) -> tuple[str, ...]:
    if isinstance(paths, str) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise BadInput("The directories of a sandbox are a list of paths.")
    return tuple(map(os.fspath, paths))


def resolve_sandbox(sandbox: Sandbox, home: str, environ: Mapping[str, str]) -> Sandbox:
    """Exactly the sandbox that a command will run in; refused if it cannot be made, or would not be one."""
    kind, program = available(sandbox.kind)
    if kind == LANDLOCK and not sandbox.network and not program and landlock.abi() < landlock.TCP_ABI:
        raise Unsupported("This kernel's Landlock cannot close the network; allow it, or install bubblewrap.")
    found = replace(
        sandbox,
        writable=tuple(dict.fromkeys(sandbox.writable)),
        readable=tuple(_readable(sandbox, environ)),
        kind=kind,
        program=program,
    )
    _check(found, os.path.abspath(home))
    return found


def nearest_seen(sandbox: Sandbox, cwd: str, home: str, asked: bool) -> str:
    """Where a command begins: in `cwd`, or as near to it as there is something to be seen in its sandbox.

    A wish to be there is no reason to show it: a command can choose where the next one of its session begins.
    """
    path = cwd
    while not _is_seen(sandbox, os.path.realpath(path), os.path.realpath(home)):
        if asked:
            raise BadInput(
                f"{cwd} is not to be seen in the sandbox; run the command elsewhere, or allow this directory."
            )
        path = os.path.dirname(path)
    return path


def _is_seen(sandbox: Sandbox, path: str, state: str) -> bool:
    if bubblewrap.is_within(path, [state]):
        return False
    return not _is_covered(path) or bubblewrap.is_within(path, (*sandbox.writable, *sandbox.readable))


def refuse_input(path: str, home: str) -> None:
    """A file that a command is given to read is opened outside of the sandbox."""
    if bubblewrap.is_within(os.path.realpath(path), [os.path.realpath(home)]):
        raise BadInput(f"{path} is in Outlast's own state directory, which a sandbox hides; give another file.")


def _readable(sandbox: Sandbox, environ: Mapping[str, str]) -> list[str]:
    """What lies in a place that every sandbox has its own of, and is to be seen there all the same."""
    own = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    return [path for path in dict.fromkeys([*map(os.path.realpath, sandbox.readable), own]) if _is_covered(path)]


def _is_covered(path: str) -> bool:
    return path not in bubblewrap.OWN and bubblewrap.is_within(path, bubblewrap.OWN)


def _check(sandbox: Sandbox, home: str) -> None:
    state = os.path.realpath(home)
    for path in sandbox.writable:
        if path == "/":
            raise BadInput("A sandbox that may write to / is none; name another directory.")
        if bubblewrap.is_within(path, [state]):
            raise BadInput(f"{path} is in Outlast's own state directory, which a sandbox hides; use another directory.")
        if bubblewrap.is_within(state, [path]) and sandbox.kind == LANDLOCK:
            raise BadInput(
                f"Outlast's state directory is inside of {path}, and Landlock cannot keep a command from it there; "
                "run it in another directory, or install bubblewrap."
            )
    link = _link_in(home, sandbox.writable)
    if link:
        raise BadInput(
            f"The way to Outlast's state directory leads through the link {link}, which the command could change; "
            "set OUTLAST_HOME to the real directory."
        )


def _link_in(home: str, writable: Sequence[str]) -> str:
    """A link on the way to the state directory that lies in a writable one."""
    path = home
    while path != "/":
        parent = os.path.dirname(path)
        if os.path.islink(path) and bubblewrap.is_within(os.path.realpath(parent), writable):
            return path
        path = parent
    return ""


# --- what works here ---------------------------------------------------------------------


@frozen
class Ability:
    """Whether a kind of sandbox works on this machine, and if not, why."""

    works: bool
    detail: str
    program: str = ""


_known: dict[str, Ability] = {}  # by kind: a machine does not change while we live


def available(kind: str = "") -> tuple[str, str]:
    """The kind of sandbox to use, and the program that makes it."""
    for one in [kind] if kind else KINDS:
        if able(one).works:
            return one, able(one).program
    tried = "; ".join(f"{one}: {able(one).detail}" for one in ([kind] if kind else KINDS))
    raise Unsupported(f"No sandbox can be made here ({tried}), so nothing was run; {_WHAT_TO_DO}.", _DOCTOR)


def able(kind: str) -> Ability:
    """Whether a kind of sandbox works here: found by making one."""
    if kind not in _known:
        _known[kind] = _bubblewrap() if kind == BUBBLEWRAP else _landlock()
    return _known[kind]


def _bubblewrap() -> Ability:
    import subprocess
    from shutil import which

    program = which("bwrap")
    if program is None:
        return Ability(False, "bwrap is not installed")
    if not os.path.exists(bubblewrap.setsid()):
        return Ability(False, "setsid (of util-linux) is not installed")
    words = [program, *bubblewrap.APART, "--unshare-net", *bubblewrap.GROUND, bubblewrap.setsid(), "true"]
    try:
        ran = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, env={}, check=False, timeout=_PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ability(False, f"{program} does not run: {error}")
    if ran.returncode:
        return Ability(False, " ".join(ran.stderr.decode(errors="replace").split()) or f"{program} fails")
    return Ability(True, program, os.path.abspath(program))


def _landlock() -> Ability:
    abi = landlock.abi()
    if not abi:
        return Ability(False, "the kernel has none, or it is switched off")
    if abi < landlock.LEAST_ABI:
        return Ability(False, f"the kernel has version {abi}, and {landlock.LEAST_ABI} is needed")
    program = seccomp.NAME if seccomp.known_here() else ""
    closed = "only TCP" if abi >= landlock.TCP_ABI else "nothing"
    lacks = [
        *([] if program else [f"{closed} is kept from the network"]),
        *(["signals reach other processes"] if abi < landlock.SCOPES_ABI else []),
        "it sees the machine's processes and can change mode and times of your files: prefer bubblewrap",
    ]
    return Ability(True, f"version {abi}; {', '.join(lacks)}", program)
