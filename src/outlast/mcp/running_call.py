"""A call of a tool in progress: it waits no longer than its client does, reports progress, and can be left."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

from outlast.errors import OutlastError
from outlast.mcp.approval import current
from outlast.mcp.held_calls import task_in
from outlast.shell.async_driver import CallTracker, tracker
from outlast.shell.flows import go_outside
from outlast.tools.arguments import IDS
from outlast.tools.model import Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mcp_types as wire

    from outlast.mcp.approval import Approver
    from outlast.mcp.clients import ConnectedClient, Context
    from outlast.tools.toolbox import Toolbox

_PROGRESS_S = 1.0  # between two reports of progress
_BACKGROUND = ("background", "run_in_background", "is_background")  # as the profiles call it
_BACKGROUND_TOO = ("ready", "stdin_open")  # a command with one of these is started in the background
_WAITS = ("ready", "wait")


class RunningCall:
    """One call in progress."""

    def __init__(self, box: Toolbox, approver: Approver, params: wire.CallToolRequestParams) -> None:
        # A model that was shown the token of an MCP task may name the task by it.
        given = {
            name: task_in(value) if name in IDS and isinstance(value, str) else value
            for name, value in (params.arguments or {}).items()
        }
        self.tracker, self.approver = CallTracker(), approver
        self.asks_for_background = any(map(given.get, _BACKGROUND)) or params.name.endswith("_background")
        self.in_foreground = not self.asks_for_background and not any(map(given.get, _BACKGROUND_TOO))
        self._waits = any(map(given.get, _WAITS))
        context = copy_context()
        context.run(tracker.set, self.tracker)
        context.run(current.set, approver)
        context.run(go_outside.set, approver.goes_outside)
        self.reply = asyncio.create_task(box.acall(params.name, given), context=context)

    @property
    def task_id(self) -> str:
        """The task that it is about, as far as that is known."""
        return self.tracker.launched or self.tracker.awaited

    def goes_on(self, reply: Reply | None) -> bool:
        """Return whether the call has not got its reply yet, or asked for a background run that has not ended."""
        if reply is None:
            return True
        asked = self.asks_for_background and not self._waits
        return asked and reply.data.get("status") in ("running", "pending")

    async def wait(self, ctx: Context, client: ConnectedClient, patience: float) -> Reply | None:
        """Return the reply, if it comes in time. If we are cancelled, so is the call."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        wants_progress = bool(ctx.meta and "progress_token" in ctx.meta)
        try:
            while (left := began + patience - loop.time()) > 0:
                await asyncio.wait({self.reply}, timeout=min(left, _PROGRESS_S) if wants_progress else left)
                if self.reply.done():
                    return await self.reply
                if wants_progress:
                    await ctx.session.report_progress(loop.time() - began, message=await self._progress(client))
        except asyncio.CancelledError:
            self.cancel()
            raise
        return None

    def cancel(self) -> None:
        """Stop working on the reply. Once only: a second cancel would interrupt what waits for a launch to finish."""
        if not self.reply.cancelling():
            self.reply.cancel()

    async def leave(self, box: Toolbox, patience: float) -> Reply:
        """Return how the task stands that the call still waits for."""
        self.cancel()
        await asyncio.wait({self.reply})
        if not self.task_id:
            said = f"Nothing came of it within {patience:g} s, and it was given up; try again."
            return Reply(f"Error: {said}\n", {"status": "error", "error": said, "code": "too-slow"}, error=True)
        return await read_with(box, self.task_id)

    async def _progress(self, client: ConnectedClient) -> str:
        if not self.task_id:
            return "waiting"
        try:
            return await client.last_line(self.task_id) or f"{self.task_id} has printed nothing yet"
        except OutlastError as error:
            return client.profile.message_of(error)


async def read_with(box: Toolbox, task_id: str) -> Reply:
    """Return what the profile's tool for reading says of a task, without waiting."""
    tool = box.profile.reading_tool
    at_once = {"block": False} if "block" in tool.schema["properties"] else {}
    return await box.acall(tool.name, {"task_id": task_id, **at_once})
