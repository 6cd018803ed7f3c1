"""What an agent reported while it ran, beside its task: its final answer, what it used, how it failed.

Only the runner writes it, and in place: in a sandbox it can make no file here. So a reader may meet half of it, and
looks again.
"""

from __future__ import annotations

import os

from outlast.light import json
from outlast.linux.files import open_regular, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = "agent.json"
LOST = "lost"
LONGEST_RESULT = 1_000_000  # characters of the answer that are kept
_SHOWN = {"prompt": 2000, "result": 10_000}  # characters of each that every look at the task shows
_HIDDEN = ("format", "socket", "error", LOST)  # for the runner only, or shown elsewhere
_TORN_READS = 20


def make_room(directory: str = ".") -> None:
    """Put the file in place, empty, for a runner that could not make it."""
    os.close(open_regular(os.path.join(directory, NAME), os.O_WRONLY | os.O_CREAT))


def write(report: Mapping[str, Any], directory: str = ".") -> None:
    """Store what was reported so far. An error, such as a full disk, is no reason to end an agent."""
    kept = {**report, "result": str(report["result"])[:LONGEST_RESULT]} if report.get("result") else report
    data = json.dumps(kept).encode()
    try:
        fd = open_regular(os.path.join(directory, NAME), os.O_WRONLY | os.O_CREAT)
        with open(fd, "wb", buffering=0) as file:
            file.truncate(file.write(data))
    except OSError:
        pass


def read(directory: str) -> dict[str, Any]:
    """Return what was reported so far."""
    for _ in range(_TORN_READS):
        try:
            text = read_file(os.path.join(directory, NAME))
            found = json.loads(text) if text else {}
            return found if isinstance(found, dict) else {}
        except OSError:
            return {}
        except ValueError:
            continue
    return {}


def metadata(agent: Mapping[str, str], report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an agent is shown with its task."""
    return {name: _cut(name, value) for name, value in {**agent, **report}.items() if name not in _HIDDEN}


def _cut(name: str, value: Any) -> Any:
    most = _SHOWN.get(name)
    return value[: most - 1] + "…" if most and isinstance(value, str) and len(value) > most else value


def describe_end(directory: str, agent: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent reported, and how it ended if its exit code in `values` does not say that."""
    report = read(directory)
    found: dict[str, Any] = {"metadata": metadata(agent, report)}
    if values["status"] != "failed" or values["reason"] != "exit":
        return found
    if why := report.get(LOST):
        return {**found, "reason": "lost", "exit_code": None, "pipe_status": None, "error": str(why)}
    return {**found, "error": str(report["error"])} if report.get("error") else found
