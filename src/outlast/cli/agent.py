"""`outlast agent`: agents as tasks, and agents that another program started."""

from __future__ import annotations

import json
import sys

from outlast.agents.types import Agent
from outlast.cli.arguments import Asked, Parser, VerbGroup, seconds
from outlast.cli.common import check_stdout, open_shell, tell_id_on_stderr, write
from outlast.display import render
from outlast.errors import quote
from outlast.light import fields
from outlast.output.cleaner import inline
from outlast.output.duration import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.shell.shell import Shell

_COLUMNS = ("STATUS", "ID", "TYPE", "TIME", "USED", "WHAT")
_WHAT = 60
_EXAMPLES = """\
  outlast agent start claude 'Fix the failing test'     prints the task id
  outlast wait agent-1a2b && outlast agent read agent-1a2b
  outlast agent register worker-7 review /tmp/worker-7.log
  outlast agent done worker-7                           or: done --failed worker-7

An agent is a task: `outlast ps`, `logs`, `wait` and `kill` are for it, too. Types are in
config.toml (docs/agents.md); `outlast agent types` lists them.

exit code: 0; 1 if there is no such agent, or it has ended; 2 for wrong usage."""


def agent_parser() -> VerbGroup:
    """Return the options of `outlast agent`."""
    return VerbGroup(
        "agent",
        "Agents as tasks: start one and get its task id, or follow one that another program started.",
        _EXAMPLES,
        [
            _start_parser(),
            _parser("list", "List the agents of the session.", "list"),
            _parser("status", "Print whether an agent runs or how it ended.", "status worker-7", id=_ID),
            _parser("read", "Print what an agent printed or answered.", "read agent-1a2b", id=_ID),
            _parser("stop", "Stop an agent, with everything that it started.", "stop agent-1a2b", id=_ID),
            _parser(
                "register",
                "Follow an agent that another program started, by the file that it writes.",
                "register worker-7 review /tmp/worker-7.log",
                id="the agent's name",
                type="what kind of agent it is",
                file="the file that it writes to",
            ),
            _done_parser(),
            _parser("types", "List the types of agents that `start` knows.", "types"),
        ],
    )


_ID = "a task id, or the name that it was registered with"


def _parser(name: str, what: str, example: str, **places: str) -> Parser:
    return Parser(f"agent {name}", what, f"  outlast agent {example}").takes(**places).takes_session().takes_json()


def _start_parser() -> Parser:
    examples = (
        "  outlast agent start claude 'Fix the failing test'\n"
        "  outlast agent start codex - < file                    the prompt from standard input"
    )
    made = Parser("agent start", "Start an agent as a task and print the task id.", examples)
    made.takes(type="the type: one of `outlast agent types`", prompt="what it is to do; - reads it from standard input")
    made.hint = "quote a prompt that has blanks; `outlast agent start --help` explains."
    made.add("--description", default="", metavar="T", help="what it is for, shown in lists")
    made.add("--cwd", metavar="D", help="the directory to run in")
    made.add("--limit", type=seconds, metavar="SEC", help="end it after this long")
    return made.takes_policy().takes_session().takes_json()


def _done_parser() -> Parser:
    made = _parser("done", "Record that a registered agent ended.", "done --failed worker-7", id="the agent's name")
    made.add("--failed", action="store_true", help="it failed")
    return made


def agent(asked: Asked) -> int:
    """Do what `outlast agent` asks; returns the exit code."""
    with open_shell(asked.session, getattr(asked, "policy", None)) as shell:
        code: int = globals()[f"_{asked.command}"](shell, asked)
    return code


def _start(shell: Shell, asked: Asked) -> int:
    text = sys.stdin.read() if asked.prompt == "-" else asked.prompt
    task = shell.agent.start(asked.type, text, asked.description, cwd=asked.cwd, limit=asked.limit)
    try:
        check_stdout()
        write(render.as_json(task) + "\n" if asked.json else task.task_id + "\n")
    except OSError as error:
        return tell_id_on_stderr(task, error)
    return 0


def _register(shell: Shell, asked: Asked) -> int:
    found = shell.agent.register(asked.id, asked.type, asked.file)
    assert found is not None
    write(render.as_json(found) + "\n" if asked.json else found.id + "\n")
    return 0


def _status(shell: Shell, asked: Asked) -> int:
    found = shell.agent.status(asked.id)
    if asked.json:
        write((render.as_json(found) if found else "null") + "\n")
    elif found:
        write(f"{found.status}\n")
    return 0 if found else 1


def _done(shell: Shell, asked: Asked) -> int:
    found = shell.agent.done(asked.id, failed=asked.failed)
    if found is None:
        return _unknown(asked)
    write(render.as_json(found) + "\n" if asked.json else f"{found.id} {found.status}\n")
    return 0


def _read(shell: Shell, asked: Asked) -> int:
    text = shell.agent.read(asked.id)
    if text is None:
        return _unknown(asked)
    if asked.json:
        found = shell.agent.status(asked.id)
        assert found is not None
        write(render.as_json(found, output=text, result=shell.agent.result(asked.id)) + "\n")
    else:
        write(text if text.endswith("\n") else text + "\n")
    return 0


def _unknown(asked: Asked) -> int:
    """Nothing on standard output (null as JSON); the sentence is for people."""
    if asked.json:
        write("null\n")
    print(f"outlast: There is no agent {quote(asked.id)}; `outlast agent list` lists them.", file=sys.stderr)
    return 1


def _list(shell: Shell, asked: Asked) -> int:
    found = shell.agent.list()
    if asked.json:
        write("".join(render.as_json(one) + "\n" for one in found))
    else:
        write(_table(found) if found else "No agents found.\n")
    return 0


def _table(agents: Sequence[Agent]) -> str:
    rows = [_COLUMNS, *(_row(one) for one in agents)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    lines = ("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _row(one: Agent) -> tuple[str, ...]:
    known = one.metadata or {}
    what = one.description or str(known.get("prompt") or known.get("output_file") or "")
    took = duration(one.elapsed_ms)
    return one.status, one.id, one.type, took, render.usage(known) or "-", inline(what, _WHAT)


def _stop(shell: Shell, asked: Asked) -> int:
    stopped = shell.agent.stop(asked.id)
    if asked.json:
        write(json.dumps(fields(stopped), ensure_ascii=False) + "\n")
    elif stopped.success:
        write(stopped.message + "\n")
    else:
        print(f"outlast: {stopped.message}", file=sys.stderr)
    return 0 if stopped.success else 1


def _types(shell: Shell, asked: Asked) -> int:
    found = shell.agent.types()
    if asked.json:
        write(json.dumps(found, ensure_ascii=False) + "\n")
    else:
        width = max(map(len, found))
        write("".join(f"{name:<{width}}  {what}\n" for name, what in found.items()))
    return 0
