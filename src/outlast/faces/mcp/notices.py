"""The notices of a session as a resource, `outlast://notices`: who subscribes to it is told when there is a new one.

Reading it claims nothing: it shows the latest, whoever was told of them. The model itself
learns of each once, behind a reply of one of its tools.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import mcp_types as wire

from outlast.notices import loop
from outlast.notices.words import HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outlast.faces.mcp.clients import Desk

URI = "outlast://notices"
_LATEST = 50


async def read(desk: Desk) -> wire.ReadResourceResult:
    """The latest notices, each with its number and its code."""
    latest = await desk.shell.notices(_LATEST)
    text = "\n".join([HEADER, *map(str, latest)]) if latest else "No notices."
    return wire.ReadResourceResult(
        contents=[wire.TextResourceContents(uri=URI, mime_type="text/plain", text=f"{text}\n")]
    )


async def find_last_number(desk: Desk) -> int:
    """Return the number of the last notice that there is now."""
    return await asyncio.to_thread(desk.shell.plain.notice_board.last_number)


async def tell(desk: Desk, after: int, told: Callable[[], Awaitable[None]]) -> None:
    """Announce each notice after that number. None twice while this server lives; another one begins with new ones."""
    async with aclosing(loop.new_notices(desk.shell.plain.notice_board.new_board, after)) as coming:
        async for _ in coming:
            await told()
