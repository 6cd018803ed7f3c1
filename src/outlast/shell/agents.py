"""`Shell.agent`: agents as tasks.

    shell.agent.register("review", review)            a coroutine function, or a command line
    task = shell.agent.start("review", "Look at the last commit.")
    shell.wait(task.task_id)
    print(shell.agent.result(task.task_id))

Whatever an agent is, it is a task of kind `agent`: all verbs for tasks are for it, too.
"""

from __future__ import annotations

import os
import stat
from functools import partial

from outlast.agents import types
from outlast.agents.types import Agent, Stopped
from outlast.errors import AlreadyEnded, AmbiguousTask, BadInput, Hint, OutlastError, UnknownTask, quote
from outlast.light import fields
from outlast.output.cleaner import inline
from outlast.output.reader import clean
from outlast.shell import validation
from outlast.shell.context import translate_errors
from outlast.shell.control import describe_end
from outlast.shell.options import check_options
from outlast.storage import agentfile
from outlast.types import AGENT, BRIDGE, REGISTERED, Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping
    from typing import Any, Protocol, Unpack

    from outlast.agents.host import Hosting, Run
    from outlast.agents.types import Type
    from outlast.executors.base import Executors
    from outlast.output.redaction import Mask
    from outlast.settings import Settings
    from outlast.shell.context import Context as ShellContext
    from outlast.shell.flows import Driver, Flows
    from outlast.shell.options import AgentOptions, ListOptions, ReadOptions, TaskId
    from outlast.shell.starter import Starter
    from outlast.types import Receipt, Result, Task

    class HostShell(Protocol):
        """What agents need of a `Shell`."""

        context: ShellContext
        session: str
        settings: Settings
        starter: Starter
        executor: Executors
        driver: Driver
        flows: Flows

        def show(self, task: TaskId) -> Task: ...
        def list(self, **options: Unpack[ListOptions]) -> list[Task]: ...
        def read(self, task: TaskId, **options: Unpack[ReadOptions]) -> Result: ...
        def kill(self, task: TaskId, grace: float | None = None) -> Receipt: ...


_FOR_COROUTINES = ("description", "limit", "name", "after", "after_failed")
NO_OUTPUT = "(no output yet)"
_ENDS_S = 10.0  # from the word that an agent is done until its task has ended: a fifth of a second, mostly
_DESCRIPTION = 80  # characters
_READ_BYTES = 4 << 20  # of each end of an output file


class Agents:
    """The agents of one shell."""

    def __init__(self, shell: HostShell) -> None:
        self._shell, self.context = shell, shell.context
        self._templates: dict[str, Type] = {}
        self._hosting: Hosting | None = None

    @property
    def mask(self) -> Mask:
        return self.context.redactor.mask

    def close(self) -> None:
        """End those that run in this process."""
        if self._hosting is not None:
            self._hosting.close(self._end_ours)

    def _end_ours(self, task_ids: list[str]) -> None:
        running = [one for one in task_ids if not self._has_ended(one)]
        try:
            rule = f"its shell was closed, in process {os.getpid()}"
            self._shell.executor.kill(running, self._shell.settings.kill_grace_s, "kill", rule)
        except OutlastError:
            pass  # it was quicker

    # --- which there are -----------------------------------------------------------------

    @translate_errors
    def register(
        self,
        name: str,
        what: Run | str,
        output_file: str | os.PathLike[str] | None = None,
        *,
        format: str | None = None,
    ) -> Agent | None:
        """Register a type of agent; or, with an output file, an agent that another program started.

        `register("review", review)`: the coroutine function runs in this process, as `review(prompt, context)`.
        `register("quick", "claude -p --model haiku …")`: the command line is run; its `format` is guessed if not given.
        `register("worker-7", "review", "/tmp/worker-7.log")`: the agent worker-7, of type review, which prints there.
        """
        validation.agent_name(name)
        if output_file is not None:
            if not isinstance(what, str):
                raise BadInput("An agent that another program started has the name of a type, not a function.")
            return self._register_other(name, validation.agent_name(what), os.path.abspath(os.fspath(output_file)))
        if isinstance(what, str):
            self._templates[name] = types.make_type(name, what, format)
        elif callable(what):
            self._hosts().types[name] = what
        else:
            raise BadInput(f"A type of agent is a coroutine function or a command line, not {quote(what)}.")
        return None

    def types(self) -> dict[str, str]:
        """The types that can be started, each with what it is."""
        found = {name: one.description or one.command for name, one in self._commands().items()}
        ours = self._hosting.types if self._hosting is not None else {}
        return {**found, **{name: (run.__doc__ or "").strip().partition("\n")[0] for name, run in ours.items()}}

    def _commands(self) -> dict[str, Type]:
        return {**types.known(self._shell.settings.agents), **self._templates}

    def _hosts(self) -> Hosting:
        if self._hosting is None:
            from outlast.agents.host import Hosting

            self._hosting = Hosting()
        return self._hosting

    # --- start ---------------------------------------------------------------------------

    @check_options
    @translate_errors
    def start(
        self,
        type: str,
        prompt: str,
        description: str = "",
        *,
        loop: AbstractEventLoop | None = None,
        **options: Unpack[AgentOptions],
    ) -> Task:
        """Start an agent in the background. Its options are those of `Shell.start`.

        One that is a coroutine runs in `loop`, or in an event loop of a thread of its own. Without a description it
        has the beginning of its prompt.
        """
        said = types.check_prompt(prompt)
        how: dict[str, Any] = {"description": description or inline(said, _DESCRIPTION), **options}
        if self._hosting is not None and type in self._hosting.types:
            return self._start_coroutine(type, said, how, loop)
        commands = self._commands()
        if type not in commands:
            names = ", ".join(self.types())
            raise BadInput(f"There is no type of agent {quote(type)}; known are {names}.")
        return self._start_command(commands[type], said, how)

    def _start_command(self, type: Type, prompt: str, how: dict[str, Any]) -> Task:
        command, stdin = types.command_line(type, prompt)
        passes = (*how.pop("pass_secrets", ()), *type.passes)
        agent = {"type": type.name, "prompt": prompt, "format": type.format}
        if type.allow:
            agent["allow"] = "yes"
        given = Stdin(text=stdin.encode("utf-8", "surrogateescape")) if stdin else None
        task, _ = self._shell.starter.launch(command, shell=AGENT, agent=agent, stdin=given, pass_secrets=passes, **how)
        return self.context.redactor.redact(task)

    def _start_coroutine(self, type: str, prompt: str, how: dict[str, Any], loop: AbstractEventLoop | None) -> Task:
        from outlast.agents.host import Context, Line

        how = {key: value for key, value in how.items() if value is not None}
        if unfit := [key for key in how if key not in _FOR_COROUTINES]:
            raise BadInput(f"{quote(unfit[0])} is for commands, and the agent {quote(type)} is a coroutine.")
        line = Line()
        agent = {"type": type, "prompt": prompt, "format": "hosted", "socket": line.name}
        try:
            task, new = self._bridge(f"agent {type}", agent, **how)
        except BaseException:
            line.close()
            raise
        if not new:
            line.close()
            return task
        context = Context(task.task_id, type, prompt, how["description"], self._shell)
        self._hosts().begin(line, partial(self._has_ended, task.task_id), context, loop)
        return task

    def _bridge(self, command: str, agent: Mapping[str, str], **how: Any) -> tuple[Task, bool]:
        """A task for an agent that runs elsewhere; its `command` is only shown."""
        # No sandbox: what runs is ours, and has to reach the host.
        request = validation.build_request(command, session=self._shell.session, shell=BRIDGE, agent=agent, **how)
        task, new = self._shell.starter.launch_request(request)
        return self.context.redactor.redact(task), new

    def _has_ended(self, task_id: str) -> bool:
        try:
            return self._shell.executor.has_reached(task_id, "ended")
        except OutlastError:
            return True  # and was removed

    # --- started by another program -------------------------------------------------------

    def _register_other(self, id: str, type: str, output_file: str) -> Agent:
        agent = {"type": type, "id": id, "format": REGISTERED, "output_file": output_file}
        task, new = self._bridge(f"agent {type} {id}", agent, name=id, stdin=Stdin(open=True))
        if not new:
            raise BadInput(f"The agent {quote(id)} is registered already and runs; use another id, or mark it as done.")
        return _as_agent(task)

    @translate_errors
    def done(self, id: str, *, failed: bool = False) -> Agent | None:
        """Mark an agent that another program started as done, or as failed; None if there is no such agent."""
        try:
            task = self._find(id)
        except UnknownTask:
            return None
        if not _is_other(task):
            raise BadInput(f"{task.task_id} is run by Outlast, which knows itself when it is done; `stop` ends it.")
        if task.finished:
            raise AlreadyEnded(f"{id} has ended already ({describe_end(task)}).")
        self._shell.executor.write(task.task_id, b"failed\n" if failed else b"done\n", eof=False)
        self._shell.driver.drive(self._shell.flows.wait_for_phase(task.task_id, "ended", _ENDS_S))
        return _as_agent(self._shell.show(task.task_id))

    # --- look ----------------------------------------------------------------------------

    @translate_errors
    def status(self, id: str) -> Agent | None:
        """An agent as it is now; nothing if there is none of this id."""
        try:
            return _as_agent(self._find(id))
        except UnknownTask:
            return None

    @translate_errors
    def list(self, *, status: str | None = None) -> list[Agent]:
        """The agents of this session, newest first."""
        found = [_as_agent(task) for task in self._shell.list(kind="agent")]
        return [one for one in found if status in (None, one.status)]

    @translate_errors
    def read(self, id: str) -> str | None:
        """What an agent printed, as text for a model; None if there is no such agent."""
        try:
            task = self._find(id)
        except UnknownTask:
            return None
        if _is_other(task):
            return self.mask.text(_text_of(str((task.metadata or {})["output_file"]), self._shell.settings.shown_chars))
        return self._shell.read(task.task_id).output or NO_OUTPUT

    @translate_errors
    def result(self, id: str) -> str | None:
        """The final answer of an agent, whole; none if it gave none (yet)."""
        task = self._find(id)
        told = agentfile.read(os.path.dirname(task.output_file)).get("result")
        return None if told is None else self.mask.text(str(told))

    def _find(self, id: str) -> Task:
        task = None
        try:
            task = self._shell.show(id)
            if task.task_id == id:
                return _only_agent(task)
        except (UnknownTask, AmbiguousTask):
            pass
        # The newest of that name. Names come before parts of ids.
        named_so = (one for one in self._shell.list(kind="agent") if (one.metadata or {}).get("id") == id)
        return next(named_so, None) or _only_agent(task or self._shell.show(id))

    # --- stop ----------------------------------------------------------------------------

    @translate_errors
    def stop(self, id: str, grace: float | None = None) -> Stopped:
        """End an agent and everything it started. Not a success for one that is unknown or has ended."""
        try:
            task = self._find(id)
            agent = _as_agent(task)
            if task.finished and not task.children:
                return Stopped(False, f"{id} has ended already ({describe_end(task)}).", agent.id, agent.status)
            receipt = self._shell.kill(task.task_id, grace)
        except (UnknownTask, AlreadyEnded) as error:
            return Stopped(False, error.message, id, "unknown" if isinstance(error, UnknownTask) else "failed")
        if receipt.survivors:
            left = ", ".join(map(str, receipt.survivors))
            return Stopped(False, f"{agent.id} was told to end; still alive: {left}.", agent.id, "running")
        said = f"{agent.id} was stopped with everything it started."
        if _is_other(task):
            said = f"{agent.id} is no longer followed and counts as failed. Who started it has to end it."
        return Stopped(True, said, agent.id, _as_agent(receipt).status)


def _only_agent(task: Task) -> Task:
    if task.kind != "agent":
        raise UnknownTask(f"{task.task_id} is no agent.", Hint("`outlast agent list` lists them"))
    return task


def _is_other(task: Task) -> bool:
    """Return whether another program started it."""
    return "output_file" in (task.metadata or {})


def _as_agent(task: Task) -> Agent:
    known = task.metadata or {}
    values = {name: value for name, value in fields(task).items() if name in Agent.__match_args__}
    if task.status == "killed":
        values["status"] = "failed"
    return Agent(**values, id=str(known.get("id") or task.task_id), type=str(known.get("type", "")))


def _text_of(path: str, budget: int) -> str:
    """What an output file has, or why that cannot be said."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return NO_OUTPUT
    except OSError as error:
        return f"(the output cannot be read: {error.strerror}: {path})"
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        return f"(the output cannot be read: it is no plain file: {path})"
    with open(fd, "rb") as file:
        data = file.read(_READ_BYTES)
        if found.st_size > 2 * _READ_BYTES:
            file.seek(-_READ_BYTES, os.SEEK_END)
        data += file.read(_READ_BYTES)
    return clean(data, budget, path).text or NO_OUTPUT
