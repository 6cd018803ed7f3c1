"""`tools/list` and `tools/call`.

Leaving a call ends nothing. Cancelling it ends the foreground command that it started (`cancellation`).
"""

from __future__ import annotations

import mcp_types as wire

from outlast.mcp.approval import Approver, Question
from outlast.mcp.clients import client_name, refuse_cursor
from outlast.mcp.replies import result_of, takes_both
from outlast.mcp.running_call import RunningCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.mcp.cancellation import Cancellations
    from outlast.mcp.clients import Clients, Context
    from outlast.mcp.resources import Resources
    from outlast.mcp.tasks import Tasks

_SLACK_S = 2.0  # what a call may take beyond its wait: to start, to end, to read


class Calls:
    """The tools of a server."""

    def __init__(self, clients: Clients, tasks: Tasks, resources: Resources, cancellations: Cancellations) -> None:
        self._clients, self._tasks, self._resources = clients, tasks, resources
        self._cancellations = cancellations

    async def list(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        refuse_cursor(params)
        client = await self._clients.find(ctx)
        tools = client.box(client.settings.mcp_wait_s).as_mcp()
        return wire.ListToolsResult(tools=[wire.Tool.model_validate(tool) for tool in tools])

    async def call(self, ctx: Context, params: wire.CallToolRequestParams) -> Any:
        client = await self._clients.find(ctx)
        patience = client.settings.mcp_wait_s
        # Tools that only read wait at most for what is there: they start nothing that a client could hold.
        acts = any(tool.acts for tool in client.profile.tools if tool.name == params.name)
        can_hold = acts and self._tasks.can_hold(ctx, client)
        box = client.box(client.settings.max_wait_s if can_hold else patience)
        call = RunningCall(box, Approver(ctx, params, patience), params)
        try:
            with self._cancellations.watch(ctx, client, call):
                reply = await call.wait(ctx, client, patience)
                if reply is None and not (can_hold and call.tracker.launched):
                    reply = await call.wait(ctx, client, _SLACK_S)
                if can_hold and call.tracker.launched and call.goes_on(reply):
                    call.approver.is_answered = True
                    return await self._tasks.hold(client, call)
                reply = reply or await call.leave(box, patience)
                return result_of(reply, takes_both(client_name(ctx), client.settings))
        except Question as question:
            return question.result()
        finally:
            if call.tracker.launched:
                self._resources.announce(client)
