"""The notices of a session as a resource, `outlast://notices`: who subscribes to it is told when there is a new one.

Reading it claims nothing: it shows the latest, whoever was told of them. The model itself
learns of each once, behind a reply of one of its tools.
"""

from __future__ import annotations

from contextlib import aclosing, suppress

import mcp_types as wire

from outlast.errors import OutlastError
from outlast.notices import loop
from outlast.notices.words import HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outlast.mcp.clients import ConnectedClient

URI = "outlast://notices"
_LATEST = 50


async def read(client: ConnectedClient) -> wire.ReadResourceResult:
    """The latest notices, each with its number and its code."""
    latest = await client.shell.notices(_LATEST)
    text = "\n".join([HEADER, *map(str, latest)]) if latest else "No notices."
    return wire.ReadResourceResult(
        contents=[wire.TextResourceContents(uri=URI, mime_type="text/plain", text=f"{text}\n")]
    )


async def tell(client: ConnectedClient, told: Callable[[], Awaitable[None]]) -> None:
    """Tell of each new notice. Of none twice while this server lives; another one begins with what is new then."""
    with suppress(OutlastError):
        async with aclosing(loop.new_notices(client.shell.plain.notice_board.new_board)) as coming:
            async for _ in coming:
                await told()
