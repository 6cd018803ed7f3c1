"""How a command line is judged: allow, ask or deny, part by part.

`bash/` reads the line, every simple command in it is compared with the rules, programs that run other commands are
opened (`commands/wrappers.py`), and the strictest verdict wins. Nothing is allowed that two other readers of bash see
differently (`bash/crosscheck.py`). Pure, but for `bash -n`.
"""

from __future__ import annotations

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

    Verdict = Literal["allow", "ask", "deny"]
else:
    Verdict = str  # importing typing costs more than checking a line


@frozen
class Rules:
    """What is allowed and denied, and what happens to the rest.

    `hazard` is called with the words of each simple command (None for one with a variable other than $HOME in it), and
    with `(">", target)` for each file that is written by redirection; with the directory ("" if it is not known), and
    whether it runs on another machine. A sentence denies it, and asks if it is a `Doubtful` one.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    otherwise: Verdict = "ask"
    any_arguments: bool = False  # an allowed program may be given any arguments; what it then runs counts if denied
    write: tuple[str, ...] = ()  # files that may be written: globs, seen from the directory of the command
    hazard: Callable[[tuple[str | None, ...], str, bool], str | None] | None = None


class Doubtful(str):
    """Why something may be a hazard: a sentence that asks."""


@frozen
class Overrides:
    """What the session has changed, so that names may not mean what they say."""

    functions: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    path_changed: bool = False
    directory: str = ""
    values: Mapping[str, str] = {}  # of all its variables that have one
    texts: Mapping[str, str] = {}  # of its aliases
    bodies: Mapping[str, str] = {}  # of its functions
    traps: tuple[tuple[str, str], ...] = ()  # signals and what they run
    attributes: Mapping[str, str] = {}  # of variables whose assignment does more than to assign
    options: frozenset[str] = frozenset()


@frozen
class Part:
    """One simple command, or one thing that cannot be analysed."""

    command: str
    verdict: Verdict
    rule: str
    why: str
    depth: int
    inside: str


@frozen
class Decision:
    """The verdict on a line, and on each part of it."""

    verdict: Verdict
    parts: tuple[Part, ...]


UNCHANGED = Overrides()
