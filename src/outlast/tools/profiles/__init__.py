"""The profiles by name. Each is a table over the operations, in a module of its own, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module

from outlast.errors import BadInput, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.tools.model import Profile

NAMES = ("default", "neovate", "jido", "registry", "mycode", "spec")


def profile_named(name: str) -> Profile:
    """Return the profile of this name."""
    if name not in NAMES:
        raise BadInput(f"There is no profile {quote(name)}; known are {', '.join(NAMES)}.")
    found: Profile = import_module(f"outlast.tools.profiles.{name}").PROFILE
    return found
