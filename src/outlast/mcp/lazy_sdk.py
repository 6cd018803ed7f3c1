"""Starts without the parts of the SDK that the server does not use.

`import mcp.server.lowlevel` runs `mcp/__init__.py` and `mcp/server/__init__.py` first. They import the SDK's client and
its high-level server with all that these need, about 90 modules. Here both packages are lazy: their `__init__.py` runs
when a name is looked up that no imported submodule has defined.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKAGES = ("mcp", "mcp.server")


class LazyPackage(ModuleType):
    """A package whose `__init__.py` has not run yet."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        # The import system looks up `__path__` and the like before anything else; these must not load the package.
        if spec is None or spec.loader is None or name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        # First, because `__init__.py` itself looks up names that must not come back here.
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(self)
        return getattr(self, name)


def defer_unused_parts() -> None:
    """Make the SDK's packages lazy, unless they are imported already."""
    for name in PACKAGES:
        if name in sys.modules:
            return
        spec = find_spec(name)
        if spec is None:
            return
        package = module_from_spec(spec)
        package.__class__ = LazyPackage
        sys.modules[name] = package
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, package)
