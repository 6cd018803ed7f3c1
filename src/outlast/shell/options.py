"""The options of the methods of `Shell`, each list spelled once: `**options: Unpack[CommandOptions]`."""

from __future__ import annotations

from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal, TypedDict, TypeVar

    from outlast.policy import Mode
    from outlast.shell.gate import Ask
    from outlast.types import Cursor, Limits, Notify, Sandbox, Slice, StatusName, Stdin, Stream, Task

    Method = TypeVar("Method", bound=Callable[..., Any])
    TaskId = str | Task  # a task, its id, or a part of its id that no other task has
else:

    class TypedDict:
        """Stands for the real one, whose module takes milliseconds to import: only the names are needed."""

        def __init_subclass__(cls, total=True):
            pass


class OpenOptions(TypedDict, total=False):
    """How a shell is opened: see `Shell.open`."""

    mode: Mode
    ask: Ask | None
    operator: bool
    sandbox: Sandbox | bool | None
    defaults: Mapping[str, object] | None
    cwd: str | os.PathLike[str] | None
    prepare: bool  # whether shells are started before their commands are known


class SharedOptions(TypedDict, total=False):
    """How a command or an agent runs. `validation.build_request` checks the values."""

    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    stdin: str | bytes | Stdin | None
    shell: str | None
    split: bool  # stdout and stderr as two streams
    tty: bool | tuple[int, int] | str | None  # a terminal: True for 80x24, or its columns and rows
    limit: float | None  # seconds until the command is ended
    name: str | None  # a second start of the same command with this name finds the first task
    after: Sequence[TaskId]  # tasks that have to complete first
    after_failed: Literal["skip", "run"]  # what happens if one of them fails
    pass_secrets: Sequence[str]  # names of secret variables that the command gets
    limits: Limits | None  # of memory, processes, CPU time, file sizes
    notify: str | Sequence[str] | Notify | None  # patterns of lines that become notices, or also its silence
    fresh: bool  # neither sees the session's state nor changes it


class AgentOptions(SharedOptions, total=False):
    """How an agent runs."""

    sandbox: Sandbox | bool | None


class CommandOptions(SharedOptions, total=False):
    """How a command runs."""

    description: str
    like: TaskId | None  # a task whose command, directory and options it has; options given now count first
    send: Sequence[str] | None  # files and directories that are copied into its directory there first
    executor: str | None  # where: a name in the settings; none is this machine
    needs: Mapping[str, str | int] | None  # what it asks a cluster for: cpus, memory, gpus, time ...


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


def list_options(kind: type) -> frozenset[str]:
    """Return the names in one of these lists."""
    return frozenset(name for one in kind.__mro__[:-2] for name in one.__annotations__)


class OptionCheck:
    """Checks the keywords of one method: `method(self, task, *, new=False, **options: Unpack[ConditionOptions])`."""

    def __init__(self, method: Callable[..., Any], name: str = "") -> None:
        """`name` is how an error calls the method."""
        while hasattr(method, "__wrapped__"):
            method = method.__wrapped__
        code, listed = method.__code__, method.__annotations__.get("options", "").removeprefix("Unpack[")[:-1]
        self._name = name or method.__qualname__
        self._names = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
        self._names |= list_options(globals()[listed]) if listed else frozenset()

    def __call__(self, given: Mapping[str, Any]) -> None:
        """Raise TypeError for a keyword that the method does not have, with the nearest one that it has."""
        unknown = sorted(given.keys() - self._names)
        if not unknown:
            return
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], self._names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(self._names))}."
        raise TypeError(f"{self._name}() has no option {unknown[0]!r}; {hint}")


def check_options(method: Method) -> Method:
    """Let a method check its keywords before anything else."""
    check = OptionCheck(method)

    @wraps(method)
    def call_checked(*args: Any, **options: Any) -> Any:
        if options:
            check(options)
        return method(*args, **options)

    return call_checked  # type: ignore[return-value]
