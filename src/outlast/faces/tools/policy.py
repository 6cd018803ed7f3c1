"""Which policy the commands of a toolbox are judged by, and what a model is told of it. The one place that decides.

What the user has set holds besides, whatever is chosen here: the shell sees to that.
"""

from __future__ import annotations

from importlib import import_module

from outlast.frozen import replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.faces.tools.model import Profile
    from outlast.settings import Settings

_DENIED = {
    "guarded": "What would destroy the machine is denied (rm -rf /, mkfs, writing to disks).",
    "banned": "Network clients, browsers and alias are denied.",
    "allowlist": "Only programs on the host's list run, and no shells.",
    "ask": "The user is asked about each command.",
    "yolo": "",
}
_OTHER = "The host's policy decides which commands run."


def chosen(profile: Profile, settings: Settings, asked: Any = None, *, consent: bool = False) -> Any:
    """What the host asks for, else the profile's policy, with what the profile always asks about.

    With `consent` somebody has said yes to running and ending as such; what the policy asks about stays.
    """
    if asked is not None:
        return asked
    try:
        policies = import_module("outlast.permissions.policies")
    except ImportError:
        return "yolo"  # a version without ready policies; each description then says that nothing is denied
    found = policies.load(profile.policy, settings)
    return replaced(found, asks=profile.asks) if profile.asks and not consent else found


def denied(policy: object) -> str:
    """One sentence for a model about what will not run."""
    name = policy if isinstance(policy, str) else str(getattr(policy, "name", ""))
    return _DENIED.get(name, _OTHER)
