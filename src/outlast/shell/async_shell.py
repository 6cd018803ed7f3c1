"""`AsyncShell`: the methods of `Shell` for asyncio.

Waiting holds no thread: the descriptors of a `Watch` go into the event loop, so a thousand coroutines can wait in one
process. What takes a millisecond or two (read, list) is done in the loop's thread pool.
"""

from __future__ import annotations

import os
from copy import copy

from outlast.shell.async_driver import LoopDriver, Questions, in_loop, in_thread
from outlast.shell.options import OpenOptions, check_options
from outlast.shell.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType
    from typing import Any, Self, Unpack

    from outlast.notices.notice import Event, Notice
    from outlast.policy import Policy
    from outlast.shell.async_agents import AsyncAgents
    from outlast.shell.options import FollowOptions, TaskId
    from outlast.types import Slice


class AsyncShell:
    """Run commands as tasks of one session in one state directory. Use `AsyncShell.open` in `async with`.

    Each method does what the method of the same name of `Shell` does.
    """

    def __init__(self, shell: Shell, questions: Questions | None = None) -> None:
        self.plain = shell  # the shell underneath
        self.session = shell.session
        self.driver = LoopDriver(shell, questions)
        view: Any = copy(shell)
        view.driver = self.driver
        self.in_loop: Shell = view  # the same, and its flows are driven in the event loop

    @classmethod
    @check_options
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        **options: Unpack[OpenOptions],
    ) -> AsyncShell:
        """As `Shell.open`; `ask` may be a coroutine function."""
        questions = Questions(ask) if (ask := options.get("ask")) is not None else None
        options["ask"] = questions
        return cls(Shell.open(home, session, policy, **options), questions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Shell.close`."""
        self.driver.close()
        await self.driver.call(self.plain.close)

    run = in_loop(Shell.run)  # if the coroutine is cancelled, the task goes on in the background
    start = in_loop(Shell.start)
    wait = in_loop(Shell.wait)
    send_and_wait = in_loop(Shell.send_and_wait)
    check = in_thread(Shell.check)
    read = in_thread(Shell.read)
    show = in_thread(Shell.show)
    list = in_thread(Shell.list)
    activity = in_thread(Shell.activity)
    kill = in_thread(Shell.kill)
    kill_all = in_thread(Shell.kill_all)
    send = in_thread(Shell.send)
    screen = in_thread(Shell.screen)
    resize = in_thread(Shell.resize)
    clean = in_thread(Shell.clean)
    remove = in_thread(Shell.remove)
    on_notice = in_thread(Shell.on_notice)
    notices = in_thread(Shell.notices)
    verify = in_thread(Shell.verify)
    brief = in_thread(Shell.brief)

    @check_options
    def follow(self, task: TaskId, **options: Unpack[FollowOptions]) -> AsyncGenerator[Slice, None]:
        """As `Shell.follow`."""
        return self.driver.stream(self.plain.flows.follow(task, **options))

    def subscribe(self, name: str, *, from_now: bool = False) -> AsyncGenerator[Notice, None]:
        """As `Shell.subscribe`: the notices for a subscriber of that name, as they come, for ever.

        Each is acknowledged when the next one is asked for; close it to give back the last one.
        """
        from outlast.notices import async_streams

        return async_streams.notices(lambda: self.plain.subscribe(name, from_now=from_now))

    def events(self, *, after: int | None = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """As `Shell.events`."""
        from outlast.notices import async_streams

        return async_streams.events(lambda: self.plain.notice_board.following(after), follow)

    @property
    def agent(self) -> AsyncAgents:
        """As `Shell.agent`."""
        from outlast.shell.async_agents import AsyncAgents  # most shells run none

        return AsyncAgents(self.plain.agent, self.driver)
