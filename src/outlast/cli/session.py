"""`outlast session`: show, reset, copy and remove what sessions remember."""

from __future__ import annotations

import json

from outlast.cli.arguments import Asked, Parser, VerbGroup
from outlast.cli.common import open_shell, write
from outlast.light import fields
from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.shell.shell import Shell
    from outlast.storage.sessions import SessionState

_SHOWN = 200  # characters of one value
_EXAMPLES = """\
  outlast run --session work 'cd app && . venv/bin/activate'
  outlast run --session work 'pwd; which python'   the next command goes on there
  outlast session show work         secrets are masked
  outlast session copy work test    try something without harm"""


def session_parser() -> VerbGroup:
    """Return the options of `outlast session`."""
    commands = [
        Parser("session list", "List the sessions.", "  outlast session list"),
        Parser("session show", "Show what a session remembers; secrets are masked.", "  outlast session show work"),
        Parser("session reset", "Make a session begin anew.", "  outlast session reset work"),
        Parser("session copy", "Copy a session to a new name.", "  outlast session copy work test"),
        Parser("session remove", "Remove a session; refused while tasks of it run.", "  outlast session remove work"),
    ]
    for command in commands[1:]:
        command.takes(session="the name of a session")
    commands[3].takes(new="the name of the copy")
    what = "What sessions remember from one command to the next: variables, directory, functions, options."
    return VerbGroup("session", what, _EXAMPLES, [command.takes_json() for command in commands])


def session(asked: Asked) -> int:
    """Do what `outlast session` asks; returns the exit code."""
    with open_shell() as shell:
        match asked.command:
            case "list":
                write(_format_list(shell, asked.json))
            case "show":
                state = shell.sessions.state(asked.session)
                write(json.dumps(fields(state), ensure_ascii=False) + "\n" if asked.json else format_state(state))
            case command:
                names = (asked.session, asked.new) if command == "copy" else (asked.session,)
                getattr(shell.sessions, command)(*names)
                write(json.dumps({"done": command, "session": names[-1]}) + "\n" if asked.json else "")
    return 0


def _format_list(shell: Shell, as_json: bool) -> str:
    names = shell.sessions.names()
    return json.dumps(list(names)) + "\n" if as_json else "".join(f"{name}\n" for name in names)


def format_state(state: SessionState) -> str:
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
