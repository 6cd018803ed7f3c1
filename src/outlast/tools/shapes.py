"""Small shapes that several profiles share: JSON, times, and a status as those designs show it."""

from __future__ import annotations

import json

from outlast.tools.model import Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from outlast.types import Task


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def json_reply(value: Mapping[str, Any] | list[Any], data: Mapping[str, Any], **how: Any) -> Reply:
    """A reply whose text is this value as JSON."""
    return Reply(as_json(value), data, json=value, **how)


def iso(at: float) -> str:
    """A moment as ISO 8601, in UTC, to the millisecond."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown_status(task: Task) -> str:
    """Designs without a queue show a pending task as running, and say that it is queued."""
    return "running (queued)" if task.status == "pending" else task.status


def pid_of(task: Task) -> int | None:
    return None if task.status == "pending" else task.pid


def runtime(milliseconds: int) -> str:
    """12s, 3m 4s, 1h 2m."""
    seconds = max(0, milliseconds) // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    return f"{seconds // 3600}h {seconds % 3600 // 60}m"
