"""Drives the flows of a shell in an event loop: waiting holds no thread, and what may block is done in one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from inspect import isawaitable

from outlast.errors import OutlastError
from outlast.shell.context import SYSTEM_ERRORS
from outlast.shell.flows import Step, yield_result
from outlast.shell.options import OptionCheck
from outlast.storage.task_directory import Hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from typing import Any, Concatenate, ParamSpec, TypeVar

    from outlast.policy.approval import Approval
    from outlast.shell.flows import Flow, Open, Work
    from outlast.shell.gate import Ask
    from outlast.shell.shell import Shell
    from outlast.storage.watch import Watch

    P = ParamSpec("P")
    T = TypeVar("T")

_LAUNCH_WAIT_S = 5.0  # a thread launches a command within milliseconds, unless the machine is overloaded


class CallTracker:
    """The task that the calls of one context launched last, and the one that they wait for: for progress reports."""

    launched = ""
    awaited = ""


tracker: ContextVar[CallTracker | None] = ContextVar("tracker", default=None)


def track(**task_ids: str) -> None:
    """Note for the caller which task a call launched or waits for."""
    if (current := tracker.get()) is not None:
        for name, task_id in task_ids.items():
            setattr(current, name, task_id)


class LoopDriver:
    """Does the steps of flows in an event loop, and calls in threads what may block or ask."""

    def __init__(self, shell: Shell, questions: Questions | None) -> None:
        self._context, self._executor, self._questions = shell.context, shell.executor, questions
        self.watches: dict[tuple[str, bool], LoopWatch] = {}

    def close(self) -> None:
        while self.watches:
            self.watches.popitem()[1].close()

    async def call(self, method: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call in a thread what may block or ask. If we are cancelled, a question is too, and nothing is done."""
        with self._questions.from_here() if self._questions else nullcontext():
            return await asyncio.to_thread(method, *args, **options)

    async def drive(self, flow: Flow[T]) -> T:
        """Run a flow; returns its result. A cancellation is thrown into the flow."""
        result: T
        (result,) = [one async for one in self.stream(yield_result(flow))]
        return result

    async def stream(self, flow: Flow[Any]) -> AsyncGenerator[Any, None]:
        """Run a flow; yields what it yields besides steps."""
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        try:
            while True:
                try:
                    step = resume(value)
                except StopIteration:
                    return
                except SYSTEM_ERRORS as error:
                    self._context.raise_translated(error)
                value, resume = None, flow.send
                if not isinstance(step, Step):
                    yield step
                    continue
                try:
                    value = await step.do(self)
                except BaseException as error:
                    value, resume = error, flow.throw
        finally:
            flow.close()

    async def work(self, work: Work) -> Any:
        def call() -> Any:
            result = work.call()
            # In the thread: if we are cancelled, a launch that succeeded must be known all the same.
            if work.launches:
                track(launched=result[0].task_id)
            return result

        return await (self.call(call) if work.undo is None else self._do_or_undo(call, work.undo))

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
            return await self.call(work)
        except asyncio.CancelledError:
            cancelled.append(True)
            if results:
                undo(results[0])
            elif started:
                await asyncio.to_thread(finished.wait, _LAUNCH_WAIT_S)
            raise

    async def open(self, step: Open) -> AbstractContextManager[_Waiter]:
        track(awaited=step.task_id)
        return self._open(step.task_id, step.ends_only)

    @contextmanager
    def _open(self, task_id: str, ends_only: bool) -> Iterator[_Waiter]:
        """Open something to wait on until a task changes. It keeps the task from being removed."""
        # Shared by all that wait for the same: two thousand waiters take four descriptors, not eight thousand.
        key = (task_id, ends_only)
        if key not in self.watches:
            hold = Hold().take(self._executor.registry.home.task(task_id))
            self.watches[key] = LoopWatch(self._executor.watch(task_id, ends_only), hold)
        watch = self.watches[key]
        watch.waiters += 1
        try:
            yield _Waiter(watch)
        finally:
            watch.waiters -= 1
            if not watch.waiters and self.watches.get(key) is watch:
                del self.watches[key]
                watch.close()


def in_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method for asyncio that calls this one of `self.plain` in a thread."""
    check = OptionCheck(method, f"Async{method.__qualname__}")

    @wraps(method)
    async def call_in_thread(self: Any, *args: P.args, **options: P.kwargs) -> T:
        check(options)
        return await self.driver.call(getattr(self.plain, method.__name__), *args, **options)  # type: ignore[no-any-return]

    return call_in_thread  # type: ignore[return-value]


def in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method for asyncio: this one of the shell `self.in_loop`."""
    check = OptionCheck(method, f"Async{method.__qualname__}")

    @wraps(method)
    async def call_in_loop(self: Any, *args: P.args, **options: P.kwargs) -> T:
        check(options)
        return await method(self.in_loop, *args, **options)  # type: ignore[misc,no-any-return]

    return call_in_loop  # type: ignore[return-value]


class _Waiter:
    """One coroutine's use of a `LoopWatch`: arm it, look at the task, wait."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch
        self._change: asyncio.Future[None] | None = None

    def arm(self) -> bool:
        self._change = self._watch.next_change()
        return True

    async def wait(self, timeout: float | None) -> bool:
        """Wait for a change after `arm`; False if the timeout came first."""
        assert self._change is not None
        done, _ = await asyncio.wait({self._change}, timeout=timeout)
        return bool(done)


class LoopWatch:
    """A `Watch` in the event loop: hands every waiter the same future, once for each change."""

    def __init__(self, watch: Watch, hold: Hold) -> None:
        self.waiters = 0
        self._watch, self._hold = watch, hold
        self._loop = asyncio.get_running_loop()
        self._change: asyncio.Future[None] | None = None
        self._watched: tuple[int, ...] = ()
        self._closed = False

    def next_change(self) -> asyncio.Future[None]:
        """Return what is done when anything changed after this call. Look at the task after it."""
        if self._closed:
            raise OutlastError("The shell was closed during a wait; the task goes on, open another shell to wait.")
        if self._change is None:
            self._watch.arm()
            self._change = self._loop.create_future()
            self._watched = self._watch.fds
            for fd in self._watched:
                self._loop.add_reader(fd, self._note_change)
            if self._watch.look_again_s is not None:
                self._loop.call_later(self._watch.look_again_s, self._note_change)
        return self._change

    def _note_change(self) -> None:
        change, self._change = self._change, None
        for fd in self._watched:
            self._loop.remove_reader(fd)
        self._watched = ()
        if change is not None and not change.done():
            change.set_result(None)

    def close(self) -> None:
        self._closed = True
        self._note_change()
        self._watch.close()
        self._hold.close()


class Questions:
    """`ask` for a `Shell` that works in a thread: a coroutine is awaited in the loop that the call came from."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        # The thread has a copy of its caller's context, so each call finds what is its own.
        self._asked_from: ContextVar[_AskContext] = ContextVar("asked_from")

    def __call__(self, approval: Approval) -> object:
        asked_from = self._asked_from.get()
        if asked_from.left:
            return "no"
        answer = self._ask(approval)
        if not isawaitable(answer):
            return answer
        future = asyncio.run_coroutine_threadsafe(_await(answer), asked_from.loop)
        asked_from.futures.append(future)
        if asked_from.left:
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            return "no"

    @contextmanager
    def from_here(self) -> Iterator[None]:
        asked_from = _AskContext(asyncio.get_running_loop())
        token = self._asked_from.set(asked_from)
        try:
            yield
        finally:
            self._asked_from.reset(token)
            asked_from.left = True
            for future in asked_from.futures:
                future.cancel()


class _AskContext:
    """Where a question comes from: the loop, the questions, and whether the call has been left."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.futures: list[Future[object]] = []
        self.left = False


async def _await(answer: Awaitable[object]) -> object:
    return await answer
