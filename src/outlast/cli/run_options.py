"""The options of `outlast run`, and what their values mean."""

from __future__ import annotations

import os
import stat
import sys

from outlast.cli.arguments import REST, Asked, Parser, seconds, size, whole
from outlast.errors import BadInput, quote
from outlast.shell.validation import MOST_COLUMNS, MOST_ROWS, SKIP
from outlast.types import Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_PASS = "let it have a secret variable of yours, such as GITHUB_TOKEN (may be repeated)"
_EXAMPLES = """\
  outlast run make test                      several words are joined as they are
  outlast run 'cd app && npm ci | tee log'   one word is a whole shell command
  outlast run --bg --limit 1h ./train.sh     in the background, for an hour at most
  outlast run --bg --ready Local: npx vite   until it is ready, has died, or 30 s have passed
  outlast run --wait 10 make                 see 10 s of it, then leave it running
  outlast run --stdin open --bg bc           feed it later with `outlast send`
  outlast run --tty vim notes.txt            type at it; Ctrl-] leaves it running
  outlast run --tty --bg htop                see it with `outlast screen`
  outlast run --split --json 'ls /nowhere'   one JSON object, stdout and stderr apart
  outlast run --bg --after 1a2b make test    when that task completed
  outlast run --like 1a2b                    the same again: command, directory, options
  echo 'ls -l' | outlast run -               the command from standard input

exit code: the command's own; 128+n after signal n; 124 after a limit; 125 if Outlast
itself failed; 2 for wrong usage. A foreground command may run 120 s unless --limit says
otherwise. Ctrl-C interrupts the command as on a terminal; twice ends its whole tree.

--memory and --processes hold for all of the task together where control groups can be made
(`outlast doctor` says so); elsewhere --memory is the address space of each process, and
--processes counts all processes of your user."""


def run_parser() -> Parser:
    """Return the options of `outlast run`."""
    made = Parser("run", "Run a command. It goes on if you, your terminal or your agent go away.", _EXAMPLES)
    add = made.add
    made.section("waiting")
    add("--bg", action="store_true", help="return at once and print the task id alone")
    add("--wait", type=seconds, metavar="SEC", help="wait this long at most, then leave it running")
    add("--auto-bg", action="store_true", help="leave a development command running once it prints after 2 s")
    add("--startup-wait", type=seconds, metavar="SEC", help="with --bg: see first how it starts, for this long at most")
    add("--ready", metavar="RE", help="with --bg: return when a line of its output matches (after 30 s at most)")
    made.section("how it runs")
    add("--cwd", metavar="D", help="run in this directory")
    add("--env", action="append", default=[], metavar="K=V", help="set a variable (may be repeated)")
    add("--pass", dest="passed", action="append", default=[], metavar="NAME", help=_PASS)
    add("--stdin", metavar="FILE|-|open", help="input: a file, our own (-), or kept open for `outlast send`")
    add("--split", action="store_true", help="keep stdout and stderr apart")
    add("--tty", action="store_true", help="give it a terminal, as full-screen programs and prompts want one")
    add("--size", metavar="CxR", help="with --tty: its columns and rows (your terminal's, or 80x24)")
    add("--shell", metavar="PATH", help="run it with this shell instead of bash (none: no shell in between)")
    _add_elsewhere(made)
    made.section("queue")
    add("--like", metavar="ID", help="run that task again; what is given now counts first, also a COMMAND")
    add("--name", metavar="N", help="a second start under this name is the same task")
    add("--after", action="append", default=[], metavar="ID", help="begin when this task completed (may be repeated)")
    add("--after-failed", default=SKIP, metavar="run|skip", help="if one of those fails: run it anyway, or not (skip)")
    made.section("limits")
    add("--limit", type=seconds, metavar="SEC", help="end it when it has run this long (inf: never)")
    add("--memory", type=size, metavar="BYTES", help="how much memory the task may use (2G, 500M), see below")
    add("--processes", type=whole, metavar="N", help="how many processes the task may have, see below")
    add("--cpu-time", type=seconds, metavar="SEC", help="seconds of CPU that each of its processes may use")
    add("--file-size", type=size, metavar="BYTES", help="how large a file may become that it writes")
    made.section("policy and sandbox")
    made.takes_policy()
    add("--sandbox", action="store_true", help="let it write to its directory only, and reach no network")
    add("--writable", action="append", default=[], metavar="DIR", help="a directory it may write to in its sandbox")
    add("--network", action="store_true", help="let it use the network in its sandbox")
    add("--no-sandbox", action="store_true", help="run it without the sandbox that the settings demand")
    made.section("notices")
    add("--notify", action="append", default=[], metavar="RE", help="a notice when a line matches (may be repeated)")
    add("--silent-after", type=seconds, metavar="SEC", help="a notice when it prints nothing for this long")
    made.section("options")
    add("--description", default="", metavar="T", help="what it is for, shown in lists")
    made.takes_session().takes_json()
    add("command", nargs=REST, metavar="COMMAND", help="the command; everything from its first word on is part of it")
    return made


def _add_elsewhere(made: Parser) -> None:
    add = made.add
    add("--executor", metavar="E", help="where: the name of another machine in the settings (docs/executors.md)")
    add("--need", action="append", default=[], metavar="K=V", help="ask a cluster for cpus=4, memory=8G, gpus=1, ...")
    add("--array", metavar="A-B", help="with --bg on a cluster: a task for each number, $OUTLAST_ARRAY_INDEX")
    add("--send", action="append", default=[], metavar="PATH", help="with --executor: copy this there first")
    add("--fetch", action="append", default=[], metavar="PATH", help="with --executor: copy this here at the end")


def read_command(words: Sequence[str]) -> str:
    """One word as it is, several joined, or what comes on standard input."""
    if not words:
        raise BadInput("No command was given; write it behind the options, as in `outlast run make test`.")
    if list(words) == ["-"]:
        return os.fsdecode(sys.stdin.buffer.read())
    if len(words) == 1:
        return words[0]
    import shlex  # and `re` with it

    return shlex.join(words)


def parse_environment(pairs: Sequence[str]) -> dict[str, str]:
    """Return the variables of `--env NAME=VALUE`."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"{quote(pair)} does not set a variable; write NAME=VALUE.")
        found[name] = value
    return found


def parse_needs(pairs: Sequence[str]) -> dict[str, str]:
    """Return what `--need NAME=VALUE` asks a cluster for."""
    for pair in pairs:
        if "=" not in pair:
            raise BadInput(f"--need takes NAME=VALUE, such as cpus=4, not {pair!r}.")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def parse_terminal(asked: Asked) -> bool | str:
    """Return whether the command gets a terminal, or the size of it."""
    if asked.size is not None and not asked.tty:
        raise BadInput("--size is the size of a terminal; add --tty.")
    if asked.tty and asked.size is None and not asked.bg and sys.stdout.isatty():
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        return f"{columns}x{rows}" if 0 < columns <= MOST_COLUMNS and 0 < rows <= MOST_ROWS else True
    return str(asked.size) if asked.size is not None else bool(asked.tty)


def open_stdin(asked: str | None) -> Stdin:
    """Return the input that `--stdin` names."""
    match asked:
        case None:
            return Stdin()
        case "open":
            return Stdin(open=True)
        case "-":
            return Stdin(text=sys.stdin.buffer.read())
        case "":
            raise BadInput("The input is empty; name a file, - for standard input, or open.")
    return _from_file(os.path.abspath(asked))


def _from_file(path: str) -> Stdin:
    # A pipe, as in `--stdin <(make list)`, is ours alone: the task cannot open it.
    if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        with open(path, "rb") as file:
            return Stdin(text=file.read())
    return Stdin(file=path)
