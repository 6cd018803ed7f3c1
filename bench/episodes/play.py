"""The types that connect a strategy, which yields calls, with a contestant, which carries them out."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bench.episodes.world import World


@dataclass(frozen=True)
class Call:
    """The model calls a tool."""

    tool: str
    arguments: dict[str, Any]

    @property
    def written(self) -> str:
        """What the model writes for it."""
        return json.dumps({"name": self.tool, "arguments": self.arguments}, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True)
class Reply:
    """What the model reads. `structured` is what a server sends beside it; few clients show it to the model."""

    text: str
    structured: str = ""


Strategy = Generator[Call, str, None]
"""Yields calls and is sent the text of their replies; it ends when the model would answer its user."""


@dataclass
class Transcript:
    """The calls and replies that count."""

    calls: list[Call] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    @property
    def read(self) -> str:
        """Everything that the model has read."""
        return "\n".join(reply.text for reply in self.replies)


class GaveUp(Exception):
    """A strategy did not find in a reply what it needs to go on."""


THINKING_S = 2.0
"""How long the model takes between a reply and its next call, in the time of the world."""
MOST_CALLS = 60
"""A model that needs more than this in one episode is taken to be lost."""


def step(strategy: Strategy, reply: str | None) -> Call | None:
    """The next call of a strategy; None if it is at its end, or cannot go on."""
    try:
        return next(strategy) if reply is None else strategy.send(reply)
    except (StopIteration, GaveUp):
        return None


Observer = Callable[["World", str], None]
"""Called after each reply; acts for the user, who for example edits a file once the model has seen a build."""
