"""Resources: each task's output (`outlast://tasks/ID/output`) and the session's notices (`outlast://notices`).

They are listed and read, and a client that subscribes to one hears of each change. Reading the notices claims nothing:
the model itself is told of each once, in a reply of one of its tools.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

import mcp_types as wire
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from outlast.errors import OutlastError
from outlast.mcp.clients import refuse_cursor
from outlast.mcp.tasks import refuse_undeclared
from outlast.notices import async_streams
from outlast.notices.words import HEADER
from outlast.output.cleaner import inline
from outlast.tools.untrusted import show_invisible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outlast.mcp.clients import Clients, ConnectedClient, Context
    from outlast.types import Task

_NOTICES = "outlast://notices"
_BEFORE, _BEHIND = "outlast://tasks/", "/output"
_TITLE = 80
_PAGE = 100
_LATEST_NOTICES = 50
_PAUSE_S = 1.0  # between two messages about one thing: a command may print without end


class Resources:
    """The resources of all clients, each shown to its own session only."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._listeners: dict[str, tuple[InMemorySubscriptionBus, ListenHandler]] = {}  # of each session
        self._subscribed: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._unannounced: set[str] = set()  # sessions with new tasks
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
        return wire.ListResourcesResult(resources=[_describe(task) for task in page], next_cursor=more)

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
        if params.uri == _NOTICES:
            latest = await client.shell.notices(_LATEST_NOTICES)
            text = "\n".join([HEADER, *map(str, latest)]) + "\n" if latest else "No notices.\n"
        else:
            try:
                text = show_invisible((await client.shell.read(_task_in(params.uri))).output)
            except OutlastError as error:
                raise _unknown(client, error, params.uri) from None
        content = wire.TextResourceContents(uri=params.uri, mime_type="text/plain", text=text)
        return wire.ReadResourceResult(contents=[content])

    # --- changes -------------------------------------------------------------------------

    async def subscribe(self, ctx: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        """For clients of the handshake era."""
        client = await self._clients.find(ctx)
        key = _subscription(ctx, client, params.uri)
        if key not in self._subscribed:
            position = await _find_position(client, params.uri)
            session = ctx.session
            reporting = _report(client, position, lambda: session.send_resource_updated(params.uri))
            self._subscribed[key] = asyncio.create_task(reporting)
            self._subscribed[key].add_done_callback(lambda _: self._subscribed.pop(key, None))
        return wire.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        client = await self._clients.find(ctx)
        if (reporting := self._subscribed.pop(_subscription(ctx, client, params.uri), None)) is not None:
            reporting.cancel()
        return wire.EmptyResult()

    async def listen(
        self, ctx: Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        """For clients since 2026-07-28: the answer to this request is the stream of changes."""
        if (params.notifications.model_extra or {}).get("taskIds"):
            refuse_undeclared(ctx)  # others would only hear that we report nothing about tasks: clients ask for those
        client = await self._clients.find(ctx)
        if client.session not in self._listeners:
            bus = InMemorySubscriptionBus()
            self._listeners[client.session] = bus, ListenHandler(bus)
        bus, handler = self._listeners[client.session]
        reporting = []
        try:
            for uri in params.notifications.resource_subscriptions or ():
                with suppress(MCPError):  # it is not there, so it does not change
                    position = await _find_position(client, uri)
                    updated = ResourceUpdated(uri)
                    report = _report(client, position, lambda it=updated: bus.publish(it))  # type: ignore[misc]
                    reporting.append(asyncio.create_task(report))
            return await handler(ctx, params)
        finally:
            for one in reporting:
                one.cancel()

    def announce(self, client: ConnectedClient) -> None:
        """Say that there is one more task to list. Returns at once."""
        session = client.session
        if session in self._listeners:
            self._unannounced.add(session)
            if session not in self._announcing:
                self._announcing[session] = asyncio.create_task(self._publish(session))

    async def _publish(self, session: str) -> None:
        try:
            while session in self._unannounced:
                self._unannounced.discard(session)
                await self._listeners[session][0].publish(ResourcesListChanged())
                await asyncio.sleep(_PAUSE_S)  # clients list anew each time
        finally:
            del self._announcing[session]


async def _find_position(client: ConnectedClient, uri: str) -> tuple[str, str]:
    """Return a task and the cursor of its output now; or the notices' URI and the number of the last one.

    Call this before the client is told that its subscription holds: every change after that must be reported.
    """
    if uri == _NOTICES:
        return uri, str(await asyncio.to_thread(client.shell.plain.notice_board.last_number))
    try:
        result = await client.shell.read(_task_in(uri), tail=1)
        return result.task_id, result.cursor
    except OutlastError as error:
        raise _unknown(client, error, uri) from None


async def _report(client: ConnectedClient, position: tuple[str, str], report: Callable[[], Awaitable[None]]) -> None:
    """Report each change of a task's output after that cursor, and its end; or each notice after that number.

    None twice while this server lives; another one begins with new ones.
    """
    subject, after = position
    with suppress(OutlastError):
        if subject == _NOTICES:
            async with aclosing(
                async_streams.new_notices(client.shell.plain.notice_board.new_board, int(after))
            ) as new:
                async for _ in new:
                    await report()
            return
        async for _ in client.shell.follow(subject, cursor=after):
            await report()
            await asyncio.sleep(_PAUSE_S)
        await report()


def _subscription(ctx: Context, client: ConnectedClient, uri: str) -> tuple[str, str, str]:
    connection = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
    return client.session, connection, uri


def _uri_of(task_id: str) -> str:
    return f"{_BEFORE}{task_id}{_BEHIND}"


def _task_in(uri: str) -> str:
    if not (uri.startswith(_BEFORE) and uri.endswith(_BEHIND)):
        said = f"There is no such resource; they are called {_uri_of('ID')}."
        raise MCPError(wire.INVALID_PARAMS, said, {"uri": uri})
    return uri.removeprefix(_BEFORE).removesuffix(_BEHIND)


def _unknown(client: ConnectedClient, error: OutlastError, uri: str) -> MCPError:
    return MCPError(wire.INVALID_PARAMS, client.profile.message_of(error), {"uri": uri})


def _describe(task: Task) -> wire.Resource:
    return wire.Resource(
        uri=_uri_of(task.task_id),
        name=task.task_id,
        title=inline(show_invisible(task.description or task.command), _TITLE),
        description=f"What {task.task_id} printed ({task.status}).",
        mime_type="text/plain",
    )
