"""`AsyncShell.agent`: `Shell.agent` for asyncio."""

from __future__ import annotations

import asyncio

from outlast.shell.agents import Agents
from outlast.shell.async_driver import in_thread, track

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from outlast.shell.async_driver import LoopDriver
    from outlast.shell.options import AgentOptions
    from outlast.types import Task


class AsyncAgents:
    """The agents of one shell. Each method does what the method of the same name of `Agents` does."""

    def __init__(self, agents: Agents, driver: LoopDriver) -> None:
        self.plain, self.driver = agents, driver
        self.types = agents.types

    async def start(
        self, type: str, prompt: str, description: str = "", *, here: bool = True, **options: Unpack[AgentOptions]
    ) -> Task:
        """As `Agents.start`. An agent that is a coroutine runs `here`, in this event loop, or in one of its own."""
        loop = asyncio.get_running_loop() if here else None
        task = await self.driver.call(self.plain.start, type, prompt, description, loop=loop, **options)
        track(launched=task.task_id)
        return task

    register = in_thread(Agents.register)
    status = in_thread(Agents.status)
    list = in_thread(Agents.list)
    read = in_thread(Agents.read)
    result = in_thread(Agents.result)
    done = in_thread(Agents.done)
    stop = in_thread(Agents.stop)
