"""`Toolbox`: the tools of one profile, for one session.

    with Toolbox.open(session="conversation-7") as box:
        tools = box.as_anthropic()
        reply = box.call("bash", {"command": "make test"})

Operations are coroutines over `AsyncShell`, so any number of calls can wait at the same
time without a thread each; `call` runs one to its end for those who have no event loop.
"""

from __future__ import annotations

import os
import time
from weakref import WeakKeyDictionary

from outlast.errors import BadInput, OutlastError, named
from outlast.faces.tools import arguments, forms, policy
from outlast.faces.tools.messages import for_model
from outlast.faces.tools.model import Profile, Reply
from outlast.faces.tools.names import event_as
from outlast.faces.tools.profiles import profile_named
from outlast.faces.tools.shapes import as_json
from outlast.faces.tools.telling import Telling
from outlast.light import replaced
from outlast.output.cleaner import escape_invisible, inline
from outlast.settings import default_home, load
from outlast.shell.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, TypeVar

    from outlast.faces.tools.model import Tool
    from outlast.notices.board import Event
    from outlast.shell.async_shell import AsyncShell

    T = TypeVar("T")

_LABEL = 120  # characters of the line for people


class Toolbox:
    """The tools of one profile over one shell. Use `Toolbox.open`."""

    def __init__(
        self,
        shell: Shell,
        profile: Profile | str = "default",
        *,
        policy: Any = None,
        write: bool = True,
        longest_wait: float | None = None,
        waiting: AsyncShell | None = None,
    ) -> None:
        """`longest_wait`: no call waits longer, because the client would give up.

        `policy` is the one that the shell was opened with, for descriptions to say what it denies; `waiting` is the
        same shell for those who wait, if the host has one already.
        """
        self.shell, self.policy = shell, policy
        self.profile = profile_named(profile) if isinstance(profile, str) else profile
        self.longest_wait = shell.settings.max_wait_s if longest_wait is None else longest_wait
        self._write = write
        self._given = waiting
        self._waiting: WeakKeyDictionary[object, AsyncShell] = WeakKeyDictionary()
        self._telling = Telling(shell, self.profile)
        self.counted: dict[tuple[str, str], tuple[int, int]] = {}  # how far streams were counted, and what came of it

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        profile: Profile | str = "default",
        *,
        policy: Any = None,
        consent: bool = False,
        write: bool = True,
        longest_wait: float | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **how: Any,
    ) -> Toolbox:
        """Open a shell of its own, with the policy and the settings of the profile. `how` is as for `Shell.open`.

        Commands run in `cwd` (by default the host's directory); where a profile keeps state, a new session begins
        there. `consent`: the user has said yes to running and ending as such, which some profiles ask for each time.
        """
        found = profile_named(profile) if isinstance(profile, str) else profile
        by = _chosen(home, found, policy, consent)
        shell = Shell.open(home, session, by, defaults=found.settings, cwd=cwd, **how)
        return cls(shell, found, policy=by, write=write, longest_wait=longest_wait)

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the shell. Tasks go on."""
        self.say_goodbye()
        self.shell.close()

    def say_goodbye(self) -> None:
        """No more calls will come, and the replies have arrived: for those who close the shell themselves."""
        self._telling.close()

    # --- what there is -------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are offered, always in the same order."""
        return forms.offered(self.profile, self._write)

    def described(self, tool: Tool) -> str:
        """A tool's description, with what this host denies."""
        return forms.described(tool, self.policy)

    def label(self, name: str, given: Mapping[str, Any]) -> str:
        """One line for people about a call."""
        try:
            tool = self._tool(name)
            return inline(tool.label(arguments.checked(tool, dict(given))[0]), _LABEL)
        except OutlastError:
            return inline(name, _LABEL)

    def _may(self, tool: Tool) -> bool:
        return forms.is_offered(tool, self._write)

    def _tool(self, name: str) -> Tool:
        for tool in self.profile.tools:
            if tool.name == name and self._may(tool):
                return tool
        offered = ", ".join(tool.name for tool in self.tools) or "none"
        raise BadInput(f"There is no tool {named(name)} here; offered are: {offered}.")

    # --- calling -------------------------------------------------------------------------

    async def acall(self, name: str, given: object) -> Reply:
        """Call a tool as a model does. What goes wrong is in the reply."""
        began = time.monotonic()
        try:
            tool = self._tool(name)
            taken, remarks = arguments.checked(tool, given)
            reply = await tool.operation(self, taken)
            if remarks:
                reply = with_remark(reply, self.profile, " ".join(remarks))
        except OutlastError as error:
            reply = self._complaint(name, error, given if isinstance(given, dict) else {})
        label = self.label(name, given) if isinstance(given, dict) else inline(name, _LABEL)
        reply = replaced(reply, text=escape_invisible(reply.text))
        return await self.do(self._telling.told, name, label, reply, began)

    def events(self, **how: Any) -> Iterator[Event]:
        """As `Shell.events`, under the names of this profile; only those that it knows."""
        return filter(None, (event_as(self.profile, event) for event in self.shell.events(**how)))

    def call(self, name: str, given: object) -> Reply:
        """As `acall`, to its end. Inside an event loop use `acall`: this one holds it up."""
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.acall(name, given))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as aside:
            return aside.submit(lambda: asyncio.run(self.acall(name, given))).result()

    def _complaint(self, name: str, error: OutlastError, given: Mapping[str, Any]) -> Reply:
        said = OutlastError(for_model(error.message, self.profile.lists))
        data = {"status": "error", "error": said.message, "code": error.code}
        return Reply(self.profile.complain(name, said, given), data, error=True)

    @property
    def waiting(self) -> AsyncShell:
        """The shell, for those who wait in this event loop: each thread that calls has one of its own."""
        import asyncio

        from outlast.shell.async_shell import AsyncShell

        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            self._waiting[loop] = AsyncShell(self.shell)
        return self._waiting[loop]

    async def do(self, verb: Callable[..., T], *args: Any, **how: Any) -> T:
        """Something of the shell that takes a moment and waits for nothing."""
        import asyncio

        return await asyncio.to_thread(verb, *args, **how)

    # --- for others ----------------------------------------------------------------------

    def answer(self, call: Any) -> dict[str, Any]:
        """Do what a model asks in a `tool_use` or a `tool_call`, and answer in the form that its API takes."""
        name, given, put = forms.understood(call)
        return put(self.call(name, given))

    async def aanswer(self, call: Any) -> dict[str, Any]:
        """As `answer`, for asyncio."""
        name, given, put = forms.understood(call)
        return put(await self.acall(name, given))

    def as_anthropic(self) -> list[dict[str, Any]]:
        """For the `tools` of Anthropic's Messages."""
        return forms.as_dictionaries("anthropic", self.tools, self.policy)

    def as_openai(self) -> list[dict[str, Any]]:
        """For the `tools` of OpenAI's Chat Completions."""
        return forms.as_dictionaries("openai", self.tools, self.policy)

    def as_mcp(self) -> list[dict[str, Any]]:
        """As an MCP server lists them."""
        return forms.as_dictionaries("mcp", self.tools, self.policy)

    def as_langchain(self) -> list[Any]:
        """As LangChain's `StructuredTool`s."""
        return forms.as_langchain(self)

    def as_pydantic_ai(self) -> list[Any]:
        """As pydantic-ai's `Tool`s."""
        return forms.as_pydantic_ai(self)

    def as_openai_agents(self) -> list[Any]:
        """As openai-agents' `FunctionTool`s."""
        return forms.as_openai_agents(self)


def with_remark(reply: Reply, profile: Profile, sentence: str) -> Reply:
    """A reply that also says this: as a line, or as `note` in JSON. A JSON list has no place for it but its data."""
    data = {**reply.data, "note": sentence}
    if isinstance(reply.json, dict):
        said = {**reply.json, "note": sentence}
        return replaced(reply, text=as_json(said), json=said, data=data)
    if reply.json is not None:
        return replaced(reply, data=data)
    end = "" if reply.text.endswith("\n") else "\n"
    return replaced(reply, text=f"{reply.text}{end}{profile.remark(sentence)}", data=data)


def _chosen(home: str | os.PathLike[str] | None, profile: Profile, asked: Any, consent: bool) -> Any:
    path = os.fspath(home) if home is not None else default_home(os.environ)
    return policy.chosen(profile, load(path, os.environ, profile.settings), asked, consent=consent)


def awaited(box: Toolbox, seconds: float) -> float:
    """How long a call may wait that would like to wait so long."""
    return max(0.0, min(seconds, box.longest_wait, box.shell.settings.max_wait_s))
