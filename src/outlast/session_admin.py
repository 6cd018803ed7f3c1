"""Sessions as things to look at: listed, shown, begun anew, copied, removed. Nothing but this removes one."""

from __future__ import annotations

import os

from outlast.errors import BadInput, SessionBusy, UnknownSession, named
from outlast.launch_builder import first_snapshot
from outlast.storage import snapshot
from outlast.storage.snapshot import ALIAS, FUNCTION, OPTION, SHOPT, TRAP, VARIABLE
from outlast.types import SessionState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outlast.storage.sessionfile import Sessions
    from outlast.storage.snapshot import State
    from outlast.types import Task

_MINE = (b"OLDPWD", b"SHLVL")  # change by themselves and tell nobody anything
_USUAL = snapshot.AT_START | frozenset(_MINE)


def show(sessions: Sessions, name: str, scope: str | None = None) -> SessionState:
    """What a session remembers."""
    try:
        found = sessions.read(name)
    except snapshot.Damaged as error:
        raise UnknownSession(
            f"The state of session {named(name)} is damaged ({error}); the next command sets it aside and begins anew."
        ) from None
    except OSError:
        raise unknown(sessions, name, scope) from None
    state, beginning = found.state(), sessions.beginning(name)
    texts = {kind: _texts(state, kind) for kind in (ALIAS, TRAP)}
    return SessionState(
        name=name,
        directory=found.directory,
        umask=os.fsdecode(state.get(snapshot.UMASK, b"")),
        generation=found.generation,
        updated_at=found.made,
        last_task=found.task.rpartition(" ")[2],  # a merge names all tasks that it took, the last one last
        variables=_changed(state, beginning),
        removed=tuple(sorted(os.fsdecode(key[1]) for key in beginning.keys() - state.keys() if key[0] == VARIABLE)),
        functions=tuple(_names(state, FUNCTION)),
        aliases={name: text.partition("=")[2] for name, text in texts[ALIAS].items()},
        options=(*_names(state, OPTION), *_names(state, SHOPT)),
        traps=texts[TRAP],
        damaged=tuple(sessions.damages(name)),
    )


def _changed(state: State, beginning: State) -> dict[str, str]:
    changed = snapshot.merged({}, beginning, state)
    return {
        os.fsdecode(name): os.fsdecode(line.partition(b"=")[2])
        for (kind, name), line in sorted(changed.items())
        if kind == VARIABLE and (name not in _USUAL or ((kind, name) in beginning and name not in _MINE))
    }


def _texts(state: State, kind: str) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(text) for (one, name), text in sorted(state.items()) if one == kind}


def _names(state: State, kind: str) -> list[str]:
    return sorted(os.fsdecode(name) for one, name in state if one == kind)


def reset(sessions: Sessions, name: str, environ: Mapping[str, str], scope: str | None = None) -> None:
    """Let a session begin anew with the caller's variables and directory. What runs goes on."""
    try:
        sessions.reset(name, first_snapshot(environ, name))
    except (FileNotFoundError, NotADirectoryError):
        raise unknown(sessions, name, scope) from None


def copy(sessions: Sessions, name: str, target: str, scope: str | None = None) -> None:
    """A new session in the state of another."""
    try:
        sessions.copy(name, target)
    except FileExistsError:
        raise SessionBusy(
            f"There is a session {named(target)} already; remove it first, or give another name."
        ) from None
    except (FileNotFoundError, NotADirectoryError, snapshot.Damaged):
        raise unknown(sessions, name, scope) from None


def remove(sessions: Sessions, name: str, tasks: Iterable[Task], scope: str | None = None) -> None:
    """Forget a session that nothing runs in."""
    running = [task.task_id for task in tasks if not task.finished]
    if running:
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        ids = ", ".join(running[:3])
        raise SessionBusy(
            f"Session {named(name)} has tasks that run ({ids}{more}); end them first with `outlast kill`."
        )
    try:
        sessions.remove(name)
    except (FileNotFoundError, NotADirectoryError):
        raise unknown(sessions, name, scope) from None


def unknown(sessions: Sessions, name: str, scope: str | None = None) -> UnknownSession:
    """There is no such session; which are near, if others are the asker's business."""
    from difflib import get_close_matches

    near = get_close_matches(name, sessions.names(), n=3, cutoff=0.5) if scope is None else []
    hint = f"near it are {', '.join(near)}" if near else "`outlast session list` lists them"
    return UnknownSession(f"There is no session {named(name)} with a state; {hint}.")


def only_own(name: str, own: str | None) -> None:
    """A session reaches only itself."""
    if own is not None and name != own:
        raise BadInput(f"This is session {named(own)}, which cannot reach {named(name)}; open it as an operator.")
