"""The options of the methods of `Shell`, each list spelled once: `**options: Unpack[CommandOptions]`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal
    from typing import TypedDict as TypedDict  # noqa: PLC0414 # exported

    from outlast.types import Cursor, Sandbox, Slice, StatusName, Stdin, Stream, Task

    TaskId = str | Task  # a task, its id, or a part of its id that no other task has
else:

    class TypedDict:
        """Stands for the real one, whose module takes milliseconds to import: only the names are needed."""

        def __init_subclass__(cls, total=True):
            pass


class CommandOptions(TypedDict, total=False):
    """How a command runs. `validation.request` checks the values."""

    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    stdin: str | bytes | Stdin | None
    shell: str | None
    split: bool  # stdout and stderr as two streams
    limit: float | None  # seconds until the command is ended
    description: str
    name: str | None  # a second start of the same command with this name finds the first task
    after: Sequence[TaskId]  # tasks that have to complete first
    after_failed: Literal["skip", "run"]  # what happens if one of them fails
    pass_secrets: Sequence[str]  # names of secret variables that the command gets
    memory: int | None  # bytes
    processes: int | None
    cpu_time: float | None  # seconds
    file_size: int | None  # bytes
    notify: str | Sequence[str]  # patterns of lines that become notices
    silent_after: float | None  # seconds without output that become a notice
    fresh: bool  # neither sees the session's state nor changes it


class StartOptions(CommandOptions, total=False):
    """As `CommandOptions`, and how long the start waits for the command."""

    sandbox: Sandbox | bool | None
    startup_wait: float | None
    ready: str | None


class RunOptions(StartOptions, total=False):
    """As `StartOptions`, and how `Shell.run` waits and what it shows."""

    wait: float | None
    on_output: Callable[[Slice], None] | None
    auto_background: bool | None
    show: ReadOptions | None


class ReadOptions(TypedDict, total=False):
    """Which part of the output is read: see `Shell.read`."""

    cursor: str | Cursor | None
    new: bool
    reader: str | None
    tail: int | None
    lines: tuple[int, int | None] | None
    stream: Stream | None
    filter: str | None
    exclude: str | None
    ignore_case: bool
    max_chars: int | None
    marked: bool
    interleaved: bool
    page: bool


class FollowOptions(TypedDict, total=False):
    """From where and to where output is followed: see `Shell.follow`."""

    cursor: str | Cursor | None
    timeout: float | None
    to_end_of: Literal["output", "command"]
    raw: bool


class ConditionOptions(TypedDict, total=False):
    """What to wait for besides the end: see `Shell.wait`."""

    until: str | None
    port: int | str | None
    url: str | None
    quiet: float | None
    cursor: str | Cursor | None


class ListOptions(TypedDict, total=False):
    """Which tasks are listed: see `Shell.list`."""

    status: StatusName | Literal["error", "cancelled"] | None
    kind: Literal["bash", "agent"] | None
    session: str | None
    most: int | None
    ended_after: float | None


_names: dict[type, frozenset[str]] = {}


def check_names(method: str, given: Iterable[str], known: type, *others: str) -> None:
    """Raise TypeError for an option that `method` does not have, with the nearest one that it has.

    `known` is the class that lists its options, `others` are its other keywords.
    """
    if known not in _names:
        _names[known] = frozenset(name for kind in known.__mro__[:-2] for name in kind.__annotations__)
    if _names[known].issuperset(given):
        return
    names = _names[known].union(others)
    unknown = sorted(set(given) - names)
    if not unknown:
        return
    from difflib import get_close_matches

    near = get_close_matches(unknown[0], names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(names))}."
    raise TypeError(f"{method}() has no option {unknown[0]!r}; {hint}")
