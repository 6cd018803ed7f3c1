"""`outlast mcp`: one client, at the other end of standard input and output."""

from __future__ import annotations

import asyncio
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.mcp.options import Options


def serve(options: Options) -> int:
    """Serve until the client closes our input. Tasks go on."""
    from mcp.server.stdio import stdio_server

    from outlast.mcp.inside import remember
    from outlast.mcp.server import build

    remember()
    if sys.stdin.isatty():
        print("outlast: an MCP client is awaited on standard input; Ctrl-C ends this.", file=sys.stderr, flush=True)

    # A thread that waits for a line cannot be told to stop, so a Ctrl-C ends us as it would anybody. Tasks go on, and
    # what we hold the kernel lets go of.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def talk() -> None:
        server = build(options, shared=False)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options(extensions={}))

    asyncio.run(talk())
    return 0
