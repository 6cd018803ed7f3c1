"""Which task we are inside of: as one of its processes, or as an agent that runs as a coroutine in this one."""

from __future__ import annotations

from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TASK_ID = "OUTLAST_TASK_ID"

# A coroutine has no environment of its own. Threads that it has work done in get a copy of its context.
agent: ContextVar[str] = ContextVar("agent", default="")


def task(environ: Mapping[str, str]) -> str:
    """The id of the task that what is started now is started from inside of."""
    return agent.get() or environ.get(TASK_ID, "")
