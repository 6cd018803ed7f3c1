"""`AsyncShell`: the methods of `Shell` for asyncio.

Waiting holds no thread: the descriptors of a `Watch` go into the event loop, so a thousand coroutines can wait in one
process. What takes a millisecond or two (start, read, list) is done in the loop's thread pool.
"""

from __future__ import annotations

import asyncio
import os

from outlast.async_driver import Driver, Questions, track
from outlast.options import (
    ConditionOptions,
    FollowOptions,
    ListOptions,
    ReadOptions,
    RunOptions,
    StartOptions,
    check_names,
)
from outlast.shell.context import OpenOptions
from outlast.shell.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Unpack

    from outlast.async_agents import AsyncAgents
    from outlast.notices.board import Event, Notice
    from outlast.notices.subscription import Calling
    from outlast.options import TaskId
    from outlast.policy import Policy
    from outlast.policy.rules import Decision
    from outlast.storage.task_directory import Hold
    from outlast.types import Receipt, Result, Slice, Task, Waited


class AsyncShell:
    """Run commands as tasks of one session in one state directory. Use `AsyncShell.open` in `async with`.

    Each method does what the method of the same name of `Shell` does.
    """

    def __init__(self, shell: Shell, questions: Questions | None = None) -> None:
        self.plain = shell  # the shell underneath
        self.session = shell.session
        self._driver = Driver(shell, questions)

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        **options: Unpack[OpenOptions],
    ) -> AsyncShell:
        """As `Shell.open`; `ask` may be a coroutine function."""
        check_names("AsyncShell.open", options, OpenOptions, "home", "session", "policy")
        questions = Questions(ask) if (ask := options.get("ask")) is not None else None
        options["ask"] = questions
        return cls(Shell.open(home, session, policy, **options), questions)

    async def __aenter__(self) -> AsyncShell:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Shell.close`."""
        self._driver.close()
        await asyncio.to_thread(self.plain.close)

    async def check(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, shell: str | None = None
    ) -> Decision:
        """As `Shell.check`."""
        return await asyncio.to_thread(self.plain.check, command, cwd=cwd, env=env, shell=shell)

    @property
    def agent(self) -> AsyncAgents:
        """As `Shell.agent`."""
        from outlast.async_agents import AsyncAgents  # most shells run none

        return AsyncAgents(self.plain.agent, self._driver.call, track)

    async def start(self, command: str, *, hold: Hold | None = None, **options: Unpack[StartOptions]) -> Waited:
        """As `Shell.start`."""
        check_names("AsyncShell.start", options, StartOptions, "hold")
        return await self._driver.drive(self._driver.flows.start(command, hold, dict(options)))

    async def run(self, command: str, **options: Unpack[RunOptions]) -> Result:
        """As `Shell.run`. If the coroutine is cancelled, the task goes on in the background."""
        check_names("AsyncShell.run", options, RunOptions)
        result = await self._driver.drive(self._driver.flows.run(command, dict(options)))
        self.plain.starter.prepare_soon()
        return result

    async def read(self, task: TaskId, **options: Unpack[ReadOptions]) -> Result:
        """As `Shell.read`."""
        check_names("AsyncShell.read", options, ReadOptions)
        return await asyncio.to_thread(self.plain.read, task, **options)

    def follow(self, task: TaskId, **options: Unpack[FollowOptions]) -> AsyncIterator[Slice]:
        """As `Shell.follow`."""
        check_names("AsyncShell.follow", options, FollowOptions)
        return self._driver.stream(self._driver.flows.follow(task, **options))

    async def show(self, task: TaskId) -> Task:
        """As `Shell.show`."""
        return await asyncio.to_thread(self.plain.show, task)

    async def list(self, **options: Unpack[ListOptions]) -> list[Task]:
        """As `Shell.list`."""
        check_names("AsyncShell.list", options, ListOptions)
        return await asyncio.to_thread(self.plain.list, **options)

    async def wait(
        self, task: TaskId, timeout: float | None = None, *, new: bool = False, **options: Unpack[ConditionOptions]
    ) -> Waited:
        """As `Shell.wait`."""
        check_names("AsyncShell.wait", options, ConditionOptions, "timeout", "new")
        return await self._driver.drive(self._driver.flows.wait(task, timeout, new, dict(options)))

    async def send_and_wait(
        self, task: TaskId, text: str | bytes = "", timeout: float = 5.0, *, eof: bool = False, until: str | None = None
    ) -> Waited:
        """As `Shell.send_and_wait`."""
        return await self._driver.drive(self._driver.flows.send_and_wait(task, text, timeout, eof, until))

    async def kill(self, task: TaskId, grace: float | None = None) -> Receipt:
        """As `Shell.kill`."""
        return await self._driver.call(self.plain.kill, task, grace)

    async def send(self, task: TaskId, text: str | bytes = "", *, eof: bool = False) -> None:
        """As `Shell.send`."""
        await asyncio.to_thread(self.plain.send, task, text, eof=eof)

    async def clean(self, *, older_than_hours: float | None = None, all_finished: bool = False) -> int:
        """As `Shell.clean`."""
        return await asyncio.to_thread(self.plain.clean, older_than_hours=older_than_hours, all_finished=all_finished)

    async def remove(self, task: TaskId) -> Task:
        """As `Shell.remove`."""
        return await asyncio.to_thread(self.plain.remove, task)

    # --- notices -----------------------------------------------------------------------------

    def subscribe(self, name: str, *, from_now: bool = False) -> AsyncGenerator[Notice, None]:
        """As `Shell.subscribe`: the notices for a subscriber of that name, as they come, for ever.

        Each is acknowledged when the next one is asked for; close it to give back the last one.
        """
        from outlast.notices import loop

        return loop.notices(lambda: self.plain.subscribe(name, from_now=from_now))

    async def on_notice(self, callback: Callable[[Notice], Any], *, name: str, from_now: bool = False) -> Calling:
        """As `Shell.on_notice`."""
        return await asyncio.to_thread(self.plain.on_notice, callback, name=name, from_now=from_now)

    async def notices(self, most: int = 100) -> Sequence[Notice]:
        """As `Shell.notices`."""
        return await asyncio.to_thread(self.plain.notices, most)

    async def verify(self, quoted: str) -> Notice | None:
        """As `Shell.verify`."""
        return await asyncio.to_thread(self.plain.verify, quoted)

    async def brief(self) -> str:
        """As `Shell.brief`."""
        return await asyncio.to_thread(self.plain.brief)

    def events(self, *, after: int | None = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """As `Shell.events`."""
        from outlast.notices import loop

        return loop.events(lambda: self.plain.notice_board.following(after), follow)
