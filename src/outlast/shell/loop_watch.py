"""Waits for a task in an event loop, without a thread."""

from __future__ import annotations

import asyncio

from outlast.errors import OutlastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.task_directory import Hold
    from outlast.storage.watch import Watch


class Waiter:
    """One coroutine's use of a `Ring`: arm it, look at the task, wait."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._change: asyncio.Future[None] | None = None

    def arm(self) -> bool:
        self._change = self._ring.next_change()
        return True

    async def wait(self, timeout: float | None) -> bool:
        """Wait for a change after `arm`; False if the timeout came first."""
        assert self._change is not None
        done, _ = await asyncio.wait({self._change}, timeout=timeout)
        return bool(done)


class Ring:
    """A `Watch` in the event loop: hands every waiter the same future, once for each change."""

    def __init__(self, watch: Watch, hold: Hold) -> None:
        self.waiters = 0
        self._watch, self._hold = watch, hold
        self._loop = asyncio.get_running_loop()
        self._change: asyncio.Future[None] | None = None
        self._watched: tuple[int, ...] = ()
        self._closed = False

    def next_change(self) -> asyncio.Future[None]:
        """Done when anything changed after this call. Look at the task after it."""
        if self._closed:
            raise OutlastError("The shell was closed while somebody waited; the task goes on, open another to wait.")
        if self._change is None:
            self._watch.arm()
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
