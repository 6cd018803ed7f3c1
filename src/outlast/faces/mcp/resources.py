"""Each task's output as a resource, `outlast://tasks/ID/output`: listed, read, and told of when it grows."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import mcp_types as wire
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from outlast.errors import OutlastError
from outlast.faces.mcp import notices
from outlast.faces.mcp.calls import refuse_cursor
from outlast.faces.mcp.tasks import refuse_undeclared
from outlast.faces.tools.messages import for_model
from outlast.faces.tools.words import harmless
from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outlast.faces.mcp.clients import Clients, Context, Desk
    from outlast.types import Task

_BEFORE, _BEHIND = "outlast://tasks/", "/output"
_TITLE = 80
_PAGE = 100
_AT_MOST_EVERY_S = 1.0  # a command that prints without end is told of so often


def uri_of(task_id: str) -> str:
    return f"{_BEFORE}{task_id}{_BEHIND}"


class Resources:
    """The outputs of all desks' tasks, each shown to its own session only."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._buses: dict[str, InMemorySubscriptionBus] = {}  # one a session: nobody hears of others
        self._listening: dict[str, ListenHandler] = {}
        self._subscribed: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._untold: set[str] = set()  # sessions with new tasks
        self._announcing: dict[str, asyncio.Task[None]] = {}

    # --- list and read -------------------------------------------------------------------

    async def list(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListResourcesResult:
        desk = await self._clients.desk(ctx)
        tasks = await desk.shell.list()
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
        desk = await self._clients.desk(ctx)
        if params.uri == notices.URI:
            return await notices.read(desk)
        try:
            result = await desk.shell.read(_task_in(params.uri))
        except OutlastError as error:
            raise MCPError(
                wire.INVALID_PARAMS, for_model(error.message, desk.profile.lists), {"uri": params.uri}
            ) from None
        text = wire.TextResourceContents(uri=params.uri, mime_type="text/plain", text=harmless(result.output))
        return wire.ReadResourceResult(contents=[text])

    # --- tell ----------------------------------------------------------------------------

    async def subscribe(self, ctx: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        """For clients of the handshake era."""
        desk = await self._clients.desk(ctx)
        key = _whose(ctx, desk, params.uri)
        if key not in self._subscribed:
            position = await _find_position(desk, params.uri)
            session = ctx.session
            self._subscribed[key] = asyncio.create_task(
                _tell(desk, position, lambda: session.send_resource_updated(params.uri))
            )
            self._subscribed[key].add_done_callback(lambda _: self._subscribed.pop(key, None))
        return wire.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        desk = await self._clients.desk(ctx)
        if (telling := self._subscribed.pop(_whose(ctx, desk, params.uri), None)) is not None:
            telling.cancel()
        return wire.EmptyResult()

    async def listen(
        self, ctx: Context, params: wire.SubscriptionsListenRequestParams
    ) -> wire.SubscriptionsListenResult:
        """For clients since 2026-07-28: the answer to this request is the stream of what there is to tell."""
        if (params.notifications.model_extra or {}).get("taskIds"):
            refuse_undeclared(ctx)  # to others we would only say that we tell nothing of tasks: they are asked for
        desk = await self._clients.desk(ctx)
        bus = self._bus(desk)
        telling = []
        try:
            for uri in params.notifications.resource_subscriptions or ():
                with suppress(MCPError):  # of what is not there, there is nothing to tell
                    position = await _find_position(desk, uri)
                    updated = ResourceUpdated(uri)
                    telling.append(asyncio.create_task(_tell(desk, position, lambda it=updated: bus.publish(it))))  # type: ignore[misc]
            return await self._listening[desk.session](ctx, params)
        finally:
            for one in telling:
                one.cancel()

    def added(self, desk: Desk) -> None:
        """A task was launched: there is one more to list. Nobody waits until that is told."""
        session = desk.session
        if session in self._buses:
            self._untold.add(session)
            if session not in self._announcing:
                self._announcing[session] = asyncio.create_task(self._announce(session))

    async def _announce(self, session: str) -> None:
        try:
            while session in self._untold:
                self._untold.discard(session)
                await self._buses[session].publish(ResourcesListChanged())
                await asyncio.sleep(_AT_MOST_EVERY_S)  # clients list anew each time
        finally:
            del self._announcing[session]

    def _bus(self, desk: Desk) -> InMemorySubscriptionBus:
        if desk.session not in self._buses:
            self._buses[desk.session] = InMemorySubscriptionBus()
            self._listening[desk.session] = ListenHandler(self._buses[desk.session])
        return self._buses[desk.session]


async def _find_position(desk: Desk, uri: str) -> tuple[str, str]:
    """Return a task and the cursor of its output now; or the notices' URI and the number of the last one.

    Call this before the client is told that its subscription holds: every change after that must be announced.
    """
    if uri == notices.URI:
        return uri, str(await notices.find_last_number(desk))
    try:
        result = await desk.shell.read(_task_in(uri), tail=1)
        return result.task_id, result.cursor
    except OutlastError as error:
        raise MCPError(wire.INVALID_PARAMS, for_model(error.message, desk.profile.lists), {"uri": uri}) from None


async def _tell(desk: Desk, position: tuple[str, str], tell: Callable[[], Awaitable[None]]) -> None:
    """Announce each change of a task's output after that cursor, and its end; or each notice after that number."""
    subject, after = position
    with suppress(OutlastError):
        if subject == notices.URI:
            await notices.tell(desk, int(after), tell)
            return
        async for _ in desk.shell.follow(subject, cursor=after):
            await tell()
            await asyncio.sleep(_AT_MOST_EVERY_S)
        await tell()


def _whose(ctx: Context, desk: Desk, uri: str) -> tuple[str, str, str]:
    connection = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
    return desk.session, connection, uri


def _task_in(uri: str) -> str:
    if not (uri.startswith(_BEFORE) and uri.endswith(_BEHIND)):
        raise MCPError(wire.INVALID_PARAMS, f"There is no such resource; they are called {uri_of('ID')}.", {"uri": uri})
    return uri.removeprefix(_BEFORE).removesuffix(_BEHIND)


def _listed(task: Task) -> wire.Resource:
    return wire.Resource(
        uri=uri_of(task.task_id),
        name=task.task_id,
        title=inline(harmless(task.description or task.command), _TITLE),
        description=f"What {task.task_id} printed ({task.status}).",
        mime_type="text/plain",
    )
