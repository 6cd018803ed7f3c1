"""What sessions remember: show, reset, copy and remove it on behalf of a user. Nothing else removes a named session."""

from __future__ import annotations

import os

from outlast.environment import compose_first_snapshot
from outlast.errors import BadInput, Hint, SessionBusy, UnknownSession, quote
from outlast.launch_builder import find_directory
from outlast.linux.process import read_umask
from outlast.output.redaction import split_variables
from outlast.shell import validation
from outlast.shell.context import translate_errors
from outlast.storage import session_rules, snapshot
from outlast.storage.dump import find_changed_variables
from outlast.storage.sessions import SessionState
from outlast.storage.snapshot import ALIAS, FUNCTION, OPTION, SHOPT, TRAP, VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.shell.context import Context

_NO_SESSION = (FileNotFoundError, NotADirectoryError)


class SessionControl:
    """What sessions remember: the variables, functions, directory and so on that their next commands begin with.

    A shell reaches its own session; one that was opened as an operator reaches all, and can name another.
    """

    def __init__(self, context: Context) -> None:
        self.context, self._sessions = context, context.sessions

    @translate_errors
    def names(self) -> Sequence[str]:
        """Return the sessions that remember something (an operator: all; otherwise this one)."""
        return [name for name in self._sessions.names() if self.context.scope in (None, name.partition("@")[0])]

    @translate_errors
    def state(self, name: str | None = None) -> SessionState:
        """Return what a session (by default this one) remembers; secrets are masked."""
        reached = self._reach(name)
        try:
            found = self._sessions.read(reached)
        except snapshot.DamagedSnapshot as error:
            raise UnknownSession(
                f"The state of session {quote(reached)} is damaged ({error}); "
                "the next command sets it aside and begins anew."
            ) from None
        except OSError:
            raise self._unknown(reached) from None
        state, first = found.state(), self._sessions.read_first_state(reached)
        removed = first.keys() - state.keys()
        items: dict[str, dict[str, str]] = {kind: {} for kind in (ALIAS, FUNCTION, OPTION, SHOPT, TRAP)}
        for (kind, item), text in sorted(state.items()):
            if kind in items:
                items[kind][os.fsdecode(item)] = os.fsdecode(text)
        self.context.redactor.learn_state(reached)  # with what its last command has set
        return self.context.redactor.redact_session(
            SessionState(
                name=reached,
                directory=found.directory,
                umask=os.fsdecode(state.get(snapshot.UMASK, b"")),
                generation=found.generation,
                updated_at=found.made,
                last_task=found.task.rpartition(" ")[2],
                variables=find_changed_variables(state, first),
                removed=tuple(sorted(os.fsdecode(one) for kind, one in removed if kind == VARIABLE)),
                functions=tuple(items[FUNCTION]),
                aliases={alias: text.partition("=")[2] for alias, text in items[ALIAS].items()},
                options=(*items[OPTION], *items[SHOPT]),
                traps=items[TRAP],
                damaged=tuple(self._sessions.damaged_files(reached)),
            )
        )

    @translate_errors
    def reset(self, name: str | None = None) -> None:
        """Let a session begin anew, with this process' variables and directory. Its running tasks go on."""
        environ, reached = split_variables(dict(os.environ), self.context.settings).open, self._reach(name)
        if "@" in reached:
            self._remove(reached)  # the next command there begins with what a login there has
            return
        try:
            first = compose_first_snapshot(environ, reached, find_directory("", self.context.cwd), read_umask())
            self._sessions.reset(reached, first)
            session_rules.remove(self.context.home, reached)
        except _NO_SESSION:
            raise self._unknown(reached) from None

    @translate_errors
    def copy(self, name: str, target: str) -> None:
        """Create a session in the state of another one; only an operator reaches two."""
        reached = self._reach(name)
        try:
            self._sessions.copy(reached, self._reach(target))
        except FileExistsError:
            why = f"There is a session {quote(target)} already; remove it first, or give another name."
            raise SessionBusy(why) from None
        except (*_NO_SESSION, snapshot.DamagedSnapshot):
            raise self._unknown(reached) from None

    @translate_errors
    def remove(self, name: str | None = None) -> None:
        """Remove a session; refused while tasks of it run."""
        reached = self._reach(name)
        running = [
            task.task_id
            for task in self.context.executor.registry.tasks(reached.partition("@")[0])
            if not task.finished
        ]
        if running:
            ids = ", ".join(running[:3]) + (f" and {len(running) - 3} more" if len(running) > 3 else "")
            hint = Hint("end them first with `outlast kill`", "end them first with `Shell.kill`", "end them first")
            raise SessionBusy(f"Session {quote(reached)} has tasks that run ({ids}).", hint)
        try:
            if "@" not in reached:
                session_rules.remove(self.context.home, reached)
            self._sessions.remove(reached)
        except _NO_SESSION:
            raise self._unknown(reached) from None
        for other in self._sessions.names():
            if other.startswith(f"{reached}@"):
                self._remove(other)

    def _remove(self, reached: str) -> None:
        try:
            self._sessions.remove(reached)
        except _NO_SESSION:
            raise self._unknown(reached) from None

    def _reach(self, name: str | None) -> str:
        """Return the session that is meant; refuse one that cannot be reached."""
        if name is None:
            return self.context.state or self.context.session
        # NAME@EXECUTOR is the state that it has on another machine.
        base, at, executor = str(name).partition("@")
        own, base = self.context.scope, validation.session_name(base)
        if at:
            validation.session_name(executor)
        if own not in (None, base):
            raise BadInput(f"This is session {quote(own)}, which cannot reach {quote(name)}; open it as an operator.")
        return name

    def _unknown(self, name: str) -> UnknownSession:
        """Return the error for a session that does not exist. Only an operator is shown similar names."""
        from difflib import get_close_matches

        near = get_close_matches(name, self._sessions.names(), n=3, cutoff=0.5) if self.context.scope is None else []
        said = f"There is no session {quote(name)} with a state"
        if near:
            return UnknownSession(f"{said}; near it are {', '.join(near)}.")
        return UnknownSession(
            f"{said}.", Hint("`outlast session list` lists them", "`Shell.sessions.names` lists them")
        )
