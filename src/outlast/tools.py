"""Tools for models, for whoever builds an agent: `from outlast.tools import Toolbox`."""

from __future__ import annotations

from outlast.faces.tools.model import Profile, Reply, Tool
from outlast.faces.tools.profiles import NAMES as PROFILES
from outlast.faces.tools.toolbox import Toolbox

__all__ = ["PROFILES", "Profile", "Reply", "Tool", "Toolbox"]
