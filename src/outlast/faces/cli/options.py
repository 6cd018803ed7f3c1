"""How the verbs parse: argparse with one-sentence errors, and the options that many verbs share."""

from __future__ import annotations

import argparse
import os
import sys

from outlast.asking import session_name
from outlast.errors import BadInput
from outlast.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from outlast.permissions.approval import Answer, Approval


class Parser(argparse.ArgumentParser):
    """A parser for one verb; errors are ours, not a screen of usage."""

    def __init__(self, verb: str, what: str, examples: str) -> None:
        super().__init__(
            prog=f"outlast {verb}",
            description=what,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        one, contradicts, other = message.partition(": not allowed with argument ")
        if contradicts:
            raise BadInput(f"{other} and {one} cannot be used together; leave out one of them.")
        raise BadInput(f"{message[:1].upper()}{message[1:]}; `{self.prog} --help` explains.")

    @property
    def takes_the_rest(self) -> bool:
        """Whether all words from the first one on that is no option are one thing, as in `run`."""
        return any(action.nargs == argparse.REMAINDER for action in self._actions)

    def takes_session(self) -> Parser:
        self.add_argument("--session", metavar="S", help="the session (default: $OUTLAST_SESSION, else 'default')")
        return self

    def takes_policy(self) -> Parser:
        known = "banned, allowlist, ask, guarded, yolo"
        self.add_argument("--policy", metavar="NAME|FILE", help=f"what may run: {known}, or a file (docs/policies.md)")
        return self

    def takes_json(self) -> Parser:
        self.add_argument("--json", action="store_true", help="print JSON")
        return self

    def takes_id(self, many: bool = False) -> Parser:
        self.add_argument("id", metavar="ID", nargs="+" if many else None, help="a task id, or a part of it")
        return self


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    # Options may stand anywhere, also between an id and what follows it.
    return parser.parse_args(words) if parser.takes_the_rest else parser.parse_intermixed_args(words)


def open_shell(session: str | None = None, policy: str | None = None) -> Shell:
    """A person who names no session is the operator and reaches every task; inside a session only its own."""
    ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() else None
    if session is not None:
        # Also if it is empty: never the operator by accident.
        return Shell.open(session=session_name(session), policy=policy, ask=ask, early=False)
    # The settings have the name as well; given here, it would be one that somebody chose, and remember.
    return Shell.open(policy=policy, ask=ask, operator=not os.environ.get("OUTLAST_SESSION"), early=False)


def _ask(approval: Approval) -> Answer:
    from outlast.faces.cli.approve import prompt  # hardly anybody is asked

    return prompt(approval)


def seconds(text: str) -> float:
    """A number of seconds, with s, m or h behind it if one likes."""
    units = {"s": 1, "m": 60, "h": 3600}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        return float(number) * unit
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds") from None


def size(text: str) -> float:
    """A number of bytes, with K, M, G or T behind it if one likes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    try:
        return float(number) * unit
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes, like 500M or 2G") from None


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def number(text: str) -> float:
    """Any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
