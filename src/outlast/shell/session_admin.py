"""Show, reset, copy and remove sessions, on behalf of a user. Nothing else removes a named session."""

from __future__ import annotations

import os

from outlast.errors import BadInput, SessionBusy, UnknownSession, named
from outlast.launch_builder import compose_first_snapshot
from outlast.storage import snapshot
from outlast.storage.dump import find_changed_variables
from outlast.storage.snapshot import ALIAS, FUNCTION, OPTION, SHOPT, TRAP, VARIABLE
from outlast.types import SessionState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outlast.storage.sessions import Sessions
    from outlast.types import Task

_NO_SESSION = (FileNotFoundError, NotADirectoryError)


def show(sessions: Sessions, name: str, scope: str | None = None) -> SessionState:
    """Return what a session remembers."""
    try:
        found = sessions.read(name)
    except snapshot.DamagedSnapshot as error:
        raise UnknownSession(
            f"The state of session {named(name)} is damaged ({error}); the next command sets it aside and begins anew."
        ) from None
    except OSError:
        raise _unknown(sessions, name, scope) from None
    state, first = found.state(), sessions.read_first_state(name)
    items: dict[str, dict[str, str]] = {kind: {} for kind in (ALIAS, FUNCTION, OPTION, SHOPT, TRAP)}
    for (kind, item), text in sorted(state.items()):
        if kind in items:
            items[kind][os.fsdecode(item)] = os.fsdecode(text)
    return SessionState(
        name=name,
        directory=found.directory,
        umask=os.fsdecode(state.get(snapshot.UMASK, b"")),
        generation=found.generation,
        updated_at=found.made,
        last_task=found.task.rpartition(" ")[2],
        variables=find_changed_variables(state, first),
        removed=tuple(sorted(os.fsdecode(item) for kind, item in first.keys() - state.keys() if kind == VARIABLE)),
        functions=tuple(items[FUNCTION]),
        aliases={alias: text.partition("=")[2] for alias, text in items[ALIAS].items()},
        options=(*items[OPTION], *items[SHOPT]),
        traps=items[TRAP],
        damaged=tuple(sessions.damaged_files(name)),
    )


def reset(sessions: Sessions, name: str, environ: Mapping[str, str], scope: str | None = None) -> None:
    """Let a session begin again with the caller's variables and directory. Its running tasks go on."""
    try:
        sessions.reset(name, compose_first_snapshot(environ, name))
    except _NO_SESSION:
        raise _unknown(sessions, name, scope) from None


def copy(sessions: Sessions, name: str, target: str, scope: str | None = None) -> None:
    """Create a session in the state of another one."""
    try:
        sessions.copy(name, target)
    except FileExistsError:
        why = f"There is a session {named(target)} already; remove it first, or give another name."
        raise SessionBusy(why) from None
    except (*_NO_SESSION, snapshot.DamagedSnapshot):
        raise _unknown(sessions, name, scope) from None


def remove(sessions: Sessions, name: str, tasks: Iterable[Task], scope: str | None = None) -> None:
    """Remove a session, unless one of its `tasks` still runs."""
    running = [task.task_id for task in tasks if not task.finished]
    if running:
        ids = ", ".join(running[:3]) + (f" and {len(running) - 3} more" if len(running) > 3 else "")
        raise SessionBusy(f"Session {named(name)} has tasks that run ({ids}); end them first with `outlast kill`.")
    try:
        sessions.remove(name)
    except _NO_SESSION:
        raise _unknown(sessions, name, scope) from None


def _unknown(sessions: Sessions, name: str, scope: str | None = None) -> UnknownSession:
    """Return the error for a session that does not exist. Only an operator (no `scope`) is shown similar names."""
    from difflib import get_close_matches

    near = get_close_matches(name, sessions.names(), n=3, cutoff=0.5) if scope is None else []
    hint = f"near it are {', '.join(near)}" if near else "`outlast session list` lists them"
    return UnknownSession(f"There is no session {named(name)} with a state; {hint}.")


def check_reach(name: str, own: str | None) -> None:
    """Refuse a session other than the caller's `own`; an operator has none and reaches all."""
    if own is not None and name != own:
        raise BadInput(f"This is session {named(own)}, which cannot reach {named(name)}; open it as an operator.")
