"""`outlast kill`, `send` and `clean`: doing something to tasks."""

from __future__ import annotations

import sys

from outlast.cli.options import Parser, number, open_shell, parse, seconds, write
from outlast.display import render
from outlast.errors import AlreadyEnded, BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.shell.shell import Shell
    from outlast.types import Receipt


def kill_parser() -> Parser:
    made = Parser(
        "kill",
        "End tasks, each with every process it started, also those that left its group or its session.",
        "  outlast kill 1a2b\n  outlast kill --grace 10 1a2b 3c4d   10 s to end by themselves, then by force\n"
        "  outlast kill --all",
    )
    made.add_argument("--all", action="store_true", help="every task of the session that runs or is pending")
    made.add_argument("--grace", type=seconds, metavar="SEC", help="time between asking and force (default 2)")
    made.add_argument("id", nargs="*", metavar="ID", help="the task, or a part of its id")
    return made.takes_session().takes_json()


def kill(words: Sequence[str]) -> int:
    asked = parse(kill_parser(), words)
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
    made = Parser(
        "send",
        "Send text to the input of a task that was started with --stdin open. A newline is added unless --raw.",
        "  outlast send 1a2b 'print(1+1)'\n  outlast send --eof 1a2b        end the input\n"
        "  outlast send 1a2b - < file     our own standard input as it is",
    )
    made.add_argument("--raw", action="store_true", help="send the text as it is, without a newline")
    made.add_argument("--eof", action="store_true", help="end the input (after the text, if any)")
    made.takes_id()
    made.add_argument("text", nargs="?", metavar="TEXT", help="what to send; - for our own standard input")
    return made.takes_session()


def send(words: Sequence[str]) -> int:
    asked = parse(send_parser(), words)
    if asked.text is None and not asked.eof:
        raise BadInput("There is nothing to send; give a text, or --eof to end the input.")
    with open_shell(asked.session) as shell:
        if asked.text == "-":
            shell.send(asked.id, sys.stdin.buffer.read(), eof=asked.eof)
        elif asked.text is None:
            shell.send(asked.id, eof=True)
        else:
            shell.send(asked.id, asked.text if asked.raw else asked.text + "\n", eof=asked.eof)
    return 0


def clean_parser() -> Parser:
    made = Parser(
        "clean",
        "Remove finished tasks with their output. Running ones are never touched.",
        "  outlast clean 1a2b 3c4d           these two\n"
        "  outlast clean                     those that ended more than 24 h ago (a setting)\n"
        "  outlast clean --older-than 2      those that ended more than 2 h ago\n"
        "  outlast clean --all-finished",
    )
    made.add_argument("id", nargs="*", metavar="ID", help="a task id, or a part of it")
    made.add_argument("--older-than", type=number, metavar="HOURS", help="only those that ended longer ago than this")
    made.add_argument("--all-finished", action="store_true", help="all that have ended")
    return made.takes_session().takes_json()


def clean(words: Sequence[str]) -> int:
    asked = parse(clean_parser(), words)
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
