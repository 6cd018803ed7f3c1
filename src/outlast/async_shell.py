"""`AsyncShell`: `Shell` for asyncio, thin.

Waiting holds no thread: the descriptors of a `Watch` go into the event loop, so a
thousand coroutines can wait in one process. What takes a millisecond or two (start,
read, list) is done in the loop's thread pool.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import isawaitable

from outlast.shell.flows import Flows, Wait
from outlast.shell.loop_watch import Ring, Waiter
from outlast.shell.shell import Shell
from outlast.types import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Any, TypeVar, Unpack

    from outlast.async_agents import AsyncAgents
    from outlast.conditions import Condition
    from outlast.gate import Ask
    from outlast.options import ConditionOptions, ListOptions, ReadOptions, StartOptions
    from outlast.permissions import Mode, Policy
    from outlast.permissions.approval import Approval
    from outlast.permissions.judge import Judgement
    from outlast.shell.flows import Flow, Work
    from outlast.storage.locks import Hold
    from outlast.types import Cursor, Event, Notice, Receipt, Result, Sandbox, Task, Waited

    T = TypeVar("T")

_LAUNCH_WAIT_S = 5.0  # a thread launches a command within milliseconds, unless the machine is overloaded


class Attention:
    """The task that the calls of one context launched last, and the one they wait for: for those who tell of it."""

    launched = ""
    awaited = ""


attention: ContextVar[Attention | None] = ContextVar("attention", default=None)


class AsyncShell:
    """Commands of one session in one state directory. Use `AsyncShell.open` in `async with`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._rings: dict[tuple[str, bool], Ring] = {}
        parts = shell.reader, shell.starter, shell.control
        self._flows = Flows(shell.context, *parts, self._ring, self._ring, lambda task_id: _note(launched=task_id))
        self._questions: _Questions | None = None

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        *,
        mode: Mode = "default",
        ask: Ask | None = None,
        operator: bool = False,
        sandbox: Sandbox | bool | None = None,
        defaults: Mapping[str, object] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> AsyncShell:
        """As `Shell.open`; `ask` may be a coroutine function."""
        questions = _Questions(ask) if ask is not None else None
        how: dict[str, Any] = {"operator": operator, "sandbox": sandbox, "defaults": defaults, "cwd": cwd}
        opened = cls(Shell.open(home, session, policy, mode=mode, ask=questions, **how))
        opened._questions = questions
        return opened

    async def __aenter__(self) -> AsyncShell:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of everything. Tasks go on."""
        while self._rings:
            self._rings.popitem()[1].close()
        await asyncio.to_thread(self._shell.close)

    @property
    def plain(self) -> Shell:
        """The shell underneath."""
        return self._shell

    @property
    def session(self) -> str:
        return self._shell.session

    @property
    def agent(self) -> AsyncAgents:
        """As `Shell.agent`."""
        from outlast.async_agents import AsyncAgents  # most shells run none

        return AsyncAgents(self._shell.agent, self._asking, _note)

    async def start(self, command: str, *, hold: Hold | None = None, **options: Unpack[StartOptions]) -> Task:
        """As `Shell.start`."""
        return await self._drive(self._flows.start(command, hold, **options))

    async def start_agent(self, type: str, prompt: str, description: str = "", **how: Any) -> Task:
        """As `agent.start`; a coroutine runs in an event loop of its own, so that it outlasts this one."""
        return await self.agent.start(type, prompt, description, here=False, **how)

    async def run(
        self,
        command: str,
        *,
        wait: float | None = None,
        on_output: Callable[[Slice], None] | None = None,
        auto_background: bool | None = None,
        show: ReadOptions | None = None,
        **options: Unpack[StartOptions],
    ) -> Result:
        """As `Shell.run`. If the coroutine is cancelled, the task goes on in the background."""
        result = await self._drive(self._flows.run(command, wait, on_output, auto_background, show or {}, **options))
        self._shell.starter.prepare_soon()
        return result

    async def read(self, task_id: str, **options: Unpack[ReadOptions]) -> Result:
        """As `Shell.read`."""
        return await asyncio.to_thread(self._shell.read, task_id, **options)

    async def follow(
        self,
        task_id: str,
        *,
        cursor: str | Cursor | None = None,
        timeout: float | None = None,
        to_end_of: str = "output",
        leave: Condition | None = None,
        raw: bool = False,
    ) -> AsyncIterator[Slice]:
        """As `Shell.follow`."""
        how: dict[str, Any] = {"to_end_of": to_end_of, "leave": leave, "raw": raw}
        flow = self._flows.follow(task_id, cursor=cursor, timeout=timeout, **how)
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        try:
            while True:
                try:
                    step = resume(value)
                except StopIteration:
                    return
                value, resume = None, flow.send
                if isinstance(step, Slice):
                    yield step
                    continue
                try:
                    value = await self._do(step)
                except BaseException as error:
                    value, resume = error, flow.throw
        finally:
            flow.close()

    async def wait(
        self, task_id: str, timeout: float | None = None, *, new: bool = False, **options: Unpack[ConditionOptions]
    ) -> Waited:
        """As `Shell.wait`."""
        return await self._drive(self._flows.wait(task_id, timeout, new, **options))

    # --- driving flows -------------------------------------------------------------------------

    async def _drive(self, flow: Flow[T]) -> T:
        """Run a flow; returns its result. A cancellation is thrown into the flow."""
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        while True:
            try:
                step = resume(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                value, resume = await self._do(step), flow.send
            except BaseException as error:
                value, resume = error, flow.throw

    async def _do(self, step: Wait | Work) -> Any:
        if isinstance(step, Wait):
            return await step.watch.wait(step.timeout)
        if step.undo is None:
            return await self._asking(step.call)
        return await self._do_or_undo(step.call, step.undo)

    async def _do_or_undo(self, call: Callable[[], T], undo: Callable[[T], None]) -> T:
        """Work in a thread, which cannot be cancelled: if we are, whichever of the two comes last undoes the work.

        Mostly that is the thread, and the cancelled caller waits for it.
        """
        results: list[T] = []
        started: list[bool] = []
        cancelled: list[bool] = []
        finished = threading.Event()

        def work() -> T:
            started.append(True)
            try:
                results.append(call())
                if cancelled:
                    undo(results[0])
                return results[0]
            finally:
                finished.set()

        try:
            return await self._asking(work)
        except asyncio.CancelledError:
            cancelled.append(True)
            if results:
                undo(results[0])
            elif started:
                await asyncio.to_thread(finished.wait, _LAUNCH_WAIT_S)
            raise

    async def kill(self, task_id: str, grace: float | None = None) -> Receipt:
        """As `Shell.kill`."""
        return await self._asking(self._shell.kill, task_id, grace)

    async def check(self, command: str, **how: Any) -> Judgement:
        """As `Shell.check`."""
        return await asyncio.to_thread(self._shell.check, command, **how)

    async def _asking(self, verb: Callable[..., T], *args: Any, **how: Any) -> T:
        """Do in a thread what may have to ask. If we are cancelled, the question is, and nothing is done."""
        if self._questions is None:
            return await asyncio.to_thread(verb, *args, **how)
        with self._questions.from_here():
            return await asyncio.to_thread(verb, *args, **how)

    async def send(self, task_id: str, text: str | bytes = "", *, eof: bool = False) -> None:
        """As `Shell.send`."""
        await asyncio.to_thread(self._shell.send, task_id, text, eof=eof)

    async def send_and_wait(
        self, task_id: str, text: str | bytes = "", timeout: float = 5.0, *, eof: bool = False, until: str | None = None
    ) -> Waited:
        """As `Shell.send_and_wait`."""
        return await self._drive(self._flows.send_and_wait(task_id, text, timeout, eof, until))

    async def show(self, task_id: str) -> Task:
        """As `Shell.show`."""
        return await asyncio.to_thread(self._shell.show, task_id)

    async def list(self, **options: Unpack[ListOptions]) -> list[Task]:
        """As `Shell.list`."""
        return await asyncio.to_thread(self._shell.list, **options)

    async def clean(self, **what: Any) -> int:
        """As `Shell.clean`."""
        return await asyncio.to_thread(self._shell.clean, **what)

    async def remove(self, task: str | Task) -> Task:
        """As `Shell.remove`."""
        return await asyncio.to_thread(self._shell.remove, task)

    def notices(self, name: str, *, from_now: bool = False) -> AsyncGenerator[Notice, None]:
        """Notices for a subscriber of that name, as they come, for ever: see `Shell.subscribe`.

        Each is acknowledged when the next one is asked for; close it to give back the last one.
        """
        from outlast.notices import loop

        return loop.notices(lambda: self._shell.subscribe(name, from_now=from_now))

    async def latest_notices(self, most: int = 100) -> Sequence[Notice]:
        """As `Shell.notices`."""
        return await asyncio.to_thread(self._shell.notices, most)

    def new_notices(self) -> AsyncGenerator[Notice, None]:
        """Notices that come from now on, for ever, whoever else is told of them: nothing is claimed."""
        from outlast.notices import loop

        return loop.new_notices(self._shell.notice_board.new_board)

    def events(self, *, after: int | None = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """As `Shell.events`."""
        from outlast.notices import loop

        return loop.events(lambda: self._shell.notice_board.following(after), follow)

    async def brief(self) -> str:
        """As `Shell.brief`."""
        return await asyncio.to_thread(self._shell.brief)

    @contextmanager
    def _ring(self, task_id: str, ends_only: bool) -> Iterator[Waiter]:
        """Something to wait on until a task changes. It keeps the task from being removed."""
        _note(awaited=task_id)
        # Shared by all who wait for the same: two thousand waiters take four descriptors, not eight thousand.
        key = (task_id, ends_only)
        if key not in self._rings:
            executor = self._shell.executor
            self._rings[key] = Ring(executor.watch(task_id, ends_only), executor.hold(task_id))
        ring = self._rings[key]
        ring.waiters += 1
        try:
            yield Waiter(ring)
        finally:
            ring.waiters -= 1
            if not ring.waiters and self._rings.get(key) is ring:
                del self._rings[key]
                ring.close()


class _Questions:
    """`ask` for a `Shell` that works in a thread: a coroutine is awaited in the loop that the call came from."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        # The thread has a copy of its caller's context, so each call finds what is its own.
        self._asked_from: ContextVar[_From] = ContextVar("asked_from")

    def __call__(self, approval: Approval) -> object:
        asked_from = self._asked_from.get()
        if asked_from.left:
            return "no"
        answer = self._ask(approval)
        if not isawaitable(answer):
            return answer
        future = asyncio.run_coroutine_threadsafe(_awaited(answer), asked_from.loop)
        asked_from.futures.append(future)
        if asked_from.left:
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            return "no"

    @contextmanager
    def from_here(self) -> Iterator[None]:
        asked_from = _From(asyncio.get_running_loop())
        token = self._asked_from.set(asked_from)
        try:
            yield
        finally:
            self._asked_from.reset(token)
            asked_from.left = True
            for future in asked_from.futures:
                future.cancel()


class _From:
    """Who asks: the loop, what is asked, and whether anybody still waits for the answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.futures: list[Future[object]] = []
        self.left = False


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


def _note(**seen: str) -> None:
    if (noting := attention.get()) is not None:
        for name, task_id in seen.items():
            setattr(noting, name, task_id)
