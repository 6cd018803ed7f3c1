"""What only one call has: variables that its caller gave it, and its directory.

It takes these to tell what a command changed. The values may be secret, so a task's directory has only their salted
digests, in the file `overlay`.
"""

from __future__ import annotations

import os

from outlast.frozen import frozen
from outlast.lean import json
from outlast.store.quoting import value_of
from outlast.store.snapshot import DIRECTORY, DROPPED, EXPORTED, OVERLAY, VARIABLE, flags_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outlast.store.snapshot import State

_TEMPORARY = b"TMPDIR"
_SALT_BYTES = 16
_CHANGED = b""  # equals no declaration


@frozen
class Overlay:
    """What one call had besides its session, without the values."""

    salt: bytes
    digests: Mapping[bytes, bytes]  # of each variable's value, by its name
    dropped: tuple[str, ...]  # names that this call did not have
    cwd: str
    temporary: str = ""  # in a sandbox: how the path of the command's own directory for temporary files begins

    def start(self, ground: State, end: State) -> State:
        """The state that the command began with, if its session had `ground` and it left `end`.

        A variable that the command did not change stands for itself, as `end` has it.
        """
        state = dict(ground)
        for name in self._names():
            key = (VARIABLE, name)
            # It keeps the other attributes that it has in the session.
            flags = (flags_of(state[key]) if key in state else set()) | {EXPORTED}
            line = end.get(key)
            state[key] = line if line and flags_of(line) == flags and self._is_unchanged(name, line) else _CHANGED
        for plain in self.dropped:
            state.pop((VARIABLE, plain.encode()), None)
        state[DIRECTORY] = os.fsencode(self.cwd)
        return state

    def _names(self) -> Iterable[bytes]:
        return {*self.digests, _TEMPORARY} if self.temporary else self.digests

    def _is_unchanged(self, name: bytes, line: bytes) -> bool:
        value = value_of(line)
        if value is None:
            return False
        if self.temporary and name == _TEMPORARY:
            return value == b"/tmp" or value.startswith(os.fsencode(self.temporary))
        return _digest(self.salt, value) == self.digests[name]


def encode(env: Mapping[str, str]) -> bytes:
    """What is written down of the variables of a launch; nothing if it only has those of its session."""
    given = {name: value for name, value in env.items() if name.startswith(OVERLAY)}
    dropped = env.get(DROPPED, "").split()
    if not given and not dropped:
        return b""
    salt = os.urandom(_SALT_BYTES)
    digests = {name[len(OVERLAY) :]: _digest(salt, os.fsencode(value)).hex() for name, value in given.items()}
    return json.dumps({"salt": salt.hex(), "digests": digests, "dropped": dropped}).encode()


def decode(data: bytes, cwd: str, temporary: str) -> Overlay:
    """An overlay from its file, which is empty if the call had nothing of its own."""
    if not data:
        return Overlay(b"", {}, (), cwd, temporary)
    found = json.loads(data)
    digests = {os.fsencode(name): bytes.fromhex(text) for name, text in found["digests"].items()}
    return Overlay(bytes.fromhex(found["salt"]), digests, tuple(found["dropped"]), cwd, temporary)


def _digest(salt: bytes, value: bytes) -> bytes:
    from hashlib import sha256  # most calls have no variables of their own

    return sha256(salt + value).digest()
