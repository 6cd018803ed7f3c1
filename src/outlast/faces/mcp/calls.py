"""`tools/list` and `tools/call`: a call waits no longer than its client does, tells how it goes, and can be left.

Leaving a call ends nothing. Cancelling it ends the foreground command that it started (`cancelling`).
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context

import mcp_types as wire
from mcp.shared.exceptions import MCPError

from outlast.errors import OutlastError
from outlast.faces.mcp.approval import Call, Question, current
from outlast.faces.mcp.clients import client_name
from outlast.faces.mcp.handles import task_in
from outlast.faces.mcp.replies import result_of, takes_both
from outlast.faces.tools.arguments import IDS
from outlast.faces.tools.messages import for_model
from outlast.faces.tools.model import Reply
from outlast.shell.async_driver import CallTracker, tracker
from outlast.shell.flows import go_outside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.faces.mcp.cancelling import Cancellations
    from outlast.faces.mcp.clients import Clients, Context, Desk
    from outlast.faces.mcp.resources import Resources
    from outlast.faces.mcp.tasks import Tasks
    from outlast.faces.tools.model import Profile, Tool
    from outlast.faces.tools.toolbox import Toolbox

_SLACK_S = 2.0  # what a call may take beyond its wait: to start, to end, to read
_PROGRESS_S = 1.0  # a client that wants to know how it goes is told so often
_BACKGROUND = ("background", "run_in_background", "is_background")  # how profiles call it
_STARTS_THERE = ("ready", "stdin_open")  # such a command is started in the background, whether or not that is said


class Ongoing:
    """One call under way."""

    def __init__(self, box: Toolbox, call: Call, params: wire.CallToolRequestParams) -> None:
        self.noted, self.call = CallTracker(), call
        self.in_foreground = not _asks_for_background(params) and not _any(params, _STARTS_THERE)
        context = copy_context()
        context.run(tracker.set, self.noted)
        context.run(current.set, call)
        context.run(go_outside.set, call.goes_outside)
        given = with_task_ids(params.arguments or {})
        self.reply = asyncio.create_task(box.acall(params.name, given), context=context)

    @property
    def task_id(self) -> str:
        """The task that it is about, as far as that is known."""
        return self.noted.launched or self.noted.awaited

    async def attended(self, ctx: Context, desk: Desk, patience: float) -> Reply | None:
        """The reply, if it comes in time. Whoever leaves first takes the call along."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        wants_progress = bool(ctx.meta and "progress_token" in ctx.meta)
        try:
            while (left := began + patience - loop.time()) > 0:
                await asyncio.wait({self.reply}, timeout=min(left, _PROGRESS_S) if wants_progress else left)
                if self.reply.done():
                    return await self.reply
                if wants_progress:
                    await ctx.session.report_progress(loop.time() - began, message=await self._how_it_goes(desk))
        except asyncio.CancelledError:
            self.abandon()
            raise
        return None

    def abandon(self) -> None:
        """Stop working on the reply. Once only: a second cancel would interrupt what waits for a launch to finish."""
        if not self.reply.cancelling():
            self.reply.cancel()

    async def _how_it_goes(self, desk: Desk) -> str:
        if not self.task_id:
            return "waiting"
        try:
            return await desk.last_line(self.task_id) or f"{self.task_id} has printed nothing yet"
        except OutlastError as error:
            return for_model(error.message, desk.profile.lists)


class Calls:
    """The tools of a server."""

    def __init__(self, clients: Clients, tasks: Tasks, resources: Resources, cancellations: Cancellations) -> None:
        self._clients, self._tasks, self._resources = clients, tasks, resources
        self._cancellations = cancellations

    async def list(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        refuse_cursor(params)
        desk = await self._clients.desk(ctx)
        tools = desk.box(desk.settings.mcp_wait_s).as_mcp()
        return wire.ListToolsResult(tools=[wire.Tool.model_validate(tool) for tool in tools])

    async def call(self, ctx: Context, params: wire.CallToolRequestParams) -> Any:
        desk = await self._clients.desk(ctx)
        bound = desk.settings.mcp_wait_s
        holds = self._tasks.can_hold(ctx, desk) and _acts(desk, params.name)
        box = desk.box(desk.settings.max_wait_s if holds else bound)
        ongoing = Ongoing(box, Call(ctx, params, bound), params)
        try:
            with self._cancellations.watched(ctx, desk, ongoing):
                reply = await ongoing.attended(ctx, desk, bound)
                if reply is None and not (holds and ongoing.noted.launched):
                    reply = await ongoing.attended(ctx, desk, _SLACK_S)
                if holds and ongoing.noted.launched and (reply is None or _goes_on(reply, params)):
                    ongoing.call.is_answered = True
                    return await self._tasks.hold(desk, ongoing, params)
                reply = reply or await _left(box, ongoing, bound)
                return result_of(reply, _both(ctx, desk))
        except Question as question:
            return question.result()
        finally:
            if ongoing.noted.launched:
                self._resources.added(desk)


def _both(ctx: Context, desk: Desk) -> bool:
    return takes_both(client_name(ctx), desk.settings)


def with_task_ids(given: dict[str, Any]) -> dict[str, Any]:
    """A model that was shown the token of an MCP task may name the task by it."""
    return {name: task_in(value) if name in IDS and isinstance(value, str) else value for name, value in given.items()}


def refuse_cursor(params: wire.PaginatedRequestParams | None) -> None:
    """What fits on one page has no cursors."""
    if params is not None and params.cursor is not None:
        raise MCPError(wire.INVALID_PARAMS, "There is no such cursor: all is on the first page; list without one.")


def _acts(desk: Desk, name: str) -> bool:
    """Whether the tool of that name may start something; the others at most wait for what is there."""
    return any(tool.acts for tool in desk.profile.tools if tool.name == name)


def _any(params: wire.CallToolRequestParams, names: tuple[str, ...]) -> bool:
    return any((params.arguments or {}).get(name) for name in names)


def _asks_for_background(params: wire.CallToolRequestParams) -> bool:
    return _any(params, _BACKGROUND) or params.name.endswith("_background")


def _goes_on(reply: Reply, params: wire.CallToolRequestParams) -> bool:
    """Whether the call asked for a background run and for nothing to wait for, and that run is not over yet."""
    if not _asks_for_background(params) or _any(params, ("ready", "wait")):
        return False
    return reply.data.get("status") in ("running", "pending")


async def _left(box: Toolbox, ongoing: Ongoing, bound: float) -> Reply:
    """The client's time is up: how the task stands that the call still waits for."""
    ongoing.abandon()
    await asyncio.wait({ongoing.reply})
    if not ongoing.task_id:
        said = f"Nothing came of it within {bound:g} s, and it was given up; try again."
        return Reply(f"Error: {said}\n", {"status": "error", "error": said, "code": "too-slow"}, error=True)
    return await read_with(box, ongoing.task_id)


def reading_tool(profile: Profile) -> Tool:
    """Return the profile's tool that reads a task's output."""
    return next(tool for tool in profile.tools if tool.name.lower().endswith("output"))


async def read_with(box: Toolbox, task_id: str) -> Reply:
    """What the profile's tool for reading says of a task, without waiting."""
    tool = reading_tool(box.profile)
    at_once = {"block": False} if "block" in tool.schema["properties"] else {}
    return await box.acall(tool.name, {"task_id": task_id, **at_once})
