"""A model that reads its lines from a script.

Agents also ask for titles and summaries. Only a request that offers our tools takes a line.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bench import model_api
from bench.model_api import Call, Say

OURS = "mcp__outlast"


@dataclass(frozen=True)
class Request:
    """What an agent asked the model, and when."""

    at: float
    body: dict[str, Any]

    @property
    def ours(self) -> list[dict[str, Any]]:
        """Our tools as this request offers them."""
        found: list[dict[str, Any]] = []
        for tool in self.body.get("tools", ()):
            if tool.get("name", "").startswith(OURS):
                found += tool.get("tools") or [tool]
        return found

    @property
    def said(self) -> str:
        """The whole conversation as text."""
        return json.dumps(self.body.get("messages") or self.body.get("input"), ensure_ascii=False)

    @property
    def last(self) -> str:
        """What is new in it."""
        return json.dumps((self.body.get("messages") or self.body["input"])[-1], ensure_ascii=False)


Line = Say | Call | Callable[[Request], "Say | Call"]


@dataclass
class Model:
    """A scripted model. `requests` are those that took a line, `aside` all the others."""

    script: Sequence[Line]
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    aside: list[Request] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    """Paths that were asked for and that we do not know."""
    played: list[Say | Call] = field(default_factory=list)
    _turn: threading.Condition = field(default_factory=threading.Condition)

    def next_line(self, body: dict[str, Any]) -> Say | Call:
        request = Request(time.time(), body)
        with self._turn:
            if not request.ours or len(self.requests) >= len(self.script):
                self.aside.append(request)
                return Say("ok")
            line = self.script[len(self.requests)]
            said = line if isinstance(line, Say | Call) else line(request)
            self.requests.append(request)
            self.played.append(said)
            self._turn.notify_all()
            return said

    def heard(self, count: int, patience: float) -> bool:
        """Whether so many lines were asked for within that time."""
        with self._turn:
            return self._turn.wait_for(lambda: len(self.requests) >= count, patience)

    def ended(self, patience: float) -> bool:
        """Whether the whole script was played within that time."""
        return self.heard(len(self.script), patience)


@contextmanager
def model(script: Sequence[Line]) -> Iterator[Model]:
    """A scripted model that listens on a free port of the loopback address."""
    playing = Model(script)

    def answer(body: dict[str, Any]) -> Say | Call:
        line = playing.next_line(body)
        return replace(line, server=OURS) if isinstance(line, Call) else line

    with model_api.serve(answer, playing.strangers) as playing.url:
        yield playing
