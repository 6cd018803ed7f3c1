"""Outlast: the shell for AI agents whose commands outlast the agent that ran them.

    from outlast import Shell

    with Shell.open() as shell:
        result = shell.run("make test", limit=600)  # waits; without a limit a command is ended after 120 s
        if result.exit_code:
            print(result.output)
        server = shell.start("npm run dev", ready="Local:")  # goes on when this process ends
        print(server.met, shell.read(server).output)
        shell.wait(server, timeout=60, port=5173)
        shell.kill(server)

Shells: `Shell`, and `AsyncShell` with the same methods for asyncio. What they return and take: `Task`, `Result`,
`Waited`, `Receipt`, `Slice`, `Cursor`, `Stdin`, `Sandbox`, `Limits`, `Notify`, `Policy`, `Approval`, `Notice`, `Event`,
`SessionState`, `Screen`.
What they raise: `OutlastError` and, below it, one class for each `code`, such as `BadInput` and `UnknownTask`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.errors import (
        AlreadyEnded,
        AmbiguousTask,
        BadInput,
        BadPattern,
        DamagedTask,
        InputRefused,
        NeedsApproval,
        NewerTask,
        OutlastError,
        OutOfReach,
        ReaderBusy,
        Refused,
        SessionBusy,
        StartFailed,
        StateRefused,
        StillRunning,
        SystemRefused,
        UnknownSession,
        UnknownTask,
        Unsupported,
    )
    from outlast.notices.notice import Event, Notice
    from outlast.output.screen import Screen
    from outlast.policy import Policy
    from outlast.policy.approval import Approval
    from outlast.shell.async_shell import AsyncShell
    from outlast.shell.shell import Shell
    from outlast.storage.sessions import SessionState
    from outlast.types import (
        Cursor,
        Limits,
        Notify,
        Receipt,
        Result,
        Sandbox,
        Slice,
        Stdin,
        Task,
        Waited,
    )

__version__ = "0.1.0"
__all__ = [
    "AlreadyEnded",
    "AmbiguousTask",
    "Approval",
    "AsyncShell",
    "BadInput",
    "BadPattern",
    "Cursor",
    "DamagedTask",
    "Event",
    "InputRefused",
    "Limits",
    "NeedsApproval",
    "NewerTask",
    "Notice",
    "Notify",
    "OutOfReach",
    "OutlastError",
    "Policy",
    "ReaderBusy",
    "Receipt",
    "Refused",
    "Result",
    "Sandbox",
    "Screen",
    "SessionBusy",
    "SessionState",
    "Shell",
    "Slice",
    "StartFailed",
    "StateRefused",
    "Stdin",
    "StillRunning",
    "SystemRefused",
    "Task",
    "UnknownSession",
    "UnknownTask",
    "Unsupported",
    "Waited",
]

# Loaded when first used: a process that runs one part of the package does not pay for the others.
_HOMES = {
    "Approval": "outlast.policy.approval",
    "AsyncShell": "outlast.shell.async_shell",
    "Event": "outlast.notices.notice",
    "Notice": "outlast.notices.notice",
    "Policy": "outlast.policy",
    "Screen": "outlast.output.screen",
    "SessionState": "outlast.storage.sessions",
    "Shell": "outlast.shell.shell",
}
_TYPES = frozenset(("Cursor", "Limits", "Notify", "Receipt", "Result", "Sandbox", "Slice", "Stdin"))
_TYPES |= {"Task", "Waited"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    from importlib import import_module

    home = _HOMES.get(name) or ("outlast.types" if name in _TYPES else "outlast.errors")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
