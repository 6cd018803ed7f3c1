"""`AsyncShell.agent`: `Shell.agent` for asyncio, thin."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable
    from typing import Any

    from outlast.agents.host import Run
    from outlast.agents.types import Agent, Stopped
    from outlast.shell.agents import Agents
    from outlast.types import Task

    Asking = Callable[..., Awaitable[Any]]


class AsyncAgents:
    """The agents of one shell."""

    def __init__(self, agents: Agents, asking: Asking, note: Callable[..., None]) -> None:
        """`asking` does a verb that may have to ask in a thread; `note` is told which task was launched."""
        self._agents, self._asking, self._note = agents, asking, note

    async def register(
        self,
        name: str,
        what: Run | str,
        output_file: str | os.PathLike[str] | None = None,
        *,
        format: str | None = None,
    ) -> Agent | None:
        """As `Agents.register`."""
        return await asyncio.to_thread(self._agents.register, name, what, output_file, format=format)

    def types(self) -> dict[str, str]:
        """As `Agents.types`."""
        return self._agents.types()

    async def start(self, type: str, prompt: str, description: str = "", *, here: bool = True, **how: Any) -> Task:
        """As `Agents.start`. An agent that is a coroutine runs `here`, in this event loop, or in one of its own."""
        loop = asyncio.get_running_loop() if here else None
        task: Task = await self._asking(self._agents.start, type, prompt, description, loop=loop, **how)
        self._note(launched=task.task_id)
        return task

    async def status(self, id: str) -> Agent | None:
        """As `Agents.status`."""
        return await asyncio.to_thread(self._agents.status, id)

    async def list(self, *, status: str | None = None) -> list[Agent]:
        """As `Agents.list`."""
        return await asyncio.to_thread(self._agents.list, status=status)

    async def read(self, id: str) -> str | None:
        """As `Agents.read`."""
        return await asyncio.to_thread(self._agents.read, id)

    async def result(self, id: str) -> str | None:
        """As `Agents.result`."""
        return await asyncio.to_thread(self._agents.result, id)

    async def done(self, id: str, *, failed: bool = False) -> Agent | None:
        """As `Agents.done`."""
        return await asyncio.to_thread(self._agents.done, id, failed=failed)

    async def stop(self, id: str, grace: float | None = None) -> Stopped:
        """As `Agents.stop`."""
        stopped: Stopped = await self._asking(self._agents.stop, id, grace)
        return stopped
