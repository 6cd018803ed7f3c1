"""Which policy the commands of a toolbox are judged by, and what a model is told of it. The one place that decides.

What the user has set holds besides, whatever is chosen here: the shell sees to that.
"""

from __future__ import annotations

from outlast.light import replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.faces.tools.model import Profile
    from outlast.settings import Settings

_DENIED = {
    "workspace": (
        "Commands run in a sandbox: they write to the project, temporary files and caches, without a question. If one "
        "fails because of it, the user is asked whether to run it again outside."
    ),
    "guarded": "What would destroy the machine is denied (rm -rf /, mkfs, writing to disks).",
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
    from outlast.policy import WORKSPACE, loading  # a host that chooses for itself does without

    # In a sandbox there is no machine to destroy, so what `guarded` asks about need not be asked.
    in_sandbox = profile.policy == "guarded" and settings.policy == WORKSPACE.name
    found = loading.load(WORKSPACE.name if in_sandbox else profile.policy, settings)
    return replaced(found, asks=profile.asks) if profile.asks and not consent else found


def denied(policy: object) -> str:
    """One sentence for a model about what will not run."""
    name = policy if isinstance(policy, str) else str(getattr(policy, "name", ""))
    if name in _DENIED:
        return _DENIED[name]
    if name == "banned":
        return f"These are denied: {', '.join(_programs(policy, 'deny'))}."
    if name == "programs":
        return f"Only these programs run, with any arguments, and no shells: {', '.join(_programs(policy, 'allow'))}."
    if name == "allowlist":
        return "Only what the host's list of programs allows runs, and no shells."
    return _OTHER


def _programs(policy: object, which: str) -> list[str]:
    """The programs that a ready policy allows or denies, by name."""
    from outlast.policy import loading
    from outlast.settings import Settings

    found: Any = loading.load(policy, Settings()) if isinstance(policy, str) else policy
    patterns: tuple[str, ...] = getattr(found.layers[0].rules, which)
    return [pattern.removesuffix(" *") for pattern in patterns]
