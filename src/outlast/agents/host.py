"""The host's side of an agent that is a coroutine: it runs here, in an event loop, and a task stands for it.

    async def review(prompt: str, agent: Context) -> str:
        agent.print("reading …")
        ...
        return "all is well"

It begins when its task does. Ending the task cancels the coroutine, and the task ends when the
coroutine has.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import traceback
from contextvars import copy_context
from functools import partial

from outlast.agents.hosted import frame, is_ours
from outlast.launch_builder import enter_agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    Run = Callable[[str, "Context"], Awaitable[object]]

_LOOK_EVERY_S = 1.0  # whether a task that has not begun was ended unrun: nothing would come on the socket then
_CLOSE_S = 5.0
CLOSED = "the event loop that it ran in was closed"


class Context:
    """What an agent that is a coroutine has to do with its task. All of it may be called from any thread."""

    def __init__(self, task_id: str, type: str, prompt: str, description: str, shell: Any) -> None:
        self.task_id, self.type, self.prompt, self.description = task_id, type, prompt, description
        self.shell = shell
        """The shell that started it. What it starts while the agent runs is ended with the agent."""
        self.cancelled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._printed = ""

    def print(self, *values: object, sep: str = " ", end: str = "\n") -> None:
        """Print to the output of the task."""
        text = sep.join(map(str, values)) + end
        self._printed = text.strip() or self._printed
        self._say(frame(print=text))

    def progress(self, text: str) -> None:
        """Say how far it is: shown where the task is."""
        self._say(frame(told={"progress": str(text)}))

    def report_usage(
        self, *, input_tokens: int | None = None, output_tokens: int | None = None, cost_usd: float | None = None
    ) -> None:
        """Say what it used so far, in all."""
        told = {"input_tokens": input_tokens, "output_tokens": output_tokens, "cost_usd": cost_usd}
        self._say(frame(told={name: value for name, value in told.items() if value is not None}))

    async def run(self, command: str, **how: Any) -> Any:
        """As `Shell.run`, beside the event loop."""
        return await _aside(partial(self.shell.run, command, **how))

    async def start(self, command: str, **how: Any) -> Any:
        """As `Shell.start`, beside the event loop."""
        return await _aside(partial(self.shell.start, command, **how))

    def _begin(self, writer: asyncio.StreamWriter) -> None:
        self._loop, self._writer = asyncio.get_running_loop(), writer

    def _say(self, said: bytes) -> None:
        if self._loop is not None and self._writer is not None:
            self._loop.call_soon_threadsafe(self._writer.write, said)

    def _result(self, result: object) -> dict[str, Any]:
        """What is told of what it returned; also printed, unless that was the last thing it printed."""
        if result is None:
            return {}
        text = str(result)
        if text.strip() and text.strip() != self._printed:
            self.print(text)
        return {"result": text}


async def _aside(verb: Callable[[], Any]) -> Any:
    """Do it in a thread of its own: those of the event loop are few, and a program does not end before they do."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    around = copy_context()

    def settle(result: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(result) if error is None else done.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = around.run(verb)
        except BaseException as raised:  # whatever it is, who awaits it is to get it
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, daemon=True).start()
    return await done


class Line:
    """Where the process that represents an agent finds its host: a name that cannot be guessed."""

    def __init__(self) -> None:
        self.name = f"outlast-{os.urandom(16).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(1)
        self._socket.setblocking(False)

    async def accept(self, ended: Callable[[], bool]) -> socket.socket | None:
        """The other end, once the task has begun; None if it never will."""
        loop = asyncio.get_running_loop()
        accept = asyncio.ensure_future(loop.sock_accept(self._socket))
        try:
            while True:
                await asyncio.wait({accept}, timeout=_LOOK_EVERY_S)
                if accept.done():
                    found, _ = accept.result()
                    if is_ours(found):
                        return found
                    found.close()
                    accept = asyncio.ensure_future(loop.sock_accept(self._socket))
                elif await asyncio.to_thread(ended):
                    return None
        finally:
            accept.cancel()
            self.close()

    def close(self) -> None:
        self._socket.close()


async def live(line: Line, ended: Callable[[], bool], context: Context, run: Run) -> None:
    """The life of one agent, from the beginning of its task to its end."""
    found = await line.accept(ended)
    if found is None:
        return
    reader, writer = await asyncio.open_connection(sock=found)
    context._begin(writer)
    enter_agent(context.task_id)
    work = asyncio.ensure_future(_work(run, context))
    asked = asyncio.Event()
    listening = asyncio.ensure_future(_listen(reader, asked))
    wanted = asyncio.ensure_future(asked.wait())
    why = ""
    try:
        await asyncio.wait({work, wanted}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        why = CLOSED
    wanted.cancel()
    context.cancelled = not work.done()
    if context.cancelled:
        work.cancel()
        await asyncio.wait({work})
    _tell_end(context, work, why)
    await asyncio.wait({listening}, timeout=_CLOSE_S)  # until it has heard all, and is gone
    listening.cancel()
    writer.close()


async def _work(run: Run, context: Context) -> object:
    return await run(context.prompt, context)


async def _listen(reader: asyncio.StreamReader, asked: asyncio.Event) -> None:
    """Wait until the process that represents it is gone; `asked` is set if the task, or that process, is ended."""
    try:
        while await reader.readline():
            asked.set()
    except (ConnectionError, ValueError):
        pass
    asked.set()


def _tell_end(context: Context, work: asyncio.Future[object], why: str) -> None:
    if work.cancelled():
        told, code = {"error": why or "it was cancelled"}, 1
    elif (error := work.exception()) is not None:
        told, code = {"error": "".join(traceback.format_exception_only(error)).strip()}, 1
        context.print("".join(traceback.format_exception(error)), end="")
    else:
        told, code = context._result(work.result()), 0
    context._say(frame(told=told, code=code))


class Life:
    """One agent that runs here."""

    def __init__(self, task_id: str, line: Line, loop: asyncio.AbstractEventLoop) -> None:
        self.task_id, self._line, self._loop = task_id, line, loop
        self.over = threading.Event()

    def begin(self, life: Coroutine[Any, Any, None], then: Callable[[Life], None]) -> None:
        self._loop.call_soon_threadsafe(self._begin, life, then)

    def _begin(self, life: Coroutine[Any, Any, None], then: Callable[[Life], None]) -> None:
        self._task = self._loop.create_task(life)  # held: the loop itself may forget a task
        self._task.add_done_callback(lambda _: self._handle_end(then))

    def _handle_end(self, then: Callable[[Life], None]) -> None:
        self._line.close()  # also if it was cancelled before it took its first step
        self.over.set()
        then(self)


class Hosting:
    """The agents that run in this process, for one shell."""

    def __init__(self) -> None:
        self.types: dict[str, Run] = {}
        self._lives: set[Life] = set()
        self._own: asyncio.AbstractEventLoop | None = None
        self._guard = threading.Lock()

    def begin(
        self, line: Line, ended: Callable[[], bool], context: Context, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Let an agent live, in a given event loop or in one of ours."""
        life = Life(context.task_id, line, loop or self._own_loop())
        with self._guard:
            self._lives.add(life)
        life.begin(live(line, ended, context, self.types[context.type]), self._lives.discard)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._own is None:
                self._own = asyncio.new_event_loop()
                threading.Thread(target=self._own.run_forever, name="outlast-agents", daemon=True).start()
            return self._own

    def close(self, end: Callable[[list[str]], object]) -> None:
        """`end` the tasks of all that still run, which cancels them."""
        with self._guard:
            lives = list(self._lives)
        if lives:
            end([life.task_id for life in lives])
        for life in lives:
            life.over.wait(_CLOSE_S)  # bounded: a coroutine may refuse to end
        if self._own is not None:
            self._own.call_soon_threadsafe(self._own.stop)
