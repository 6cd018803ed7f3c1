"""What MCP clients hold of calls that go on: a long random token for each, found by any server after this one.

A token begins with the id of its task: clients show it to models, which then know what to read and to end.

<token>        what was called, and which task it is about; locked by the server that works on it
<token>.end    how it ended, once it has; the first one counts
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time

from outlast.light import fields, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_TOKEN = re.compile(r"(?:([a-z]+-[0-9a-f]{8})-)?[0-9a-f]{48}")
_END = ".end"
_SWEPT_AT_ONCE = 100
FORGOTTEN_S = 30 * 86400.0  # nobody asked how it ended for so long


def task_in(text: str) -> str:
    """The task's id, if that is a token; else the text."""
    found = _TOKEN.fullmatch(text)
    return found[1] or text if found else text


@frozen
class Handle:
    """One call that goes on."""

    session: str
    profile: str
    tool: str
    arguments: Mapping[str, Any]
    task_id: str
    launched: bool
    """Whether the call launched the task, or only waits for it."""
    background: bool
    """Whether the call was over when the task had been started."""
    created_at: float
    token: str = ""


@frozen
class Ending:
    """How such a call ended: `completed` with its result, or `cancelled`."""

    status: str
    result: Mapping[str, Any] | None
    at: float


class Claim:
    """The right to work on one call. The kernel lets go of it with its holder."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough: what the host forked may have it open
            os.close(self._fd)
            self._fd = -1


class Handles:
    """Those of one state directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, 0o700, exist_ok=True)

    def create(self, handle: Handle) -> tuple[Handle, Claim]:
        """Write it down, durably, under a new token. Nobody finds it before it is claimed."""
        token = f"{handle.task_id}-{secrets.token_hex(24)}"
        known = {name: value for name, value in fields(handle).items() if name != "token"}
        fd = self._write_aside(token, known)
        claim = Claim(fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.rename(self._aside(token), self._of(token))
        return Handle(**known, token=token), claim

    def _write_aside(self, token: str, known: Mapping[str, Any]) -> int:
        fd = os.open(self._aside(token), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "w", closefd=False) as file:
                json.dump(known, file)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            os.unlink(self._aside(token))
            raise
        return fd

    def find(self, token: str) -> Handle | None:
        known = self._read(token, "")
        return None if known is None else Handle(**known, token=token)

    def claim(self, token: str) -> Claim | None:
        """The right to work on it, if nobody alive has it."""
        try:
            fd = os.open(self._of(token), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return Claim(fd)

    def ending(self, token: str) -> Ending | None:
        known = self._read(token, _END)
        return None if known is None else Ending(**known)

    def end(self, token: str, ending: Ending) -> None:
        """Write down how it ended, unless that is known."""
        aside = self._aside(secrets.token_hex(4))
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(fields(ending), file)
        try:
            os.link(aside, self._of(token) + _END)
        except FileExistsError:
            pass
        finally:
            os.unlink(aside)

    def sweep(self, older_than_s: float) -> None:
        """Forget a bounded number of those that ended so long ago, and whatever is very old."""
        now = time.time()
        with os.scandir(self._directory) as entries:
            names = [entry.name for _, entry in zip(range(_SWEPT_AT_ONCE), entries, strict=False)]
        for name in names:
            path = os.path.join(self._directory, name)
            try:
                age = now - os.stat(path).st_mtime
                if age > (older_than_s if name.endswith(_END) else FORGOTTEN_S):
                    os.unlink(path)
                    os.unlink(path.removesuffix(_END))
            except FileNotFoundError:
                pass

    def _read(self, token: str, kind: str) -> dict[str, Any] | None:
        if not _TOKEN.fullmatch(token):
            return None
        try:
            with open(os.open(self._of(token) + kind, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
                known: dict[str, Any] = json.load(file)
                return known
        except (FileNotFoundError, ValueError):
            return None

    def _of(self, token: str) -> str:
        return os.path.join(self._directory, token)

    def _aside(self, token: str) -> str:
        return os.path.join(self._directory, f".{token}.{os.getpid()}")
