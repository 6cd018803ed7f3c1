"""`outlast mcp`: one client, at the other end of standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from outlast.environment import TASK_ID
from outlast.linux import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.mcp.options import Options

_GENERATIONS = 20  # of processes that are looked through for the task that we run in


def serve(options: Options) -> int:
    """Serve until the client closes our input. Tasks go on."""
    from mcp.server.stdio import stdio_server

    from outlast.mcp.server import build

    adopt_parent_task()
    if sys.stdin.isatty():
        print("outlast: an MCP client is awaited on standard input; Ctrl-C ends this.", file=sys.stderr, flush=True)

    # A thread that waits for a line cannot be interrupted, so Ctrl-C ends the process. Tasks go on, and the kernel
    # releases our locks.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def talk() -> None:
        server = build(options, shared=False)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options(extensions={}))

    asyncio.run(talk())
    return 0


def adopt_parent_task() -> None:
    """Set the variable that names the task which our client runs in: some start a server with few of their variables.

    So what an agent starts through us is known as its own, and is ended with it.
    """
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        if TASK_ID in os.environ or pid <= 1:
            return
        for variable in process.environment(pid):
            name, _, value = variable.partition(b"=")
            if name == TASK_ID.encode() and value:
                os.environ[TASK_ID] = os.fsdecode(value)
        stat = process.stat_of(pid)
        pid = stat.parent if stat else 0
