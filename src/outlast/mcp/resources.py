"""Each task's output as a resource, `outlast://tasks/ID/output`: listed, read, and told of when it grows."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import mcp_types as wire
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from outlast.errors import OutlastError
from outlast.mcp import notices
from outlast.mcp.calls import refuse_cursor
from outlast.mcp.tasks import refuse_undeclared
from outlast.output.cleaner import inline
from outlast.tools.messages import for_model
from outlast.tools.untrusted import show_invisible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outlast.mcp.clients import Clients, ConnectedClient, Context
    from outlast.types import Task

_BEFORE, _BEHIND = "outlast://tasks/", "/output"
_TITLE = 80
_PAGE = 100
_AT_MOST_EVERY_S = 1.0  # a command that prints without end is told of so often


def uri_of(task_id: str) -> str:
    return f"{_BEFORE}{task_id}{_BEHIND}"


class Resources:
    """The outputs of all clients' tasks, each shown to its own session only."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._buses: dict[str, InMemorySubscriptionBus] = {}  # one a session: nobody hears of others
        self._listening: dict[str, ListenHandler] = {}
        self._subscribed: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._untold: set[str] = set()  # sessions with new tasks
        self._announcing: dict[str, asyncio.Task[None]] = {}

    # --- list and read -------------------------------------------------------------------

    async def list(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListResourcesResult:
        client = await self._clients.find(ctx)
        tasks = await client.shell.list()
        after = params.cursor if params else None
        ids = [task.task_id for task in tasks]
        if after is not None and after not in ids:
            raise MCPError(wire.INVALID_PARAMS, "That cursor is of a task that is gone; list from the start.")
        start = ids.index(after) + 1 if after else 0
        page = tasks[start : start + _PAGE]
        more = page[-1].task_id if start + _PAGE < len(tasks) else None
        return wire.ListResourcesResult(resources=[_listed(task) for task in page], next_cursor=more)

    async def templates(
        self, ctx: Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListResourceTemplatesResult:
        refuse_cursor(params)
        template = wire.ResourceTemplate(
            name="output",
            uri_template=f"{_BEFORE}{{id}}{_BEHIND}",
            description="What a task printed.",
            mime_type="text/plain",
        )
        return wire.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, ctx: Context, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
        client = await self._clients.find(ctx)
        if params.uri == notices.URI:
            return await notices.read(client)
        try:
            result = await client.shell.read(_task_in(params.uri))
        except OutlastError as error:
            raise MCPError(
                wire.INVALID_PARAMS, for_model(error.message, client.profile.list_hint), {"uri": params.uri}
            ) from None
        text = wire.TextResourceContents(uri=params.uri, mime_type="text/plain", text=show_invisible(result.output))
        return wire.ReadResourceResult(contents=[text])

    # --- tell ----------------------------------------------------------------------------

    async def subscribe(self, ctx: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        """For clients of the handshake era."""
        client = await self._clients.find(ctx)
        key = _whose(ctx, client, params.uri)
        if key not in self._subscribed:
            watched = await self._watched(client, params.uri)
            session = ctx.session
            self._subscribed[key] = asyncio.create_task(
                _tell(client, watched, lambda: session.send_resource_updated(params.uri))
            )
            self._subscribed[key].add_done_callback(lambda _: self._subscribed.pop(key, None))
        return wire.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        client = await self._clients.find(ctx)
        if (telling := self._subscribed.pop(_whose(ctx, client, params.uri), None)) is not None:
            telling.cancel()
        return wire.EmptyResult()

    async def listen(
        self, ctx: Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        """For clients since 2026-07-28: the answer to this request is the stream of what there is to tell."""
        if (params.notifications.model_extra or {}).get("taskIds"):
            refuse_undeclared(ctx)  # to others we would only say that we tell nothing of tasks: they are asked for
        client = await self._clients.find(ctx)
        bus = self._bus(client)
        telling = []
        try:
            for uri in params.notifications.resource_subscriptions or ():
                with suppress(MCPError):  # of what is not there, there is nothing to tell
                    watched = await self._watched(client, uri)
                    updated = ResourceUpdated(uri)
                    telling.append(asyncio.create_task(_tell(client, watched, lambda it=updated: bus.publish(it))))  # type: ignore[misc]
            return await self._listening[client.session](ctx, params)
        finally:
            for one in telling:
                one.cancel()

    def announce(self, client: ConnectedClient) -> None:
        """A task was launched: there is one more to list. Nobody waits until that is told."""
        session = client.session
        if session in self._buses:
            self._untold.add(session)
            if session not in self._announcing:
                self._announcing[session] = asyncio.create_task(self._send_announcements(session))

    async def _send_announcements(self, session: str) -> None:
        try:
            while session in self._untold:
                self._untold.discard(session)
                await self._buses[session].publish(ResourcesListChanged())
                await asyncio.sleep(_AT_MOST_EVERY_S)  # clients list anew each time
        finally:
            del self._announcing[session]

    def _bus(self, client: ConnectedClient) -> InMemorySubscriptionBus:
        if client.session not in self._buses:
            self._buses[client.session] = InMemorySubscriptionBus()
            self._listening[client.session] = ListenHandler(self._buses[client.session])
        return self._buses[client.session]

    async def _watched(self, client: ConnectedClient, uri: str) -> str:
        if uri == notices.URI:
            return uri
        try:
            return (await client.shell.show(_task_in(uri))).task_id
        except OutlastError as error:
            raise MCPError(
                wire.INVALID_PARAMS, for_model(error.message, client.profile.list_hint), {"uri": uri}
            ) from None


async def _tell(client: ConnectedClient, task_id: str, tell: Callable[[], Awaitable[None]]) -> None:
    """Tell of each change of a task's output, and of its end; or of each new notice."""
    if task_id == notices.URI:
        await notices.tell(client, tell)
        return
    with suppress(OutlastError):
        async for _ in client.shell.follow(task_id, cursor=(await client.shell.read(task_id, tail=1)).cursor):
            await tell()
            await asyncio.sleep(_AT_MOST_EVERY_S)
        await tell()


def _whose(ctx: Context, client: ConnectedClient, uri: str) -> tuple[str, str, str]:
    connection = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
    return client.session, connection, uri


def _task_in(uri: str) -> str:
    if not (uri.startswith(_BEFORE) and uri.endswith(_BEHIND)):
        raise MCPError(wire.INVALID_PARAMS, f"There is no such resource; they are called {uri_of('ID')}.", {"uri": uri})
    return uri.removeprefix(_BEFORE).removesuffix(_BEHIND)


def _listed(task: Task) -> wire.Resource:
    return wire.Resource(
        uri=uri_of(task.task_id),
        name=task.task_id,
        title=inline(show_invisible(task.description or task.command), _TITLE),
        description=f"What {task.task_id} printed ({task.status}).",
        mime_type="text/plain",
    )
