"""Which policy judges the commands of a toolbox, and what a model is told of it.

The shell also applies the policy that the user has set, whatever is chosen here.
"""

from __future__ import annotations

from outlast.light import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.settings import Settings
    from outlast.tools.model import Profile

_DESCRIPTIONS = {
    "workspace": (
        "Commands run in a sandbox: they write to the project, temporary files and caches, without a question. If one "
        "fails because of it, the user is asked whether to run it again outside."
    ),
    "guarded": "What would destroy the machine is denied (rm -rf /, mkfs, writing to disks).",
    "ask": "The user is asked about each command.",
    "yolo": "",
    "banned": "These are denied: {}.",
    "programs": "Only these programs run, with any arguments, and no shells: {}.",
    "allowlist": "Only what the host's list of programs allows runs, and no shells.",
}
_LISTED = {"banned": "deny", "programs": "allow"}  # which of its rules a description lists


def choose(profile: Profile, settings: Settings, asked: Any = None, *, consent: bool = False) -> Any:
    """Return what the host asks for, else the profile's policy, with what the profile always asks about.

    With `consent` the user has said yes to running and ending as such; what the policy asks about stays.
    """
    if asked is not None:
        return asked
    from outlast.policy import WORKSPACE, loader  # a host that chooses for itself does without

    # In a sandbox there is no machine to destroy, so what `guarded` asks about need not be asked.
    in_sandbox = profile.policy == "guarded" and settings.policy == WORKSPACE.name
    found = loader.load(WORKSPACE.name if in_sandbox else profile.policy, settings)
    return replace(found, asks=profile.asks) if profile.asks and not consent else found


def describe(policy: object) -> str:
    """Return one sentence for a model about what will not run."""
    name = policy if isinstance(policy, str) else str(getattr(policy, "name", ""))
    if name not in _DESCRIPTIONS:
        return "The host's policy decides which commands run."
    programs = _programs(policy, _LISTED[name]) if name in _LISTED else ()
    return _DESCRIPTIONS[name].format(", ".join(programs))


def _programs(policy: object, rules: str) -> list[str]:
    """Return the programs that a ready policy allows or denies, by name."""
    from outlast.policy import loader
    from outlast.settings import Settings

    found: Any = loader.load(policy, Settings()) if isinstance(policy, str) else policy
    patterns: tuple[str, ...] = getattr(found.layers[0].rules, rules)
    return [pattern.removesuffix(" *") for pattern in patterns]
