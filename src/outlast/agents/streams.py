"""From the events that an agent prints to text for a reader, and to what it told. Pure: lines in, text out.

Events come from programs that change often. What is not known is passed over, what is no event is shown as it
is, and no event, however odd, ends the reading.
"""

from __future__ import annotations

import json
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_CALL = 200  # characters of what a tool is called with
_TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt", "skill")


class Stream:
    """Plain text: every line is output, and nothing is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self._last = ""

    def text_of(self, line: bytes) -> str:
        """What a reader is shown of one line that the agent printed."""
        return line.decode("utf-8", "replace")

    def show_text(self, text: str) -> str:
        """A text of the agent's own, as it is shown: on lines of its own."""
        self._last = text.strip()
        return text if text.endswith("\n") else text + "\n"


class Events(Stream):
    """One JSON object a line."""

    def text_of(self, line: bytes) -> str:
        text = line.decode("utf-8", "replace")
        if not text.strip():
            return ""
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            return text  # a warning, or half of an event: show it as it is
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            return text
        try:
            return self.understood(event["type"], event)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            return ""  # it has the name of an event that we know, and not its form

    def understood(self, kind: str, event: Mapping[str, Any]) -> str:
        raise NotImplementedError


class StreamJson(Events):
    """`claude -p --output-format stream-json --verbose`."""

    def __init__(self) -> None:
        super().__init__()
        self._used: dict[str, tuple[int, int]] = {}  # by message: the same one comes once for each of its parts

    def understood(self, kind: str, event: Mapping[str, Any]) -> str:
        if kind == "system" and event.get("subtype") == "init":
            self._tell(agent_session=_text(event.get("session_id")), model=_text(event.get("model")))
        elif kind == "assistant":
            return self._message(event)
        elif kind == "result":
            return self._result(event)
        elif kind == "system" and event.get("subtype") == "api_retry":
            return f"[tries again: {short(event.get('error') or event.get('error_status') or 'no answer')}]\n"
        return ""

    def _tell(self, **values: Any) -> None:
        self.told.update({name: value for name, value in values.items() if value is not None})

    def _message(self, event: Mapping[str, Any]) -> str:
        message = event["message"]
        if isinstance(usage := message.get("usage"), dict):
            key, used = str(message.get("id", len(self._used))), _claude_usage(usage)
            before, self._used[key] = self._used.get(key, (0, 0)), used
            for name, now, then in zip(("input_tokens", "output_tokens"), used, before, strict=True):
                self.told[name] = self.told.get(name, 0) + now - then
        text = "".join(self._block(block) for block in _blocks(message.get("content")))
        # What an agent of the agent says is set in.
        return _indent(text) if event.get("parent_tool_use_id") else text

    def _block(self, block: Mapping[str, Any]) -> str:
        match block.get("type"):
            case "text" if block.get("text"):
                return self.show_text(str(block["text"]))
            case "tool_use" | "server_tool_use":
                return f"[{block.get('name', 'tool')}] {_called_with(block.get('input'))}".rstrip() + "\n"
        return ""

    def _result(self, event: Mapping[str, Any]) -> str:
        usage = event.get("usage")
        used = _claude_usage(usage) if isinstance(usage, dict) and usage else (None, None)
        self._tell(
            agent_session=_text(event.get("session_id")),
            turns=turns if isinstance(turns := event.get("num_turns"), int) else None,
            cost_usd=_number(event.get("total_cost_usd")),
            input_tokens=used[0],
            output_tokens=used[1],
        )
        text = str(event.get("result") or "")
        # Each of the two was seen without the other.
        if event.get("is_error") or str(event.get("subtype", "")).startswith("error"):
            return self._report_failure(event, text)
        self.told["result"] = text
        return self.show_text(text) if text and text.strip() != self._last else ""

    def _report_failure(self, event: Mapping[str, Any], text: str) -> str:
        errors = event.get("errors")
        why = text or "; ".join(map(str, errors if isinstance(errors, list) else [])) or str(event.get("subtype"))
        self.told["error"] = why
        return f"[error] {why}\n" if why.strip() != self._last else ""


class Codex(Events):
    """`codex exec --json`."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: set[str] = set()

    def understood(self, kind: str, event: Mapping[str, Any]) -> str:
        match kind:
            case "thread.started":
                self.told["agent_session"] = str(event["thread_id"])
            case "item.started" | "item.updated" | "item.completed":
                return self._item(event["item"], kind.rpartition(".")[2])
            case "turn.completed":
                self.told.pop("error", None)  # of what it tried again
                self._usage(event.get("usage"))
            case "turn.failed":
                return self._error(str(event["error"]["message"]))
            case "error":
                return self._error(str(event["message"]))
        return ""

    def _usage(self, usage: object) -> None:
        # Of the whole thread, each time: the last one counts.
        if isinstance(usage, dict):
            self.told["input_tokens"] = _sum(usage, "input_tokens")
            self.told["output_tokens"] = _sum(usage, "output_tokens")
        self.told["turns"] = self.told.get("turns", 0) + 1

    def _error(self, why: str) -> str:
        again = self.told.get("error") == why
        self.told["error"] = why
        return "" if again else f"[error] {why}\n"

    def _item(self, item: Mapping[str, Any], stage: str) -> str:
        kind = item.get("type")
        if kind == "todo_list":
            return self._progress(item)
        if kind == "agent_message":
            if stage != "completed":
                return ""
            self.told["result"] = str(item["text"])
            return self.show_text(str(item["text"]))
        text = self._first_seen(item)
        code = item.get("exit_code")
        if stage == "completed" and kind == "command_execution" and code:
            text += f"[exit code {code}]\n"
        return text

    def _first_seen(self, item: Mapping[str, Any]) -> str:
        """What it does, once: when it is first told of."""
        key = str(item.get("id"))
        if key in self._begun:
            return ""
        self._begun.add(key)
        match item.get("type"):
            case "command_execution":
                return f"[command] {short(item.get('command'))}\n"
            case "file_change":
                changes = [f"{one.get('kind')} {one.get('path')}" for one in item["changes"]]
                return f"[files] {short(', '.join(changes))}\n"
            case "mcp_tool_call":
                called = _called_with(item.get("arguments"))
                return f"[{item.get('server')}.{item.get('tool')}] {called}".rstrip() + "\n"
            case "web_search":
                return f"[search] {short(item.get('query'))}\n"
            case "error":
                return f"[error] {short(item.get('message'))}\n"
        return ""

    def _progress(self, item: Mapping[str, Any]) -> str:
        steps = item["items"]
        done = sum(1 for step in steps if step.get("completed"))
        doing = next((str(step.get("text")) for step in steps if not step.get("completed")), "")
        self.told["progress"] = f"{done} of {len(steps)}" + (f": {short(doing)}" if doing else "")
        return ""


def stream_of(format: str) -> Stream:
    """How to read what an agent of this format prints."""
    return {"stream-json": StreamJson, "codex": Codex}.get(format, Stream)()


def _blocks(content: object) -> Iterable[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _claude_usage(usage: Mapping[str, Any]) -> tuple[int, int]:
    given = _sum(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return given, _sum(usage, "output_tokens")


def _sum(usage: Mapping[str, Any], *names: str) -> int:
    return sum(value for name in names if isinstance(value := usage.get(name), int))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if right else None  # type: ignore[arg-type]


def _called_with(given: object) -> str:
    if isinstance(given, dict):
        telling = next((given[name] for name in _TELLING if isinstance(given.get(name), str)), None)
        return short(telling if telling is not None else json.dumps(given, ensure_ascii=False) if given else "")
    return short(given or "")


def short(value: object) -> str:
    """On one line, and cut."""
    text = " ".join(str(value).split())
    return text if len(text) <= _CALL else text[: _CALL - 1] + "…"


def _indent(text: str) -> str:
    return "".join(f"  {line}" for line in text.splitlines(keepends=True))
