"""What several profiles format alike: JSON replies, times, and a status as those designs show it."""

from __future__ import annotations

import json

from outlast.light import fields, replace
from outlast.tools.model import Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.types import Receipt, Task


def as_json(value: object) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False) + "\n"


def json_reply(
    value: Mapping[str, Any] | list[Any], data: Mapping[str, Any], error: bool = False, failed: bool = False
) -> Reply:
    """Return a reply whose text is this value as JSON."""
    return Reply(as_json(value), data, error, failed, json=value)


def add_text(reply: Reply, key: str, text: str, line: str) -> Reply:
    """Add a text to a reply: as `key` of a JSON object, else as `line`. A JSON list has no place for it."""
    if isinstance(reply.json, dict):
        value = {**reply.json, key: text}
        return replace(reply, text=as_json(value), json=value)
    if reply.json is not None:
        return reply
    end = "" if reply.text.endswith("\n") else "\n"
    return replace(reply, text=f"{reply.text}{end}{line}")


def task_list(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the data of a reply that lists tasks."""
    return {"tasks": [fields(task) for task in tasks]}


def iso_time(at: float) -> str:
    """Return a moment as ISO 8601, in UTC, to the millisecond."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown_status(task: Task) -> str:
    """Return a task's status. Designs without a queue show a pending task as running, and say that it is queued."""
    return "running (queued)" if task.status == "pending" else task.status


def shown_pid(task: Task) -> int | None:
    """Return the pid that a reply shows; a pending task has none."""
    return None if task.status == "pending" else task.pid


def survivors(receipt: Receipt) -> str:
    """Return the pids that a kill could not end."""
    return ", ".join(map(str, receipt.survivors))


def runtime(milliseconds: int) -> str:
    """Return a time as 12s, 3m 4s or 1h 2m."""
    seconds = max(0, milliseconds) // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    return f"{seconds // 3600}h {seconds % 3600 // 60}m"
