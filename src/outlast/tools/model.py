"""A tool for models, a profile (a table of tools), a reply, and the context in which a tool works."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from outlast.errors import LIST_TASKS
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any, Literal, TypeVar

    from outlast.errors import OutlastError
    from outlast.shell.async_shell import AsyncShell
    from outlast.shell.shell import Shell

    T = TypeVar("T")
    Arguments = Mapping[str, Any]
    """The arguments of one call, checked; what was left out is not there."""
    Kind = Literal["run", "send", "read", "kill", "list", "clear"]


@frozen
class Reply:
    """What a call answers.

    `text` is for the model. `data` is the same for programs, under Outlast's own names; `user` is a short form for
    people, where the profile has one. `error`: the call itself went wrong. `failed`: the call is fine, and the command
    that it is about has failed. `json`: in a profile whose reply is JSON, the value that `text` is.
    """

    text: str
    data: Mapping[str, Any]
    error: bool = False
    failed: bool = False
    user: str = ""
    json: Any = None


@frozen
class Tool:
    """One operation under the name and with the parameters that a profile gives it.

    `needs_write`: it is not offered to a host that may not write, though it only reads. `listed`: it is offered;
    otherwise it only answers to its name. `normalise` puts the parameters of other tools under this tool's names and
    returns them with what the reply has to say about that.
    """

    name: str
    kind: Kind
    description: str
    schema: Mapping[str, Any]
    operation: Callable[[ToolContext, Arguments], Awaitable[Reply]]
    needs_write: bool = False
    listed: bool = True
    normalise: Callable[[str, dict[str, Any]], tuple[dict[str, Any], list[str]]] | None = None

    @property
    def acts(self) -> bool:
        """Whether it changes something; such a tool is not offered to a host that may not write."""
        return self.kind not in ("read", "list")


@frozen
class Profile:
    """A table of tools: the names and the shape of replies of one design.

    `settings` hold unless the user has set them. `asks`: what needs the user's yes in any case (run, kill).
    `list_hint` says how a model finds its tasks. `events` are the design's names of our events. `shows_notices`: each
    reply carries new notices. `keeps_state`: a command sees what the one before it changed in its shell.
    `render_remark` makes a sentence of ours a line of a reply that is text.
    """

    name: str
    tools: tuple[Tool, ...]
    policy: str
    render_error: Callable[[str, str, Arguments], str]
    settings: Mapping[str, object]
    asks: tuple[str, ...] = ()
    list_hint: str = ""
    events: Mapping[str, str] = {}
    shows_notices: bool = False
    keeps_state: bool = False
    render_remark: Callable[[str], str] = "{}\n".format

    def message_of(self, error: OutlastError) -> str:
        """Return what went wrong, with what a model can do about it."""
        if error.hint is None:
            return error.message
        return error.message_with(self.list_hint if error.hint is LIST_TASKS else error.hint.model)

    @property
    def reading_tool(self) -> Tool:
        """The tool that reads a task's output."""
        return next(tool for tool in self.tools if tool.kind == "read")


class ToolContext:
    """What an operation works with: the shell, the profile, and how long a call may wait."""

    def __init__(
        self,
        shell: Shell,
        profile: Profile,
        longest_wait: float | None = None,
        keeps_position: bool = False,
        waiting: AsyncShell | None = None,
    ) -> None:
        self.shell, self.profile = shell, profile
        self.longest_wait = shell.settings.max_wait_s if longest_wait is None else longest_wait
        self.keeps_position = keeps_position
        self.counted: dict[tuple[str, str], tuple[int, int]] = {}  # of each stream: how far its lines are counted
        self._given = waiting
        self._waiting: WeakKeyDictionary[object, AsyncShell] = WeakKeyDictionary()

    @property
    def waiting(self) -> AsyncShell:
        """The shell for waiting in this event loop: each thread that calls has a loop of its own."""
        import asyncio

        from outlast.shell.async_shell import AsyncShell

        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            self._waiting[loop] = AsyncShell(self.shell)
        return self._waiting[loop]

    async def do(self, verb: Callable[..., T], *args: Any, **how: Any) -> T:
        """Call in a thread what takes a moment and waits for nothing."""
        import asyncio

        return await asyncio.to_thread(verb, *args, **how)

    def longest(self, seconds: float) -> float:
        """Return how long a call may wait that would like to wait so long."""
        return max(0.0, min(seconds, self.longest_wait, self.shell.settings.max_wait_s))
