"""`outlast check`: whether a command may run, and why. Nothing runs."""

from __future__ import annotations

import json
import os
import sys

from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import open_shell, write
from outlast.cli.run_options import read_command
from outlast.display.table import columns
from outlast.errors import BadInput, OutlastError
from outlast.output.cleaner import inline
from outlast.policy import YOLO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.policy.rules import Decision, Part
    from outlast.shell.shell import Shell

CODES = {"allow": 0, "deny": 1, "ask": 3}
BLOCKS = 2  # what a hook exits with to block the call
_NO_SANDBOX = "; this tool does not run it in the policy's sandbox"
_COLOURS = {"allow": "32", "ask": "33", "deny": "31"}
_HEADER = ("VERDICT", "COMMAND", "RULE", "WHY")
_WIDEST = (8, 60, 30, 200)  # of each column
_EXAMPLES = """\
  outlast check 'rm -rf ~' --policy guarded       denied, and why
  outlast check --explain 'cd app && make | tee log' --policy ask
  outlast check --json --policy rules.toml 'git push'
  echo 'ls -l' | outlast check - --policy allowlist
  outlast check --policy guarded -- git commit -m 'two words'

exit code: 0 allow, 1 deny, 3 ask, 2 wrong usage, 125 if Outlast itself failed. The same policies
count as for `outlast run`: that of the user, of the project and of --policy, the strictest wins."""


def check_parser() -> Parser:
    """Return the options of `outlast check`."""
    made = Parser("check", "Say whether a command may run: allow, ask or deny, with a reason for each part.", _EXAMPLES)
    made.hint = "give the command as one word, or write -- before it."
    made.takes_policy()
    made.add("--explain", action="store_true", help="show the line as a tree of simple commands")
    made.add("--hook", action="store_true", help="read a tool call as JSON on standard input, answer in JSON")
    made.takes_session().takes_json()
    made.add("command", nargs="*", metavar="COMMAND", help="the command; - for standard input")
    return made


def check(asked: Asked) -> int:
    """Do what `outlast check` asks; returns the exit code."""
    if asked.hook:
        return _hook(asked)
    if not asked.command:
        raise BadInput("No command was given; write it as one word, as in `outlast check 'rm -rf build'`.")
    with open_shell(asked.session, asked.policy) as shell:
        found, policy = shell.check(read_command(asked.command)), policy_in_force(shell)[0]
    if asked.json:
        write(json.dumps(as_object(found, policy), ensure_ascii=False) + "\n")
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        write(_tree(found, policy, colour) if asked.explain else _table(found, policy, colour))
    return CODES[found.verdict]


def policy_in_force(shell: Shell) -> tuple[str, list[str]]:
    """The name of the policy, and what is wrong with policies that apply: then every command needs approval."""
    gate = shell.starter.gate()
    found = gate.policy_for("") if gate else None
    return (found.name, [layer.broken for layer in found.layers if layer.broken]) if found else (YOLO.name, [])


def as_object(found: Decision, policy: str) -> dict[str, object]:
    """A decision for programs."""
    names = ("command", "verdict", "rule", "why", "depth", "inside")
    reasons = [{name: getattr(part, name) for name in names} for part in found.parts]
    return {"verdict": found.verdict, "reasons": reasons, "policy": policy}


# --- for people --------------------------------------------------------------------------


def _table(found: Decision, policy: str, colour: bool) -> str:
    rows = [_HEADER, *((part.verdict, part.command, part.rule, part.why) for part in found.parts)]
    cells = [[inline(cell, most) for cell, most in zip(row, _WIDEST, strict=True)] for row in rows]
    sizes = [max(columns(row[number]) for row in cells) for number in range(len(_HEADER))]
    lines = []
    for row in cells:
        gaps = [" " * (size - columns(cell) + 2) for cell, size in zip(row, sizes, strict=True)]
        first = _paint(row[0], row[0], colour)
        lines.append("".join(cell + gap for cell, gap in zip((first, *row[1:]), gaps, strict=True)).rstrip() + "\n")
    return _summary(found, policy, colour) + ("".join(lines) if found.parts else "")


def _summary(found: Decision, policy: str, colour: bool) -> str:
    return f"{_paint(found.verdict, found.verdict, colour)} under the policy {policy}\n"


def _paint(text: str, verdict: str, colour: bool) -> str:
    return f"\033[{_COLOURS[verdict]}m{text}\033[0m" if colour and verdict in _COLOURS else text


def _tree(found: Decision, policy: str, colour: bool) -> str:
    lines = [_summary(found, policy, colour)]
    for part in found.parts:
        lines += _branch(part, colour)
    return "".join(lines)


def _branch(part: Part, colour: bool) -> Iterator[str]:
    margin = "  " * (part.depth + 1)
    within = f"in {part.inside}: " if part.inside else ""
    yield f"{margin}{_paint(part.verdict, part.verdict, colour)}  {within}{inline(part.command, 500)}\n"
    because = [f"rule {part.rule}"] if part.rule else []
    because += [part.why] if part.why else []
    if because:
        yield f"{margin}       {inline('; '.join(because), 500)}\n"


# --- for other agents --------------------------------------------------------------------


def _hook(asked: Asked) -> int:
    """Answer a hook that is called before a tool is used, as coding agents have them.

    Whatever goes wrong blocks the call: agents take any other exit code for a hook that has nothing to say.
    """
    try:
        answer = _answer(asked)
        if answer:
            write(json.dumps({"hookSpecificOutput": answer}) + "\n")
        return 0
    except BaseException as error:
        why = error.message if isinstance(error, OutlastError) else f"{type(error).__name__}: {error}"
        os.write(2, f"outlast: The command cannot be judged, so it is blocked: {inline(why, 500)}\n".encode())
        os._exit(BLOCKS)  # at once: nothing that fails on the way out may change the exit code


def _answer(asked: Asked) -> dict[str, str] | None:
    """What to say about the call on standard input; nothing if the policy has no objection: then others decide."""
    if asked.command:
        raise BadInput("--hook reads the command from standard input; leave it out.")
    try:
        call = json.load(sys.stdin)
        command = call["tool_input"].get("command")
        cwd = call.get("cwd")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput("--hook wants a JSON object with tool_input on standard input, as a hook gets it.") from None
    if not isinstance(command, str):
        return None  # not a tool that runs commands
    where = cwd if isinstance(cwd, str) and cwd else None
    with open_shell(asked.session, asked.policy) as shell:
        found, confined = shell.check(command, cwd=where), shell.starter.is_confined(where or "")
        if found.verdict == "allow" and not confined:
            return None
        return {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask" if found.verdict == "allow" else found.verdict,
            "permissionDecisionReason": _reason(found, shell) + (_NO_SANDBOX if confined else ""),
        }


def _reason(found: Decision, shell: Shell) -> str:
    telling = [part for part in found.parts if part.verdict == found.verdict and part.verdict != "allow"]
    why = "; ".join(f"{inline(part.command, 100)}: {part.why or part.rule}" for part in telling[:5])
    return f"outlast policy {policy_in_force(shell)[0]}: {found.verdict}{': ' + why if why else ''}"
