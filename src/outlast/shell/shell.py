"""`Shell`: short methods over the parts in the modules beside this one."""

from __future__ import annotations

import os
import sys

from outlast import validation
from outlast.errors import BadInput, Unsupported
from outlast.frozen import replaced
from outlast.permissions import YOLO
from outlast.settings import default_home
from outlast.shell.context import Context, translate_errors
from outlast.shell.control import Control, SessionControl
from outlast.shell.flows import Flows, drive, stream
from outlast.shell.notices import Notices
from outlast.shell.reader import Reader
from outlast.shell.starter import Starter
from outlast.types import NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, Unpack

    from outlast.conditions import Condition
    from outlast.executors.base import Executor
    from outlast.gate import Ask
    from outlast.notices.subscription import Calling, Subscription
    from outlast.options import ConditionOptions, ListOptions, ReadOptions, StartOptions
    from outlast.output.first_error import Excerpt
    from outlast.output.redaction import Mask
    from outlast.permissions import Mode, Policy
    from outlast.permissions.judge import Judgement
    from outlast.settings import Settings
    from outlast.shell.agents import Agents
    from outlast.storage.locks import Hold
    from outlast.storage.sessions import Sessions
    from outlast.types import Cursor, Event, Notice, Receipt, Result, Sandbox, SessionState, Slice, Task, Usual, Waited
    from outlast.watch import Watch


class Shell:
    """Commands of one session in one state directory. Use `Shell.open`.

    The parts (`context`, `starter`, `reader`, `flows`, `control`) are for the command line, the tools and the
    servers. They are no documented interface.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.reader, self.starter, self.control = Reader(context), Starter(context), Control(context)
        self.session_control = SessionControl(context)
        self.notice_board = Notices(context, self.reader)
        self.flows = Flows(context, self.reader, self.starter, self.control, self._watch, self._hold)
        self._agents: Agents | None = None

    @classmethod
    def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        *,
        mode: Mode = "default",
        ask: Ask | None = None,
        operator: bool = False,
        sandbox: Sandbox | bool | None = None,
        defaults: Mapping[str, object] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Open the state directory `home` as `session`. An operator reaches every session's tasks.

        `policy` is a name, a file or a `Policy` that holds besides the user's and the project's; `ask` is called with
        an `Approval` for what they do not allow outright. In mode "yolo" nothing is asked, and what is denied stays so.
        With a `sandbox` every command runs in one. `defaults` are settings that hold unless the user has set them.
        Commands run in `cwd` instead of the caller's directory, and a new session begins there.
        """
        if not sys.platform.startswith("linux"):
            raise Unsupported("Outlast needs Linux (5.4 or newer) so far; on Windows run it inside WSL.")
        path = os.path.abspath(os.fspath(home)) if home is not None else default_home(os.environ)
        how: dict[str, Any] = {"operator": operator, "sandbox": sandbox, "defaults": defaults, "cwd": cwd}
        return cls(Context(path, session, policy, mode=mode, ask=ask, **how))

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

    # --- what it is --------------------------------------------------------------------------

    @property
    def session(self) -> str:
        return self.context.session

    @property
    def cwd(self) -> str:
        """The directory that commands run in; empty: the caller's."""
        return self.context.cwd

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def executor(self) -> Executor:
        return self.context.executor

    @property
    def sessions(self) -> Sessions:
        return self.context.sessions

    @property
    def mask(self) -> Mask:
        """What is masked in all that is shown."""
        return self.context.mask

    @property
    def policy(self) -> str:
        """The name of the policy in force."""
        gate = self.context.gate()
        return gate.policy_for("").name if gate else YOLO.name

    def broken_policies(self) -> Sequence[str]:
        """What is wrong with policies that apply; while there is anything, every command needs approval."""
        gate = self.context.gate()
        return [layer.broken for layer in gate.policy_for("").layers if layer.broken] if gate else []

    @translate_errors
    def check(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, shell: str | None = None
    ) -> Judgement:
        """How the policy judges a command, with a reason for each part of it. Nothing runs, nothing is asked."""
        from outlast.gate import unjudged

        how: dict[str, Any] = {"session": self.session, "cwd": cwd, "env": env, "shell": shell}
        try:
            request = validation.request(command, **how)
        except BadInput:
            if not command.strip() or shell == NO_SHELL:
                raise
            request = replaced(
                validation.request("true", **how), command=command
            )  # it cannot run, and is judged anyway
        gate = self.context.gate(request.cwd)
        return unjudged() if gate is None else gate.judged(request)

    # --- run ---------------------------------------------------------------------------------

    @translate_errors
    def start(self, command: str, *, hold: Hold | None = None, **options: Unpack[StartOptions]) -> Task:
        """Run a command in the background; returns when the task is durable.

        It begins with the session's state and does not change it. A `fresh` command (of `run`, too) neither sees the
        session's state nor changes it: it has the caller's variables and directory.

        It is pending while `max_running` others run, and until all tasks in `after` completed. If one of them fails,
        it ends unrun; with `after_failed="run"` it runs when all have ended. A `name` makes a second start of the
        same command in the same directory one task.

        Secret variables of the caller are held back from it, but for those named in `pass_secrets`.

        With `startup_wait` or `ready` it returns when the command has ended, when a line of its output matches
        `ready`, or when that time has passed, and is a `Waited`. While `hold` is open, the task is not removed.

        In a `sandbox` it writes to its directory only and reaches no network. `memory` and `file_size` are bytes,
        `cpu_time` is seconds; each holds for every process by itself.

        Subscribers get a notice when a line matches a pattern in `notify`, and when it prints nothing for
        `silent_after` seconds.
        """
        return drive(self.flows.start(command, hold, **options))

    def run(
        self,
        command: str,
        *,
        wait: float | None = None,
        on_output: Callable[[Slice], None] | None = None,
        auto_background: bool | None = None,
        show: ReadOptions | None = None,
        **options: Unpack[StartOptions],
    ) -> Result:
        """Run a command and wait for its end. The options are as for `start`, `show` as for `read`.

        If `wait` runs out first, the task goes on and the result says running. If no `limit` was asked for and the
        default one strikes while we wait, it is ended. With `startup_wait` or `ready` it is only waited for as `start`
        does. With `auto_background` (by default a setting) a development command that has printed something after
        2 s goes on as if `wait` had run out.
        """
        result = drive(self.flows.run(command, wait, on_output, auto_background, show or {}, **options))
        self.starter.prepare_soon()
        return result

    @property
    def agent(self) -> Agents:
        """Agents as tasks: start one, or follow one that another program started."""
        if self._agents is None:
            from outlast.shell.agents import Agents  # most shells run none

            self._agents = Agents(self)
        return self._agents

    # --- read --------------------------------------------------------------------------------

    def read(self, task_id: str, **options: Unpack[ReadOptions]) -> Result:
        """What a task printed, as text for a model: all, from a cursor, the last lines, a range, or what is new.

        `new` reads on from where `reader` (by default this session) stopped. `marked`: each line of ours in the text,
        about what is left out, stands between the two `selection.MARKS`, which no output contains. `interleaved`: the
        output of a split task is both streams, whole, in the order they came, not one after the other. `page`: if more
        is there than fits, it shows what comes first, not both ends, and `cursor` is where the next page begins.
        """
        return self.reader.read(task_id, **options)

    def follow(
        self,
        task_id: str,
        *,
        cursor: str | Cursor | None = None,
        timeout: float | None = None,
        to_end_of: str = "output",
        leave: Condition | None = None,
        raw: bool = False,
    ) -> Iterator[Slice]:
        """The task's bytes as they come, to the end of its output (or of its command), or until `leave` is true.

        Secrets are masked, and what may be the beginning of one comes with what follows; not if it is `raw`.
        """
        how: dict[str, Any] = {"to_end_of": to_end_of, "leave": leave, "raw": raw}
        return stream(self.flows.follow(task_id, cursor=cursor, timeout=timeout, **how))

    def show(self, task_id: str) -> Task:
        """What is known of a task now."""
        return self.reader.show(task_id)

    def list(self, **options: Unpack[ListOptions]) -> list[Task]:
        """The tasks of this session (an operator: of all, or of one `session`), newest first.

        `most`: only so many, so that it takes no longer where there are many. `ended_after`: those that go on, and
        (`most` of) those that ended after that moment.
        """
        return self.reader.list(**options)

    def usual(self, command: str) -> Usual | None:
        """How long this command took in this session when it last went well, if it did."""
        return self.reader.usual(command)

    def activity(self, task_id: str) -> str:
        """What a running task does at this moment, in a few words; empty if that cannot be seen."""
        return self.reader.activity(task_id)

    def first_error(self, task_id: str) -> Excerpt | None:
        """The first error in what a task printed, with the lines that explain it; None if nothing looks like one."""
        return self.reader.first_error(task_id)

    def line_counts(self, task: Task) -> tuple[int, int]:
        """How many lines of stdout and of stderr are kept."""
        return self.reader.line_counts(task)

    # --- wait --------------------------------------------------------------------------------

    @translate_errors
    def wait(
        self, task_id: str, timeout: float | None = None, *, new: bool = False, **options: Unpack[ConditionOptions]
    ) -> Waited:
        """Wait for a task's end, by event; when the timeout runs out, it is returned as it is.

        Or for one of these: a line of the output that matches `until` (from `cursor` on; if `new`, from where this
        session's last `read(new=True)` stopped), a TCP `port` that takes connections, a `url` that answers, `quiet`
        for so many seconds. Then the wait is also over when the task is. `met` says whether it came true, `matched`
        what showed it.
        """
        return drive(self.flows.wait(task_id, timeout, new, **options))

    @translate_errors
    def send_and_wait(
        self, task_id: str, text: str | bytes = "", timeout: float = 5.0, *, eof: bool = False, until: str | None = None
    ) -> Waited:
        """Send input, and wait until the program has reacted; with `until`, for a line printed afterwards."""
        return drive(self.flows.send_and_wait(task_id, text, timeout, eof, until))

    @translate_errors
    def await_end(self, task_id: str, timeout: float | None) -> bool:
        """Block until the task, named by its whole id, ended; False if the timeout ran out first."""
        self.context.check_reachable(task_id)
        return drive(self.flows.wait_end(task_id, timeout))

    @translate_errors
    def await_begin(self, task_id: str, timeout: float | None) -> bool:
        """Block until the task, named by its whole id, is not pending; False if the timeout ran out first."""
        self.context.check_reachable(task_id)
        return drive(self.flows.wait_begun(task_id, timeout))

    def _watch(self, task_id: str, ends_only: bool) -> Watch:
        return self.executor.watch(task_id, ends_only)

    def _hold(self, task_id: str, ends_only: bool) -> Hold:
        return self.executor.hold(task_id)

    # --- act ---------------------------------------------------------------------------------

    def kill(self, task_id: str, grace: float | None = None) -> Receipt:
        """End a task's whole tree; returns when it is gone, with a receipt."""
        return self.control.kill_all([task_id], grace)[0]

    def kill_all(self, task_ids: Sequence[str], grace: float | None = None) -> Sequence[Receipt]:
        """End several tasks at once. Nothing is done if one of them is unknown or has nothing left to end."""
        return self.control.kill_all(task_ids, grace)

    def send(self, task_id: str, text: str | bytes = "", *, eof: bool = False) -> None:
        """Feed the input of a task that was started with it kept open; `eof` ends it."""
        self.control.send(task_id, text, eof=eof)

    def clean(self, *, older_than_hours: float | None = None, all_finished: bool = False) -> int:
        """Remove finished tasks with their output; never a running one. Returns how many."""
        return self.control.clean(older_than_hours=older_than_hours, all_finished=all_finished)

    def remove(self, task: str | Task) -> Task:
        """Remove one finished task with its output; returns it as it was. `StillRunning` while anything of it runs."""
        return self.control.remove(task)

    # --- sessions ----------------------------------------------------------------------------

    def session_names(self) -> Sequence[str]:
        """The sessions that remember something (an operator: all; otherwise this one)."""
        return self.session_control.names()

    def session_state(self, name: str | None = None) -> SessionState:
        """What a session (by default this one) remembers; secrets are masked."""
        return self.session_control.state(name)

    def reset_session(self, name: str | None = None) -> None:
        """Let a session begin anew, with this process' variables and directory."""
        self.session_control.reset(name)

    def copy_session(self, name: str, target: str) -> None:
        """Make a new session in the state of another; only an operator reaches two."""
        self.session_control.copy(name, target)

    def remove_session(self, name: str | None = None) -> None:
        """Forget a session; refused while tasks of it run."""
        self.session_control.remove(name)

    # --- notices -----------------------------------------------------------------------------

    def subscribe(self, name: str, *, from_now: bool = False) -> Subscription:
        """Notices for a subscriber of that name. What it has read is kept on disk, for any process that opens it.

        A new one begins with the oldest notice that is kept or, `from_now`, with what happens next.
        """
        return self.notice_board.subscribe(name, from_now=from_now)

    def on_notice(self, callback: Callable[[Notice], Any], *, name: str, from_now: bool = False) -> Calling:
        """Have a thread call `callback` with each notice, until the result is closed.

        A notice is acknowledged when its call has returned.
        """
        return self.notice_board.on_notice(callback, name=name, from_now=from_now)

    def notices(self, most: int = 100) -> Sequence[Notice]:
        """The latest notices, oldest first; reading them here acknowledges nothing."""
        return self.notice_board.latest(most)

    def verify(self, said: str) -> Notice | None:
        """The notice that this text quotes; None if it is not genuine, or not this session's."""
        return self.notice_board.verify(said)

    def brief(self) -> str:
        """One paragraph: what runs in this session, and what ended since the last one. For a model without memory."""
        return self.notice_board.brief()

    def events(self, *, after: int | None = 0, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """What happened behind that number (None: from now on), oldest first; with `follow`, also as it happens."""
        return self.notice_board.events(after=after, follow=follow, timeout=timeout)
