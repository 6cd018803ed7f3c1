"""Builds the server: which of our functions answers which method."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager

import mcp_types as wire
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from outlast import __version__
from outlast.mcp import approval
from outlast.mcp.calls import Calls
from outlast.mcp.cancellation import Cancellations
from outlast.mcp.clients import Clients
from outlast.mcp.held_calls import HeldCalls
from outlast.mcp.resources import Resources
from outlast.mcp.tasks import EXTENSION, TaskParams, Tasks, UpdateParams
from outlast.notices.signer import read_or_create_secret
from outlast.storage.layout import open_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from outlast.mcp.clients import Context
    from outlast.mcp.options import Options

NAME = "outlast"
_INSTRUCTIONS = (
    "Runs shell commands that outlast this conversation and this server: a task goes on, is captured and can be read "
    "later by its id, also after a restart. A call answers within {wait:g} s; what takes longer goes on by itself."
)


def build(options: Options, shared: bool) -> Server[None]:
    """Return a server for one client over stdio, or for several (`shared`) over HTTP."""
    own = os.path.join(open_home(options.home).path, "mcp")
    clients = Clients(options, approval.ask, shared)
    tasks = Tasks(clients, HeldCalls(os.path.join(own, "tasks")))
    resources = Resources(clients)
    cancellations = Cancellations()
    calls = Calls(clients, tasks, resources, cancellations)

    schemas = {tool.name: tool.schema for tool in clients.profile.tools}

    @asynccontextmanager
    async def lifespan(_: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await cancellations.close()
            # Before the shells: closing a shell wakes its waiters, and that would be taken for a reply.
            await tasks.close()
            await clients.close()

    server: Server[None] = Server(
        NAME,
        version=__version__,
        title="Outlast",
        description="The shell for AI agents whose commands outlast the agent that ran them.",
        instructions=_instructions(clients),
        lifespan=lifespan,
        get_tool_input_schema=schemas.get,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_subscribe_resource=resources.subscribe,
        on_unsubscribe_resource=resources.unsubscribe,
        on_subscriptions_listen=resources.listen,
    )
    server.add_request_handler("tools/list", wire.PaginatedRequestParams, calls.list)
    server.add_request_handler("tools/call", wire.CallToolRequestParams, calls.call)
    if clients.settings.mcp_tasks:
        _add_tasks(server, tasks)
    server.middleware.append(cancellations.observe)
    # A client could invent the answer to a question that was never asked; not with this seal.
    sealed = RequestStateSecurity(keys=[bytes.fromhex(read_or_create_secret(own, "key"))])
    server.middleware.append(RequestStateBoundary(sealed, default_audience=NAME))
    return server


def _instructions(clients: Clients) -> str:
    said = _INSTRUCTIONS.format(wait=clients.settings.mcp_wait_s)
    return f"{said} To find your tasks again: {clients.profile.list_hint}." if clients.profile.list_hint else said


def _add_tasks(server: Server[None], tasks: Tasks) -> None:
    server.extensions[EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, _modern(tasks.get))
    server.add_request_handler("tasks/update", UpdateParams, _modern(tasks.update))
    server.add_request_handler("tasks/cancel", TaskParams, _modern(tasks.cancel))


def _modern(method: Callable[[Context, Any], Awaitable[Any]]) -> Callable[[Context, Any], Awaitable[Any]]:
    """Refuse a method of the extension under older protocols, which had another one of the same name."""

    async def call_if_modern(ctx: Context, params: Any) -> Any:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(wire.METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await method(ctx, params)

    return call_if_modern
