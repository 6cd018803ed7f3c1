"""What MCP clients hold of calls that go on: a long random token for each, found by any server after this one.

A token begins with the id of its task: clients show it to models, which then know what to read and to end.

<token>        which task of which session it is about
<token>.end    how the call ended, once a client has asked; the first writer wins
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from typing import Any

from outlast.light import fields, frozen
from outlast.linux.files import read_file, remove_file
from outlast.storage.layout import create_once

_TOKEN = re.compile(r"(?:([a-z]+-[0-9a-f]{8})-)?[0-9a-f]{48}")
_END = ".end"
_REMOVED_AT_ONCE = 100
UNASKED_S = 30 * 86400.0  # a call whose end no client has asked for is kept so long


def task_in(text: str) -> str:
    """Return the task's id, if that is a token; else the text."""
    found = _TOKEN.fullmatch(text)
    return found[1] or text if found else text


@frozen
class HeldCall:
    """One call that goes on: it launched `task_id`."""

    token: str
    session: str
    task_id: str
    created_at: float


@frozen
class Ending:
    """How such a call ended: `completed` with its result, or `cancelled`."""

    status: str
    result: dict[str, Any] | None
    at: float


class HeldCalls:
    """Those of one state directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, 0o700, exist_ok=True)

    def create(self, session: str, task_id: str) -> HeldCall:
        """Write a call down under a new token."""
        call = HeldCall(f"{task_id}-{secrets.token_hex(24)}", session, task_id, time.time())
        create_once(self._path(call.token), json.dumps(fields(call)).encode())
        return call

    def find(self, token: str) -> HeldCall | None:
        known = self._read(token, "")
        return known and HeldCall(token, known["session"], known["task_id"], known["created_at"])

    def ending(self, token: str) -> Ending | None:
        known = self._read(token, _END)
        return known and Ending(**known)

    def end(self, token: str, status: str, result: dict[str, Any] | None = None) -> Ending:
        """Write down how a call ended, unless that is known; returns what is then known."""
        ending = Ending(status, result, time.time())
        create_once(self._path(token) + _END, json.dumps(fields(ending)).encode())
        return self.ending(token) or ending

    def remove_old(self, older_than_s: float) -> None:
        """Remove a bounded number of those that ended so long ago, and any that is very old."""
        now = time.time()
        with os.scandir(self._directory) as entries:
            names = [entry.name for _, entry in zip(range(_REMOVED_AT_ONCE), entries, strict=False)]
        for name in names:
            path = os.path.join(self._directory, name)
            try:
                age = now - os.stat(path).st_mtime
            except FileNotFoundError:
                continue  # another server removed it
            if age > (older_than_s if name.endswith(_END) else UNASKED_S):
                remove_file(path)
                remove_file(path.removesuffix(_END))

    def _read(self, token: str, kind: str) -> Any:
        if not _TOKEN.fullmatch(token):
            return None
        try:
            return json.loads(read_file(self._path(token) + kind))
        except (FileNotFoundError, ValueError):
            return None

    def _path(self, token: str) -> str:
        return os.path.join(self._directory, token)
