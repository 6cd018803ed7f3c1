"""What a caller gives, checked and put into a `Request`. Bad input gets one sentence and leaves nothing behind."""

from __future__ import annotations

import os
from functools import partial

from outlast.errors import BadInput, quote
from outlast.light import fields, replace
from outlast.types import AGENT, NO_SHELL, START, Cursor, Limits, Notify, Request, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeGuard, Unpack

    from outlast.shell.options import CommandOptions
    from outlast.types import Sandbox

LONGEST_COMMAND_BYTES = 1 << 20
LONGEST_DESCRIPTION = 2000
_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 64
SKIP, RUN = "skip", "run"  # what becomes of a task when one that it waits for failed
_MOST_OF_A_RESOURCE = 1 << 53
_LONGEST_PLACE = 18  # digits
_INFINITE = float("inf")
USUAL_SIZE = 80, 24
MOST_COLUMNS, MOST_ROWS = 500, 200


def build_request(
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
    given: Mapping[str, Any] = _open_terminal(options)
    return replace(
        _PLAIN,
        command=_quote_words(command) if options.get("shell") in (NO_SHELL, AGENT) else command,
        session=session_name(session),
        background=background,
        sandbox=sandbox,
        agent=agent or {},
        resources=_check_limits(limits) if (limits := options.get("limits")) is not None else {},
        **{name: check(given[name]) for name, check in _CHECKS.items() if given.get(name) is not None},
    )


def _open_terminal(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of a command; one with a terminal has its input open, which is the keyboard."""
    if (tty := options.get("tty")) is None or tty is False:
        return {**options, "tty": None} if tty is False else options
    stdin = options.get("stdin")
    if options.get("split"):
        raise BadInput("A terminal has one stream of output; leave out split (--split) or tty (--tty).")
    if stdin is not None and stdin not in (Stdin(), Stdin(open=True)):
        raise BadInput(
            "A command with a terminal reads from that; write `COMMAND < FILE`, or send the text once it runs."
        )
    return {**options, "tty": terminal_size(tty), "stdin": Stdin(open=True)}


def terminal_size(size: object) -> tuple[int, int]:
    """Return columns and rows, from COLUMNSxROWS, from two numbers, or (True) those of an ordinary terminal."""
    columns, rows = 0, 0
    if size is True:
        return USUAL_SIZE
    if isinstance(size, str):
        one, _, two = size.partition("x")
        columns, rows = (int(part) if _is_place(part) else 0 for part in (one, two))
    elif isinstance(size, (tuple, list)) and len(size) == 2 and all(type(one) is int for one in size):
        columns, rows = size
    if not (1 <= columns <= MOST_COLUMNS and 1 <= rows <= MOST_ROWS):
        raise BadInput(
            f"{quote(size)} is not the size of a terminal; write COLUMNSxROWS, such as 80x24, "
            f"with at most {MOST_COLUMNS} columns and {MOST_ROWS} rows."
        )
    return columns, rows


def _check_command(command: object) -> None:
    if not isinstance(command, str):
        raise BadInput(f"A command is text, not {type(command).__name__}.")
    if not command.strip():
        raise BadInput("The command is empty; say what to run.")
    size = len(_encode("command", command))
    if size > LONGEST_COMMAND_BYTES:
        raise BadInput(
            f"The command has {size} bytes and at most {LONGEST_COMMAND_BYTES} are taken; put it into a script file."
        )


def _quote_words(words: str) -> str:
    """Quote the words of a command that no shell reads: the same for what judges it, shows it and runs it."""
    import shlex

    try:
        return shlex.join(shlex.split(words))
    except ValueError as error:
        raise BadInput(f"The words of the command cannot be told apart: {error}; close the quotes.") from None


# --- options -----------------------------------------------------------------------------


def _check_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise BadInput(f"The {what} is text, not {type(text).__name__}.")
    if not text:
        raise BadInput(f"The {what} is empty; name one, or leave it out.")
    _encode(what, text)
    return text


def _encode(what: str, text: str) -> bytes:
    if "\0" in text:
        raise BadInput(f"The {what} contains a NUL byte, which no program can be given; remove it.")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        raise BadInput(f"The {what} contains half a surrogate pair, which is no character; remove it.") from None


def _check_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not all(isinstance(text, str) for text in (name, value)):
            raise BadInput(f"The environment variable {quote(name)} is not text; give its name and its value as text.")
        if not name or "=" in name:
            raise BadInput(f"{quote(name)} is not the name of an environment variable; write NAME=VALUE.")
        _encode("environment", name + value)
    return dict(env)


def _check_stdin(stdin: object) -> Stdin:
    if isinstance(stdin, (str, bytes)):
        return Stdin(text=input_bytes(stdin))
    if not isinstance(stdin, Stdin):
        raise BadInput(f"The stdin is text, bytes, or a Stdin (a file, or kept open), not {type(stdin).__name__}.")
    return stdin


def input_bytes(text: str | bytes) -> bytes:
    """Return what a command is given to read."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise BadInput(f"The input is text or bytes, not {type(text).__name__}.")
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise BadInput("The input contains half a surrogate pair, which is no character; remove it.") from None


def _check_description(text: object) -> str:
    if not isinstance(text, str):
        raise BadInput(f"The description is text, not {type(text).__name__}.")
    _encode("description", text)
    if len(text) > LONGEST_DESCRIPTION:
        raise BadInput(
            f"The description has {len(text)} characters and at most {LONGEST_DESCRIPTION} are taken; shorten it."
        )
    return text


def _check_after(after: Sequence[str]) -> tuple[str, ...]:
    if isinstance(after, str) or not all(isinstance(one, str) for one in after):
        raise BadInput("What it waits for is a list of task ids.")
    return tuple(after)


def _check_after_failed(what: str) -> str:
    if what not in (SKIP, RUN):
        raise BadInput(f"{quote(what)} is not what to do after a failure; use {RUN} or {SKIP}.")
    return what


def _check_variables(names: Sequence[object]) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(one, str) and one and "=" not in one for one in names):
        raise BadInput("What to pass on is a list of names of variables; give a value with env, or --env NAME=VALUE.")
    return tuple(map(str, names))


def _check_needs(needs: Mapping[object, object]) -> dict[str, str]:
    for name, value in needs.items():
        if not _is_name(name) or type(value) not in (str, int) or not str(value).strip():
            raise BadInput(f"What a command needs is a name and a value, as in cpus=4, not {name}={value!r}.")
        _check_text(f"value of {name}", str(value))
    return {str(name): str(value) for name, value in needs.items()}


def _check_paths(what: str, paths: Sequence[object]) -> tuple[str, ...]:
    if isinstance(paths, str) or not all(isinstance(one, str) and one for one in paths):
        raise BadInput(f"{what} is a list of paths.")
    return tuple(map(str, paths))


def _check_limits(limits: object) -> dict[str, int]:
    """Return what a command may use of each, as whole numbers; only what the caller named."""
    if not isinstance(limits, Limits):
        raise BadInput(f"The limits are a Limits, as in limits=Limits(memory=2 << 30), not {type(limits).__name__}.")
    found = {}
    for name, value in fields(limits).items():
        if value is None:
            continue
        what = name.replace("_", " ")
        if type(value) not in (int, float) or not -_INFINITE < value < _INFINITE:
            raise BadInput(f"The {what} is a number, not {value!r}.")
        if not 1 <= value <= _MOST_OF_A_RESOURCE:
            raise BadInput(f"The {what} must be 1 or more, and no astronomical number, not {value:g}.")
        found[name] = -int(-value // 1)
    return found


def _check_notify(notify: str | Sequence[str] | Notify) -> dict[str, object]:
    """Return what becomes a notice while the command runs."""
    wanted = notify if isinstance(notify, Notify) else Notify((notify,) if isinstance(notify, str) else tuple(notify))
    for pattern in wanted.lines:
        from outlast.output.line_filter import LineFilter  # most commands have no pattern

        _check_text("pattern to notify of", pattern)
        LineFilter(pattern, None)
    silent = seconds("silence", wanted.silent_after, least=0.001)
    if not wanted.lines and silent is None:
        return {}
    return {"patterns": list(wanted.lines), **({"silent": silent} if silent is not None else {})}


# --- names, durations, cursors -----------------------------------------------------------


def _check_name(what: str, name: object) -> str:
    if not _is_name(name):
        raise BadInput(f"{quote(name)} is no name for {what}; use up to 64 letters, digits, '.', '_' and '-'.")
    return name


def _is_name(name: object) -> TypeGuard[str]:
    """Return whether it can be the name of a file, without surprises."""
    return (
        isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name[0] not in "._-" and _IN_NAMES.issuperset(name)
    )


session_name = partial(_check_name, "a session")
agent_name = partial(_check_name, "an agent")


def seconds(what: str, value: float | None, least: float = 0.0) -> float | None:
    """Return a duration, or None for no end."""
    if value is None:
        return None
    if type(value) not in (int, float) or not -_INFINITE <= value <= _INFINITE:
        raise BadInput(f"The {what} is a number of seconds, not {value!r}.")
    if value < least:
        more = "more than 0" if least else "0 or more"
        raise BadInput(f"The {what} must be {more} seconds, not {value:g}.")
    return None if value == _INFINITE else float(value)


def cursor(text: str | Cursor | None) -> Cursor:
    """Return a cursor as it was handed out."""
    if text is None:
        return START
    if isinstance(text, Cursor):
        return text
    stdout, two, stderr = str(text).strip().partition(",")
    if not _is_place(stdout) or not _is_place(stderr if two else "0"):
        raise BadInput(f"{quote(text)} is not a cursor; use one that an earlier reply gave, or 0 for the start.")
    return Cursor(int(stdout), int(stderr or 0))


def _is_place(digits: str) -> bool:
    return 0 < len(digits) <= _LONGEST_PLACE and digits.isascii() and digits.isdecimal()


# How each option of a command is checked; it becomes the field of a `Request` that has its name.
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "cwd": lambda cwd: _check_text("directory", os.fspath(cwd)),
    "env": _check_env,
    "stdin": _check_stdin,
    "shell": partial(_check_text, "shell"),
    "split": bool,
    "tty": terminal_size,
    "like": partial(_check_text, "task to run again"),
    "limit": partial(seconds, "limit", least=0.001),
    "description": _check_description,
    "name": partial(_check_name, "a task"),
    "after": _check_after,
    "after_failed": _check_after_failed,
    "pass_secrets": _check_variables,
    "notify": _check_notify,
    "fresh": bool,
    "executor": partial(_check_name, "an executor"),
    "needs": _check_needs,
    "send": lambda paths: _check_paths("What to send", paths),
}
_PLAIN = Request(command="", session="", cwd="", env={})
