"""Notices and events in an event loop: waiting holds no thread, and what takes a moment is done in one."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from outlast.notices.event_stream import EventStream
    from outlast.notices.notice import Event, Notice
    from outlast.notices.notice_store import NoticeStore
    from outlast.notices.subscription import Subscription
    from outlast.notices.watcher import StateWatcher


async def notices(opened: Callable[[], Subscription]) -> AsyncGenerator[Notice, None]:
    """A subscriber's notices as they come. Each is acknowledged when the next one is asked for."""
    subscription = await asyncio.to_thread(opened)
    try:
        while True:
            taken = await asyncio.to_thread(subscription.take)
            for notice in taken:
                yield notice
                await asyncio.to_thread(subscription.acknowledge, notice)
            if not taken:
                await wait_for_change(subscription.listening)
    finally:
        await asyncio.shield(asyncio.to_thread(subscription.close))


async def new_notices(opened: Callable[[], NoticeStore], last: int) -> AsyncGenerator[Notice, None]:
    """Yield the notices after the number `last`, as they come. Nothing is claimed."""
    board = await asyncio.to_thread(opened)
    watch = board.watch()
    try:
        while True:
            watch.arm()
            watch.watch_gathered(await asyncio.to_thread(board.gather))
            new = await asyncio.to_thread(board.behind, last)
            for notice in new:
                last = notice.number
                yield notice
            if not new:
                await wait_for_change(watch)
    finally:
        watch.close()
        board.close()


async def events(opened: Callable[[], EventStream], follow: bool) -> AsyncGenerator[Event, None]:
    """What happened, and with `follow` what happens."""
    following = await asyncio.to_thread(opened)
    try:
        while (some := await asyncio.to_thread(following.look)) or follow:
            for event in some:
                yield event
            if not some:
                await wait_for_change(following.watch)
    finally:
        await asyncio.shield(asyncio.to_thread(following.close))


async def wait_for_change(watch: StateWatcher, patience: float | None = None) -> None:
    """As `StateWatcher.wait`."""
    loop = asyncio.get_running_loop()
    change: asyncio.Future[None] = loop.create_future()

    def ring() -> None:
        if not change.done():
            change.set_result(None)

    fds = watch.fds
    for fd in fds:
        loop.add_reader(fd, ring)
    try:
        await asyncio.wait({change}, timeout=watch.patience(patience))
    finally:
        for fd in fds:
            loop.remove_reader(fd)
