"""The layers that decide, and the question that a user is asked."""

from __future__ import annotations

from outlast.light import frozen
from outlast.output.cleaner import is_invisible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from outlast.policy.rules import Decision, Part, Rules

    Answer = Literal["yes", "session", "always", "no"]
    Category = Literal["run", "kill", "outside"]

CATEGORIES = ("run", "kill")  # what a policy can always ask about; "outside" is what `workspace` asks about


@frozen
class Layer:
    """One voice among those that decide: the rules of one policy, or what is wrong with it."""

    name: str
    rules: Rules
    broken: str = ""  # why its rules are not known: then everything asks
    asks_all: bool = False  # also about what needs no rule


@frozen
class Approval:
    """What a user is asked about: answer "yes", "no", "session" (for the session it is asked in) or "always"."""

    category: Category
    command: str
    policy: str
    decision: Decision | None
    cwd: str = ""
    description: str = ""
    session: str = ""
    task_ids: tuple[str, ...] = ()  # of what is to be killed
    always: tuple[str, ...] = ()  # the allow rules that "always" writes; none: it counts for this time only
    evidence: str = ""  # how it failed in the sandbox, of what is to run outside

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the line that need the yes; none if the policy asks whatever the line is."""
        return tuple(part for part in self.decision.parts if part.verdict == "ask") if self.decision else ()


# --- how it is shown ---------------------------------------------------------------------

_LONGEST_COMMAND = 4000  # characters; of a longer one both ends
_LONGEST_LINE = 300
_LONGEST_DESCRIPTION = 100
_BLANKS = 16  # in a row: more could push what follows out of sight, or to where another line seems to begin


def show_lines(command: str) -> list[str]:
    """The lines of a command as a question shows them: nothing in it can hide, and what is left out is said."""
    text = command
    if len(command) > _LONGEST_COMMAND:
        half = _LONGEST_COMMAND // 2
        left_out = f"[{len(command) - 2 * half} characters in the middle are not shown]"
        text = f"{command[:half]}\n{left_out}\n{command[-half:]}"
    return [_visible(line) for line in text.split("\n")]


def show_line(text: str, most: int = _LONGEST_LINE) -> str:
    """A text as one line of a question, with both ends of a long one."""
    line = _visible(text)
    return line if len(line) <= most else f"{line[: most // 2]} [...] {line[-most // 2 :]}"


def show_description(approval: Approval) -> str:
    """What the model says that the command is for; empty if it says nothing. It stands behind the command."""
    words = " ".join(approval.description.split())
    return f'The model says: "{show_line(words, _LONGEST_DESCRIPTION)}"' if words else ""


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would obey, or a reader would not see."""
    return "".join(char if char.isprintable() and not is_invisible(char) else ascii(char)[1:-1] for char in text)


def _visible(text: str) -> str:
    return f"[{_BLANKS} blanks]".join(visible(text).split(" " * _BLANKS))
