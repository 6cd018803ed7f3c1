"""The figures of a run: what each contestant did in each episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.episodes import tokens
from bench.episodes.play import Transcript


@dataclass
class Outcome:
    """One episode, played once by one contestant. Sizes are tokens."""

    episode: str
    problem: str
    """What is wrong; nothing if the episode is solved."""
    calls: int
    read: int
    written: int
    structured: int
    """What the server sent beside the text; it is not in `read`."""
    repeats: int
    """How many programs were started again, which the user wanted to be started once."""
    seconds: float
    """Wall time, from the start of the server or agent to the end of the check."""

    @property
    def is_solved(self) -> bool:
        return not self.problem


@dataclass
class Standing:
    """One contestant, with the outcomes of all its episodes."""

    name: str
    version: str
    tools: int
    """How many tools the model is offered."""
    tool_tokens: int
    """Their names, descriptions and schemas."""
    listed_tokens: int
    """The whole answer to tools/list, with annotations, output schemas and what else the server says of its tools."""
    instruction_tokens: int
    """The instructions that the server sends when a client connects."""
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def solved(self) -> int:
        return sum(outcome.is_solved for outcome in self.outcomes)

    def sum_of(self, what: str) -> int:
        total: float = sum(getattr(outcome, what) for outcome in self.outcomes)
        return round(total)

    def outcome(self, episode: str) -> Outcome | None:
        return next((outcome for outcome in self.outcomes if outcome.episode == episode), None)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def from_dict(known: dict[str, Any]) -> Standing:
    return Standing(**{**known, "outcomes": [Outcome(**outcome) for outcome in known["outcomes"]]})


def evaluate(episode: str, transcript: Transcript, problem: str, repeats: int, seconds: float) -> Outcome:
    """Count the calls and tokens of a transcript."""
    replies, calls = transcript.replies, transcript.calls
    texts = [
        *(reply.text for reply in replies),
        *(reply.structured for reply in replies),
        *(call.written for call in calls),
    ]
    counts = tokens.count(texts)
    split = len(replies)
    return Outcome(
        episode=episode,
        problem=problem,
        calls=len(calls),
        read=sum(counts[:split]),
        structured=sum(counts[split : 2 * split]),
        written=sum(counts[2 * split :]),
        repeats=repeats,
        seconds=round(seconds, 1),
    )


def size_tools(name: str, version: str, offered: Sequence[dict[str, Any]], instructions: str) -> Standing:
    """Return the standing of a contestant before its first episode."""
    shown = [
        {
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": tool.get("inputSchema") or tool.get("input_schema") or tool.get("parameters"),
        }
        for tool in offered
    ]
    compact = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in (shown, list(offered))]
    tool_tokens, listed_tokens, instruction_tokens = tokens.count([*compact, instructions])
    return Standing(name, version, len(offered), tool_tokens, listed_tokens, instruction_tokens)
