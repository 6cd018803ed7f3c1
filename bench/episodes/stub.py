"""The model that an agent talks to in an episode.

A function supplies its answers; it is called once for each turn of the main conversation. Agents also send requests for
titles and the like, which do not offer the shell tool; these get a short text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import model_api
from bench.episodes.play import Call

Turn = Callable[[str | None], Call | None]
"""Takes what is new in the conversation (None at its beginning); returns a call, or None if the model is done."""


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

    def answer(body: dict[str, Any]) -> model_api.Say | model_api.Call:
        call = model.answer(body)
        return model_api.Call(call.tool, call.arguments) if call else model_api.Say("Done.")

    with model_api.serve(answer, []) as model.url:
        yield model
