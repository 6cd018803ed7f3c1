"""MCP tasks, for clients that declare the extension: a call that goes on is a token that the client holds.

The token is found again by the next server in this state directory: what it stands for is
an Outlast task, which does not need a server to go on.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from outlast.errors import AlreadyEnded, OutlastError, UnknownTask
from outlast.mcp.calls import read_with, reading_tool, with_task_ids
from outlast.mcp.clients import client_name
from outlast.mcp.handles import FORGOTTEN_S, Ending, Handle
from outlast.mcp.messages import LAST_LINES, failure_line
from outlast.mcp.replies import ENDED_BADLY, final_result_of, shown_to
from outlast.mcp.resumed import Resumed
from outlast.tools.messages import for_model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine

    from outlast.mcp.calls import Ongoing
    from outlast.mcp.clients import Clients, Context, Desk
    from outlast.mcp.handles import Claim, Handles
    from outlast.tools.model import Reply
    from outlast.tools.toolbox import Toolbox

EXTENSION = "io.modelcontextprotocol/tasks"
_SOONEST_MS, _LATEST_MS = 250, 1000  # how often a client is to ask
_OF_ITS_AGE = 20  # and in between: it hears of the end late by a twentieth of the time that it took
_ROUTED_BY = "mcp-name"  # over HTTP, the task's token for whoever stands between


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
    """The calls that go on."""

    def __init__(self, clients: Clients, handles: Handles) -> None:
        self._clients, self._handles = clients, handles
        self._work: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()

    def can_hold(self, ctx: Context, desk: Desk) -> bool:
        return desk.settings.mcp_tasks and _declared(ctx)

    async def hold(self, desk: Desk, ongoing: Ongoing, params: wire.CallToolRequestParams) -> TaskState:
        """A token for a call: for its reply, if that is still to come, else for the task that it started."""
        background = ongoing.reply.done()
        handle, claim = await asyncio.to_thread(
            self._handles.create,
            Handle(
                session=desk.session,
                profile=desk.profile.name,
                tool=params.name,
                arguments=with_task_ids(params.arguments or {}),
                task_id=ongoing.task_id,
                launched=bool(ongoing.noted.launched),
                background=background,
                created_at=time.time(),
            ),
        )
        await asyncio.to_thread(self._handles.sweep, desk.settings.retention_hours * 3600)
        self._begin(desk, handle, claim, self._whole(desk, handle) if background else _awaited(ongoing))
        return await self._state(desk, handle, result_type="task")

    async def close(self) -> None:
        """Leave all that goes on to the next server."""
        working = list(self._work.values())
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    # --- what a client asks --------------------------------------------------------------

    async def get(self, ctx: Context, params: TaskParams) -> TaskState:
        desk, handle = await self._found(ctx, params.task_id)
        return await self._state(desk, handle, client_name(ctx))

    async def update(self, ctx: Context, params: UpdateParams) -> wire.EmptyResult:
        await self._found(ctx, params.task_id)
        return wire.EmptyResult()

    async def cancel(self, ctx: Context, params: TaskParams) -> wire.EmptyResult:
        """End what the call launched; a call that only waits stops waiting."""
        desk, handle = await self._found(ctx, params.task_id)
        if await asyncio.to_thread(self._handles.ending, handle.token) is None:
            self._cancelled.add(handle.token)
            await self._ended(desk, handle)
            await asyncio.to_thread(self._handles.end, handle.token, Ending("cancelled", None, time.time()))
            if handle.token in self._work:
                self._work[handle.token].cancel()
        return wire.EmptyResult()

    async def _ended(self, desk: Desk, handle: Handle) -> None:
        if not handle.launched:
            return
        try:
            await desk.shell.kill(handle.task_id)
        except (AlreadyEnded, UnknownTask):
            pass
        except OutlastError as error:
            self._cancelled.discard(handle.token)
            raise MCPError(wire.INTERNAL_ERROR, for_model(error.message, desk.profile.lists)) from None

    async def _found(self, ctx: Context, token: str) -> tuple[Desk, Handle]:
        refuse_undeclared(ctx)
        if ctx.request is not None and ctx.request.headers.get(_ROUTED_BY, token) != token:
            raise MCPError(wire.HEADER_MISMATCH, "The header Mcp-Name is of another task.")
        desk = await self._clients.desk(ctx)
        handle = await asyncio.to_thread(self._handles.find, token)
        if handle is None or handle.session != desk.session:
            raise MCPError(wire.INVALID_PARAMS, "There is no such task, or not any more.")
        return desk, handle

    # --- how it stands -------------------------------------------------------------------

    async def _state(self, desk: Desk, handle: Handle, client: str = "", result_type: str = "complete") -> TaskState:
        ending = await asyncio.to_thread(self._handles.ending, handle.token)
        if ending is None:
            await self._take_over(desk, handle)
        message = await _message(desk, handle)
        result = shown_to(client, ending.result, message, desk.settings) if ending and ending.result else None
        moment = ending.at if ending else time.time()
        kept_s = moment - handle.created_at + desk.settings.retention_hours * 3600 if ending else FORGOTTEN_S
        return TaskState(
            result_type=result_type,
            task_id=handle.token,
            status=ending.status if ending else "working",
            status_message=message,
            created_at=_iso(handle.created_at),
            last_updated_at=_iso(moment),
            ttl_ms=round(kept_s * 1000),
            poll_interval_ms=poll_interval_ms(moment - handle.created_at),
            result=result,
            _meta={"outlast/taskId": handle.task_id},
        )

    # --- getting it done -----------------------------------------------------------------

    async def _take_over(self, desk: Desk, handle: Handle) -> None:
        """Go on with a call whose server is gone."""
        if handle.token in self._work:
            return
        claim = await asyncio.to_thread(self._handles.claim, handle.token)
        if claim is not None:
            reply = self._whole(desk, handle) if handle.background else _again(desk, handle)
            self._begin(desk, handle, claim, reply)

    def _begin(self, desk: Desk, handle: Handle, claim: Claim, reply: Coroutine[Any, Any, Reply]) -> None:
        self._work[handle.token] = asyncio.create_task(self._finish(desk, handle, claim, reply))

    async def _finish(self, desk: Desk, handle: Handle, claim: Claim, reply: Coroutine[Any, Any, Reply]) -> None:
        try:
            result = final_result_of(await reply)
            if handle.token not in self._cancelled:
                ending = Ending("completed", result, time.time())
                await asyncio.to_thread(self._handles.end, handle.token, ending)
        finally:
            claim.close()
            del self._work[handle.token]

    async def _whole(self, desk: Desk, handle: Handle) -> Reply:
        """The end of a background run, and all that it printed."""
        try:
            await desk.shell.wait(handle.task_id)
        except OutlastError:
            pass  # it is gone; reading says so
        # The read position stays: a call that waits for this task at the same time must not find its output gone, and
        # of a failure some clients show a line only, after which the model reads the output.
        return await read_with(_resumed(desk, handle, advances=False), handle.task_id)


async def _message(desk: Desk, handle: Handle) -> str:
    """Return the status message, always one line: how the task failed, or the last line that it printed."""
    task_id = handle.task_id
    try:
        task = await desk.shell.show(task_id)
        if task.status not in ENDED_BADLY:
            return await desk.last_line(task_id) or f"{task_id} has printed nothing yet"
        return failure_line(task, await desk.last_lines(task_id, LAST_LINES), _how_to_read(desk, task_id))
    except OutlastError as error:
        return for_model(error.message, desk.profile.lists)


def _how_to_read(desk: Desk, task_id: str) -> str:
    """Return the call that reads all of a task's output. The start was read already if the call ran in foreground."""
    tool = reading_tool(desk.profile)
    start = " and cursor 0" if "cursor" in tool.schema["properties"] else ""
    return f"{tool.name} with task_id {task_id}{start}"


async def _awaited(ongoing: Ongoing) -> Reply:
    return await ongoing.reply


async def _again(desk: Desk, handle: Handle) -> Reply:
    """The same call, about the task that is there."""
    return await _resumed(desk, handle).acall(handle.tool, handle.arguments)


def _resumed(desk: Desk, handle: Handle, advances: bool = True) -> Toolbox:
    return desk.box_over(Resumed(desk.shell, handle.task_id, advances), desk.settings.max_wait_s)


def poll_interval_ms(age_s: float) -> int:
    """How soon to ask again about a call of that age."""
    return min(_LATEST_MS, max(_SOONEST_MS, round(age_s * 1000 / _OF_ITS_AGE)))


def refuse_undeclared(ctx: Context) -> None:
    """Tasks are for clients that say in this very request that they know them."""
    if not _declared(ctx):
        lacking: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", lacking)


def _declared(ctx: Context) -> bool:
    known = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in ((known and known.extensions) or {})


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
