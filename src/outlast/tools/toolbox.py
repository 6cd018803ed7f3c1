"""`Toolbox`: the tools of one profile, for one session.

    with Toolbox.open(session="conversation-7") as box:
        tools = box.as_anthropic()
        reply = box.call("bash", {"command": "make test"})

Operations are coroutines over `AsyncShell`, so any number of calls can wait at the same time without a thread each;
`call` runs one to its end where there is no event loop.
"""

from __future__ import annotations

import os
import time

from outlast.errors import BadInput, OutlastError, quote
from outlast.light import replace
from outlast.output.cleaner import escape_invisible, inline
from outlast.settings import default_home, load
from outlast.shell.shell import Shell
from outlast.tools import adapters, arguments
from outlast.tools import policy as policies
from outlast.tools.call_log import CallLog, event_as
from outlast.tools.model import Profile, Reply, ToolContext
from outlast.tools.profiles import profile_named
from outlast.tools.reply_fields import add_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Any

    from outlast.notices.notice import Event
    from outlast.shell.async_shell import AsyncShell
    from outlast.tools.model import Tool

_LABEL, _LABEL_ID = 120, 40  # characters of the line for people, and of an id in it
_LABELS = {
    "send": "Send input to {}",
    "read": "Read the output of {}",
    "kill": "End {}",
    "list": "List the tasks",
    "clear": "Remove the finished tasks",
}


class Toolbox(ToolContext):
    """The tools of one profile over one shell. Use `Toolbox.open`."""

    def __init__(
        self,
        shell: Shell,
        profile: Profile | str = "default",
        *,
        policy: Any = None,
        write: bool = True,
        longest_wait: float | None = None,
        keeps_position: bool = False,
        waiting: AsyncShell | None = None,
    ) -> None:
        """`longest_wait`: no call waits longer, because the client would give up. With `keeps_position` a reply shows
        all output, and what it shows does not count as read.

        `policy` is the one that the shell was opened with, for descriptions to say what it denies; `waiting` is the
        same shell for asyncio, if the host has one already.
        """
        found = profile_named(profile) if isinstance(profile, str) else profile
        super().__init__(shell, found, longest_wait, keeps_position, waiting)
        self.policy = policy
        self._write = write
        self._log = CallLog(shell, self.profile)

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
        path = os.fspath(home) if home is not None else default_home(os.environ)
        by = policies.choose(found, load(path, os.environ, found.settings), policy, consent=consent)
        shell = Shell.open(home, session, by, defaults=found.settings, cwd=cwd, **how)
        return cls(shell, found, policy=by, write=write, longest_wait=longest_wait)

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the shell. Tasks go on."""
        self.acknowledge()
        self.shell.close()

    def acknowledge(self) -> None:
        """Acknowledge the notices in the replies, which have arrived; for a host that closes the shell itself."""
        self._log.close()

    # --- what there is -------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are offered, always in the same order."""
        return adapters.list_offered(self.profile, self._write)

    def describe(self, tool: Tool) -> str:
        """Return a tool's description, with what this host denies."""
        return adapters.describe(tool, self.policy)

    def label(self, name: str, given: Mapping[str, Any]) -> str:
        """Return one line for people about a call."""
        try:
            tool = self._find(name)
            return label_of(tool, arguments.check(tool, dict(given))[0])
        except OutlastError:
            return inline(name, _LABEL)

    def _find(self, name: str) -> Tool:
        for tool in self.profile.tools:
            if tool.name == name and adapters.is_offered(tool, self._write):
                return tool
        offered = ", ".join(tool.name for tool in self.tools) or "none"
        raise BadInput(f"There is no tool {quote(name)} here; offered are: {offered}.")

    # --- calling -------------------------------------------------------------------------

    async def acall(self, name: str, given: object) -> Reply:
        """Call a tool as a model does. What goes wrong is in the reply."""
        began = time.monotonic()
        label = inline(name, _LABEL)
        try:
            tool = self._find(name)
            taken, remarks = arguments.check(tool, given)
            label = label_of(tool, taken)
            reply = await tool.operation(self, taken)
            if remarks:
                reply = self._with_remark(reply, " ".join(remarks))
        except OutlastError as error:
            reply = self._error_reply(name, error, given if isinstance(given, dict) else {})
        reply = replace(reply, text=escape_invisible(reply.text))
        return await self.do(self._log.finish, name, label, reply, began)

    def call(self, name: str, given: object) -> Reply:
        """As `acall`, to its end. Inside an event loop use `acall`: this one blocks the loop."""
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.acall(name, given))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as aside:
            return aside.submit(lambda: asyncio.run(self.acall(name, given))).result()

    def _with_remark(self, reply: Reply, sentence: str) -> Reply:
        said = add_text(reply, "note", sentence, self.profile.render_remark(sentence))
        return replace(said, data={**said.data, "note": sentence})

    def _error_reply(self, name: str, error: OutlastError, given: Mapping[str, Any]) -> Reply:
        message = self.profile.message_of(error)
        data = {"status": "error", "error": message, "code": error.code}
        return Reply(self.profile.render_error(name, message, given), data, error=True)

    def events(self, **how: Any) -> Iterator[Event]:
        """As `Shell.events`, under the names of this profile; only those that it knows."""
        return filter(None, (event_as(self.profile, event) for event in self.shell.events(**how)))

    # --- for APIs and frameworks ---------------------------------------------------------

    def answer(self, call: Any) -> dict[str, Any]:
        """Do what a model asks in a `tool_use` or a `tool_call`, and answer in the form that its API takes."""
        name, given, as_answer = adapters.parse_call(call)
        return as_answer(self.call(name, given))

    async def aanswer(self, call: Any) -> dict[str, Any]:
        """As `answer`, for asyncio."""
        name, given, as_answer = adapters.parse_call(call)
        return as_answer(await self.acall(name, given))

    def as_anthropic(self) -> list[dict[str, Any]]:
        """Return the tools for Anthropic's Messages."""
        return adapters.as_dictionaries("anthropic", self.tools, self.policy)

    def as_openai(self) -> list[dict[str, Any]]:
        """Return the tools for OpenAI's Chat Completions."""
        return adapters.as_dictionaries("openai", self.tools, self.policy)

    def as_mcp(self) -> list[dict[str, Any]]:
        """Return the tools as an MCP server lists them."""
        return adapters.as_dictionaries("mcp", self.tools, self.policy)

    def as_langchain(self) -> list[Any]:
        """Return the tools as LangChain's `StructuredTool`s."""
        return adapters.as_langchain(self)

    def as_pydantic_ai(self) -> list[Any]:
        """Return the tools as pydantic-ai's `Tool`s."""
        return adapters.as_pydantic_ai(self)

    def as_openai_agents(self) -> list[Any]:
        """Return the tools as openai-agents' `FunctionTool`s."""
        return adapters.as_openai_agents(self)


def label_of(tool: Tool, given: Mapping[str, Any]) -> str:
    """Return one line for people about a call of this tool."""
    if tool.kind == "run":
        what = given.get("description") or given["command"]
        if what == given.get("command") and given.get("args"):
            import shlex

            what = shlex.join([what, *given["args"]])
        agent = given.get("subagent_type")
        return inline(f"{agent}: {what}" if agent else what, _LABEL)
    task_id = next((inline(given[name], _LABEL_ID) for name in arguments.IDS if name in given), "")
    return inline(_LABELS[tool.kind].format(task_id), _LABEL)
