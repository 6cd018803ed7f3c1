"""Calls that their client cancels: the foreground command that such a call started is ended with it.

Cancelled means that the client said so: by `notifications/cancelled`, or over HTTP since
2026-07-28 by closing the connection of that request while it goes on living. Nothing is
ended when a client quits, is killed, or gives up because its time for the call ran out.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from outlast.errors import OutlastError
from outlast.mcp import peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mcp.server.context import CallNext, HandlerResult

    from outlast.mcp.calls import Ongoing
    from outlast.mcp.clients import Context, Desk
    from outlast.types import Identity

    Key = tuple[str, str]

_NOTIFICATION = "notifications/cancelled"
_RULE = "cancelled by the client"
# The SDK interrupts the call first, and hands us the notification after that.
_NOTIFIED_S = 1.0
_QUITS_S = 1.0  # a client that quits closes its connections first, and is gone so much later
# What SDKs give as the reason when a request's time is up ("Request timed out", "context deadline exceeded").
_TIME_IS_UP = re.compile(r"time(d|s)?[ _-]?out|deadline", re.IGNORECASE)


class Cancellations:
    """The calls under way of one server, and what becomes of those that are interrupted."""

    def __init__(self) -> None:
        self._expected: dict[Key, asyncio.Future[str]] = {}
        self._settling: dict[asyncio.Task[None], asyncio.Future[str]] = {}

    async def observe(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Middleware: note who cancels what, and why."""
        if ctx.method == _NOTIFICATION:
            params = ctx.params or {}
            expected = self._expected.get(_key(ctx, params.get("requestId")))
            if expected is not None and not expected.done():
                expected.set_result(str(params.get("reason") or ""))
        return await call_next(ctx)

    @contextmanager
    def watched(self, ctx: Context, desk: Desk, ongoing: Ongoing) -> Iterator[None]:
        """While a call is answered. If it is interrupted, whether its client wanted that is found out aside."""
        key = _key(ctx, ctx.request_id)
        cancelled = self._expected[key] = asyncio.get_running_loop().create_future()

        def over(_: object = None) -> None:
            if self._expected.get(key) is cancelled:
                del self._expected[key]

        caller = asyncio.create_task(_caller(ctx.request)) if _cancels_by_closing(ctx) else None
        try:
            yield
        except asyncio.CancelledError:
            settling = asyncio.create_task(_settle(ctx, desk, ongoing, cancelled, caller))
            self._settling[settling] = cancelled
            settling.add_done_callback(self._settling.pop)
            settling.add_done_callback(over)
            raise
        except BaseException:
            over()
            raise
        over()

    async def close(self) -> None:
        """The client is gone, or we are: only what was cancelled before that is ended."""
        settling = dict(self._settling)
        for task, cancelled in settling.items():
            if not cancelled.done():
                task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)


async def _settle(
    ctx: Context,
    desk: Desk,
    ongoing: Ongoing,
    cancelled: asyncio.Future[str],
    caller: asyncio.Task[tuple[Identity, ...]] | None,
) -> None:
    """End what an interrupted call has started in the foreground, if its client cancelled it."""
    ongoing.abandon()
    await asyncio.wait({ongoing.reply})  # by then it is known what it has started
    if not (ongoing.noted.launched and ongoing.in_foreground and desk.settings.cancel_ends_foreground):
        return
    if caller is None:
        await asyncio.wait({cancelled}, timeout=_NOTIFIED_S)
    elif await _is_closed_by(await caller, ctx.request) and not cancelled.done():
        cancelled.set_result("")
    if cancelled.done() and not _TIME_IS_UP.search(cancelled.result()):
        await asyncio.to_thread(_end, desk, ongoing.noted.launched)


def _cancels_by_closing(ctx: Context) -> bool:
    """Over HTTP there are no notifications since 2026-07-28: to close the response is to cancel."""
    return ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _caller(request: Any) -> tuple[Identity, ...]:
    """The processes that made this request. They can be found only while it is open."""
    client, server = request.client, request.scope.get("server")
    return await asyncio.to_thread(peer.holders, client.port, server[1]) if client and server else ()


async def _is_closed_by(caller: tuple[Identity, ...], request: Any) -> bool:
    """Whether the client closed the connection and goes on. Our own end interrupts a call, too, and leaves it open."""
    if not await request.is_disconnected():
        return False
    if not caller:
        return True
    await asyncio.sleep(_QUITS_S)
    return peer.lives(caller)


def _end(desk: Desk, task_id: str) -> None:
    """End a task for the person who cancelled: nobody is asked again."""
    shell = desk.shell.plain
    try:
        if not shell.executor.has_reached(task_id, "ended"):
            shell.executor.kill([task_id], shell.settings.kill_grace_s, "kill", _RULE)
    except (OSError, OutlastError):
        pass  # nobody waits for an answer; the task is listed with how it stands


def _key(ctx: Context, request_id: object) -> Key:
    connection = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
    return connection, str(request_id)  # some clients send numbers as text
