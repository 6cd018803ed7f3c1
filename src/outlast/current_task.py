"""Which task we are inside of: as one of its processes, or as an agent that runs as a coroutine in this one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import ContextVar

TASK_ID = "OUTLAST_TASK_ID"

# A coroutine has no environment of its own. Threads that it has work done in get a copy of its context.
_agent: list[ContextVar[str]] = []  # made for the first one: most processes run none


def begin(task_id: str) -> None:
    """From here on, and in all that is begun from here, we are this agent."""
    if not _agent:
        from contextvars import ContextVar

        _agent.append(ContextVar("agent", default=""))
    _agent[0].set(task_id)


def task(environ: Mapping[str, str]) -> str:
    """The id of the task that what is started now is started from inside of."""
    return (_agent[0].get() if _agent else "") or environ.get(TASK_ID, "")
