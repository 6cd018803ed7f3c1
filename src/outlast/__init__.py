"""Outlast: the shell for AI agents whose commands outlast the agent that ran them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.async_shell import AsyncShell
    from outlast.errors import OutlastError
    from outlast.permissions import Policy
    from outlast.permissions.approval import Approval
    from outlast.shell import Shell
    from outlast.types import Cursor, Event, Notice, Receipt, Result, Sandbox, Slice, Stdin, Task, Waited

__version__ = "0.1.0"
__all__ = [
    "Approval",
    "AsyncShell",
    "Cursor",
    "Event",
    "Notice",
    "OutlastError",
    "Policy",
    "Receipt",
    "Result",
    "Sandbox",
    "Shell",
    "Slice",
    "Stdin",
    "Task",
    "Waited",
]

# Loaded when first used: a supervisor imports this package too, and must stay small.
_HOMES = {
    "Approval": "outlast.permissions.approval",
    "Policy": "outlast.permissions",
    "AsyncShell": "outlast.async_shell",
    "Shell": "outlast.shell",
    "OutlastError": "outlast.errors",
    "Cursor": "outlast.types",
    "Event": "outlast.types",
    "Notice": "outlast.types",
    "Receipt": "outlast.types",
    "Result": "outlast.types",
    "Sandbox": "outlast.types",
    "Slice": "outlast.types",
    "Stdin": "outlast.types",
    "Task": "outlast.types",
    "Waited": "outlast.types",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'outlast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
