"""`outlast ps`, `show`, `wait`, `kill`, `send` and `clean`."""

from __future__ import annotations

import os
import sys
import time

from outlast.cli.arguments import Asked, Parser, number, seconds
from outlast.cli.common import describe_wait, open_shell, task_json, waited_code, write
from outlast.display import render
from outlast.errors import AlreadyEnded, BadInput
from outlast.shell import validation
from outlast.storage.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from outlast.shell.shell import Shell
    from outlast.types import Receipt, Task

RECENT_S = 3600.0
RECENT_AT_MOST = 20
_WIDTH_UNKNOWN = 120


def ps_parser() -> Parser:
    """Return the options of `outlast ps`."""
    made = Parser(
        "ps",
        "List tasks, newest first: those that run, and those that ended within the hour.",
        "  outlast ps                     this session's\n"
        "  outlast ps --all               every session's, however old\n"
        "  outlast ps --status failed --json | jq -r .command",
    )
    made.add("--all", action="store_true", help="every session's tasks in every status")
    made.add("--status", metavar="S", help="only pending, running, completed, failed or killed ones")
    return made.takes_session().takes_json()


def ps(asked: Asked) -> int:
    """Do what `outlast ps` asks; returns the exit code."""
    with open_shell(asked.session) as shell:
        every = asked.all and not asked.session
        which: dict[str, Any] = {}
        if not asked.all and not asked.status:
            which = {"ended_after": time.time() - RECENT_S, "most": RECENT_AT_MOST}
        tasks = shell.list(status=asked.status, session=None if every else shell.session, **which)
        if asked.json:
            write("".join(_json(shell, task) + "\n" for task in tasks))
        elif tasks:
            doing = shell.reader.activities(tasks)
            rows = [(task, shell.reader.line_counts(task), doing.get(task.task_id, "")) for task in tasks]
            write(render.table(rows, width()))
        else:
            write("No tasks found.\n")
    return 0


def _json(shell: Shell, task: Task) -> str:
    stdout, stderr = shell.reader.line_counts(task)
    return task_json(shell, task, stdout_lines=stdout, stderr_lines=stderr)


def width() -> int:
    """How many columns there are to write in."""
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return _WIDTH_UNKNOWN


def show_parser() -> Parser:
    """Return the options of `outlast show`."""
    made = Parser("show", "Show everything about one task.", "  outlast show bash-1a2b\n  outlast show 1a2b --json")
    return made.takes_id().takes_session().takes_json()


def show(asked: Asked) -> int:
    """Do what `outlast show` asks; returns the exit code."""
    with open_shell(asked.session) as shell:
        task = shell.show(asked.id)
        if asked.json:
            write(_json(shell, task) + "\n")
        else:
            write(render.details(task, shell.reader.line_counts(task), shell.activity(task)))
    return 0


def wait_parser() -> Parser:
    """Return the options of `outlast wait`."""
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
    made.add("--timeout", type=seconds, metavar="SEC", help="wait this long at most")
    made.add_one_of(
        ("--until", {"metavar": "RE", "help": "until a line of the output matches, also an unfinished one"}),
        ("--port", {"metavar": "N", "help": "until this TCP port takes connections"}),
        ("--url", {"metavar": "U", "help": "until this URL answers with a status below 500"}),
        ("--quiet", {"type": seconds, "metavar": "SEC", "help": "until nothing was printed for this long"}),
    )
    return made.takes_id(many=True).takes_session().takes_json()


def wait(asked: Asked) -> int:
    """Do what `outlast wait` asks; returns the exit code."""
    deadline = Deadline(validation.seconds("timeout", asked.timeout))
    what = {name: getattr(asked, name) for name in ("until", "port", "url", "quiet")}
    condition = any(value is not None for value in what.values())
    codes = []
    with open_shell(asked.session) as shell:
        ids = [shell.show(one).task_id for one in asked.id]
        for task_id in ids:
            task = shell.wait(task_id, timeout=deadline.left(), **what)
            write(task_json(shell, task) + "\n" if asked.json else describe_wait(shell, task, condition))
            codes.append(waited_code(task, condition))
    return next((code for code in codes if code), 0)


# --- kill, send, clean --------------------------------------------------------------------


def kill_parser() -> Parser:
    """Return the options of `outlast kill`."""
    made = Parser(
        "kill",
        "End tasks, each with every process it started, also those that left its group or its session.",
        "  outlast kill 1a2b\n  outlast kill --grace 10 1a2b 3c4d   10 s to end by themselves, then by force\n"
        "  outlast kill --all",
    )
    made.add("--all", action="store_true", help="every task of the session that runs or is pending")
    made.add("--grace", type=seconds, metavar="SEC", help="time between asking and force (default 2)")
    made.add("id", nargs="*", metavar="ID", help="the task, or a part of its id")
    return made.takes_session().takes_json()


def kill(asked: Asked) -> int:
    """Do what `outlast kill` asks; returns the exit code."""
    if asked.all == bool(asked.id):
        raise BadInput("Name the tasks to end, or give --all for every task of the session; not both.")
    with open_shell(asked.session) as shell:
        receipts = _kill_every_task(shell, asked.grace) if asked.all else shell.kill_all(asked.id, asked.grace)
    for receipt in receipts:
        write(render.as_json(receipt) + "\n" if asked.json else render.receipt(receipt))
    return 1 if any(receipt.survivors for receipt in receipts) else 0


def _kill_every_task(shell: Shell, grace: float | None) -> Sequence[Receipt]:
    while ids := [task.task_id for task in shell.list(session=shell.session) if not task.finished or task.children]:
        try:
            return shell.kill_all(ids, grace)
        except AlreadyEnded:
            continue  # one of them ended after we listed it
    print("outlast: No task runs or is pending in this session.", file=sys.stderr)
    return ()


def send_parser() -> Parser:
    """Return the options of `outlast send`."""
    made = Parser(
        "send",
        "Send text, or keys, to the input of a task that was started with --stdin open or --tty. A newline\n"
        "is added to text unless --raw; on a terminal it is the Enter key.",
        "  outlast send 1a2b 'print(1+1)'\n  outlast send --eof 1a2b        end the input\n"
        "  outlast send 1a2b - < file     our own standard input as it is\n"
        "  outlast send 1a2b --keys '<C-c><Up>hello<Enter>'\n\n"
        "keys: <Enter> <Tab> <Esc> <Space> <Backspace> <Delete> <Insert> <Up> <Down> <Left> <Right> <Home>\n"
        "<End> <PageUp> <PageDown> <F1> to <F12>; <C-x> is Ctrl, <M-x> Alt, <S-Tab> Shift; <lt> is a '<'.\n"
        "All else is typed as it is. Without a terminal there are <Enter>, <Tab>, <C-c>, which interrupts\n"
        "the command, and <C-d>, which ends its input.",
    )
    made.add("--keys", action="store_true", help="TEXT is keys")
    made.add("--raw", action="store_true", help="send the text as it is, without a newline")
    made.add("--eof", action="store_true", help="end the input (after the text, if any)")
    made.takes_id()
    made.add("text", nargs="?", metavar="TEXT", help="what to send; - for our own standard input")
    return made.takes_session()


def send(asked: Asked) -> int:
    """Do what `outlast send` asks; returns the exit code."""
    if asked.text is None and not asked.eof:
        raise BadInput("There is nothing to send; give a text, or --eof to end the input.")
    if asked.keys and (asked.text is None or asked.raw or asked.eof):
        raise BadInput("--keys sends the keys in TEXT alone; give them, without --raw and --eof (<C-d>).")
    with open_shell(asked.session) as shell:
        if asked.keys:
            shell.send(asked.id, keys=asked.text)
        elif asked.text == "-":
            shell.send(asked.id, sys.stdin.buffer.read(), eof=asked.eof)
        elif asked.text is None:
            shell.send(asked.id, eof=True)
        else:
            text = os.fsencode(asked.text) if asked.raw else asked.text + "\n"
            shell.send(asked.id, text, eof=asked.eof)
    return 0


def clean_parser() -> Parser:
    """Return the options of `outlast clean`."""
    made = Parser(
        "clean",
        "Remove finished tasks with their output. Running ones are never touched.",
        "  outlast clean 1a2b 3c4d           these two\n"
        "  outlast clean                     those that ended more than 24 h ago (a setting)\n"
        "  outlast clean --older-than 2      those that ended more than 2 h ago\n"
        "  outlast clean --all-finished",
    )
    made.add("id", nargs="*", metavar="ID", help="a task id, or a part of it")
    made.add("--older-than", type=number, metavar="HOURS", help="only those that ended longer ago than this")
    made.add("--all-finished", action="store_true", help="all that have ended")
    return made.takes_session().takes_json()


def clean(asked: Asked) -> int:
    """Do what `outlast clean` asks; returns the exit code."""
    if asked.all_finished and asked.older_than is not None:
        raise BadInput("--all-finished and --older-than contradict each other; give one of them.")
    if asked.id and (asked.all_finished or asked.older_than is not None):
        raise BadInput("Ids say which tasks to remove; leave out --all-finished and --older-than.")
    with open_shell(asked.session) as shell:
        if asked.id:
            # All of them are looked up first: a wrong id removes nothing.
            found = dict.fromkeys(shell.show(one).task_id for one in asked.id)
            count = len([shell.remove(one) for one in found])
        else:
            count = shell.clean(older_than_hours=asked.older_than, all_finished=asked.all_finished)
    if asked.json:
        write(f'{{"removed": {count}}}\n')
    else:
        write(f"Removed {count} finished {'task' if count == 1 else 'tasks'}.\n")
    return 0
