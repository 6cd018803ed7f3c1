"""`outlast session`: what sessions remember, and making them forget."""

from __future__ import annotations

import json

from outlast.cli.options import Parser, open_shell, parse, write
from outlast.errors import BadInput
from outlast.light import fields
from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlast.shell.shell import Shell
    from outlast.types import SessionState

_NAMES = {"list": 0, "show": 1, "reset": 1, "copy": 2, "remove": 1}
_SHOWN = 200  # characters of one value


def parser() -> Parser:
    made = Parser(
        "session",
        "What sessions remember from one command to the next: variables, directory, functions, options.",
        "  outlast run --session work 'cd app && . venv/bin/activate'\n"
        "  outlast run --session work 'pwd; which python'   there it goes on\n"
        "  outlast session list\n"
        "  outlast session show work         secrets are masked\n"
        "  outlast session reset work        begin anew with our own variables and directory\n"
        "  outlast session copy work test    try something without harm\n"
        "  outlast session remove work       refused while tasks of it run",
    )
    made.usage = "outlast session [--json] list | show S | reset S | copy S T | remove S"
    made.add_argument("what", metavar="WHAT", choices=list(_NAMES), help="list, show, reset, copy or remove")
    made.add_argument("name", metavar="S", nargs="*", help="a session's name")
    return made.takes_json()


def session(words: Sequence[str]) -> int:
    asked = parse(parser(), words)
    wanted = _NAMES[asked.what]
    if len(asked.name) != wanted:
        many = ("no session", "one session", "two sessions: the one to copy and the new one")[wanted]
        raise BadInput(f"`outlast session {asked.what}` takes {many}, not {len(asked.name)}.")
    with open_shell() as shell:
        if asked.what == "list":
            write(_listed(shell, asked.json))
        elif asked.what == "show":
            state = shell.sessions.state(*asked.name)
            write(json.dumps(fields(state), ensure_ascii=False) + "\n" if asked.json else shown(state))
        else:
            getattr(shell.sessions, asked.what)(*asked.name)
            write(json.dumps({"done": asked.what, "session": asked.name[-1]}) + "\n" if asked.json else "")
    return 0


def _listed(shell: Shell, as_json: bool) -> str:
    names = shell.sessions.names()
    return json.dumps(list(names)) + "\n" if as_json else "".join(f"{name}\n" for name in names)


def shown(state: SessionState) -> str:
    """For people."""
    lines = [f"session    {state.name}", f"directory  {inline(state.directory, _SHOWN)}", f"umask      {state.umask}"]
    lines += [f"changed    {state.generation} times" + (f", last by {state.last_task}" if state.last_task else "")]
    lines += _table("variables", state.variables)
    if state.removed:
        lines.append(f"unset      {' '.join(state.removed)}")
    if state.functions:
        lines.append(f"functions  {' '.join(state.functions)}")
    lines += _table("aliases", state.aliases)
    lines += _table("traps", state.traps)
    lines.append(f"options    {' '.join(state.options)}")
    lines += [f"damaged    {path} was set aside and the session began anew" for path in state.damaged]
    return "\n".join(lines) + "\n"


def _table(title: str, values: Mapping[str, str]) -> list[str]:
    return [title, *(f"  {name}={inline(value, _SHOWN)}" for name, value in values.items())] if values else []
