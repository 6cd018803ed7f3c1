"""What a shell shows: tasks, output, errors and sessions, without secrets.

Exact values are known from three places: this process' environment, what its calls gave
with `env`, and what the session's own state has. They are on no disk for this. Another
process does not know what a call of this one gave; the forms of tokens everybody knows.
"""

from __future__ import annotations

import os

from outlast.light import fields, replaced
from outlast.masking import MASK, OFF, Mask
from outlast.secrets import looks_secret, names_of_secrets, secret_values
from outlast.storage.snapshot import value_of
from outlast.types import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from outlast.errors import OutlastError
    from outlast.masking import BytesStream
    from outlast.settings import Settings
    from outlast.storage.snapshot import Snapshot
    from outlast.types import SessionState, Task

    Seen = TypeVar("Seen", bound=Task)

_TEXTS = ("command", "description", "error", "cwd", "matched")
_LISTED_AT_MOST = 5000
_DECLARED = rb"^declare -[A-Za-z-]+ ([A-Za-z_]\w*)=.*$"


class Showing:
    """The secrets that one shell knows, and what is shown without them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._environ: Mapping[str, str] | None = None
        self._names: Sequence[str] = ()  # of what is secret in it
        self._values: set[str] = set()
        self._learnt: dict[str, str] = {}  # of which session which state is known
        self._mask: Mask | None = None
        self._listed: dict[str, tuple[Task, Task]] = {}  # as they are, and as they are shown
        self._listed_by: Mask | None = None

    @property
    def mask(self) -> Mask:
        """The mask for all that is known."""
        if not self._settings.mask_secrets:
            return OFF
        if self._environ is None:
            self.notice(dict(os.environ))
        if self._mask is None:
            self._mask = Mask(self._values)
        return self._mask

    def shown(self, one: Task) -> Task:
        """A task as it is shown. One that has ended is the same object each time, and is looked at once."""
        mask = self.mask
        if mask is not self._listed_by:
            self._listed, self._listed_by = {}, mask
        known = self._listed.get(one.task_id)
        if known is None or known[0] is not one:
            known = (one, task(one, mask))
            if one.finished and len(self._listed) < _LISTED_AT_MOST:
                self._listed[one.task_id] = known
        return known[1]

    def listed(self, tasks: Iterable[Task]) -> list[Task]:
        """Tasks as they are shown."""
        return [self.shown(one) for one in tasks]

    def notice(self, environ: Mapping[str, str]) -> Sequence[str]:
        """This process' environment, as it is now: the names of what is secret in it."""
        if environ != self._environ:
            self._environ, self._names = environ, names_of_secrets(environ, self._settings)
            self._know({environ[name] for name in self._names})
        return self._names

    def _know(self, values: set[str]) -> None:
        if not values <= self._values:
            self._values |= values
            self._mask = None

    def learn(self, env: Mapping[str, str]) -> None:
        """What a call, or a session's state, has of its own."""
        if env:
            self._know(secret_values(env, self._settings))

    def learn_state(self, session: str, state: Snapshot) -> None:
        """What a session's commands have set."""
        if not self.knows(session, state.mark):
            self._learnt[session] = state.mark
            self.learn(secrets_of(state))

    def knows(self, session: str, mark: str = "") -> bool:
        """Whether the state of a session with this mark (by default any) was looked at."""
        if not self._settings.mask_secrets:
            return True
        return self._learnt.get(session) == mark if mark else session in self._learnt

    def knows_nothing_of(self, session: str) -> None:
        """It has no state."""
        self._learnt.setdefault(session, "")


def secrets_of(state: Snapshot) -> dict[str, str]:
    """The variables of a session whose names look secret."""
    import re  # most calls have no session

    found = {}
    for line in re.finditer(_DECLARED, state.script, re.MULTILINE):
        name = line[1].decode()
        value = value_of(line[0]) if looks_secret(name) else None
        if value:
            found[name] = value.decode("utf-8", "surrogateescape")
    return found


def task(seen: Seen, mask: Mask) -> Seen:
    """A task (or a result, or a receipt) as it is shown."""
    if not mask.on:
        return seen
    if seen.metadata:
        told = {name: mask.text(one) if isinstance(one, str) else one for name, one in seen.metadata.items()}
        if told != seen.metadata:
            seen = replaced(seen, metadata=told)
    texts = {name: text for name in _TEXTS if (text := seen.__dict__.get(name))}
    everything = "\n".join(texts.values())
    if mask.text(everything) == everything:  # one look at all: mostly there is nothing, and lists are long
        return seen
    return replaced(seen, **{name: mask.text(text) for name, text in texts.items()})


def error(raised: OutlastError, mask: Mask) -> None:
    """Let an error tell no secret."""
    raised.message = mask.text(raised.message)
    raised.args = (raised.message,)


def session(state: SessionState, mask: Mask) -> SessionState:
    """What a session remembers, without its secrets."""
    if not mask.on:
        return state
    values = fields(state)
    variables = {name: MASK if looks_secret(name) else mask.text(text) for name, text in state.variables.items()}
    tables = {name: {key: mask.text(text) for key, text in values[name].items()} for name in ("aliases", "traps")}
    return replaced(state, variables=variables, **tables)


class Live:
    """Slices as they are shown while they come: without secrets, and without what may become one.

    Where a slice says that it ends is where it was shown to: who reads on from there misses nothing.
    """

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self._streams: dict[str, BytesStream] = {}
        self._at: dict[str, int] = {}
        self._first: list[Slice] = []

    def begin_inside(self, stream: str, start: int, end: int) -> None:
        """The first place is inside of a secret, which ends there."""
        self._first.append(Slice(stream, start, MASK.encode(), 0, end))

    def take(self, pieces: Iterable[Slice]) -> Iterator[Slice]:
        while self._first:
            yield self._first.pop(0)
        for piece in pieces:
            if not self.mask.on:
                yield piece
                continue
            if piece.dropped:
                yield from self._finish(piece.stream)
            yield from self._masked(piece)

    def _masked(self, piece: Slice) -> Iterator[Slice]:
        stream = self._streams.setdefault(piece.stream, self.mask.bytes_stream())
        start = self._at.get(piece.stream, piece.start) if not piece.dropped else piece.start
        data = stream.feed(piece.data)
        self._at[piece.stream] = end = piece.next - stream.held
        if data or piece.dropped:
            yield Slice(piece.stream, start, data, piece.dropped, end)

    def finish(self) -> Iterator[Slice]:
        """The rest: no more will come."""
        for name in self._streams:
            yield from self._finish(name)

    def _finish(self, name: str) -> Iterator[Slice]:
        stream = self._streams.get(name)
        if stream is not None and stream.held:
            start, held = self._at[name], stream.held
            self._at[name] = start + held
            yield Slice(name, start, stream.finish(), 0, start + held)
