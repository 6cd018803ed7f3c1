"""What all requests share: the state directory as its operator sees it, and one shell for each session in use."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from outlast.errors import BadInput, OutlastError, Refused, SessionBusy, quote
from outlast.shell.approval_link import reference
from outlast.shell.async_shell import AsyncShell
from outlast.shell.validation import session_name
from outlast.storage.record import is_in_task
from outlast.web.approvals import Approvals
from outlast.web.live import Live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    from outlast.types import Task

    T = TypeVar("T")

_MOST_SHELLS = 16
_MOST_ASKING = 32  # calls that wait for a yes
_THREADS = _MOST_ASKING + 32


class Place:
    """One state directory that is served."""

    def __init__(self, home: str, policy: str | None = None, session: str = "") -> None:
        """With a `session` only that one is served, otherwise all are."""
        self.home, self._policy, self._scope = home, policy, session
        # In a task a page would let a command answer for the user; no process asks it anyway.
        self.takes_questions = not is_in_task(os.getpid())
        self.shell = self._open("")
        self.live = Live(self.shell)
        redactor = self.shell.plain.context.redactor
        self.approvals = Approvals(home, lambda: redactor.mask, self._tell_approvals, session)
        self._asking: set[asyncio.Task[Any]] = set()
        self._shells: dict[str, AsyncShell] = {}

    def _tell_approvals(self, pending: list[dict[str, Any]]) -> None:
        self.live.overview.send("approvals", {"pending": pending}, replaces=True)

    async def open(self) -> None:
        """Take questions from now on."""
        # A call that waits for a yes holds its thread.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
        if self.takes_questions:
            await self.approvals.open()

    async def run(self) -> None:
        await self.live.run()

    async def close(self) -> None:
        self.approvals.close()
        await asyncio.gather(*self._asking, return_exceptions=True)
        for shell in (*self._shells.values(), self.shell):
            await shell.close()

    async def shell_of(self, session: str = "") -> AsyncShell:
        """Return the shell that starts commands in a session; without a name the usual one."""
        if session in ("", self._scope):
            return self.shell
        name = session_name(session)
        if self._scope:
            raise BadInput(f"This page serves the session {quote(self._scope)} alone; leave out another one.")
        known = self._shells.pop(name, None)
        found = known if known is not None else await asyncio.to_thread(self._open, name)
        self._shells[name] = found
        while len(self._shells) > _MOST_SHELLS:
            await self._shells.pop(next(iter(self._shells))).close()
        return found

    def _open(self, session: str) -> AsyncShell:
        # Not in the directory of the server: a person at a page does not know where that was started.
        home = os.path.expanduser("~")
        name, operator = session or self._scope or None, not self._scope
        return AsyncShell.open(self.home, name, self._policy, operator=operator, cwd=home)

    def _tell_failure(self, done: asyncio.Task[Any]) -> None:
        """Tell the page what became of a start that it does not wait for any more; a no is nothing new to it."""
        error = None if done.cancelled() else done.exception()
        if isinstance(error, OutlastError) and not isinstance(error, Refused):
            self.live.overview.send("failed", {"error": error.code, "message": error.message})

    async def ask_or_do(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, str]:
        """Do work that may need a yes; return its result or, if it waits for the yes, the id of the question."""
        if len(self._asking) >= _MOST_ASKING:
            work.close()
            raise SessionBusy(f"{_MOST_ASKING} commands that were started here wait for a yes; answer them first.")
        mark = os.urandom(8).hex()
        question, token = self.approvals.expect(mark), reference.set(mark)
        doing = asyncio.create_task(work)
        reference.reset(token)
        self._asking.add(doing)
        doing.add_done_callback(self._asking.discard)
        try:
            either: set[asyncio.Future[Any]] = {doing, question}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if question.done() and not doing.done():
                doing.add_done_callback(self._tell_failure)
                return None, question.result()
            return await doing, ""
        finally:
            question.cancel()

    async def find(self, task_id: str) -> Task:
        """Return the task that is meant, as it is now."""
        return await self.shell.show(task_id)

    @property
    def policy_name(self) -> str:
        """The policy that a command that is started here is under."""
        gate = self.shell.plain.starter.gate()
        return gate.policy_for("").name if gate is not None else "yolo"
