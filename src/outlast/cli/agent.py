"""`outlast agent`: agents as tasks, and agents that somebody else started."""

from __future__ import annotations

import json
import sys

from outlast.agents.types import Agent
from outlast.cli.options import Parser, check_stdout, open_shell, parse, seconds, tell_id_on_stderr, write
from outlast.display import render
from outlast.errors import BadInput, named
from outlast.light import fields
from outlast.output.cleaner import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from outlast.shell.shell import Shell

_WORDS = {  # of each: what it takes
    "start": ("TYPE", "PROMPT"),
    "register": ("ID", "TYPE", "FILE"),
    "status": ("ID",),
    "done": ("ID",),
    "read": ("ID",),
    "list": (),
    "stop": ("ID",),
    "types": (),
}
_COLUMNS = ("STATUS", "ID", "TYPE", "TIME", "USED", "WHAT")
_WHAT = 60


def parser() -> Parser:
    made = Parser(
        "agent",
        "Agents as tasks: start one and get its task id, or follow one that somebody else started.",
        "  outlast agent start claude 'Fix the failing test'     prints the task id\n"
        "  outlast agent start codex - < file                    the prompt from standard input\n"
        "  outlast wait agent-1a2b && outlast agent read agent-1a2b\n"
        "  outlast agent register worker-7 review /tmp/worker-7.log\n"
        "  outlast agent done worker-7                           or: done --failed worker-7\n"
        "  outlast agent list\n"
        "  outlast agent stop agent-1a2b                         with everything it started\n"
        "\nAn agent is a task: `outlast ps`, `logs`, `wait` and `kill` are for it, too. Types are in\n"
        "config.toml (docs/agents.md); `outlast agent types` lists them.\n"
        "\nexit code: 0; 1 if there is no such agent, or it has ended; 2 for wrong usage.",
    )
    made.usage = (
        "outlast agent start TYPE PROMPT | register ID TYPE FILE | done ID [--failed]\n"
        "                     | status ID | read ID | list | stop ID | types   [--json]"
    )
    made.add_argument("what", metavar="WHAT", choices=list(_WORDS), help=", ".join(_WORDS))
    made.add_argument("words", metavar="...", nargs="*", help="what that takes")
    made.add_argument("--failed", action="store_true", help="with done: it failed")
    made.add_argument("--description", default="", metavar="T", help="with start: what it is for")
    made.add_argument("--cwd", metavar="D", help="with start: the directory to run in")
    made.add_argument("--limit", type=seconds, metavar="SEC", help="with start: end it after this long")
    return made.takes_policy().takes_session().takes_json()


def agent(words: Sequence[str]) -> int:
    asked = parse(parser(), words)
    wanted = _WORDS[asked.what]
    if len(asked.words) != len(wanted):
        takes = " ".join(wanted) or "nothing more"
        raise BadInput(f"`outlast agent {asked.what}` takes {takes}; quote a prompt that has blanks.")
    if asked.failed and asked.what != "done":
        raise BadInput("--failed is for `outlast agent done`; leave it out.")
    with open_shell(asked.session, asked.policy) as shell:
        code: int = globals()[f"_{asked.what}"](shell, asked)
    return code


def _start(shell: Shell, asked: Namespace) -> int:
    name, prompt = asked.words
    text = sys.stdin.read() if prompt == "-" else prompt
    task = shell.agent.start(name, text, asked.description, cwd=asked.cwd, limit=asked.limit)
    try:
        check_stdout()
        write(render.as_json(task) + "\n" if asked.json else task.task_id + "\n")
    except OSError as error:
        return tell_id_on_stderr(task, error)
    return 0


def _register(shell: Shell, asked: Namespace) -> int:
    found = shell.agent.register(*asked.words)
    assert found is not None
    write(render.as_json(found) + "\n" if asked.json else found.id + "\n")
    return 0


def _status(shell: Shell, asked: Namespace) -> int:
    found = shell.agent.status(*asked.words)
    if asked.json:
        write((render.as_json(found) if found else "null") + "\n")
    elif found:
        write(f"{found.status}\n")
    return 0 if found else 1


def _done(shell: Shell, asked: Namespace) -> int:
    found = shell.agent.done(*asked.words, failed=asked.failed)
    if found is None:
        return _unknown(asked)
    write(render.as_json(found) + "\n" if asked.json else f"{found.id} {found.status}\n")
    return 0


def _read(shell: Shell, asked: Namespace) -> int:
    text = shell.agent.read(*asked.words)
    if text is None:
        return _unknown(asked)
    if asked.json:
        found = shell.agent.status(*asked.words)
        assert found is not None
        write(render.as_json(found, output=text, result=shell.agent.result(*asked.words)) + "\n")
    else:
        write(text if text.endswith("\n") else text + "\n")
    return 0


def _unknown(asked: Namespace) -> int:
    """Nothing on standard output (null as JSON); the sentence is for people."""
    if asked.json:
        write("null\n")
    print(f"outlast: There is no agent {named(asked.words[0])}; `outlast agent list` lists them.", file=sys.stderr)
    return 1


def _list(shell: Shell, asked: Namespace) -> int:
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
    took = render.duration(one.elapsed_ms)
    return one.status, one.id, one.type, took, render.usage(known) or "-", inline(what, _WHAT)


def _stop(shell: Shell, asked: Namespace) -> int:
    stopped = shell.agent.stop(*asked.words)
    if asked.json:
        write(json.dumps(fields(stopped), ensure_ascii=False) + "\n")
    elif stopped.success:
        write(stopped.message + "\n")
    else:
        print(f"outlast: {stopped.message}", file=sys.stderr)
    return 0 if stopped.success else 1


def _types(shell: Shell, asked: Namespace) -> int:
    found = shell.agent.types()
    if asked.json:
        write(json.dumps(found, ensure_ascii=False) + "\n")
    else:
        width = max(map(len, found))
        write("".join(f"{name:<{width}}  {what}\n" for name, what in found.items()))
    return 0
