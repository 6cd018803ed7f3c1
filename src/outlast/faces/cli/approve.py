"""A person at a terminal is asked: the line, what in it needs the yes, and why."""

from __future__ import annotations

import os
import signal
import sys

from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.permissions.approval import Answer, Approval

_LONGEST = 2000  # characters of a line that are shown
_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}


def prompt(approval: Approval) -> Answer:
    """Ask until there is an answer; the end of the input is a no."""
    colour = not os.environ.get("NO_COLOR")
    sys.stderr.write(shown(approval, colour))
    choices = "y = yes, n = no, a = always" if approval.always else "y = yes, n = no"
    while True:
        sys.stderr.write(f"Run it? [{choices}] " if approval.category == "run" else f"End it? [{choices}] ")
        sys.stderr.flush()
        typed = _typed()
        if not typed:
            sys.stderr.write("\n")
            return "no"
        answer = _ANSWERS.get(typed.strip().lower())
        if answer and (answer != "always" or approval.always):
            return answer


def _typed() -> str:
    """A line; nothing after the end of the input or Ctrl-C, which here means no, whatever it means later."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return sys.stdin.readline()
    except KeyboardInterrupt:
        return ""
    finally:
        signal.signal(signal.SIGINT, before)


def shown(approval: Approval, colour: bool) -> str:
    """What a person has to see before they answer."""
    bold, warn, off = ("\033[1m", "\033[33m", "\033[0m") if colour else ("", "", "")
    if approval.category == "kill":
        return f"The policy {approval.policy} wants a yes before {bold}{', '.join(approval.task_ids)}{off} is ended:\n"
    lines = [f"The policy {approval.policy} wants a yes for this command in {approval.cwd}:\n\n"]
    # Each line end is shown as one, and nothing in it can move the cursor or hide.
    lines += [f"    {bold}{visible(line)}{off}\n" for line in approval.command[:_LONGEST].split("\n")]
    if len(approval.command) > _LONGEST:
        lines.append(f"    … and {len(approval.command) - _LONGEST} more characters\n")
    lines.append("\n")
    for part in approval.parts:
        lines.append(f"  {warn}> {visible(part.command)}{off}\n    {inline(part.why, 300)}\n")
    if approval.always:
        lines.append(f"  always allows exactly: {', '.join(visible(rule) for rule in approval.always)}\n")
    return "".join(lines)


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would obey, or would not show."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
