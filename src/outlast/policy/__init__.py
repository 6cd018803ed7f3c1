"""Whether a request may run. Only `decide` makes a `Grant`, and nothing runs without one.

Deciding is pure: what the session has redefined comes as `Overrides`, a person's answer as the
`Approval` that they said yes to. Nothing below here but `policyfile` and `workspace` reads or writes a file.
Every command line loads this module, so what checks is loaded only for a policy that has
something to say: `yolo` costs nothing.
"""

from __future__ import annotations

import os

from outlast.light import frozen
from outlast.types import Grant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from outlast.policy.approval import Approval, Category, Layer
    from outlast.policy.rules import Overrides
    from outlast.types import Request

    Mode = Literal["default", "yolo"]

MODES = ("default", "yolo")
OWN_RULES = "policy.toml"  # in the state directory: the user's own rules, and what "always" writes to
PROJECT_FILES = (".outlast/policy.toml", "outlast.policy.toml")
_REPOSITORY = ".git"


@frozen
class Policy:
    """What may run. The strictest of its layers decides; one without layers allows everything."""

    name: str
    layers: tuple[Layer, ...] = ()
    asks: tuple[Category, ...] = ()  # what needs a yes even where every layer allows it
    confined: bool = False  # commands run in a sandbox; what runs outside needs a yes


YOLO = Policy("yolo")
WORKSPACE = Policy("workspace", confined=True)


def decide(
    request: Request,
    policy: Policy,
    overrides: Overrides | None = None,
    *,
    shell: str = "bash",
    mode: Mode = "default",
    approved: Approval | None = None,
) -> Grant:
    """Judge a request: a grant, or `Refused`, or `NeedsApproval` with what to ask.

    A yes counts for what was asked, and for nothing else: if the line is checked otherwise by now,
    it is asked again.
    """
    outside = policy.confined and request.sandbox is None
    if not policy.layers and "run" not in policy.asks and not outside:
        return Grant(request, policy.name)
    from outlast.errors import NeedsApproval, Refused
    from outlast.policy import approval, layers

    layered = layers.evaluate_request(request, policy, overrides, shell)
    if layered.decision.verdict == "deny" or (mode == "yolo" and layered.broken):
        raise Refused(layers.describe_denial(layered, policy))
    if outside and mode == "yolo":
        raise Refused(f"The policy {policy.name} lets nothing out of its sandbox without a yes, and none is asked for.")
    if mode == "yolo" or (layered.decision.verdict == "allow" and "run" not in policy.asks and not outside):
        return Grant(request, policy.name, layered.decision)
    category: Category = "outside" if outside else "run"
    asked_before = approved and (approved.category, approved.command, approved.policy, approved.decision)
    if asked_before == (category, request.command, policy.name, layered.decision):
        return Grant(request, policy.name, layered.decision, approved=True)
    asked = approval.Approval(
        category=category,
        command=request.command,
        policy=policy.name,
        decision=layered.decision,
        cwd=request.cwd,
        description=request.description,
        session=request.session,
        always=() if outside else layers.rules_for_always(request, policy, overrides, shell),
        evidence=request.evidence,
    )
    raise NeedsApproval(layers.describe_question(layered, policy, asked), asked)


# --- where policies are looked for -------------------------------------------------------


def project_files(directory: str, home: str) -> tuple[str, ...]:
    """The policy files of the project that a directory is part of, the nearest first.

    A project reaches up to the root of its repository; without one it is the directory alone.
    """
    own = os.path.join(home, OWN_RULES)
    found: list[str] = []
    nearest = 0
    here = directory
    while True:
        for name in PROJECT_FILES:
            path = os.path.join(here, name)
            if os.path.lexists(path) and path != own:
                found.append(path)
        if here == directory:
            nearest = len(found)
        if os.path.lexists(os.path.join(here, _REPOSITORY)):
            return tuple(found)
        above = os.path.dirname(here)
        if above == here:
            return tuple(found[:nearest])
        here = above


def own_rules(home: str) -> str:
    """The file of the user's own rules, if there is one."""
    path = os.path.join(home, OWN_RULES)
    return path if os.path.lexists(path) else ""


def may_apply(home: str, policy: str, directory: str) -> bool:
    """Whether anything may have something against a command in `directory`, where `policy` is the user's."""
    if policy not in ("", YOLO.name):
        return True
    own = own_rules(home)
    return bool(own and may_deny(own)) or bool(directory and project_files(directory, home))


def may_deny(path: str) -> bool:
    """Whether a policy file can deny anything; one that only allows need not be read where all is allowed."""
    try:
        if not os.path.isfile(path):
            return True
        with open(path, "rb") as file:
            return b"deny" in file.read(1 << 20)
    except OSError:
        return True
