"""`decide`: whether a request may run. Only it makes a `Grant`, and nothing runs without one.

Deciding is pure: what the session has redefined comes as `Overrides`, a person's answer as the `Approval` that they
said yes to. What checks is loaded only for a policy that has something to say: `yolo` costs nothing.
"""

from __future__ import annotations

from outlast.types import Grant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.policy import Mode, Policy
    from outlast.policy.approval import Approval, Category
    from outlast.policy.rules import Overrides
    from outlast.types import Request


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
    from outlast.policy import approval, layers  # `yolo` needs none of it

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
