"""What all requests share: the state directory as its operator sees it, and one shell for each session in use."""

from __future__ import annotations

import asyncio
import os

from outlast.shell.async_shell import AsyncShell
from outlast.shell.validation import session_name
from outlast.web.live import Live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.types import Task

_MOST_SHELLS = 16


class Place:
    """One state directory that is served."""

    def __init__(self, home: str, policy: str | None = None) -> None:
        self.home, self._policy = home, policy
        self.shell = self._open("")
        self.live = Live(self.shell)
        self._shells: dict[str, AsyncShell] = {}

    async def run(self) -> None:
        await self.live.run()

    async def close(self) -> None:
        for shell in (*self._shells.values(), self.shell):
            await shell.close()

    async def shell_of(self, session: str = "") -> AsyncShell:
        """Return the shell that starts commands in a session; without a name the usual one."""
        if not session:
            return self.shell
        name = session_name(session)
        known = self._shells.pop(name, None)
        found = known if known is not None else await asyncio.to_thread(self._open, name)
        self._shells[name] = found
        while len(self._shells) > _MOST_SHELLS:
            await self._shells.pop(next(iter(self._shells))).close()
        return found

    def _open(self, session: str) -> AsyncShell:
        # Not in the directory of the server: a person at a page does not know where that was started.
        home = os.path.expanduser("~")
        return AsyncShell.open(self.home, session or None, self._policy, operator=True, cwd=home)

    async def find(self, task_id: str) -> Task:
        """Return the task that is meant, as it is now."""
        return await self.shell.show(task_id)

    @property
    def policy_name(self) -> str:
        """The policy that a command that is started here is under."""
        gate = self.shell.plain.starter.gate()
        return gate.policy_for("").name if gate is not None else "yolo"
