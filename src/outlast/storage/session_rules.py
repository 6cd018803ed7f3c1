"""What a person allowed for one session: rules that hold for a day, or until the session is reset or removed.

approvals/NAME.json   for each rule, until when it holds
"""

from __future__ import annotations

import os
import time

from outlast.light import json
from outlast.linux.files import FileLock, create_file, read_file, remove_file

_HOLDS_S = 86400.0  # an agent's conversation is over by then, and its session may have another one
_MOST_BYTES = 1 << 20


def read(home: str, session: str) -> tuple[str, ...]:
    """Return the rules that hold for a session now."""
    return tuple(_load(_path(home, session)))


def add(home: str, session: str, rules: tuple[str, ...]) -> None:
    """Let these rules hold for a session from now on."""
    path, until = _path(home, session), time.time() + _HOLDS_S
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with FileLock(directory):  # two answers at the same time are both kept
        aside = f"{path}.{os.urandom(4).hex()}"
        create_file(aside, json.dumps({**_load(path), **dict.fromkeys(rules, until)}).encode())
        os.rename(aside, path)


def remove(home: str, session: str) -> None:
    """Remove the rules of a session."""
    remove_file(_path(home, session))


def _path(home: str, session: str) -> str:
    return f"{home}/approvals/{session}.json"


def _load(path: str) -> dict[str, float]:
    """Return the rules that hold, with their ends; none from a file that is damaged."""
    try:
        found, now = json.loads(read_file(path, _MOST_BYTES)), time.time()
        # Not those that seem to hold for longer than any: the clock was set back.
        return {str(rule): end for rule, end in found.items() if now < float(end) <= now + _HOLDS_S}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
