"""What verbs take, how that is parsed, and the options that many of them share."""

from __future__ import annotations

import errno
import os
import sys

from outlast.cli.quick import REST, quickly
from outlast.shell.validation import session_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any

    from outlast.cli.thorough import Thorough
    from outlast.policy.approval import Answer, Approval
    from outlast.shell.shell import Shell
    from outlast.types import Task


OUR_FAILURE = 125  # the exit code if Outlast itself failed


class Argument:
    """What a verb declares of one argument, in the words of argparse."""

    def __init__(self, names: tuple[str, ...], how: dict[str, Any], group: int) -> None:
        self.names, self.how, self.group = names, how, group

    @property
    def is_option(self) -> bool:
        return self.names[0][0] == "-"

    @property
    def dest(self) -> str:
        """The name of its value."""
        long = next((name for name in self.names if name.startswith("--")), self.names[0])
        return str(self.how.get("dest") or long.lstrip("-").replace("-", "_"))

    @property
    def default(self) -> Any:
        return self.how.get("default", False if self.how.get("action") == "store_true" else None)


class Parser:
    """What one verb takes. Plain words are parsed `quickly`; argparse is loaded for the others."""

    usage: str | None = None

    def __init__(self, verb: str, what: str, examples: str) -> None:
        self.prog, self.what, self.examples = f"outlast {verb}", what, examples
        self.arguments: list[Argument] = []
        self._groups = 0

    def add_argument(self, *names: str, **how: Any) -> None:
        self.arguments.append(Argument(names, how, 0))

    def add_one_of(self, *options: tuple[str, dict[str, Any]]) -> None:
        """Options of which only one can be used."""
        self._groups += 1
        self.arguments += (Argument((name,), how, self._groups) for name, how in options)

    def thorough(self) -> Thorough:
        """The same as argparse has it."""
        from outlast.cli.thorough import Thorough

        return Thorough(self)

    @property
    def takes_the_rest(self) -> bool:
        """Whether all words from the first one on that is no option are one thing, as in `run`."""
        return any(one.how.get("nargs") == REST for one in self.arguments)

    def takes_session(self) -> Parser:
        self.add_argument("--session", metavar="S", help="the session (default: $OUTLAST_SESSION, else 'default')")
        return self

    def takes_policy(self) -> Parser:
        known = "workspace, banned, programs, allowlist, ask, guarded, yolo"
        self.add_argument("--policy", metavar="NAME|FILE", help=f"what may run: {known}, or a file (docs/policies.md)")
        return self

    def takes_json(self) -> Parser:
        self.add_argument("--json", action="store_true", help="print JSON")
        return self

    def takes_id(self, many: bool = False) -> Parser:
        self.add_argument("id", metavar="ID", nargs="+" if many else None, help="a task id, or a part of it")
        return self


def parse(parser: Parser, words: Sequence[str]) -> Namespace:
    return quickly(parser, words) or parse_thoroughly(parser, words)


def parse_thoroughly(parser: Parser, words: Sequence[str]) -> Namespace:
    # Options may stand anywhere, also between an id and what follows it.
    thorough = parser.thorough()
    return thorough.parse_args(words) if parser.takes_the_rest else thorough.parse_intermixed_args(words)


def _wrong(what: str) -> Exception:
    """The error of a word that cannot be what it should be, as argparse wants it."""
    from argparse import ArgumentTypeError

    return ArgumentTypeError(what)


def open_shell(session: str | None = None, policy: str | None = None) -> Shell:
    """A person who names no session is the operator and reaches every task; inside a session only its own."""
    from outlast.shell.shell import Shell

    ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() else None
    if session is not None:
        # Also if it is empty: never the operator by accident.
        return Shell.open(session=session_name(session), policy=policy, ask=ask)
    # The settings have the name as well; given here, it would be one that somebody chose, and remember.
    return Shell.open(policy=policy, ask=ask, operator=not os.environ.get("OUTLAST_SESSION"))


def _ask(approval: Approval) -> Answer:
    from outlast.cli.approve import prompt  # hardly anybody is asked

    return prompt(approval)


def seconds(text: str) -> float:
    """A number of seconds, with s, m or h behind it if one likes."""
    units = {"s": 1, "m": 60, "h": 3600}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        return float(number) * unit
    except ValueError:
        raise _wrong(f"'{text}' is not a number of seconds") from None


def size(text: str) -> float:
    """A number of bytes, with K, M, G or T behind it if one likes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    try:
        return float(number) * unit
    except ValueError:
        raise _wrong(f"'{text}' is not a number of bytes, like 500M or 2G") from None


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise _wrong(f"'{text}' is not a whole number") from None


def number(text: str) -> float:
    """Any number."""
    try:
        return float(text)
    except ValueError:
        raise _wrong(f"'{text}' is not a number") from None


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def check_stdout() -> None:
    """Raise OSError if the caller closed standard output: an id that goes nowhere is never told."""
    if sys.stdout.name == 1:  # opened in its place
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def tell_id_on_stderr(task: Task, error: OSError) -> int:
    """Standard output took no id. The caller must learn it all the same, to read and to end the task; the exit code."""
    sys.stderr.write(
        f"outlast: {task.task_id} is {task.status}, but its id could not be written to standard output: "
        f"{error.strerror}; `outlast show {task.task_id}` shows it.\n"
    )
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the buffer still holds the id, and the last flush would fail again
    return OUR_FAILURE
