"""What changes, told to viewers: by event, gathered for a moment so that a storm of changes is one message.

Only what the kernel does not signal is looked at by the clock: how much a process tree uses, what a clean-up of another
process removed, and tasks on other machines; every two seconds, and only while there is a viewer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, suppress

from outlast.errors import OutlastError
from outlast.light import fields
from outlast.notices.async_streams import wait_for_change
from outlast.shell.flows import Open
from outlast.web.catalogue import Catalogue
from outlast.web.output_view import OutputView
from outlast.web.usage import Usage, last_line
from outlast.web.viewers import Channel, Viewer, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from outlast.notices.notice_store import NoticeStore
    from outlast.notices.watcher import StateWatcher
    from outlast.shell.async_shell import AsyncShell
    from outlast.types import Task

_GATHER_S = 0.2  # between two messages about tasks
_LINES_S = 0.05  # between two messages about the lines of one task
_USAGE_S = 2.0
_MOST_LOOKED_AT = 200  # running tasks whose use is measured: the newest
_MOST_CHANGED = 100  # tasks in one message; of more, the viewer loads what it shows
_MOST_VIEWS = 32  # outputs whose index is kept


class Live:
    """The tasks of one state directory as viewers see them."""

    def __init__(self, shell: AsyncShell) -> None:
        self.shell, self.plain = shell, shell.plain
        self.catalogue, self.usage = Catalogue(self.plain), Usage(self.plain)
        self.overview = Channel()
        self.loaded = asyncio.Event()
        self._followers: dict[str, Follower] = {}
        self._views: dict[str, OutputView] = {}
        self._one_at_a_time = threading.Lock()
        self._viewed = asyncio.Event()

    async def run(self) -> None:
        """Watch until we are cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._measure())
            group.create_task(self._look_elsewhere())

    # --- tasks -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        board = await asyncio.to_thread(self.plain.notice_board.new_board)
        watch = board.watch()
        try:
            event = await asyncio.to_thread(board.outbox.last_event)
            notice = await asyncio.to_thread(board.outbox.last_notice)
            await asyncio.to_thread(self.catalogue.load)
            self.loaded.set()
            while True:
                event, notice, is_idle = await self._look(board, watch, event, notice)
                if is_idle:
                    await wait_for_change(watch)
                else:
                    await asyncio.sleep(_GATHER_S)
        finally:
            watch.close()
            board.close()

    async def _look(self, board: NoticeStore, watch: StateWatcher, event: int, notice: int) -> tuple[int, int, bool]:
        """Tell what happened behind these numbers; return the new ones, and whether nothing did."""
        try:
            watch.arm()
            watch.watch_gathered(await asyncio.to_thread(board.gather))
            events = await asyncio.to_thread(board.events, event)
            notices = await asyncio.to_thread(board.behind, notice)
        except (OSError, OutlastError):  # a full disk, or no descriptor left: what is there is told when it works again
            return event, notice, False
        await self.announce({one.task_id for one in events if one.task_id})
        for one in notices:
            self.overview.send("notice", fields(one))
        latest = events[-1].number if events else event
        return latest, notices[-1].number if notices else notice, not events and not notices

    async def announce(self, task_ids: set[str]) -> None:
        """Look at these tasks again, and tell the viewers how they are."""
        if not task_ids:
            return
        tasks, gone = await asyncio.to_thread(self.catalogue.refresh, task_ids)
        for task_id in gone:
            self._views.pop(task_id, None)
        for task in tasks:
            if (parent := self.catalogue.get(task.parent)) is not None and not parent.is_over:
                self._followers_changed(parent.task_id)
        if not self.overview.viewers:
            return
        if len(tasks) > _MOST_CHANGED:
            self.overview.send("tasks", {"changed": [], "removed": gone, "reload": True})
        else:
            shown = await asyncio.to_thread(lambda: [self.show(task) for task in tasks])
            self.overview.send("tasks", {"changed": shown, "removed": gone})

    @property
    def has_viewers(self) -> bool:
        return bool(self.overview.viewers or self._followers)

    def kept_bytes(self) -> int:
        """Return the bytes that all tasks take or have reserved. It reads the index: call it in a thread."""
        return self.plain.executor.registry.index.kept_bytes()

    def _followers_changed(self, task_id: str) -> None:
        if (follower := self._followers.get(task_id)) is not None:
            follower.look_again()

    def show(self, task: Task) -> dict[str, Any]:
        """Return a task as the page gets it. It may read a file: call it in a thread."""
        nothing = dict.fromkeys(("cpu", "memory", "activity"))
        now = {**nothing, **self.usage.latest.get(task.task_id, {})} if task.status == "running" else nothing
        started = self.catalogue.started_in(task.task_id)
        # Of one that is over the page says how it ended: 10,000 outputs are not opened for a list.
        line = last_line(self.plain, task.task_id) if task.status == "running" else None
        return {**task.to_dict(), **now, "last_line": line, "children_tasks": started}

    # --- what they use ---------------------------------------------------------------------

    async def _measure(self) -> None:
        await self.loaded.wait()
        while True:
            await self._viewed.wait()
            began = time.monotonic()
            try:
                await self._look_at_usage()
            except (OSError, OutlastError):
                pass  # no descriptor left: the next look may have one
            # Never more than a tenth of a core.
            await asyncio.sleep(max(_USAGE_S, 10 * (time.monotonic() - began)))

    async def _look_at_usage(self) -> None:
        running = self.catalogue.running()
        found = await asyncio.to_thread(self.usage.look, running[:_MOST_LOOKED_AT])
        gone = await asyncio.to_thread(self.catalogue.find_removed)
        await self.announce({*gone, *self.catalogue.list_unsettled()[:_MOST_CHANGED]})
        self.overview.send("usage", {"now": time.time(), "tasks": found}, replaces=True)

    async def _look_elsewhere(self) -> None:
        """Bring tasks on other machines up to date, which ring no bell here."""
        while True:
            await self._viewed.wait()
            began = time.monotonic()
            try:
                await asyncio.to_thread(self.plain.executor.refresh)
            except (OSError, OutlastError):
                pass  # a machine that does not answer is said with its tasks
            await asyncio.sleep(max(_USAGE_S, time.monotonic() - began))

    # --- viewers ---------------------------------------------------------------------------

    @asynccontextmanager
    async def viewer(self, channel: Channel) -> AsyncIterator[Viewer]:
        """Open a viewer of a channel."""
        one = Viewer()
        channel.viewers.add(one)
        self._viewed.set()
        try:
            yield one
        finally:
            channel.viewers.discard(one)
            if not self.has_viewers:
                self._viewed.clear()

    @asynccontextmanager
    async def follower(self, task_id: str) -> AsyncIterator[Viewer]:
        """Open a viewer of one task; all of its viewers share what watches it."""
        follower = self._followers.get(task_id)
        if follower is None:
            follower = self._followers[task_id] = Follower(self, task_id)
        try:
            async with self.viewer(follower.channel) as one:
                await follower.greet(one)
                yield one
        finally:
            if not follower.channel.viewers and self._followers.get(task_id) is follower:
                del self._followers[task_id]
                follower.close()

    def view(self, task: Task) -> OutputView:
        """Return the output of a task; the index of one that was looked at lately is kept."""
        with self._one_at_a_time:  # threads ask
            found = self._views.pop(task.task_id, None) or OutputView(self.plain, task)
            self._views[task.task_id] = found
            while len(self._views) > _MOST_VIEWS:
                del self._views[next(iter(self._views))]
        return found


class Follower:
    """Watches one task for those who look at it."""

    def __init__(self, live: Live, task_id: str) -> None:
        self.channel = Channel()
        self._live, self._task_id = live, task_id
        self._again = asyncio.Event()
        self._work = asyncio.create_task(self._run())

    def close(self) -> None:
        self._work.cancel()

    def look_again(self) -> None:
        self._again.set()

    async def greet(self, viewer: Viewer) -> None:
        """Tell a viewer how things stand: it may have come late."""
        task, lines, _ = await asyncio.to_thread(self._look)
        viewer.send("task", encode("task", task), replaces=True)
        viewer.send("lines", encode("lines", lines), replaces=True)
        if task["tty"] and task["status"] != "pending":
            screen = await asyncio.to_thread(self._live.plain.screen, self._task_id)
            viewer.send("screen", encode("screen", screen.to_page()), replaces=True)
        if self._work.done():
            viewer.send("end", encode("end", task))
            viewer.finish()

    def _look(self) -> tuple[dict[str, Any], dict[str, Any], bool]:
        task = self._live.plain.show(self._task_id)
        total, closed = self._live.view(task).count(), task.closed
        return self._live.show(task), {"total": total, "complete": closed}, closed

    async def _run(self) -> None:
        with suppress(OutlastError, OSError):  # it was removed
            await self._follow()
        for viewer in self.channel.viewers:
            viewer.finish()

    async def _follow(self) -> None:
        known: tuple[Any, ...] = ()
        with await self._live.shell.driver.open(Open(self._task_id)) as waiter:
            while True:
                waiter.arm()
                self._again.clear()
                task, lines, is_closed = await asyncio.to_thread(self._look)
                if known != (now := (task["status"], task["children"], tuple(task["children_tasks"]), task["closed"])):
                    known = now
                    self.channel.send("task", task, replaces=True)
                self.channel.send("lines", lines, replaces=True)
                if task["tty"] and self.channel.viewers:
                    screen = await asyncio.to_thread(self._live.plain.screen, self._task_id)
                    self.channel.send("screen", screen.to_page(), replaces=True)
                if is_closed:
                    self.channel.send("end", task)
                    return
                told_at = time.monotonic()
                again = asyncio.ensure_future(self._again.wait())
                change = asyncio.ensure_future(waiter.wait(None))
                try:
                    await asyncio.wait({again, change}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    again.cancel()
                    change.cancel()
                await asyncio.sleep(told_at + _LINES_S - time.monotonic())  # at once, if nothing was told just now
