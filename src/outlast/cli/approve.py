"""A person at a terminal is asked: the line, what in it needs the yes, and why."""

from __future__ import annotations

import os
import signal
import sys

from outlast.light import frozen
from outlast.policy.approval import show_description, show_line, show_lines
from outlast.settings import default_home
from outlast.shell.approval_link import RemoteQuestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.policy.approval import Answer, Approval

_QUESTIONS = {"run": "Run it?", "outside": "Run it outside the sandbox?", "kill": "End it?"}
_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}


def prompt(approval: Approval) -> Answer:
    """Ask until there is an answer; the end of the input is a no."""
    colour = not os.environ.get("NO_COLOR")
    sys.stderr.write(describe_question(approval, colour))
    with RemoteQuestion(default_home(os.environ), approval) as remote:
        return _answer(approval, remote)


def _answer(approval: Approval, remote: RemoteQuestion) -> Answer:
    """Return the first answer, of the keyboard or of a page that is served."""
    choices = "y = yes, n = no, a = always" if approval.always else "y = yes, n = no"
    if remote.is_asked:
        choices += "; or answer on the page"
    while True:
        sys.stderr.write(f"{_QUESTIONS[approval.category]} [{choices}] ")
        sys.stderr.flush()
        typed = _read_line(remote)
        if isinstance(typed, Given):
            sys.stderr.write(f"{typed.answer} (on the page)\n")
            return typed.answer
        if not typed:
            sys.stderr.write("\n")
            return "no"
        answer = _ANSWERS.get(typed.strip().lower())
        if answer and (answer != "always" or approval.always):
            return answer


@frozen
class Given:
    """An answer that was given on a page."""

    answer: Answer


def _read_line(remote: RemoteQuestion) -> str | Given:
    """A line; nothing after the end of the input or Ctrl-C, which here means no, whatever it means later."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if remote.is_asked and (answer := remote.wait(None, sys.stdin.fileno())):
            return Given(answer)
        return sys.stdin.readline()
    except KeyboardInterrupt:
        return ""
    finally:
        signal.signal(signal.SIGINT, before)


def describe_question(approval: Approval, colour: bool) -> str:
    """What a person has to see before they answer."""
    bold, warn, off = ("\033[1m", "\033[33m", "\033[0m") if colour else ("", "", "")
    policy, cwd = show_line(approval.policy), show_line(approval.cwd)
    if approval.category == "kill":
        return f"The policy {policy} wants a yes before {bold}{', '.join(approval.task_ids)}{off} is ended:\n"
    where = "outside the sandbox, " if approval.category == "outside" else ""
    lines = [f"The policy {policy} wants a yes for this command, {where}in {cwd}:\n\n"]
    # Each line end is shown as one, and nothing in it can move the cursor or hide.
    lines += [f"    {bold}{line}{off}\n" for line in show_lines(approval.command)]
    lines.append("\n")
    if description := show_description(approval):
        lines.append(f"  {description}\n")
    if approval.evidence:
        lines.append(f"  in the sandbox it failed: {show_line(approval.evidence)}\n")
    for part in approval.parts:
        lines.append(f"  {warn}> {show_line(part.command)}{off}\n    {show_line(part.why)}\n")
    if approval.always:
        lines.append(f"  always allows exactly: {', '.join(show_line(rule) for rule in approval.always)}\n")
    return "".join(lines)
