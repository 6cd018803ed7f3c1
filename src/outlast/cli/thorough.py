"""The words of a verb, parsed by argparse: help, all forms of options, and what is wrong, in one sentence."""

from __future__ import annotations

import argparse

from outlast.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from outlast.cli.options import Parser


class Thorough(argparse.ArgumentParser):
    """What a verb declares; errors are ours, not a screen of usage."""

    def __init__(self, declared: Parser) -> None:
        super().__init__(
            prog=declared.prog,
            usage=declared.usage,
            description=declared.what,
            epilog=f"examples:\n{declared.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        groups: dict[int, Any] = {0: self}
        for one in declared.arguments:
            if one.group not in groups:
                groups[one.group] = self.add_mutually_exclusive_group()
            groups[one.group].add_argument(*one.names, **one.how)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        one, contradicts, other = message.partition(": not allowed with argument ")
        if contradicts:
            raise BadInput(f"{other} and {one} cannot be used together; leave out one of them.")
        raise BadInput(f"{message[:1].upper()}{message[1:]}; `{self.prog} --help` explains.")
