"""`Shell`: short methods over the parts in the modules beside this one."""

from __future__ import annotations

import os
import sys

from outlast.errors import BadInput, Unsupported
from outlast.light import replace
from outlast.settings import default_home
from outlast.shell import validation
from outlast.shell.context import Context, translate_errors
from outlast.shell.control import Control
from outlast.shell.flows import Driver, Flows
from outlast.shell.notices import Notices
from outlast.shell.options import check_options
from outlast.shell.reader import Reader
from outlast.shell.sessions import SessionControl
from outlast.shell.starter import Starter
from outlast.types import NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, Unpack

    from outlast.linux.activity import Activity
    from outlast.notices.notice import Event, Notice
    from outlast.notices.subscription import Calling, Subscription
    from outlast.output.screen import Screen
    from outlast.policy import Policy
    from outlast.policy.rules import Decision
    from outlast.shell.agents import Agents
    from outlast.shell.options import (
        ConditionOptions,
        FollowOptions,
        ListOptions,
        OpenOptions,
        ReadOptions,
        RunOptions,
        StartOptions,
        TaskId,
    )
    from outlast.types import Receipt, Result, Slice, Task, Waited


class Shell:
    """Run commands as tasks of one session in one state directory. Use `Shell.open`.

    Wherever a method takes a task, it takes a `Task`, its id, or a part of its id that no other task has. `sessions`
    has what sessions remember. The other attributes are for the command line, the tools and the servers.
    """

    def __init__(self, context: Context, policy: str | os.PathLike[str] | Policy | None, options: OpenOptions) -> None:
        self.context, self.starter = context, Starter(context, policy, options)
        context.open()
        self.session, self.cwd, self.settings = context.session, context.cwd, context.settings
        self.executor = context.executor
        self.reader = Reader(context)
        self.control = Control(context, self.starter.gate, self.reader.screen)
        self.sessions, self.notice_board = SessionControl(context), Notices(context, self.reader)
        self.flows, self.driver = Flows(context, self.reader, self.starter, self.control), Driver(context)
        self._agents: Agents | None = None
        self.starter.open()

    @classmethod
    @check_options
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        **options: Unpack[OpenOptions],
    ) -> Self:
        """Open the state directory `home` as `session`. An operator reaches every session's tasks.

        `policy` is a name, a file or a `Policy` that holds besides the user's and the project's; `ask` is called with
        an `Approval` for what they do not allow outright. In mode "yolo" nothing is asked, and what is denied stays so.
        With a `sandbox` every command runs in one. `defaults` are settings that hold unless the user has set them.
        Commands run in `cwd` instead of the caller's directory, and a new session begins there. A program that runs one
        command, or only looks, says `prepare=False`: then no shell is started before its command is known.
        """
        if not sys.platform.startswith("linux"):
            raise Unsupported("Outlast needs Linux (5.4 or newer) so far; on Windows run it inside WSL.")
        path = os.path.abspath(os.fspath(home)) if home is not None else default_home(os.environ)
        return cls(Context(path, session, options), policy, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close everything. Tasks go on, but for agents that run in this process."""
        if self._agents is not None:
            self._agents.close()
        self.notice_board.close()
        self.starter.close()
        self.context.close()

    @translate_errors
    def check(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, shell: str | None = None
    ) -> Decision:
        """Return how the policy judges a command, with a reason for each part. Nothing runs, nothing is asked."""
        from outlast.shell.gate import allow_everything

        how: dict[str, Any] = {"session": self.session, "cwd": cwd, "env": env, "shell": shell}
        try:
            request = validation.build_request(command, **how)
        except BadInput:
            if not command.strip() or shell == NO_SHELL:
                raise
            request = replace(
                validation.build_request("true", **how), command=command
            )  # it cannot run, but can be judged
        gate = self.starter.gate(request.cwd)
        return allow_everything() if gate is None else gate.check(request)

    # --- run ---------------------------------------------------------------------------------

    @check_options
    def start(self, command: str = "", **options: Unpack[StartOptions]) -> Waited:
        """Run a command in the background; returns when the task is durable.

        It begins with the session's state and does not change it. A `fresh` command (of `run`, too) neither sees the
        session's state nor changes it: it has the caller's variables and directory.

        It is pending while `max_running` others run, and until all tasks in `after` completed. If one of them fails,
        it ends unrun; with `after_failed="run"` it runs when all have ended. A `name` makes a second start of the
        same command in the same directory one task.

        Secret variables of the caller are held back from it, but for those named in `pass_secrets`.

        With `startup_wait` or `ready` it returns when the command has ended, when a line of its output matches
        `ready`, or when that time has passed; `met` says whether what it waited for came true, `matched` which line
        showed it.

        With `like` it is an earlier task again: command, directory, variables, input, limits, sandbox, terminal, name
        and description, judged anew; what is given now counts first. Secrets and an input that was text are not kept.

        In a `sandbox` it writes to its directory only and reaches no network. `limits=Limits(...)` says how much it
        may use. Subscribers get a notice when a line matches a pattern in `notify`; with `notify=Notify(...)` also
        when it prints nothing for a while.
        """
        return self.driver.drive(self.flows.start(command, **options))

    @check_options
    def run(self, command: str = "", **options: Unpack[RunOptions]) -> Result:
        """Run a command and wait for its end, by default for at most 120 s: then it is ended, if it has no `limit`.

        Most options are as for `start`, `show` as for `read`; `on_output` is called with each slice as it comes. If
        `wait` runs out first, the task goes on and the result says running. With `startup_wait` or `ready` it is only
        waited for as `start` does. With `auto_background` (by default a setting) a development command that has printed
        something after 2 s goes on as if `wait` had run out.
        """
        return self.driver.drive(self.flows.run(command, options))

    @property
    def agent(self) -> Agents:
        """Agents as tasks: start one, or follow one that another program started."""
        if self._agents is None:
            from outlast.shell.agents import Agents  # most shells run none

            self._agents = Agents(self)
        return self._agents

    @check_options
    def read(self, task: TaskId, **options: Unpack[ReadOptions]) -> Result:
        """Return what a task printed, as text: all, from a `cursor`, the last lines (`tail`), a range, what is `new`.

        `new` reads on from where `reader` (by default this session) stopped. `marked`: each line of ours in the text,
        about what is left out, stands between the two `text_stream.MARKS`, which no output contains. `interleaved`:
        the output of a split task is both streams, whole, in the order they came, not one after the other. `page`: if
        more is there than fits, it shows what comes first, not both ends, and `cursor` is where the next page begins.
        """
        return self.reader.read(task, **options)

    @check_options
    def follow(self, task: TaskId, **options: Unpack[FollowOptions]) -> Iterator[Slice]:
        """Yield the task's bytes as they come, to the end of its output (or of its command).

        Secrets are masked, and what may be the beginning of one comes with what follows; not if it is `raw`.
        """
        return self.driver.stream(self.flows.follow(task, **options))

    def show(self, task: TaskId) -> Task:
        """Return what is known of a task now."""
        return self.reader.show(task)

    @check_options
    def list(self, **options: Unpack[ListOptions]) -> list[Task]:
        """Return the tasks of this session (an operator: of all, or of one `session`), newest first.

        `most`: only so many, so that it takes no longer where there are many. `ended_after`: those that go on, and
        (`most` of) those that ended after that moment.
        """
        return self.reader.list(**options)

    @check_options
    def wait(
        self, task: TaskId, timeout: float | None = None, *, new: bool = False, **options: Unpack[ConditionOptions]
    ) -> Waited:
        """Wait for a task's end, by event; when the timeout runs out, it is returned as it is.

        Or for one of these: a line of the output that matches `until` (from `cursor` on; if `new`, from where this
        session's last `read(new=True)` stopped), a TCP `port` that takes connections, a `url` that answers, `quiet`
        for so many seconds. Then the wait is also over when the task is. `met` says whether it came true, `matched`
        what showed it.
        """
        return self.driver.drive(self.flows.wait(task, timeout, new, options))

    def send_and_wait(
        self,
        task: TaskId,
        text: str | bytes = "",
        timeout: float = 5.0,
        *,
        eof: bool = False,
        keys: str | None = None,
        until: str | None = None,
    ) -> Waited:
        """Send input as `send` does, and wait for the program's reaction; with `until`, for a line printed afterwards.

        It has reacted when it waits for input again, or has printed something and then paused.
        """
        return self.driver.drive(self.flows.send_and_wait(task, text, timeout, eof, until, keys))

    def activity(self, task: TaskId) -> Activity:
        """Return what a running task does at this moment, in a few words, with its `evidence`; empty if not seen."""
        return self.reader.activity(task)

    def kill(self, task: TaskId, grace: float | None = None) -> Receipt:
        """End a task's whole tree; returns when it is gone, with a receipt."""
        return self.control.kill_all([task], grace)[0]

    def kill_all(self, tasks: Sequence[TaskId], grace: float | None = None) -> Sequence[Receipt]:
        """End several tasks at once. Nothing is done if one of them is unknown or has nothing left to end."""
        return self.control.kill_all(tasks, grace)

    def send(self, task: TaskId, text: str | bytes = "", *, eof: bool = False, keys: str | None = None) -> None:
        """Feed the input of a task that was started with it kept open, or with a terminal; `eof` ends it.

        On a terminal the end of a line in `text` is the Enter key; bytes go as they are. `keys` are keys instead:
        "<C-c><Up>hello<Enter>" (docs/terminals.md). Without a terminal <C-c> interrupts the command, whatever its
        input is, and <C-d> ends the input.
        """
        self.control.send(task, text, eof=eof, keys=keys)

    def resize(self, task: TaskId, columns: int, rows: int) -> None:
        """Set the size of a running task's terminal. Its program gets SIGWINCH."""
        self.control.resize(task, columns, rows)

    def screen(self, task: TaskId) -> Screen:
        """Return what a person would see on a task's terminal, now or at its end. Secrets are masked."""
        return self.reader.screen(task)

    def clean(self, *, older_than_hours: float | None = None, all_finished: bool = False) -> int:
        """Remove finished tasks with their output; never a running one. Returns how many."""
        return self.control.clean(older_than_hours=older_than_hours, all_finished=all_finished)

    def remove(self, task: TaskId) -> Task:
        """Remove one finished task with its output; returns it as it was. `StillRunning` while anything of it runs."""
        return self.control.remove(task)

    # --- notices -----------------------------------------------------------------------------

    def subscribe(self, name: str, *, from_now: bool = False) -> Subscription:
        """Return the notices for a subscriber of that name. What it has read is kept on disk, for any process.

        A new one begins with the oldest notice that is kept or, `from_now`, with what happens next.
        """
        return self.notice_board.subscribe(name, from_now=from_now)

    def on_notice(self, callback: Callable[[Notice], Any], *, name: str, from_now: bool = False) -> Calling:
        """Have a thread call `callback` with each notice, until the result is closed.

        A notice is acknowledged when its call has returned.
        """
        return self.notice_board.on_notice(callback, name=name, from_now=from_now)

    def notices(self, most: int = 100) -> Sequence[Notice]:
        """Return the latest notices, oldest first; reading them here acknowledges nothing."""
        return self.notice_board.latest(most)

    def verify(self, quoted: str) -> Notice | None:
        """Return the notice that this text quotes; None if it is not genuine, or not this session's."""
        return self.notice_board.verify(quoted)

    def brief(self) -> str:
        """Return one paragraph for a model without memory: what runs in this session, and what ended since the last."""
        return self.notice_board.brief()

    def events(self, *, after: int | None = 0, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """Yield what happened behind that number (None: from now on), oldest first; `follow`: also as it happens."""
        return self.notice_board.events(after=after, follow=follow, timeout=timeout)
