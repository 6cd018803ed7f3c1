"""A notice and an event, as subscribers get them, and an event as one line of JSON."""

from __future__ import annotations

from outlast.light import frozen, json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERSION = 1  # of the form of an event
_ALWAYS = (
    *("task_id", "kind", "status", "reason", "exit_code", "signal", "command", "description", "session", "cwd"),
    *("pid", "pgid", "started_at", "ended_at", "elapsed_ms", "children", "output_file"),
)


@frozen
class Notice:
    """A message to subscribers: one line of text, with a number and a code that `verify` checks.

    `kind` is ended, matched, silenced, silent, limit-near, left-behind or waits-for-input. `repeated`: who claimed it
    before died or gave it back without having acknowledged it.
    """

    number: int
    code: str
    kind: str
    task_id: str
    session: str
    at: float
    text: str
    facts: Mapping[str, Any]
    repeated: bool = False

    def __str__(self) -> str:
        return f"[outlast notice {self.number}, code {self.code}] {self.text}"


@frozen
class Event:
    """What happened: to a task (task.queued, .started, .background, .ended), or that a tool was called (tool.call)."""

    number: int
    type: str
    at: float
    session: str
    task_id: str
    traceparent: str
    facts: Mapping[str, Any]


def event_json(event: Event) -> str:
    """One line, in the form of docs/events.md."""
    head = {"v": VERSION, "number": event.number, "type": event.type, "at": event.at}
    known = {**dict.fromkeys(_ALWAYS), **event.facts, "task_id": event.task_id or None, "session": event.session}
    return json.dumps({**head, "traceparent": event.traceparent or None, **known})
