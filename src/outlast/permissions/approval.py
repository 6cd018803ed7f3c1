"""What decides, and what somebody is asked: the nouns of a policy that has something to say."""

from __future__ import annotations

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from outlast.permissions.judge import Judgement, Part, Rules
    from outlast.types import Request

    Answer = Literal["yes", "no", "always"]
    Category = Literal["run", "kill"]

CATEGORIES = ("run", "kill")


@frozen
class Layer:
    """One voice among those that decide: the rules of one policy, or what is wrong with it."""

    name: str
    rules: Rules
    broken: str = ""  # why its rules are not known: then everything asks
    asks_all: bool = False  # also about what needs no rule


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


def is_for(approved: Approval, request: Request, policy: str, judgement: Judgement) -> bool:
    """Whether what was said yes to is this."""
    asked = (approved.category, approved.command, approved.policy, approved.judgement)
    return asked == ("run", request.command, policy, judgement)
