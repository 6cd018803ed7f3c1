"""What a caller gives, checked and put into a `Request`. Bad input gets one sentence and leaves nothing behind."""

from __future__ import annotations

import os

from outlast.errors import BadInput, named
from outlast.types import AGENT, NO_SHELL, START, Cursor, Request, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeGuard, Unpack

    from outlast.shell.options import CommandOptions, TaskId
    from outlast.types import Sandbox

LONGEST_COMMAND_BYTES = 1 << 20
LONGEST_DESCRIPTION = 2000
_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 64
SKIP, RUN = "skip", "run"  # what becomes of a task when one that it waits for failed
_RESOURCES = ("memory", "processes", "cpu_time", "file_size")
_MOST_RESOURCES = 1 << 53
_LONGEST_PLACE = 18  # digits
_INFINITE = float("inf")


def request(
    command: str,
    *,
    session: str,
    background: bool = True,
    agent: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    **options: Unpack[CommandOptions],
) -> Request:
    """Check what a caller asks for; whether it can run is seen later."""
    _check_command(command)
    cwd, shell, name = options.get("cwd"), options.get("shell"), options.get("name")
    notify, silent_after = options.get("notify", ()), options.get("silent_after")
    return Request(
        command=_quoted(command) if shell in (NO_SHELL, AGENT) else command,
        session=session_name(session),
        cwd=_text("directory", os.fspath(cwd)) if cwd is not None else "",
        env=_check_env(options.get("env") or {}),
        stdin=_stdin(options.get("stdin")),
        shell=_text("shell", shell) if shell is not None else None,
        split=bool(options.get("split")),
        limit=seconds("limit", options.get("limit"), least=0.001),
        description=_description(options.get("description", "")),
        background=background,
        name=task_name(name) if name is not None else "",
        after=_ids(options.get("after", ())),
        after_failed=_after_failed(options.get("after_failed", SKIP)),
        pass_secrets=_names(options.get("pass_secrets", ())),
        sandbox=sandbox,
        resources=_resources(**{name: options.get(name) for name in _RESOURCES}),  # type: ignore[arg-type]
        notify=_notify(notify, silent_after) if notify or silent_after is not None else {},
        agent=agent or {},
        fresh=bool(options.get("fresh")),
    )


def _notify(patterns: str | Sequence[str], silent_after: float | None) -> dict[str, object]:
    """What somebody is to be told of while it runs."""
    from outlast.output.line_filter import LineFilter  # and the engine: a pattern that is none is an error now

    several = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in several:
        LineFilter(_text("pattern to notify of", pattern), None)
    silent = seconds("silence", silent_after, least=0.001)
    return {"patterns": several, **({"silent": silent} if silent is not None else {})}


def _quoted(words: str) -> str:
    """The words of a command that no shell reads: the same for whoever judges it, shows it and runs it."""
    import shlex

    try:
        return shlex.join(shlex.split(words))
    except ValueError as error:
        raise BadInput(f"The words of the command cannot be told apart: {error}; close the quotes.") from None


def _resources(**asked: float | None) -> dict[str, int]:
    """What a command may use of each, as whole numbers; only what somebody named."""
    found = {}
    for name, value in asked.items():
        if value is None:
            continue
        what = name.replace("_", " ")
        if type(value) not in (int, float) or not -_INFINITE < value < _INFINITE:
            raise BadInput(f"The {what} is a number, not {value!r}.")
        if not 1 <= value <= _MOST_RESOURCES:
            raise BadInput(f"The {what} must be 1 or more, and no astronomical number, not {value:g}.")
        found[name] = -int(-value // 1)
    return found


def _names(variables: Sequence[str]) -> tuple[str, ...]:
    if isinstance(variables, str) or not all(isinstance(one, str) for one in variables) or not _are_names(variables):
        raise BadInput("What to pass on is a list of names of variables; give a value with env, or --env NAME=VALUE.")
    return tuple(variables)


def _are_names(variables: Sequence[str]) -> bool:
    return all(one and "=" not in one for one in variables)


def _ids(after: Sequence[TaskId]) -> tuple[str, ...]:
    if isinstance(after, str) or not all(isinstance(one, str) for one in after):
        raise BadInput("What it waits for is a list of task ids.")
    return tuple(map(str, after))


def _after_failed(what: str) -> str:
    if what not in (SKIP, RUN):
        raise BadInput(f"{named(what)} is not what to do after a failure; use {RUN} or {SKIP}.")
    return what


def _check_command(command: object) -> None:
    if not isinstance(command, str):
        raise BadInput(f"A command is text, not {type(command).__name__}.")
    if not command.strip():
        raise BadInput("The command is empty; say what to run.")
    size = len(_encoded("command", command))
    if size > LONGEST_COMMAND_BYTES:
        raise BadInput(
            f"The command has {size} bytes and at most {LONGEST_COMMAND_BYTES} are taken; put it into a script file."
        )


def _encoded(what: str, text: str) -> bytes:
    if "\0" in text:
        raise BadInput(f"The {what} contains a NUL byte, which no program can be given; remove it.")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        raise BadInput(f"The {what} contains half a surrogate pair, which is no character; remove it.") from None


def _text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise BadInput(f"The {what} is text, not {type(text).__name__}.")
    if not text:
        raise BadInput(f"The {what} is empty; name one, or leave it out.")
    _encoded(what, text)
    return text


def _check_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not all(isinstance(text, str) for text in (name, value)):
            raise BadInput(f"The environment variable {named(name)} is not text; give its name and its value as text.")
        if not name or "=" in name:
            raise BadInput(f"{named(name)} is not the name of an environment variable; write NAME=VALUE.")
        _encoded("environment", name + value)
    return dict(env)


def _stdin(stdin: str | bytes | Stdin | None) -> Stdin:
    match stdin:
        case None:
            return Stdin()
        case str():
            return Stdin(text=input_bytes(stdin))
        case bytes():
            return Stdin(text=stdin)
        case Stdin():
            return stdin
    raise BadInput(f"The stdin is text, bytes, or a Stdin (a file, or kept open), not {type(stdin).__name__}.")


def input_bytes(text: str | bytes) -> bytes:
    """What a command is given to read."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise BadInput(f"The input is text or bytes, not {type(text).__name__}.")
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise BadInput("The input contains half a surrogate pair, which is no character; remove it.") from None


def _description(text: str) -> str:
    if not isinstance(text, str):
        raise BadInput(f"The description is text, not {type(text).__name__}.")
    _encoded("description", text)
    if len(text) > LONGEST_DESCRIPTION:
        raise BadInput(
            f"The description has {len(text)} characters and at most {LONGEST_DESCRIPTION} are taken; shorten it."
        )
    return text


def _is_name(name: object) -> TypeGuard[str]:
    """Whether it can be the name of a file, without surprises."""
    return (
        isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name[0] not in "._-" and _IN_NAMES.issuperset(name)
    )


def session_name(name: object) -> str:
    """A session's name: also the name of a file one day, so no surprises."""
    if not _is_name(name):
        raise BadInput(f"{named(name)} is no name for a session; use up to 64 letters, digits, '.', '_' and '-'.")
    return name


def task_name(name: object) -> str:
    """What makes a second start of the same thing one task; also the name of a file."""
    if not _is_name(name):
        raise BadInput(f"{named(name)} is no name for a task; use up to 64 letters, digits, '.', '_' and '-'.")
    return name


def agent_name(name: object) -> str:
    """The name of an agent, or of a type of agents."""
    if not _is_name(name):
        raise BadInput(f"{named(name)} is no name for an agent; use up to 64 letters, digits, '.', '_' and '-'.")
    return name


def seconds(what: str, value: float | None, least: float = 0.0) -> float | None:
    """A duration, or none."""
    if value is None:
        return None
    if type(value) not in (int, float) or not -_INFINITE <= value <= _INFINITE:
        raise BadInput(f"The {what} is a number of seconds, not {value!r}.")
    if value < least:
        more = "more than 0" if least else "0 or more"
        raise BadInput(f"The {what} must be {more} seconds, not {value:g}.")
    return None if value == _INFINITE else float(value)


def cursor(text: str | Cursor | None) -> Cursor:
    """A cursor as it was handed out."""
    if text is None:
        return START
    if isinstance(text, Cursor):
        return text
    stdout, two, stderr = str(text).strip().partition(",")
    if not _is_place(stdout) or not _is_place(stderr if two else "0"):
        raise BadInput(f"{named(text)} is not a cursor; use one that an earlier reply gave, or 0 for the start.")
    return Cursor(int(stdout), int(stderr or 0))


def _is_place(digits: str) -> bool:
    return 0 < len(digits) <= _LONGEST_PLACE and digits.isascii() and digits.isdecimal()


def here() -> str:
    """The directory that we are in; none if it is gone, which whoever runs something there says."""
    try:
        return os.getcwd()
    except OSError:
        return ""
