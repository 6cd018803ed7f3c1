"""`outlast run`: the command's output as it comes, and the command's own exit code."""

from __future__ import annotations

import os
import shlex
import signal
import sys

from outlast import process
from outlast.errors import BadInput
from outlast.faces import render
from outlast.faces.cli.options import Parser, open_shell, parse, seconds, write
from outlast.model import STREAMS, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from types import FrameType

    from outlast.model import Slice, Task
    from outlast.shell import Shell

AFTER_LIMIT = 124
_EXAMPLES = """\
  outlast run make test                      several words are joined as they are
  outlast run 'cd app && npm ci | tee log'   one word is a whole shell command
  outlast run --bg --limit 1h ./train.sh     in the background, for an hour at most
  outlast run --wait 10 make                 see 10 s of it, then leave it running
  outlast run --stdin open --bg bc           feed it later with `outlast send`
  outlast run --split --json 'ls /nowhere'   one JSON object, stdout and stderr apart
  echo 'ls -l' | outlast run -               the command from standard input

exit code: the command's own; 128+n after signal n; 124 after a limit; 125 if Outlast
itself failed; 2 for wrong usage. A foreground command may run 120 s unless --limit says
otherwise. Ctrl-C interrupts the command as on a terminal; twice ends its whole tree."""


def parser() -> Parser:
    made = Parser("run", "Run a command. It goes on if you, your terminal or your agent go away.", _EXAMPLES)
    add = made.add_argument
    add("--bg", action="store_true", help="return at once and print the task id alone")
    add("--wait", type=seconds, metavar="SEC", help="wait this long at most, then leave it running")
    add("--limit", type=seconds, metavar="SEC", help="end it when it has run this long (inf: never)")
    add("--cwd", metavar="D", help="run in this directory")
    add("--env", action="append", default=[], metavar="K=V", help="set a variable (may be repeated)")
    add("--stdin", metavar="FILE|-|open", help="input: a file, our own (-), or kept open for `outlast send`")
    add("--split", action="store_true", help="keep stdout and stderr apart")
    add("--shell", metavar="PATH", help="run it with this shell instead of bash")
    add("--description", default="", metavar="T", help="what it is for, shown in lists")
    made.takes_session().takes_json()
    add("command", nargs="...", metavar="COMMAND", help="the command; everything from its first word on is part of it")
    return made


def run(words: Sequence[str]) -> int:
    # The words stand in our own argument list; a `pkill -f` in the command must not find them there.
    process.rename_self("outlast", "outlast run")
    asked = parse(parser(), words)
    command = _command(asked.command)
    how = {
        "cwd": asked.cwd,
        "env": _environment(asked.env),
        "stdin": _stdin(asked.stdin),
        "shell": asked.shell,
        "split": asked.split,
        "limit": asked.limit,
        "description": asked.description,
    }
    with open_shell(asked.session) as shell:
        if asked.bg:
            task = shell.start(command, **how)
            write(render.as_json(task) + "\n" if asked.json else f"{task.task_id}\n")
            return 0
        return _Foreground(shell, asked).run(command, how)


def _command(words: Sequence[str]) -> str:
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise BadInput("No command was given; write it behind the options, as in `outlast run make test`.")
    if list(words) == ["-"]:
        return os.fsdecode(sys.stdin.buffer.read())
    return words[0] if len(words) == 1 else shlex.join(words)


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"'{pair}' does not set a variable; write NAME=VALUE.")
        found[name] = value
    return found


def _stdin(asked: str | None) -> Stdin:
    match asked:
        case None:
            return Stdin()
        case "open":
            return Stdin(open=True)
        case "-":
            return Stdin(text=sys.stdin.buffer.read())
    return Stdin(file=os.path.abspath(asked))


class _Foreground:
    """A task that somebody at a terminal (or a script) waits for."""

    def __init__(self, shell: Shell, asked: Namespace) -> None:
        self._shell, self._asked = shell, asked
        self._interrupts = 0
        self._task_id = ""
        self._at: dict[str, int] = {}

    def run(self, command: str, how: dict[str, object]) -> int:
        patience = self._shell.patience(self._asked.wait, self._asked.limit)
        # A person waits as long as they like: only the default limit and --wait end this.
        timeout = patience.seconds if patience.then_end or self._asked.wait is not None else None
        task = self._shell.start(command, **how)  # type: ignore[arg-type]
        self._task_id = task.task_id
        self._at = dict.fromkeys(STREAMS if task.split else STREAMS[:1], 0)
        signal.signal(signal.SIGINT, self._interrupt)
        for piece in self._shell.follow(task.task_id, timeout=timeout, to_end_of="command"):
            self._at[piece.stream] = piece.next
            if not self._asked.json:
                _copy(piece)
        if patience.then_end and not self._shell.executor.has_ended(task.task_id):
            self._shell.end_for_limit(task.task_id)
            self._show_rest()
        return self._report()

    def _show_rest(self) -> None:
        """What was printed while the tree was being ended."""
        if not self._asked.json:
            for piece in self._shell.fresh(self._task_id, self._at):
                _copy(piece)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._shell.executor.interrupt(self._task_id)
        else:
            self._shell.kill(self._task_id)

    def _report(self) -> int:
        if self._asked.json:
            result = self._shell.read(self._task_id)
            write(render.as_json(result) + "\n")
            return exit_code(result)
        task = self._shell.show(self._task_id)
        if not task.finished:
            sys.stderr.write(render.hint(task))
        elif task.reason != "exit":
            sys.stderr.write(f"outlast: {task.task_id} {task.status}: {render.ending(task)}\n")
        return exit_code(task)


def _copy(piece: Slice) -> None:
    stream = sys.stderr.buffer if piece.stream == "stderr" else sys.stdout.buffer
    if piece.dropped:
        stream.write(b"\n[outlast: %d bytes were dropped here]\n" % piece.dropped)
    stream.write(piece.data)
    stream.flush()


def exit_code(task: Task) -> int:
    """What a shell would call the end of this task."""
    if not task.finished:
        return 0
    if task.reason == "timeout":
        return AFTER_LIMIT
    if task.exit_code is not None:
        return task.exit_code
    return 128 + task.signal if task.signal else 125
