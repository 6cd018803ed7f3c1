"""A server on the loopback address that answers like a model's API: Anthropic's Messages and OpenAI's Responses.

It implements what Claude Code and Codex use of these APIs. A function gives the model's answer to each request.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_USAGE = {"input_tokens": 1, "output_tokens": 1}


@dataclass(frozen=True)
class Say:
    """The model ends its turn."""

    text: str


@dataclass(frozen=True)
class Call:
    """The model calls a tool, of an MCP server if `server` is its prefix."""

    tool: str
    arguments: dict[str, Any]
    server: str = ""


Answer = Callable[[dict[str, Any]], Say | Call]
"""Takes the body of a request."""


@contextmanager
def serve(answer: Answer, unknown_paths: list[str]) -> Iterator[str]:
    """Listen on a free port; yields the address. Paths that this server does not know are added to `unknown_paths`."""
    # As a list: a function that is an attribute of a class would become a method.
    handler = type("Handler", (_Handler,), {"answers": [answer], "unknown_paths": unknown_paths})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that end early: that is how a killed agent leaves them."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    answers: list[Answer]
    unknown_paths: list[str]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, "")

    def do_GET(self) -> None:
        self.unknown_paths.append(self.path)
        self._send(404, "{}")

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        [answer] = self.answers
        if path.endswith("/messages"):
            body = json.loads(text)
            self._send(*_as_message(body, answer(body)))
        elif path.endswith("/responses"):
            self._send(*_as_response(answer(json.loads(text))))
        elif path.endswith("/count_tokens"):
            self._send(200, '{"input_tokens": 1}')
        else:
            self.do_GET()

    def _send(self, code: int, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        try:
            self.send_response(code)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # the agent was killed meanwhile


def _events(*events: tuple[str, dict[str, Any]]) -> tuple[int, str, str]:
    text = "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events)
    return 200, text, "text/event-stream"


def _unique() -> str:
    return f"{time.time_ns():x}"


def _as_message(body: dict[str, Any], said: Say | Call) -> tuple[int, str] | tuple[int, str, str]:
    message = {"id": f"msg_{_unique()}", "type": "message", "role": "assistant", "model": body.get("model")}
    if isinstance(said, Call):
        name = f"{said.server}__{said.tool}" if said.server else said.tool
        block = {"type": "tool_use", "id": f"toolu_{_unique()}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
        whole = {**block, "input": said.arguments}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": said.text}
        whole = {**block, "text": said.text}
    stop = {"stop_reason": "tool_use" if isinstance(said, Call) else "end_turn", "stop_sequence": None}
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


def _as_response(said: Say | Call) -> tuple[int, str, str]:
    item: dict[str, Any] = {"id": f"item_{_unique()}", "status": "completed"}
    if isinstance(said, Call):
        item |= {"type": "function_call", "call_id": f"call_{_unique()}", "name": said.tool}
        item |= {"arguments": json.dumps(said.arguments), **({"namespace": said.server} if said.server else {})}
    else:
        words = {"type": "output_text", "text": said.text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [words]}
    response = {"id": f"resp_{_unique()}", "object": "response"}
    spent = {**_USAGE, "total_tokens": 2}
    return _events(
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": spent}}),
    )
