"""Which policy the commands of a toolbox are judged by, and what a model is told of it. The one place that decides."""

from __future__ import annotations

from outlast import permissions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.settings import Settings

_FROM_MILD_TO_STRICT = ("yolo", "guarded", "banned", "allowlist", "ask")
_DENIED = {
    "guarded": "What would destroy the machine is denied (rm -rf /, mkfs, writing to disks).",
    "banned": "Network clients, browsers and alias are denied.",
    "allowlist": "Only programs on the host's list run, and no shells.",
    "ask": "The user is asked about each command.",
    "yolo": "",
}
_OTHER = "The host's policy decides which commands run."


def chosen(of_profile: str, settings: Settings, asked: str | None = None) -> str:
    """What the host asks for; else what the user has set, if it is stricter or a file; else the profile's."""
    if asked is not None:
        return asked
    setting = getattr(settings, "policy", "")
    if setting and _is_stricter(setting, of_profile):
        return setting
    # A version without ready policies knows only one, and says in each description that nothing is denied.
    return of_profile if of_profile in getattr(permissions, "POLICIES", (of_profile,)) else "yolo"


def _is_stricter(one: str, other: str) -> bool:
    order = _FROM_MILD_TO_STRICT
    return one not in order or (other in order and order.index(one) > order.index(other))


def denied(policy: object) -> str:
    """One sentence for a model about what will not run."""
    name = policy if isinstance(policy, str) else str(getattr(policy, "name", ""))
    return _DENIED.get(name, _OTHER)
