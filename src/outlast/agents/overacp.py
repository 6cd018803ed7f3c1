"""Runs an agent that speaks the Agent Client Protocol: one session, one prompt, and it is let go.

It is offered no files and no terminal of ours: what it does, it does itself, below the task's guards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from importlib.util import find_spec

from outlast.agents.piped import NOT_RUN, die_of, not_started, show
from outlast.agents.streams import short
from outlast.storage import agentfile, task_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from typing import Any

_LONGEST_MESSAGE = 64 << 20
_LEAVE_S = 2.0  # from the end of its input until it is asked to end, and from there until it is made to
_WENT_WELL = "end_turn"


def run(words: list[str], directory: str) -> int:
    """Run the agent: the exit code. Its prompt is our standard input."""
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    # Looked for and not imported: while that takes its half second, the agent starts.
    if find_spec("acp") is None:
        why = "an agent that speaks ACP needs the package agent-client-protocol: pip install 'outlast[acp]'"
        print(f"outlast: {why}", file=sys.stderr)
        agentfile.write({"error": why}, directory)
        return NOT_RUN
    launch, _ = task_directory.read_launch(directory)
    listener = Listener(directory, launch.agent.get("allow") == "yes")
    return asyncio.run(_run(words, prompt, listener))


async def _run(words: list[str], prompt: str, listener: Listener) -> int:
    pipe = asyncio.subprocess.PIPE
    try:
        agent = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, limit=_LONGEST_MESSAGE)
    except OSError as error:
        return not_started(words, error, listener.directory)
    talk = asyncio.ensure_future(_talk(agent, prompt, listener))
    ended = asyncio.ensure_future(agent.wait())
    await asyncio.wait({talk, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not talk.done():
        # Its last words may still be on their way.
        await asyncio.wait({talk}, timeout=_LEAVE_S)
        talk.cancel()
        await asyncio.wait({talk})
    if talk.cancelled() or talk.exception() is not None:
        await asyncio.wait({ended}, timeout=_LEAVE_S)  # its pipe closes before it is gone
    code = _code(talk, listener, agent.returncode)
    await _let_go(agent, ended)
    listener.keep()
    if code < 0:
        die_of(-code)
    return code


async def _talk(agent: Process, prompt: str, listener: Listener) -> str:
    """One session with one prompt: why it stopped."""
    import acp
    from acp.schema import ClientCapabilities, Implementation

    connection = acp.connect_to_agent(listener, agent.stdin, agent.stdout)  # type: ignore[arg-type]
    await connection.initialize(
        protocol_version=acp.PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(),
        client_info=Implementation(name="outlast", version="1"),
    )
    session = await connection.new_session(cwd=os.getcwd(), mcp_servers=[])
    listener.told["agent_session"] = session.session_id
    asking = asyncio.ensure_future(
        connection.prompt(session_id=session.session_id, prompt=[acp.text_block(prompt)]),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: asyncio.ensure_future(connection.cancel(session_id=session.session_id)))
    answer = await asking
    listener.finish_prompt(answer.usage)
    return str(answer.stop_reason)


def _code(talk: asyncio.Future[str], listener: Listener, code: int | None) -> int:
    """The exit code: that of an agent that died on us, or whether it did what it was told."""
    if not talk.cancelled() and talk.exception() is None:
        if talk.result() == _WENT_WELL:
            return 0
        listener.fails(f"it stopped: {talk.result()}")
        return 1
    why = "" if talk.cancelled() else short(talk.exception() or "")
    if code is None:
        listener.fails(why or "it does not answer")
        return 1
    listener.fails(f"it ended before it answered{f' ({why})' if why else ''}")
    return code or 1


async def _let_go(agent: Process, ended: asyncio.Future[int]) -> None:
    """It would wait for another prompt: end its input, then ask it, then make it."""
    if agent.stdin is not None:
        agent.stdin.close()
    for step in (agent.terminate, agent.kill):
        await asyncio.wait({ended}, timeout=_LEAVE_S)
        if ended.done():
            return
        try:
            step()
        except ProcessLookupError:
            return
    await asyncio.wait({ended}, timeout=_LEAVE_S)


class Listener:
    """The client's side of the protocol: shows what the agent says, and answers what it asks."""

    def __init__(self, directory: str, allow: bool) -> None:
        self.directory, self._allow = directory, allow
        self.told: dict[str, Any] = {}
        self._speaking: list[str] = []
        self._titles: dict[str, str] = {}

    def on_connect(self, conn: object) -> None:
        """Nothing is asked of it but what `_talk` asks."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        match update.session_update:
            case "agent_message_chunk":
                self._add_text(str(getattr(update.content, "text", "")))
            case "tool_call" | "tool_call_update":
                self._tool(update)
            case "plan":
                done = sum(1 for entry in update.entries if entry.status == "completed")
                self.told["progress"] = f"{done} of {len(update.entries)}"
            case "usage_update":
                self.told["context_tokens"] = update.used
                if update.cost is not None:
                    self.told["cost_usd" if update.cost.currency == "USD" else "cost"] = update.cost.amount
        self.keep()

    def _add_text(self, text: str) -> None:
        self._speaking.append(text)
        self.told["result"] = "".join(self._speaking)
        show(text)

    def _line(self, text: str) -> None:
        """A line of ours: what the agent says after it is a new text."""
        if self._speaking and not self._speaking[-1].endswith("\n"):
            show("\n")
        self._speaking = []
        show(text + "\n")

    def _tool(self, update: Any) -> None:
        key, title = update.tool_call_id, update.title or ""
        if key not in self._titles:
            self._titles[key] = title
            self._line(f"[{update.kind or 'tool'}] {short(title)}")
        if update.status == "failed":
            self._line(f"[failed] {short(self._titles[key])}")

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        """Answer no, because no user can be asked here, unless the settings say yes for this type of agent."""
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        wanted = "allow_once" if self._allow else "reject_once"
        chosen = next((option for option in options if option.kind == wanted), None)
        what = short(tool_call.title or self._titles.get(tool_call.tool_call_id, tool_call.tool_call_id))
        self._line(f"[permission {'given' if self._allow and chosen else 'refused'}] {what}")
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    def finish_prompt(self, usage: Any) -> None:
        """The prompt was answered; `usage` if it was told."""
        if usage is not None:
            cached = (usage.cached_read_tokens or 0) + (usage.cached_write_tokens or 0)
            self.told["input_tokens"] = usage.input_tokens + cached
            self.told["output_tokens"] = usage.output_tokens
        if self._speaking and not self._speaking[-1].endswith("\n"):
            show("\n")

    def fails(self, why: str) -> None:
        self.told["error"] = why
        self._line(f"[error] {why}")

    def keep(self) -> None:
        agentfile.write(self.told, self.directory)
