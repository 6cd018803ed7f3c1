"""The nouns of tools for models: a tool, a profile (a table of tools), a reply."""

from __future__ import annotations

from outlast.errors import LIST_TASKS
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any, Literal

    from outlast.errors import OutlastError
    from outlast.tools.toolbox import Toolbox

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
    operation: Callable[[Toolbox, Arguments], Awaitable[Reply]]
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
