"""Tools for models: one set of operations, under the names of several designs (`PROFILES`).

from outlast.tools import Toolbox

with Toolbox.open(session="conversation-7") as box:
    tools = box.as_anthropic()
    reply = box.call("bash", {"command": "make test"})
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Profile, Reply, Tool
    from outlast.tools.profiles import NAMES as PROFILES
    from outlast.tools.toolbox import Toolbox

__all__ = ["PROFILES", "Profile", "Reply", "Tool", "Toolbox"]


def __getattr__(name: str) -> object:
    # Loaded when first used: the command line imports modules of this package, but rarely the toolbox.
    from importlib import import_module

    if name == "PROFILES":
        return import_module("outlast.tools.profiles").NAMES
    if name == "Toolbox":
        return import_module("outlast.tools.toolbox").Toolbox
    if name in __all__:
        return getattr(import_module("outlast.tools.model"), name)
    raise AttributeError(f"module 'outlast.tools' has no attribute {name!r}")
