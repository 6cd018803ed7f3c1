"""The nouns of tools for models: a tool, a profile (a table of tools), a reply."""

from __future__ import annotations

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from outlast.errors import OutlastError
    from outlast.tools.toolbox import Toolbox

    Given = Mapping[str, Any]
    """The arguments of one call, checked; what was left out is not there."""


@frozen
class Reply:
    """What a call answers.

    `text` is for the model. `data` is the same for programs, under Outlast's own names; `user`
    is a short form for people, where the profile has one. `error`: the call itself went wrong.
    `failed`: the call is fine, and the command that it tells of has failed.
    """

    text: str
    data: Mapping[str, Any]
    error: bool = False
    failed: bool = False
    user: str = ""
    json: Any = None
    """In a profile whose reply is JSON: the value that `text` is."""


@frozen
class Tool:
    """One operation under the name and with the parameters that a profile gives it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    operation: Callable[[Toolbox, Given], Awaitable[Reply]]
    label: Callable[[Given], str]
    """One line for people about a call."""
    acts: bool = True
    """Whether it runs, feeds or ends something; not offered to a host that may not write."""
    needs_write: bool = False
    """Whether it is not offered to such a host, though it only reads: a design may say so."""
    understand: Callable[[dict[str, Any]], tuple[dict[str, Any], list[str]]] | None = None
    """Puts other tools' parameters under this tool's names; also returns what to say about them."""
    listed: bool = True
    """Whether it is offered; otherwise it only answers to its name."""


@frozen
class Profile:
    """A table of tools: the names and the shape of replies of one design."""

    name: str
    tools: tuple[Tool, ...]
    policy: str
    complain: Callable[[str, OutlastError, Given], str]
    """What a model is told when a call of that tool goes wrong."""
    settings: Mapping[str, object]
    """What holds in this profile unless the user has set it."""
    asks: tuple[str, ...] = ()
    """What needs a yes of the host's user whatever it is: to run, to kill."""
    lists: str = ""
    """How a model finds its tasks, for error messages."""
    events: Mapping[str, str] = {}
    """What that design calls our events, by what we call them; `tool.call` is what stands before the tool's name."""
    tells: bool = False
    """Whether replies carry new notices: behind the text, or as `notices` in the JSON."""
    keeps_state: bool = False
    """Whether what a command changes in its shell is there for the next one; else each has a fresh shell."""
    remark: Callable[[str], str] = "{}\n".format
    """A sentence of ours as a line of a reply that is text."""

    @property
    def reading_tool(self) -> Tool:
        """The tool that reads a task's output."""
        return next(tool for tool in self.tools if tool.name.lower().endswith("output"))
