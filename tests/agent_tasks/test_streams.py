"""Events, however odd: they are read to the end, and what is kept of them can be kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from outlast.agents.streams import stream_of

ODD = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KNOWN: dict[str, dict[str, list[Any]]] = {
    "stream-json": {
        "type": ["system", "assistant", "user", "result", "stream_event", "other"],
        "subtype": ["init", "success", "error_max_turns", "api_retry"],
        "message": [{"id": "1", "content": [{"type": "text", "text": "x"}, {"type": "tool_use"}], "usage": {}}],
    },
    "codex": {
        "type": ["thread.started", "turn.completed", "turn.failed", "item.started", "item.completed", "error"],
        "item": [{"id": "1", "type": kind} for kind in ("agent_message", "todo_list", "file_change", "mcp_tool_call")],
    },
}


@some.composite
def events(draw: Any, format: str) -> dict[str, Any]:
    names = ("result", "is_error", "usage", "total_cost_usd", "errors", "num_turns", "session_id", "thread_id", "error")
    event = draw(some.dictionaries(some.sampled_from(names), ODD))
    for name, values in KNOWN[format].items():
        event[name] = draw(some.sampled_from(values) | ODD)
    return dict(event)


@pytest.mark.parametrize("format", KNOWN)
@settings(max_examples=50)
@given(data=some.data())
def test_no_event_ends_the_reading(format: str, data: Any) -> None:
    stream = stream_of(format)
    for event in data.draw(some.lists(events(format), max_size=5)):
        text = stream.text_of(json.dumps(event).encode() + b"\n")
        assert isinstance(text, str)
        assert json.loads(json.dumps(stream.told, allow_nan=False)) == stream.told
    last = {"type": "result", "result": "end"}
    if format == "codex":
        last = {"type": "item.completed", "item": {"id": "9", "type": "agent_message", "text": "end"}}  # type: ignore[dict-item]
    stream.text_of(json.dumps(last).encode())
    assert stream.told["result"] == "end"


@pytest.mark.parametrize("format", ["stream-json", "codex", "text"])
@given(line=some.binary())
def test_no_line_ends_the_reading(format: str, line: bytes) -> None:
    assert isinstance(stream_of(format).text_of(line), str)


def test_what_an_agent_of_the_agent_says_is_set_in() -> None:
    stream = stream_of("stream-json")
    message = {"content": [{"type": "text", "text": "two\nlines"}]}
    event = {"type": "assistant", "message": message, "parent_tool_use_id": "toolu_1"}
    assert stream.text_of(json.dumps(event).encode()) == "  two\n  lines\n"


def test_the_same_message_is_counted_once() -> None:
    stream = stream_of("stream-json")
    for number in (1, 1, 2):
        message = {"id": f"m{number}", "content": [], "usage": {"input_tokens": 10, "output_tokens": number}}
        stream.text_of(json.dumps({"type": "assistant", "message": message}).encode())
    assert (stream.told["input_tokens"], stream.told["output_tokens"]) == (20, 3)


def test_the_last_usage_of_codex_is_that_of_the_whole_thread() -> None:
    stream = stream_of("codex")
    for number in (100, 250):
        usage = {"input_tokens": number, "cached_input_tokens": 5, "output_tokens": number // 10}
        stream.text_of(json.dumps({"type": "turn.completed", "usage": usage}).encode())
    assert (stream.told["input_tokens"], stream.told["output_tokens"], stream.told["turns"]) == (250, 25, 2)
