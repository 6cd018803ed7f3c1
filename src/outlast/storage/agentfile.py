"""What an agent told while it ran, beside its task: its final answer, what it used, how it failed.

Written by the runner alone, in place: in a sandbox it can make no file here. So whoever
reads may meet half of it, and looks again.
"""

from __future__ import annotations

import os

from outlast.light import json
from outlast.linux.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = "agent.json"
LOST = "lost"
LONGEST_RESULT = 1_000_000  # characters of the answer that are kept
_SHOWN = {"prompt": 2000, "result": 10_000}  # characters of each that every look at the task shows
_OWN = ("format", "socket")  # for the runner only
_TORN_READS = 20


def make_room(directory: str = ".") -> None:
    """Put the file in place, empty, for a runner that could not make it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(os.path.join(directory, NAME), flags, 0o600))


def write(told: Mapping[str, Any], directory: str = ".") -> None:
    """Keep what was told so far. Whatever keeps us from it (a full disk) is no reason to end an agent."""
    kept = {**told, "result": str(told["result"])[:LONGEST_RESULT]} if told.get("result") else told
    data = json.dumps(kept).encode("utf-8", "backslashreplace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(directory, NAME), flags, 0o600)
        try:
            os.ftruncate(fd, os.pwrite(fd, data, 0))
        finally:
            os.close(fd)
    except OSError:
        pass


def read(directory: str) -> dict[str, Any]:
    """What was told so far."""
    for _ in range(_TORN_READS):
        try:
            fd = open_regular(os.path.join(directory, NAME))
            with open(fd, "rb") as file:
                text = file.read()
            found = json.loads(text) if text else {}
            return found if isinstance(found, dict) else {}
        except OSError:
            return {}
        except ValueError:
            continue
    return {}


def metadata(agent: Mapping[str, str], told: Mapping[str, Any]) -> dict[str, Any]:
    """What of an agent is shown with its task."""
    values = {**agent, **told}
    return {name: _cut(name, value) for name, value in values.items() if name not in (*_OWN, "error", LOST)}


def _cut(name: str, value: Any) -> Any:
    most = _SHOWN.get(name)
    return value[: most - 1] + "…" if most and isinstance(value, str) and len(value) > most else value
