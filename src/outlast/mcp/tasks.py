"""MCP tasks, for clients that declare the extension: a call that goes on is a token that the client holds.

The next server in this state directory finds the token again: it stands for an Outlast task, which goes on without a
server. So nothing works on a held call: how it stands is computed when the client asks.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from outlast.errors import AlreadyEnded, OutlastError, UnknownTask
from outlast.mcp.clients import client_name
from outlast.mcp.held_calls import UNASKED_S
from outlast.mcp.replies import ENDED_BADLY, LAST_LINES, failure_line, final_result_of, shown_to
from outlast.mcp.running_call import read_with
from outlast.tools.reply_fields import iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.mcp.clients import Clients, ConnectedClient, Context
    from outlast.mcp.held_calls import HeldCall, HeldCalls
    from outlast.mcp.running_call import RunningCall
    from outlast.tools.model import Reply

EXTENSION = "io.modelcontextprotocol/tasks"
_SOONEST_MS, _LATEST_MS = 250, 1000  # how often a client is to ask
_OF_ITS_AGE = 20  # and in between: it hears of the end late by a twentieth of the time that it took
_ROUTED_BY = "mcp-name"  # over HTTP, the header with the task's token, for proxies


class TaskParams(wire.RequestParams):
    """Which task."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to what a task asked; ours ask nothing once they are tasks."""

    input_responses: dict[str, Any] | None = None


class TaskState(wire.Result):
    """A task as the extension has it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    result_type: str = "complete"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int
    result: dict[str, Any] | None = None


class Tasks:
    """The calls that go on.

    This server knows the replies that its own calls will get. Of any other call, which a server before it answered
    with a token, the reply is what the profile says of the task when it has ended.
    """

    def __init__(self, clients: Clients, held: HeldCalls) -> None:
        self._clients, self._held = clients, held
        self._replies: dict[str, asyncio.Task[Reply]] = {}

    def can_hold(self, ctx: Context, client: ConnectedClient) -> bool:
        return client.settings.mcp_tasks and _declares_tasks(ctx)

    async def hold(self, client: ConnectedClient, call: RunningCall) -> TaskState:
        """Answer a call with a token: for its reply, if that is still to come, else for the task that it started."""
        held = await asyncio.to_thread(self._held.create, client.session, call.task_id)
        await asyncio.to_thread(self._held.remove_old, client.settings.retention_hours * 3600)
        if not call.reply.done():
            self._replies[held.token] = call.reply
        return await self._state(client, held, result_type="task")

    async def close(self) -> None:
        """Leave all that goes on to the next server."""
        for reply in self._replies.values():
            reply.cancel()
        await asyncio.gather(*self._replies.values(), return_exceptions=True)

    # --- what a client asks --------------------------------------------------------------

    async def get(self, ctx: Context, params: TaskParams) -> TaskState:
        client, call = await self._find(ctx, params.task_id)
        return await self._state(client, call, client_name(ctx))

    async def update(self, ctx: Context, params: UpdateParams) -> wire.EmptyResult:
        await self._find(ctx, params.task_id)
        return wire.EmptyResult()

    async def cancel(self, ctx: Context, params: TaskParams) -> wire.EmptyResult:
        """End what the call launched."""
        client, call = await self._find(ctx, params.task_id)
        if await asyncio.to_thread(self._held.ending, call.token) is None:
            try:
                await client.shell.kill(call.task_id)
            except (AlreadyEnded, UnknownTask):
                pass
            except OutlastError as error:
                raise MCPError(wire.INTERNAL_ERROR, client.profile.message_of(error)) from None
            await asyncio.to_thread(self._held.end, call.token, "cancelled")
            if (reply := self._replies.pop(call.token, None)) is not None:
                reply.cancel()
        return wire.EmptyResult()

    async def _find(self, ctx: Context, token: str) -> tuple[ConnectedClient, HeldCall]:
        refuse_undeclared(ctx)
        if ctx.request is not None and ctx.request.headers.get(_ROUTED_BY, token) != token:
            raise MCPError(wire.HEADER_MISMATCH, "The header Mcp-Name is of another task.")
        client = await self._clients.find(ctx)
        call = await asyncio.to_thread(self._held.find, token)
        if call is None or call.session != client.session:
            raise MCPError(wire.INVALID_PARAMS, "There is no such task, or not any more.")
        return client, call

    # --- how it stands -------------------------------------------------------------------

    async def _state(
        self, client: ConnectedClient, call: HeldCall, name: str = "", result_type: str = "complete"
    ) -> TaskState:
        ending = await asyncio.to_thread(self._held.ending, call.token)
        if ending is None and (reply := await self._reply(client, call)) is not None:
            ending = await asyncio.to_thread(self._held.end, call.token, "completed", final_result_of(reply))
            self._replies.pop(call.token, None)
        message = await _message(client, call.task_id)
        moment = ending.at if ending else time.time()
        kept_s = moment - call.created_at + client.settings.retention_hours * 3600 if ending else UNASKED_S
        return TaskState(
            result_type=result_type,
            task_id=call.token,
            status=ending.status if ending else "working",
            status_message=message,
            created_at=iso_time(call.created_at),
            last_updated_at=iso_time(moment),
            ttl_ms=round(kept_s * 1000),
            poll_interval_ms=poll_interval_ms(moment - call.created_at),
            result=shown_to(name, ending.result, message, client.settings) if ending and ending.result else None,
            _meta={"outlast/taskId": call.task_id},
        )

    async def _reply(self, client: ConnectedClient, call: HeldCall) -> Reply | None:
        """Return the reply of a call, or None while it goes on."""
        if (reply := self._replies.get(call.token)) is not None:
            return reply.result() if reply.done() else None
        try:
            if not (await client.shell.show(call.task_id)).finished:
                return None
        except OutlastError:
            pass  # it is gone; reading says so
        # The read position stays: a call that waits for this task at the same time must not find its output gone, and
        # of a failure some clients show a line only, after which the model reads the output.
        return await read_with(client.box(client.settings.max_wait_s, keeps_position=True), call.task_id)


async def _message(client: ConnectedClient, task_id: str) -> str:
    """Return the status message, always one line: how the task failed, or the last line that it printed."""
    try:
        task = await client.shell.show(task_id)
        if task.status not in ENDED_BADLY:
            return await client.last_line(task_id) or f"{task_id} has printed nothing yet"
        return failure_line(task, await client.last_lines(task_id, LAST_LINES), _how_to_read(client, task_id))
    except OutlastError as error:
        return client.profile.message_of(error)


def _how_to_read(client: ConnectedClient, task_id: str) -> str:
    """Return the call that reads all of a task's output. The start was read already if the call ran in foreground."""
    tool = client.profile.reading_tool
    start = " and cursor 0" if "cursor" in tool.schema["properties"] else ""
    return f"{tool.name} with task_id {task_id}{start}"


def poll_interval_ms(age_s: float) -> int:
    """How soon to ask again about a call of that age."""
    return min(_LATEST_MS, max(_SOONEST_MS, round(age_s * 1000 / _OF_ITS_AGE)))


def refuse_undeclared(ctx: Context) -> None:
    """Tasks are for clients that say in this very request that they know them."""
    if not _declares_tasks(ctx):
        lacking: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", lacking)


def _declares_tasks(ctx: Context) -> bool:
    known = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in ((known and known.extensions) or {})
