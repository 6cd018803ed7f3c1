"""`AsyncShell`: `Shell` for asyncio, thin.

Waiting holds no thread: the descriptors of a `Watch` go into the event loop, so a
thousand coroutines can wait in one process. What takes a millisecond or two (start,
read, list) is done in the loop's thread pool.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager

from outlast import asking
from outlast.errors import OutlastError
from outlast.model import STREAMS
from outlast.shell import Shell
from outlast.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType
    from typing import Any

    from outlast.model import Cursor, Receipt, Result, Slice, Task
    from outlast.watch import Watch


class AsyncShell:
    """Commands of one session in one state directory. Use `AsyncShell.open` in `async with`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._rings: dict[tuple[str, bool], _Ring] = {}

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | None = None,
        *,
        operator: bool = False,
    ) -> AsyncShell:
        """As `Shell.open`."""
        return cls(Shell.open(home, session, policy, operator=operator))

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
    def session(self) -> str:
        return self._shell.session

    async def start(self, command: str, **how: Any) -> Task:
        """As `Shell.start`."""
        return await asyncio.to_thread(self._shell.start, command, **how)

    async def run(
        self, command: str, *, wait: float | None = None, on_output: Callable[[Slice], None] | None = None, **how: Any
    ) -> Result:
        """As `Shell.run`. If the coroutine is cancelled, the task goes on in the background."""
        patience = self._shell.patience(wait, how.get("limit"))
        task = await self._begin(command, how)
        try:
            if on_output is None:
                await self._await_end(task.task_id, patience.seconds)
            else:
                async for piece in self.follow(task.task_id, timeout=patience.seconds, to_end_of="command"):
                    on_output(piece)
        except BaseException:
            self._shell.release(task.task_id)
            raise
        if patience.then_end and not self._shell.executor.has_ended(task.task_id):
            await asyncio.to_thread(self._shell.end_for_limit, task.task_id)
        self._shell.release(task.task_id)
        return await self.read(task.task_id)

    async def _begin(self, command: str, how: dict[str, Any]) -> Task:
        """As `Shell.begin`. The thread cannot be cancelled: whoever of the two comes last lets the task go."""
        begun: list[Task] = []
        given_up: list[bool] = []

        def begin() -> Task:
            begun.append(self._shell.begin(command, **how))
            if given_up:
                self._shell.release(begun[0].task_id)
            return begun[0]

        try:
            return await asyncio.to_thread(begin)
        except asyncio.CancelledError:
            given_up.append(True)
            if begun:
                self._shell.release(begun[0].task_id)
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
    ) -> AsyncIterator[Slice]:
        """As `Shell.follow`."""
        task = await self.show(task_id)
        place = asking.cursor(cursor)
        at = {stream: place.at(stream) for stream in (STREAMS if task.split else STREAMS[:1])}
        executor = self._shell.executor
        over = executor.is_closed if to_end_of == "output" else executor.has_ended
        deadline = Deadline(timeout)
        with self._ring(task.task_id) as ring:
            while True:
                change = ring.next_change()
                ended = over(task.task_id)
                for piece in self._shell.fresh(task.task_id, at):
                    yield piece
                if ended or deadline.over or not await _within(change, deadline):
                    return

    async def wait(self, task_id: str, timeout: float | None = None) -> Task:
        """As `Shell.wait`."""
        task = await self.show(task_id)
        await self._await_end(task.task_id, asking.seconds("timeout", timeout))
        return await self.show(task.task_id)

    async def _await_end(self, task_id: str, patience: float | None) -> bool:
        deadline = Deadline(patience)
        with self._ring(task_id, ends_only=True) as ring:
            while True:
                change = ring.next_change()
                if self._shell.executor.has_ended(task_id):
                    return True
                if not await _within(change, deadline):
                    return self._shell.executor.has_ended(task_id)

    async def kill(self, task_id: str, grace: float | None = None) -> Receipt:
        """As `Shell.kill`."""
        return await asyncio.to_thread(self._shell.kill, task_id, grace)

    async def send(self, task_id: str, text: str | bytes = "", *, eof: bool = False) -> None:
        """As `Shell.send`."""
        await asyncio.to_thread(self._shell.send, task_id, text, eof=eof)

    async def show(self, task_id: str) -> Task:
        """As `Shell.show`."""
        return await asyncio.to_thread(self._shell.show, task_id)

    async def list(self, *, status: str | None = None, kind: str | None = None) -> list[Task]:
        """As `Shell.list`."""
        return await asyncio.to_thread(self._shell.list, status=status, kind=kind)

    async def clean(self, **what: Any) -> int:
        """As `Shell.clean`."""
        return await asyncio.to_thread(self._shell.clean, **what)

    @contextmanager
    def _ring(self, task_id: str, ends_only: bool = False) -> Iterator[_Ring]:
        # One for all who wait for the same: two thousand waiters take four descriptors, not eight thousand.
        key = (task_id, ends_only)
        if key not in self._rings:
            self._rings[key] = _Ring(self._shell.executor.watch(task_id), ends_only)
        ring = self._rings[key]
        ring.waiters += 1
        try:
            yield ring
        finally:
            ring.waiters -= 1
            if not ring.waiters and self._rings.get(key) is ring:
                del self._rings[key]
                ring.close()


async def _within(change: asyncio.Future[None], deadline: Deadline) -> bool:
    """Wait for a change; False if the deadline came first."""
    done, _ = await asyncio.wait({change}, timeout=deadline.left())
    return bool(done)


class _Ring:
    """A `Watch` in the event loop: hands every waiter the same future, once for each change."""

    def __init__(self, watch: Watch, ends_only: bool) -> None:
        self.waiters = 0
        self._watch, self._ends_only = watch, ends_only
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
