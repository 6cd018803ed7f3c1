"""What a scene showed, as numbers and as a short transcript."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.model_api import Call
from tests.clients.scripted import Model

_SHOWN = 400


@dataclass
class Figures:
    """One client, once."""

    client: str
    version: str
    counted: str = "{turns} turns, {calls} tool calls, {other} other requests"
    """What `turns` and `calls` are, in words."""
    holds_tasks: bool = False
    """Whether it held an MCP task."""
    turns: int = 0
    """Requests to the model that offered our tools."""
    calls: int = 0
    other_requests: int = 0
    seconds: float = 0.0
    first_call_s: float = 0.0
    """From the start of the client to its first request with our tools."""
    woken_ms: float | None = None
    """From the end of the background task to the request that tells the model of it."""
    tools: int = 0
    tool_bytes: int = 0
    """Of our tools, as each request carries them."""
    heard: list[str] = field(default_factory=list)
    """What was new in each request."""
    notes: list[str] = field(default_factory=list)

    def take(self, model: Model, began: float) -> None:
        """All that follows from what the model was asked."""
        asked = model.requests
        self.turns, self.other_requests = len(asked), len(model.aside)
        self.heard = [request.last for request in asked]
        self.calls = sum(isinstance(line, Call) for line in model.played)
        if asked:
            self.first_call_s = asked[0].at - began
            self.tools = len(asked[0].ours)
            self.tool_bytes = sum(len(json.dumps(tool).encode()) for tool in asked[0].ours)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def as_text(self) -> str:
        """For people."""
        counted = self.counted.format(turns=self.turns, calls=self.calls, other=self.other_requests)
        said = [f"{self.client} {self.version}", f"  {counted}, {self.seconds:.1f} s"]
        if self.first_call_s:
            said.append(f"  {self.first_call_s:.1f} s from its start to the first request with our tools")
        if self.tools:
            said.append(f"  {self.tools} tools of ours: {self.tool_bytes:,} bytes in each request")
        if self.woken_ms is not None:
            how = "an MCP task" if self.holds_tasks else "a waiting call"
            said.append(f"  {self.woken_ms:.0f} ms from the task's end to the model's next request, by {how}")
        said += [f"  {note}" for note in self.notes]
        said += [f"  {number}. {_inline(heard)}" for number, heard in enumerate(self.heard, 1)]
        return "\n".join(said)


def _inline(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"


def from_json(text: str) -> Figures:
    known: dict[str, Any] = json.loads(text)
    return Figures(**known)
