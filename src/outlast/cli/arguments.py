"""What a verb takes, said once: the parser, the help and the completion are made from it.

The vocabulary is that of argparse, and so is what is accepted, except that a long option cannot be shortened.
argparse itself takes longer to import than most verbs run.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal

REST = "..."  # all words from the first one on that is no option
_HELP = ("-h", "--help")
_BYTES = "a number of bytes, like 500M or 2G"
_HELP_COLUMN = 24
_HELP_WIDTH = 100


class Asked:
    """The values of the arguments, by their names."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class HelpWanted(Exception):
    """The words ask for the help, which is the message."""


class Argument:
    """An option, or (if its name has no dash) a word at its place."""

    def __init__(
        self,
        names: tuple[str, ...],
        help: str,
        metavar: str = "",
        action: Literal["store", "store_true", "append"] = "store",
        type: Callable[[str], Any] = str,
        default: Any = None,
        nargs: Literal["", "?", "*", "+", "..."] = "",
        dest: str = "",
    ) -> None:
        self.names, self.help, self.metavar, self.action, self.type, self.nargs = (
            names,
            help,
            metavar,
            action,
            type,
            nargs,
        )
        self.is_option = names[0][0] == "-"
        self.dest = dest or names[-1].lstrip("-").replace("-", "_")
        self.default = False if action == "store_true" else default
        self.section, self.group = "", 0

    @property
    def shown(self) -> str:
        """How help shows it."""
        return ", ".join(self.names) + (f" {self.metavar}" if self.metavar else "") if self.is_option else self.metavar

    def convert(self, word: str) -> Any:
        try:
            return self.type(word)
        except ValueError as error:
            raise ValueError(f"{self.names[-1] if self.is_option else self.metavar}: {error}") from None


class Parser:
    """What one verb takes."""

    def __init__(self, verb: str, what: str, examples: str) -> None:
        self.prog, self.what, self.examples = f"outlast {verb}", what, examples
        self.arguments: list[Argument] = []
        self.hint = f"`{self.prog} --help` explains."  # what to do about wrong words
        self._section, self._groups = "options", 0

    # --- declaring -------------------------------------------------------------------------

    def add(self, *names: str, **how: Any) -> Argument:
        """Add an option or a place, in the words of argparse."""
        made = Argument(names, **how)
        made.section = self._section if made.is_option else "arguments"
        self.arguments.append(made)
        return made

    def add_one_of(self, *options: tuple[str, dict[str, Any]]) -> None:
        """Add options of which only one can be used."""
        self._groups += 1
        for name, how in options:
            self.add(name, **how).group = self._groups

    def section(self, title: str) -> None:
        """Show the options that are added from now on under this title."""
        self._section = title

    def takes(self, **places: str) -> Parser:
        """Add places: the name and the help of each."""
        for name, help in places.items():
            self.add(name, metavar=name.upper(), help=help)
        return self

    def takes_session(self) -> Parser:
        self.add("--session", metavar="S", help="the session (default: $OUTLAST_SESSION, else 'default')")
        return self

    def takes_policy(self) -> Parser:
        known = "workspace, banned, programs, allowlist, ask, guarded, yolo"
        self.add("--policy", metavar="NAME|FILE", help=f"what may run: {known}, or a file (docs/policies.md)")
        return self

    def takes_json(self) -> Parser:
        self.add("--json", action="store_true", help="print JSON")
        return self

    def takes_id(self, many: bool = False) -> Parser:
        self.add("id", metavar="ID", nargs="+" if many else "", help="a task id, or a part of it")
        return self

    # --- parsing ---------------------------------------------------------------------------

    def parse(self, words: Sequence[str]) -> Asked:
        """Return what these words ask for; raises BadInput, or HelpWanted."""
        try:
            return self._parse(list(words))
        except ValueError as error:
            raise BadInput(f"{error}; {self.hint}") from None

    def _parse(self, words: list[str]) -> Asked:
        values = {one.dest: one.default for one in self.arguments}
        takes_the_rest = any(one.nargs == REST for one in self.arguments)
        plain: list[str] = []
        used: dict[int, Argument] = {}
        while words:
            word = words.pop(0)
            if word == "--" or (takes_the_rest and not _is_option(word)):
                plain += words if word == "--" else [word, *words]
                break
            if not _is_option(word):
                plain.append(word)
                continue
            option = self._take_option(word, words, values)
            other = used.setdefault(option.group, option) if option.group else option
            if other is not option:
                raise BadInput(
                    f"{other.names[0]} and {option.names[0]} cannot be used together; leave out one of them."
                )
        self._place(plain, values)
        return Asked(**values)

    def _take_option(self, word: str, words: list[str], values: dict[str, Any]) -> Argument:
        name, equals, value = word.partition("=")
        if name in _HELP:
            raise HelpWanted(self.help())
        option = next((one for one in self.arguments if name in one.names and one.is_option), None)
        if option is None:
            if name[1] != "-" and len(name) > 2:  # -fi is -f -i
                words[:0] = [name[:2], f"-{name[2:]}{equals}{value}"]
                return self._take_option(words.pop(0), words, values)
            raise ValueError(f"There is no option {name}{self._near(name)}")
        if option.action == "store_true":
            if equals:
                raise ValueError(f"{name} takes no value")
            values[option.dest] = True
            return option
        if not equals:
            if not words or _is_option(words[0]):
                raise ValueError(f"{name} needs a value: {option.metavar}")
            value = words.pop(0)
        taken = option.convert(value)
        values[option.dest] = [*values[option.dest], taken] if option.action == "append" else taken
        return option

    def _near(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, [one for argument in self.arguments for one in argument.names], 1, 0.7)
        return f" (did you mean {near[0]}?)" if near else ""

    def _place(self, words: list[str], values: dict[str, Any]) -> None:
        """Put the words that are no options in their places."""
        missing = []
        for place in (one for one in self.arguments if not one.is_option):
            if place.nargs in ("", "?"):
                taken, words = words[:1], words[1:]
                if taken:
                    values[place.dest] = place.convert(taken[0])
            else:
                values[place.dest] = taken = words
                words = []
            if not taken and place.nargs in ("", "+"):
                missing.append(place.metavar)
        if missing:
            raise ValueError(f"The following arguments are required: {', '.join(missing)}")
        if words:
            raise ValueError(f"Unrecognized arguments: {' '.join(words)}")

    # --- help ------------------------------------------------------------------------------

    @property
    def usage(self) -> str:
        """How a call looks, without its options."""
        return self.prog + "".join(f" {_as_place(one)}" for one in self.arguments if not one.is_option)

    def help(self) -> str:
        """Return the help of the verb."""
        sections: dict[str, list[tuple[str, str]]] = {"arguments": []}
        for one in self.arguments:
            sections.setdefault(one.section, []).append((one.shown, one.help))
        sections.setdefault("options", []).append(("-h, --help", "show this help"))
        return (
            f"usage: {self.prog} [OPTION]...{self.usage.removeprefix(self.prog)}\n\n{self.what}\n"
            + "".join(f"\n{title}:\n{_rows(rows)}" for title, rows in sections.items() if rows)
            + f"\nexamples:\n{self.examples}\n"
        )


def _is_option(word: str) -> bool:
    """Whether a word is an option, as argparse tells: a number below zero and a text with blanks are values."""
    if word[:1] != "-" or word == "-" or " " in word:
        return False
    return not word[1:].replace(".", "", 1).isdigit()


def _as_place(one: Argument) -> str:
    return {"?": f"[{one.metavar}]", "*": f"[{one.metavar}]...", "+": f"{one.metavar}..."}.get(one.nargs, one.metavar)


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what they mean, in two columns."""
    from textwrap import wrap

    columns = os.environ.get("COLUMNS", "")
    width = min(_HELP_WIDTH, int(columns)) if columns.isdigit() else _HELP_WIDTH
    left = min(_HELP_COLUMN, max(len(name) for name, _ in rows) + 4)
    text = ""
    for name, meaning in rows:
        first, *more = wrap(meaning, max(40, width - left))
        gap = "\n" + " " * left if len(name) + 4 > left else " " * (left - len(name) - 2)
        text += f"  {name}{gap}{first}\n" + "".join(f"{' ' * left}{line}\n" for line in more)
    return text


class VerbGroup:
    """A verb with commands below it, such as `outlast agent start`; each has a parser of its own."""

    def __init__(self, verb: str, what: str, examples: str, commands: Sequence[Parser]) -> None:
        self.prog, self.what, self.examples = f"outlast {verb}", what, examples
        self.commands = {one.prog.rpartition(" ")[2]: one for one in commands}

    def parse(self, words: Sequence[str]) -> Asked:
        """Return what these words ask for; `command` is the name of the command."""
        name = next((word for word in words if word in self.commands), "")
        if name:
            at = list(words).index(name)
            asked = self.commands[name].parse([*words[:at], *words[at + 1 :]])
            asked.__dict__["command"] = name
            return asked
        if any(word in _HELP for word in words):
            raise HelpWanted(self.help())
        wrong = f"There is no `{self.prog} {words[0]}`" if words else f"`{self.prog}` needs a command"
        raise BadInput(f"{wrong}; use one of {', '.join(self.commands)}.")

    def help(self) -> str:
        """Return the help of the verb, with all commands."""
        rows = [
            (one.usage.removeprefix(self.prog).strip(), one.what.partition("\n")[0]) for one in self.commands.values()
        ]
        return (
            f"usage: {self.prog} COMMAND ...\n\n{self.what}\n\ncommands:\n{_rows(rows)}\n"
            f"`{self.prog} COMMAND --help` explains a command.\n\nexamples:\n{self.examples}\n"
        )


# --- types of values -----------------------------------------------------------------------


def seconds(text: str) -> float:
    """Convert a number of seconds; s, m or h may follow it."""
    return _scale(text, {"s": 1, "m": 60, "h": 3600}, "a number of seconds")


def size(text: str) -> float:
    """Convert a number of bytes; K, M, G or T may follow it."""
    return _scale(text.upper(), {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}, _BYTES)


def whole(text: str) -> int:
    """Convert a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def number(text: str) -> float:
    """Convert any number."""
    return _scale(text, {}, "a number")


def _scale(text: str, units: dict[str, int], what: str) -> float:
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        return float(digits) * unit
    except ValueError:
        raise ValueError(f"'{text}' is not {what}") from None
