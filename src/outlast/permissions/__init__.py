"""Whether a request may run. Only `decide` makes a `Grant`, and nothing runs without one.

Deciding is pure: what the session has redefined comes as `Known`, a person's answer as the
`Approval` that they said yes to. Nothing in here but `policyfile` touches a file. What judges is
loaded only for a policy that has something to say: `yolo` costs nothing.
"""

from __future__ import annotations

from outlast.errors import NeedsApproval, Refused
from outlast.frozen import frozen
from outlast.model import Grant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from outlast.model import Request
    from outlast.permissions.judge import Judgement, Known, Part, Rules

    Answer = Literal["yes", "no", "always"]
    Mode = Literal["default", "yolo"]
    Category = Literal["run", "kill"]

MODES = ("default", "yolo")
CATEGORIES = ("run", "kill")


@frozen
class Layer:
    """One voice among those that decide: the rules of one policy, or what is wrong with it."""

    name: str
    rules: Rules
    broken: str = ""  # why its rules are not known: then everything asks
    asks_all: bool = False  # also about what needs no rule
    text_hazard: Callable[[str], str | None] | None = None  # for what no single simple command shows


@frozen
class Policy:
    """What may run. The strictest of its layers decides; one without layers allows everything."""

    name: str
    layers: tuple[Layer, ...] = ()
    asks: tuple[Category, ...] = ()  # what needs a yes even where every layer allows it


YOLO = Policy("yolo")


@frozen
class Approval:
    """What somebody is asked about: answer "yes", "no" or "always"."""

    category: Category
    command: str
    policy: str
    judgement: Judgement | None
    cwd: str = ""
    description: str = ""
    session: str = ""
    task_ids: tuple[str, ...] = ()  # of what is to be killed
    always: tuple[str, ...] = ()  # the allow rules that "always" writes; none: it counts for this time only

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the line that need the yes; none if the policy asks whatever the line is."""
        return tuple(part for part in self.judgement.parts if part.verdict == "ask") if self.judgement else ()


def decide(
    request: Request,
    policy: Policy,
    known: Known | None = None,
    *,
    shell: str = "bash",
    mode: Mode = "default",
    approved: Approval | None = None,
) -> Grant:
    """Judge a request: a grant, or `Refused`, or `NeedsApproval` with what to ask.

    A yes counts for what was asked, and for nothing else: if the line is judged otherwise by now,
    it is asked again.
    """
    if not policy.layers and "run" not in policy.asks:
        return Grant(request, policy.name)
    from outlast.permissions import ruling

    ruled = ruling.rule(request.command, policy, known, shell)
    if ruled.judgement.verdict == "deny" or (mode == "yolo" and ruled.broken):
        raise Refused(ruling.denial(ruled, policy))
    if mode == "yolo" or (ruled.judgement.verdict == "allow" and "run" not in policy.asks):
        return Grant(request, policy.name, ruled.judgement)
    if approved is not None and _is_for(approved, request, ruled.judgement, policy):
        return Grant(request, policy.name, ruled.judgement, approved=True)
    approval = Approval(
        category="run",
        command=request.command,
        policy=policy.name,
        judgement=ruled.judgement,
        cwd=request.cwd,
        description=request.description,
        session=request.session,
        always=ruling.always(request.command, policy, known, shell),
    )
    raise NeedsApproval(ruling.question(ruled, policy, approval), approval)


def _is_for(approved: Approval, request: Request, judgement: Judgement, policy: Policy) -> bool:
    asked = (approved.category, approved.command, approved.policy, approved.judgement)
    return asked == ("run", request.command, policy.name, judgement)
