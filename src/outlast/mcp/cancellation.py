"""Calls that their client cancels: the foreground command that such a call started is ended with it.

A client cancels by `notifications/cancelled`, or over HTTP since 2026-07-28 by closing the connection of that request
while it goes on living. Nothing is ended when a client quits, is killed, or gives up because its time for the call ran
out.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from outlast.errors import OutlastError
from outlast.mcp import socket_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mcp.server.context import CallNext, HandlerResult

    from outlast.mcp.clients import ConnectedClient, Context
    from outlast.mcp.running_call import RunningCall
    from outlast.types import Identity

    Key = tuple[str, str]
    Notified = asyncio.Future[str]
    """The reason that the notification gives, once it has come."""

_NOTIFICATION = "notifications/cancelled"
_RULE = "cancelled by the client"
_NOTIFY_S = 1.0  # the SDK interrupts the call first, and hands us the notification after that
_QUIT_S = 1.0  # a client that quits closes its connections first, and is gone so much later
# The reason that SDKs give when a request's time is up ("Request timed out", "context deadline exceeded").
_TIME_IS_UP = re.compile(r"time(d|s)?[ _-]?out|deadline", re.IGNORECASE)


class Cancellations:
    """The calls of one server that are in progress, and those that were interrupted and are looked into."""

    def __init__(self) -> None:
        self._notified: dict[Key, Notified] = {}
        self._interrupted: dict[asyncio.Task[None], Notified] = {}

    async def observe(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """As middleware, note the reason of a cancellation."""
        if ctx.method == _NOTIFICATION:
            params = ctx.params or {}
            notified = self._notified.get(_key(ctx, params.get("requestId")))
            if notified is not None and not notified.done():
                notified.set_result(str(params.get("reason") or ""))
        return await call_next(ctx)

    @contextmanager
    def watch(self, ctx: Context, client: ConnectedClient, call: RunningCall) -> Iterator[None]:
        """While a call is answered: if it is interrupted, a task finds out whether its client wanted that."""
        key = _key(ctx, ctx.request_id)
        notified = self._notified[key] = asyncio.get_running_loop().create_future()

        def forget(_: object = None) -> None:
            if self._notified.get(key) is notified:
                del self._notified[key]

        # The client's processes can be found only while the request is open.
        owners = asyncio.create_task(_find_owners(ctx.request)) if _cancels_by_closing(ctx) else None
        try:
            yield
        except asyncio.CancelledError:
            handling = asyncio.create_task(_handle(ctx, client, call, notified, owners))
            self._interrupted[handling] = notified
            handling.add_done_callback(self._interrupted.pop)
            handling.add_done_callback(forget)
            raise
        except BaseException:
            forget()
            raise
        forget()

    async def close(self) -> None:
        """The client is gone, or we are: only what was cancelled before that is ended."""
        interrupted = dict(self._interrupted)
        for task, notified in interrupted.items():
            if not notified.done():
                task.cancel()
        await asyncio.gather(*interrupted, return_exceptions=True)


async def _handle(
    ctx: Context,
    client: ConnectedClient,
    call: RunningCall,
    notified: Notified,
    owners: asyncio.Task[tuple[Identity, ...]] | None,
) -> None:
    """End what an interrupted call has started in the foreground, if its client cancelled it."""
    call.cancel()
    await asyncio.wait({call.reply})  # from then on it is known what it has started
    if not (call.tracker.launched and call.in_foreground and client.settings.cancel_ends_foreground):
        return
    if owners is None:
        await asyncio.wait({notified}, timeout=_NOTIFY_S)
    elif await _is_closed_by(await owners, ctx.request) and not notified.done():
        notified.set_result("")
    if notified.done() and not _TIME_IS_UP.search(notified.result()):
        await asyncio.to_thread(_end, client, call.tracker.launched)


def _cancels_by_closing(ctx: Context) -> bool:
    """Over HTTP there are no notifications since 2026-07-28: to close the response is to cancel."""
    return ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _find_owners(request: Any) -> tuple[Identity, ...]:
    client, server = request.client, request.scope.get("server")
    return await asyncio.to_thread(socket_owner.find_owners, client.port, server[1]) if client and server else ()


async def _is_closed_by(owners: tuple[Identity, ...], request: Any) -> bool:
    """Return whether the client closed the connection and goes on. Our own end interrupts a call and leaves it open."""
    if not await request.is_disconnected():
        return False
    if not owners:
        return True
    await asyncio.sleep(_QUIT_S)
    return socket_owner.is_any_alive(owners)


def _end(client: ConnectedClient, task_id: str) -> None:
    """End a task for the user who cancelled: that is the user's yes to ending it."""
    shell = client.shell.plain
    try:
        if not shell.executor.has_reached(task_id, "ended"):
            shell.executor.kill([task_id], shell.settings.kill_grace_s, "kill", _RULE)
    except (OSError, OutlastError):
        pass  # no call waits for an answer; the list of tasks shows how it stands


def _key(ctx: Context, request_id: object) -> Key:
    connection = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
    return connection, str(request_id)  # some clients send numbers as text
