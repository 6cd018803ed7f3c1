"""Compose the variables of a command: from its caller, its session, and what a command without a person needs.

A command that a machine runs must not wait for a person: no pager, no editor, no prompt for a password, and no
colours for a terminal that does not exist. Variables that the caller gives for one command override all of that.
"""

from __future__ import annotations

import os
import time

from outlast.errors import BadInput, quote
from outlast.output.redaction import split_variables
from outlast.storage import snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlast.output.redaction import SplitVariables
    from outlast.settings import Settings
    from outlast.storage.snapshot import Snapshot
    from outlast.types import Request

TASK_ID = "OUTLAST_TASK_ID"  # the variable that says which task a process belongs to
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
_NOT_IN_SNAPSHOTS = ("OUTLAST_SESSION", TASK_ID)  # every command gets its own


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


def compose_first_snapshot(environ: Mapping[str, str], session: str, cwd: str, umask: int) -> bytes:
    """Return the snapshot of a new session: the variables that its commands would have, a directory and a umask."""
    env = compose_environment(environ, {}, session)
    state = snapshot.compose_first_state(env, cwd, umask)
    return snapshot.compose(state, generation=0, task="", made=time.time(), environ=env, first=True)


def compose_overlay(found: Snapshot, request: Request, given: Mapping[str, str]) -> dict[str, str]:
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


def restore_interactive(found: Snapshot, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command with a terminal that the session has for commands without one."""
    ours = {name: environ[name] for name in _find_non_interactive(found) if name in environ}
    return {name: value for name, value in ours.items() if name not in _NO_COLOURS} | _ON_A_TERMINAL


def compose_exported(found: Snapshot, request: Request, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for another shell: those that the session exports."""
    env = {**snapshot.exported_variables(found.state()), **found.environ, "OUTLAST_SESSION": request.session}
    if request.tty is not None:
        env = {name: value for name, value in env.items() if name not in (*_find_non_interactive(found), *_SIZES)}
    elif _wants_colours(request.env):
        env = {name: value for name, value in env.items() if name not in _NO_COLOURS}
    return {**env, **given}


def split_secrets(
    environ: Mapping[str, str], settings: Settings, request: Request, secret_names: Sequence[str] | None
) -> SplitVariables:
    """Split the variables of the caller into those that the command gets and those that are held back."""
    missing = [name for name in request.pass_secrets if "*" not in name and name not in environ]
    if missing:
        raise BadInput(
            f"The variable {quote(missing[0])} is not set here, so it cannot be passed on; "
            "set it, or give its value with env (--env NAME=VALUE)."
        )
    return split_variables(environ, settings, request.pass_secrets, secret_names)


def select_undeclared(found: Snapshot, variables: Mapping[str, str]) -> dict[str, str]:
    """Select variables that the session does not declare: one that a command of it set stays as it is."""
    return {name: value for name, value in variables.items() if b" %s=" % os.fsencode(name) not in found.script}
