"""The shell of a call that is made again after its server died: what it would launch runs, or ran, already."""

from __future__ import annotations

from outlast.shell.async_agents import AsyncAgents
from outlast.shell.async_shell import AsyncShell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.types import Result, Task, Waited


class Resumed(AsyncShell):
    """Launches nothing: every command is the task that is there. Reads all of it, whatever was read before.

    `advances`: whether reading what is new also moves the session's read position, as the original call would have.
    """

    def __init__(self, shell: AsyncShell, task_id: str, advances: bool = True) -> None:
        super().__init__(shell.plain)
        self._task_id, self._advances = task_id, advances

    async def start(self, command: str, **how: Any) -> Waited:
        return await self.wait(self._task_id, timeout=0)

    @property
    def agent(self) -> AsyncAgents:
        return _ResumedAgents(self, self._task_id)

    async def run(self, command: str, *, show: Any = None, **how: Any) -> Result:
        await self.wait(self._task_id, timeout=self.plain.settings.max_wait_s)
        return await self.read(self._task_id, **(show or {}))

    async def read(self, task: Any, **what: Any) -> Result:
        if not what.get("new"):
            return await super().read(task, **what)
        if self._advances:
            await super().read(task, new=True)
        return await super().read(task, **{**what, "new": False})


class _ResumedAgents(AsyncAgents):
    """Starts nothing: every agent is the task that is there."""

    def __init__(self, shell: Resumed, task_id: str) -> None:
        self._shell, self._task_id = shell, task_id

    async def start(self, type: str, prompt: str, description: str = "", *, here: bool = True, **how: Any) -> Task:
        return await self._shell.show(self._task_id)
