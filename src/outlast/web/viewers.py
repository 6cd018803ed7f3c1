"""Server-sent events: each message is encoded once, and a viewer that is slow misses states, not ends.

A message that replaces the one before it of its kind (how many lines there are) waits in one place; others queue up to
a bound, and past it the viewer is told to load everything anew.
"""

from __future__ import annotations

import asyncio

from outlast.light import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

_MOST_WAITING = 64
PING_S = 15  # a proxy or a laptop that sleeps closes what is silent


def encode(event: str, value: Any) -> bytes:
    """Return one server-sent event."""
    return f"event: {event}\ndata: {json.dumps(value)}\n\n".encode()


RELOAD = encode("tasks", {"changed": [], "removed": [], "reload": True})


class Viewer:
    """One stream that is open in a browser."""

    def __init__(self) -> None:
        self._latest: dict[str, bytes] = {}
        self._queue: list[bytes] = []
        self._ready = asyncio.Event()
        self._is_over = False

    def send(self, event: str, message: bytes, replaces: bool = False) -> None:
        if replaces:
            self._latest[event] = message
        elif len(self._queue) < _MOST_WAITING:
            self._queue.append(message)
        else:
            self._queue = [RELOAD]
        self._ready.set()

    def finish(self) -> None:
        """The stream ends after what waits."""
        self._is_over = True
        self._ready.set()

    async def messages(self) -> AsyncGenerator[bytes, None]:
        while True:
            await self._ready.wait()
            self._ready.clear()
            is_over = self._is_over
            waiting = b"".join((*self._latest.values(), *self._queue))
            self._latest, self._queue = {}, []
            if waiting:
                yield waiting
            if is_over:
                return


class Channel:
    """The viewers of one thing."""

    def __init__(self) -> None:
        self.viewers: set[Viewer] = set()

    def send(self, event: str, value: Any, replaces: bool = False) -> None:
        if self.viewers:
            message = encode(event, value)
            for viewer in self.viewers:
                viewer.send(event, message, replaces)
