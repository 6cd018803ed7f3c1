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

from outlast import asking, conditions
from outlast.errors import OutlastError
from outlast.shell import Patience, Shell, refuse_to_wait, shorter
from outlast.storage.locks import Hold
from outlast.types import STREAMS
from outlast.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Any, TypeVar

    from outlast.aioagents import AsyncAgents
    from outlast.conditions import Condition, UnderWay
    from outlast.gate import Ask
    from outlast.permissions import Mode, Policy
    from outlast.permissions.approval import Approval
    from outlast.permissions.judge import Judgement
    from outlast.shell import Patience
    from outlast.types import Cursor, Event, Notice, Receipt, Result, Sandbox, Slice, Task, Waited
    from outlast.watch import Watch

    T = TypeVar("T")

_LAUNCHES_S = 5.0  # what a thread takes to have launched a command, and much more


class Attention:
    """The task that the calls of one context launched last, and the one they wait for: for those who tell of it."""

    launched = ""
    awaited = ""


attention: ContextVar[Attention | None] = ContextVar("attention", default=None)


class AsyncShell:
    """Commands of one session in one state directory. Use `AsyncShell.open` in `async with`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._rings: dict[tuple[str, bool], _Ring] = {}
        self._warming: asyncio.Future[None] | None = None
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
        early: bool = True,
    ) -> AsyncShell:
        """As `Shell.open`; `ask` may be a coroutine function."""
        questions = _Questions(ask) if ask is not None else None
        how: dict[str, Any] = {"operator": operator, "sandbox": sandbox, "defaults": defaults, "cwd": cwd}
        opened = cls(Shell.open(home, session, policy, mode=mode, ask=questions, early=early, **how))
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
        if self._warming is not None:
            await asyncio.wait({self._warming})
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
        from outlast.aioagents import AsyncAgents  # most shells run none

        return AsyncAgents(self._shell.agent, self._asking, _note)

    async def start(self, command: str, **how: Any) -> Task:
        """As `Shell.start`."""
        startup = self._shell.startup(how.pop("startup_wait", None), how.pop("ready", None))
        task = await self._asking(self._shell.start, command, **how)
        _note(launched=task.task_id)
        return task if startup is None else await self._await(task.task_id, startup.condition, startup.seconds)

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
        show: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Result:
        """As `Shell.run`. If the coroutine is cancelled, the task goes on in the background."""
        if how.get("startup_wait") is not None or how.get("ready") is not None:
            refuse_to_wait(wait, on_output)
            with Hold() as hold:
                return await self.read((await self.start(command, hold=hold, **how)).task_id, **(show or {}))
        patience = self._shell.patience(wait, how.get("limit"))
        with Hold() as hold:
            task, ours = await self._launch(command, {**how, "hold": hold})
            try:
                if task.status == "pending":
                    patience = await self._once_begun(task.task_id, patience, wait)
                leave = self._shell.leaving(command, auto_background)
                ended = await self._attend(task.task_id, patience, on_output, leave)
            except BaseException:
                self._shell.release(task.task_id, ours)
                raise
            if not ended:
                if ours and patience.then_end and not (leave and leave.met):
                    await asyncio.to_thread(self._shell.end_for_limit, task.task_id)
                self._shell.release(task.task_id, ours)
            result = await self.read(task.task_id, **(show or {}))
        if self._shell.is_cold:
            # Aside: whoever asked has the answer meanwhile, and the next command takes what is prepared by then.
            self._warming = asyncio.get_running_loop().run_in_executor(None, self._shell.warm_up)
        return result

    async def _attend(
        self, task_id: str, patience: Patience, on_output: Callable[[Slice], None] | None, leave: UnderWay | None
    ) -> bool:
        """Wait for a foreground command; whether it has ended."""
        if on_output is not None:
            pieces = self.follow(task_id, timeout=patience.seconds, to_end_of="command", leave=leave)
            async for piece in pieces:
                on_output(piece)
        elif leave is None:
            return await self._await_end(task_id, patience.seconds)
        else:
            await self._await_condition(task_id, leave, Deadline(patience.seconds))
        return self._shell.executor.has_ended(task_id)

    async def _once_begun(self, task_id: str, patience: Patience, wait: float | None) -> Patience:
        """As `Shell` does it."""
        if self._shell.executor.has_begun(task_id):
            return patience
        deadline = Deadline(self._shell.settings.max_wait_s if wait is None else patience.seconds)
        begun = await self._until(task_id, self._shell.executor.has_begun, deadline, ends_only=False)
        if patience.then_end and begun:
            return patience
        return Patience(deadline.left() or 0.0, then_end=False)

    async def _launch(self, command: str, how: dict[str, Any]) -> tuple[Task, bool]:
        """As `Shell.launch`. The thread cannot be cancelled: whoever of the two comes last lets the task go.

        Mostly that is the thread, and whoever cancelled us learns of it when that is done.
        """
        begun: list[tuple[Task, bool]] = []
        under_way: list[bool] = []
        given_up: list[bool] = []
        finished = threading.Event()

        def release() -> None:
            task, ours = begun[0]
            self._shell.release(task.task_id, ours)

        def launch() -> tuple[Task, bool]:
            under_way.append(True)
            try:
                begun.append(self._shell.launch(command, background=False, keeps=True, **how))
                _note(launched=begun[0][0].task_id)  # also for those who were cancelled meanwhile
                if given_up:
                    release()
                return begun[0]
            finally:
                finished.set()

        try:
            return await self._asking(launch)
        except asyncio.CancelledError:
            given_up.append(True)
            if begun:
                release()
            elif under_way:
                await asyncio.to_thread(finished.wait, _LAUNCHES_S)
            raise

    async def read(self, task_id: str, **what: Any) -> Result:
        """As `Shell.read`."""
        return await asyncio.to_thread(self._shell.read, task_id, **what)

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
        task = await self.show(task_id)
        place = asking.cursor(cursor)
        at = {stream: place.at(stream) for stream in (STREAMS if task.split else STREAMS[:1])}
        live = await asyncio.to_thread(self._shell.live, task, at, raw)
        executor = self._shell.executor
        over = executor.is_closed if to_end_of == "output" else executor.has_ended
        deadline = Deadline(timeout)
        if leave:
            await asyncio.to_thread(self._shell.begin, leave, task.task_id)
        with self._ring(task.task_id) as ring:
            while True:
                change = ring.next_change()
                ended = over(task.task_id)
                left = leave is not None and leave.look(ended)
                for piece in live.take(self._shell.fresh(task.task_id, at)):
                    yield piece
                for piece in live.finish() if ended else ():
                    yield piece
                if ended or left or deadline.over:
                    return
                await _within(change, Deadline(shorter(deadline.left(), leave.patience() if leave else None)))

    async def wait(
        self,
        task_id: str,
        timeout: float | None = None,
        *,
        until: str | None = None,
        port: int | str | None = None,
        url: str | None = None,
        quiet: float | None = None,
        cursor: str | Cursor | None = None,
        new: bool = False,
    ) -> Waited:
        """As `Shell.wait`."""
        patience = asking.seconds("timeout", timeout)
        start = await asyncio.to_thread(self._shell.place_of_reader, task_id) if new and cursor is None else cursor
        condition = conditions.chosen(until=until, port=port, url=url, quiet=quiet, cursor=start)
        task = await self.show(task_id)
        return await self._await(task.task_id, condition, patience)

    async def _await(self, task_id: str, condition: Condition | None, patience: float | None) -> Waited:
        with self._ring(task_id, ends_only=condition is None or not condition.by_output):  # so that nobody removes it
            if condition is None:
                met = await self._await_end(task_id, patience)
            else:
                met = await self._await_condition(task_id, condition, Deadline(patience))
            task = await self.show(task_id)
        return await asyncio.to_thread(self._shell.waited, task, met, condition)

    async def _await_condition(self, task_id: str, condition: Condition, deadline: Deadline) -> bool:
        if not condition.has_begun:
            await asyncio.to_thread(self._shell.begin, condition, task_id)
        with self._ring(task_id, ends_only=not condition.by_output) as ring:
            while True:
                change = ring.next_change()
                # In a thread, because it may read much or ask a server; none is held while nothing happens.
                met, over = await asyncio.to_thread(self._shell.look, condition, task_id, deadline.left())
                if met or over or deadline.over:
                    return met
                await _within(change, Deadline(shorter(deadline.left(), condition.patience())))

    async def _await_end(self, task_id: str, patience: float | None) -> bool:
        return await self._until(task_id, self._shell.executor.has_ended, Deadline(patience), ends_only=True)

    async def _until(self, task_id: str, done: Callable[[str], bool], deadline: Deadline, ends_only: bool) -> bool:
        with self._ring(task_id, ends_only) as ring:
            while True:
                change = ring.next_change()
                if done(task_id):
                    return True
                if not await _within(change, deadline):
                    return done(task_id)

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
        patience = asking.seconds("timeout", timeout)
        condition = await asyncio.to_thread(self._shell.answer_to_input, task_id, until)
        await self.send(task_id, text, eof=eof)
        return await self._await((await self.show(task_id)).task_id, condition, patience)

    async def show(self, task_id: str) -> Task:
        """As `Shell.show`."""
        return await asyncio.to_thread(self._shell.show, task_id)

    async def list(self, *, status: str | None = None, kind: str | None = None, **which: Any) -> list[Task]:
        """As `Shell.list`."""
        return await asyncio.to_thread(self._shell.list, status=status, kind=kind, **which)

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

        return loop.new_notices(self._shell.new_board)

    def events(self, *, after: int | None = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """As `Shell.events`."""
        from outlast.notices import loop

        return loop.events(lambda: self._shell.following(after), follow)

    async def brief(self) -> str:
        """As `Shell.brief`."""
        return await asyncio.to_thread(self._shell.brief)

    @contextmanager
    def _ring(self, task_id: str, ends_only: bool = False) -> Iterator[_Ring]:
        _note(awaited=task_id)
        # One for all who wait for the same: two thousand waiters take four descriptors, not eight thousand.
        key = (task_id, ends_only)
        if key not in self._rings:
            executor = self._shell.executor
            self._rings[key] = _Ring(executor.watch(task_id), executor.hold(task_id), ends_only)
        ring = self._rings[key]
        ring.waiters += 1
        try:
            yield ring
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


async def _within(change: asyncio.Future[None], deadline: Deadline) -> bool:
    """Wait for a change; False if the deadline came first."""
    done, _ = await asyncio.wait({change}, timeout=deadline.left())
    return bool(done)


class _Ring:
    """A `Watch` in the event loop: hands every waiter the same future, once for each change."""

    def __init__(self, watch: Watch, hold: Hold, ends_only: bool) -> None:
        self.waiters = 0
        self._watch, self._hold, self._ends_only = watch, hold, ends_only
        self._loop = asyncio.get_running_loop()
        self._change: asyncio.Future[None] | None = None
        self._watched: tuple[int, ...] = ()
        self._closed = False

    def next_change(self) -> asyncio.Future[None]:
        """Done when anything changed after this call. Look at the task after it."""
        if self._closed:
            raise OutlastError("The shell was closed while somebody waited; the task goes on, open another to wait.")
        if self._change is None:
            self._watch.arm_for_end() if self._ends_only else self._watch.arm()
            self._change = self._loop.create_future()
            self._watched = self._watch.fds
            for fd in self._watched:
                self._loop.add_reader(fd, self._changed)
            if self._watch.look_again_s is not None:
                self._loop.call_later(self._watch.look_again_s, self._changed)
        return self._change

    def _changed(self) -> None:
        change, self._change = self._change, None
        self._unwatch()
        if change is not None and not change.done():
            change.set_result(None)

    def _unwatch(self) -> None:
        for fd in self._watched:
            self._loop.remove_reader(fd)
        self._watched = ()

    def close(self) -> None:
        self._closed = True
        self._changed()
        self._watch.close()
        self._hold.close()
