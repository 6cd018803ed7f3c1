"""A real agent of the Agent Client Protocol, over its standard input and output."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

from acp import InitializeResponse, NewSessionResponse, PromptResponse, run_agent, start_tool_call
from acp.helpers import update_agent_message_text, update_tool_call
from acp.schema import Cost, PermissionOption, ToolCallUpdate, Usage, UsageUpdate


class Like:
    def on_connect(self, conn: Any) -> None:
        self._client = conn
        self._cancelled = asyncio.Event()

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="acp-1")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    async def _tell(self, session_id: str, update: Any) -> None:
        await self._client.session_update(session_id=session_id, update=update)

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        said = prompt[0].text
        match said.split()[0]:
            case "die":
                os._exit(3)
            case "refuse":
                return PromptResponse(stop_reason="refusal")
            case "wait":
                subprocess.Popen(["setsid", "sleep", "303"])
                await self._tell(session_id, update_agent_message_text("waiting"))
                await self._cancelled.wait()
                return PromptResponse(stop_reason="cancelled")
            case "ask":
                answer = await self._asked(session_id)
                await self._tell(session_id, update_agent_message_text(f"answered: {answer}"))
                return PromptResponse(stop_reason="end_turn")
        await self._tell(session_id, update_agent_message_text("I look "))
        await self._tell(session_id, update_agent_message_text("around."))
        await self._tell(session_id, start_tool_call("call-1", "List the files", kind="execute"))
        await self._tell(session_id, update_tool_call("call-1", status="failed"))
        for piece in ("You said: ", said):
            await self._tell(session_id, update_agent_message_text(piece))
        cost = Cost(amount=0.25, currency="USD")
        await self._tell(session_id, UsageUpdate(session_update="usage_update", used=10, size=100, cost=cost))
        usage = Usage(total_tokens=33, input_tokens=20, output_tokens=3, cached_read_tokens=10)
        return PromptResponse(stop_reason="end_turn", usage=usage)

    async def _asked(self, session_id: str) -> str:
        call = ToolCallUpdate(tool_call_id="call-2", title="Delete everything")
        options = [
            PermissionOption(option_id="y", name="Yes", kind="allow_once"),
            PermissionOption(option_id="n", name="No", kind="reject_once"),
        ]
        reply = await self._client.request_permission(session_id=session_id, tool_call=call, options=options)
        return str(getattr(reply.outcome, "option_id", "cancelled"))


agent: Any = Like()
asyncio.run(run_agent(agent))
