"""Waiting for any task of a state directory in an event loop: no thread is held."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.notices.house import HouseWatch


async def changed(watch: HouseWatch, patience: float | None = None) -> None:
    """As `HouseWatch.wait`."""
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
