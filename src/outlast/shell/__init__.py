"""`Shell`: the one object that a user holds.

    with Shell.open() as shell:
        result = shell.run("make test")
        server = shell.start("npm run dev")
        print(shell.read(server.task_id).output)

Its verbs are in the modules beside this one, each of which needs those before it:
`opened`, `looking`, `waiting`, `acting`, `running`, `noticing`, `whole`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.shell.acting import describe_end
    from outlast.shell.looking import shorter
    from outlast.shell.running import Patience, refuse_to_wait
    from outlast.shell.waiting import Startup
    from outlast.shell.whole import Shell

__all__ = ("Patience", "Shell", "Startup", "describe_end", "refuse_to_wait", "shorter")

# Loaded when first used: who only looks needs only `looking`.
_HOMES = {
    "Patience": "running",
    "Shell": "whole",
    "Startup": "waiting",
    "describe_end": "acting",
    "refuse_to_wait": "running",
    "shorter": "looking",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'outlast.shell' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"outlast.shell.{_HOMES[name]}"), name)
    return found
