"""A model that reads its lines from a script: Anthropic's Messages and OpenAI's Responses, on loopback.

Agents also ask for titles and summaries. Only a request that offers our tools takes a line.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OURS = "mcp__outlast"
_USAGE = {"input_tokens": 1, "output_tokens": 1}


@dataclass(frozen=True)
class Say:
    """The model ends its turn."""

    text: str


@dataclass(frozen=True)
class Call:
    """The model calls one of our tools."""

    tool: str
    arguments: dict[str, Any]


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
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Ears", (_Ears,), {"model": playing})) as server:
        playing.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield playing
        finally:
            server.shutdown()
            thread.join()


class _Ears(BaseHTTPRequestHandler):
    model: Model
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(200, "")

    def do_GET(self) -> None:
        self.model.strangers.append(self.path)
        self._answer(404, "{}")

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        if path.endswith("/messages"):
            body = json.loads(text)
            self._answer(*_of_anthropic(body, self.model.next_line(body)))
        elif path.endswith("/responses"):
            self._answer(*_of_openai(self.model.next_line(json.loads(text))))
        elif path.endswith("/count_tokens"):
            self._answer(200, '{"input_tokens": 1}')
        else:
            self.do_GET()

    def _answer(self, code: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(*events: tuple[str, dict[str, Any]]) -> tuple[int, str, str]:
    text = "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events)
    return 200, text, "text/event-stream"


def _name() -> str:
    return f"{time.time_ns():x}"


# --- Anthropic's Messages ----------------------------------------------------------------


def _of_anthropic(body: dict[str, Any], line: Say | Call) -> tuple[int, str] | tuple[int, str, str]:
    calls = isinstance(line, Call)
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    message = {"id": f"msg_{_name()}", "type": "message", "role": "assistant", "model": body.get("model")}
    if isinstance(line, Call):
        block = {"type": "tool_use", "id": f"toolu_{_name()}", "name": f"{OURS}__{line.tool}", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(line.arguments)}
        whole = {**block, "input": line.arguments}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": line.text}
        whole = {**block, "text": line.text}
    if not body.get("stream"):
        return 200, json.dumps({**message, "content": [whole], **stop, "usage": _USAGE})
    begun: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _USAGE}
    return _events(
        ("message_start", {"message": begun}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": stop, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    )


# --- OpenAI's Responses ------------------------------------------------------------------


def _of_openai(line: Say | Call) -> tuple[int, str, str]:
    item: dict[str, Any] = {"id": f"item_{_name()}", "status": "completed"}
    if isinstance(line, Call):
        item |= {"type": "function_call", "call_id": f"call_{_name()}", "namespace": OURS, "name": line.tool}
        item["arguments"] = json.dumps(line.arguments)
    else:
        words = {"type": "output_text", "text": line.text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [words]}
    response = {"id": f"resp_{_name()}", "object": "response"}
    spent = {**_USAGE, "total_tokens": 2}
    return _events(
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": spent}}),
    )
