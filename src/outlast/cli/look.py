"""`outlast ps`, `show` and `wait`: looking at tasks."""

from __future__ import annotations

import os
import sys
import time

from outlast.cli.options import Parser, open_shell, parse, seconds, write
from outlast.display import render
from outlast.shell import validation
from outlast.storage.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outlast.shell.shell import Shell
    from outlast.types import Task, Waited

RECENT_S = 3600.0
RECENT_AT_MOST = 20
_WIDTH_UNKNOWN = 120


def ps_parser() -> Parser:
    made = Parser(
        "ps",
        "List tasks, newest first: those that run, and those that ended within the hour.",
        "  outlast ps                     this session's\n"
        "  outlast ps --all               every session's, however old\n"
        "  outlast ps --status failed --json | jq -r .command",
    )
    made.add_argument("--all", action="store_true", help="every session's tasks in every status")
    made.add_argument("--status", metavar="S", help="only pending, running, completed, failed or killed ones")
    return made.takes_session().takes_json()


def ps(words: Sequence[str]) -> int:
    asked = parse(ps_parser(), words)
    with open_shell(asked.session) as shell:
        every = asked.all and not asked.session
        which: dict[str, Any] = {}
        if not asked.all and not asked.status:
            which = {"ended_after": time.time() - RECENT_S, "most": RECENT_AT_MOST}
        tasks = shell.list(status=asked.status, session=None if every else shell.session, **which)
        if asked.json:
            write("".join(_json(shell, task) + "\n" for task in tasks))
        elif tasks:
            write(render.table([(task, shell.reader.line_counts(task)) for task in tasks], width()))
        else:
            write("No tasks found.\n")
    return 0


def _json(shell: Shell, task: Task) -> str:
    stdout, stderr = shell.reader.line_counts(task)
    return render.as_json(task, stdout_lines=stdout, stderr_lines=stderr)


def width() -> int:
    """How many columns there are to write in."""
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return _WIDTH_UNKNOWN


def show_parser() -> Parser:
    made = Parser("show", "Show everything about one task.", "  outlast show bash-1a2b\n  outlast show 1a2b --json")
    return made.takes_id().takes_session().takes_json()


def show(words: Sequence[str]) -> int:
    asked = parse(show_parser(), words)
    with open_shell(asked.session) as shell:
        task = shell.show(asked.id)
        write(_json(shell, task) + "\n" if asked.json else render.details(task, shell.reader.line_counts(task)))
    return 0


def wait_parser() -> Parser:
    made = Parser(
        "wait",
        "Wait until tasks end, by event. Exits with the (first failed) task's own code, or 124 if time ran out.",
        "  outlast wait bash-1a2b && echo built\n  outlast wait --timeout 10m 1a2b 3c4d\n"
        "  outlast wait --until 'Listening on' --timeout 30 1a2b && echo ready\n"
        "  outlast wait --port 3000 1a2b          or HOST:PORT\n"
        "  outlast wait --url http://localhost:3000/health 1a2b\n\n"
        "With --until, --port, --url or --quiet the exit code is 0 once it is true of every task.\n"
        "If a task is over before that, it is the task's own code, or 1 if that was 0; 124 if time\nran out.",
    )
    made.add_argument("--timeout", type=seconds, metavar="SEC", help="wait this long at most")
    made.add_one_of(
        ("--until", {"metavar": "RE", "help": "until a line of the output matches, also an unfinished one"}),
        ("--port", {"metavar": "N", "help": "until this TCP port takes connections"}),
        ("--url", {"metavar": "U", "help": "until this URL answers with a status below 500"}),
        ("--quiet", {"type": seconds, "metavar": "SEC", "help": "until nothing was printed for this long"}),
    )
    return made.takes_id(many=True).takes_session().takes_json()


def wait(words: Sequence[str]) -> int:
    asked = parse(wait_parser(), words)
    deadline = Deadline(validation.seconds("timeout", asked.timeout))
    what = {name: getattr(asked, name) for name in ("until", "port", "url", "quiet")}
    condition = any(value is not None for value in what.values())
    codes = []
    with open_shell(asked.session) as shell:
        ids = [shell.show(one).task_id for one in asked.id]
        for task_id in ids:
            task = shell.wait(task_id, timeout=deadline.left(), **what)
            write(render.as_json(task) + "\n" if asked.json else render.waited(task, condition))
            codes.append(waited_code(task, condition))
    return next((code for code in codes if code), 0)


def waited_code(task: Waited, condition: bool) -> int:
    """The exit code of a wait. A script must be able to tell "ready" from "died" and from "not yet"."""
    from outlast.cli.run import AFTER_LIMIT, exit_code

    if condition and task.met:
        return 0
    if not task.finished:
        return AFTER_LIMIT
    return exit_code(task) or int(condition)
