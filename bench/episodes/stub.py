"""A server on the loopback address that answers like a model's API: Anthropic's Messages and OpenAI's Responses.

It implements what two agents use of these APIs. A function supplies the model's answers; it is called once for each
turn of the main conversation. Agents also send requests for titles and the like, which do not offer the shell tool;
these get a short text.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.episodes.play import Call

Turn = Callable[[str | None], Call | None]
"""Takes what is new in the conversation (None at its beginning); returns a call, or None if the model is done."""
_USAGE = {"input_tokens": 1, "output_tokens": 1}
_DONE = "Done."


class Model:
    """The model behind the API."""

    def __init__(self, shell_tool: str, turn: Turn) -> None:
        self._shell_tool, self._turn, self._lock = shell_tool, turn, threading.Lock()
        self._answers: dict[int, Call | None] = {}
        self.url = ""
        self.tools: list[dict[str, Any]] = []

    def answer(self, body: dict[str, Any]) -> Call | None:
        tools = {tool.get("name"): tool for tool in body.get("tools", ())}
        if self._shell_tool not in tools:
            return None
        self.tools = list(tools.values())
        new, turns = _new_in_messages(body) if "messages" in body else _new_in_items(body["input"])
        with self._lock:
            if turns not in self._answers:  # an agent may repeat a request
                self._answers[turns] = self._turn(new if turns else None)
            return self._answers[turns]


def _new_in_messages(body: dict[str, Any]) -> tuple[str, int]:
    """Return the text after the model's last message, and the number of messages of the model."""
    messages = body["messages"]
    spoken = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    new = messages[spoken[-1] + 1 :] if spoken else messages
    return "\n".join(_text_of(message["content"]) for message in new), len(spoken)


def _new_in_items(items: list[dict[str, Any]]) -> tuple[str, int]:
    said = [item["type"] == "function_call" or item.get("role") == "assistant" for item in items]
    spoken = [number for number, is_own in enumerate(said) if is_own]
    new = items[spoken[-1] + 1 :] if spoken else items
    return "\n".join(_text_of(item.get("output") or item.get("content") or "") for item in new), len(spoken)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _text_of(content.get("text") or content.get("content") or "")
    return "\n".join(_text_of(piece) for piece in content)


@contextmanager
def serve(model: Model) -> Iterator[Model]:
    """Listen on a free port of the loopback address."""
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": model})) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that end early: that is how a killed agent leaves them."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    model: Model
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, "")

    def do_GET(self) -> None:
        self._send(404, "{}")

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        if path.endswith("/messages"):
            body = json.loads(text)
            self._send(*_as_message(body, self.model.answer(body)))
        elif path.endswith("/responses"):
            self._send(*_as_response(self.model.answer(json.loads(text))))
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


def _as_message(body: dict[str, Any], call: Call | None) -> tuple[int, str] | tuple[int, str, str]:
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    message = {"id": f"msg_{_unique()}", "type": "message", "role": "assistant", "model": body.get("model")}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{_unique()}", "name": call.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        whole = {**block, "input": call.arguments}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": _DONE}
        whole = {**block, "text": _DONE}
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


def _as_response(call: Call | None) -> tuple[int, str, str]:
    item: dict[str, Any] = {"id": f"item_{_unique()}", "status": "completed"}
    if call:
        item |= {"type": "function_call", "call_id": f"call_{_unique()}", "name": call.tool}
        item["arguments"] = json.dumps(call.arguments)
    else:
        words = {"type": "output_text", "text": _DONE, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [words]}
    response = {"id": f"resp_{_unique()}", "object": "response"}
    spent = {**_USAGE, "total_tokens": 2}
    return _events(
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": spent}}),
    )
