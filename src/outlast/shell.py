"""`Shell`: the one object that a user holds.

    with Shell.open() as shell:
        result = shell.run("make test")
        server = shell.start("npm run dev")
        print(shell.read(server.task_id).output)

A foreground command is a background task that somebody waits for: `run` is `start`, a
wait, and a read.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading

from outlast import asking, conditions, keeping, reading, secrets, showing
from outlast.errors import (
    AlreadyEnded,
    AmbiguousTask,
    BadInput,
    OutlastError,
    SessionBusy,
    SessionMoved,
    StartFailed,
    SystemRefused,
    UnknownTask,
    Unsupported,
    named,
)
from outlast.executors.local import LocalExecutor
from outlast.frozen import fields
from outlast.masking import OFF
from outlast.model import STREAMS, Waited
from outlast.permissions import MODES, YOLO, Policy, decide, has_a_say
from outlast.reading import Selection
from outlast.sessions import Place, prepare
from outlast.settings import Settings, default_home, development_commands, load
from outlast.store import places
from outlast.store.hold import Hold
from outlast.store.sessionfile import Sessions
from outlast.watch import Deadline, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any, TypeVar

    from outlast.conditions import Condition, UnderWay
    from outlast.gate import Ask, Gate
    from outlast.masking import Mask
    from outlast.model import (
        Cursor,
        Grant,
        Launch,
        Receipt,
        Request,
        Result,
        Sandbox,
        SessionState,
        Slice,
        Stdin,
        Task,
        Usual,
    )
    from outlast.permissions import Mode
    from outlast.permissions.judge import Judgement

    Verb = TypeVar("Verb", bound=Callable[..., Any])
    Seen = TypeVar("Seen", bound=Task)

READY_WAIT_S = 30.0  # how long a start waits for `ready` if nobody said
_STATUS_WORDS = {"error": "failed", "cancelled": "killed"}
_MOVES = 100  # a session may change so often while one command of it is prepared
_LEAVING_S = 1.0  # guards leave within milliseconds of the end, if nothing of the command is left
_STATUSES = ("pending", "running", "completed", "failed", "killed")


def _telling(verb: Verb) -> Verb:
    """What the system refuses in the midst of a verb becomes an error of ours. Not for what calls the caller back."""

    def told(*args: Any, **how: Any) -> Any:
        try:
            return verb(*args, **how)
        except OSError as error:
            if hasattr(error, "of_the_caller"):
                raise
            what = f" ({error.filename})" if error.filename else ""
            raise SystemRefused(f"The system refused what is needed: {error.strerror}{what}; try again.") from None
        except sqlite3.Error as error:
            raise SystemRefused(f"The index of the state directory cannot be used: {error}; try again.") from None
        except OutlastError as error:
            showing.error(error, args[0].mask)
            raise

    told.__name__, told.__doc__ = verb.__name__, verb.__doc__
    told.__wrapped__ = verb  # type: ignore[attr-defined] # for `help` and `inspect.signature`
    return told  # type: ignore[return-value]


class Shell:
    """Commands of one session in one state directory. Use `Shell.open`."""

    def __init__(
        self,
        home: str,
        session: str | None,
        policy: str | os.PathLike[str] | Policy | None = None,
        *,
        mode: Mode = "default",
        ask: Ask | None = None,
        operator: bool = False,
        sandbox: Sandbox | bool | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        self.settings = load(home, os.environ, defaults)
        self.sandbox = sandbox  # of every command that says nothing else
        self.session = asking.session_name(session or self.settings.session)
        self._home, self._ask, self._mode = home, ask, mode
        if mode not in MODES:
            raise BadInput(f"There is no mode {named(mode)}; known are {', '.join(MODES)}.")
        self._call_policy = policy if policy is None or isinstance(policy, Policy) else os.fspath(policy)
        self._gates: dict[str, Gate | None] = {}
        if self._call_policy not in (None, YOLO, YOLO.name):
            self._gate()  # a policy that is not there is an error at once
        self.operator = operator
        self._scope = None if operator else self.session
        self.executor = LocalExecutor(home, self.settings)
        self.named = session is not None or self.session != Settings().session
        self.sessions = Sessions(self.executor.registry.home.sessions)
        self._state = self.session if self.named else ""  # of its own, from the first `run` on
        self._owner = os.getpid()
        self._guard = threading.Lock()
        self._showing = showing.Showing(self.settings)
        self._asked: tuple[Grant, Launch] | None = None  # the last launch, and
        self._asked_before: tuple[Grant, Launch] | None = None

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
        early: bool = True,
    ) -> Shell:
        """Open the state directory `home` as `session`. An operator reaches every session's tasks.

        `policy` is a name, a file or a `Policy` that holds besides the user's and the project's; `ask` is called with
        an `Approval` for what they do not allow outright. In mode "yolo" nothing is asked, and what is denied stays so.
        With a `sandbox` every command runs in one. `defaults` are settings that hold unless the user has set them. What
        it takes to run a command is started at once, so that the first one need not wait for it; if not `early`, by
        the first command.
        """
        if not sys.platform.startswith("linux"):
            raise Unsupported("Outlast needs Linux (5.4 or newer) so far; on Windows run it inside WSL.")
        path = os.path.abspath(os.fspath(home)) if home is not None else default_home(os.environ)
        shell = cls(path, session, policy, mode=mode, ask=ask, operator=operator, sandbox=sandbox, defaults=defaults)
        if early:
            shell.executor.get_ready()
        return shell

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything. Tasks go on."""
        self.executor.close()
        if self._state and not self.named and self._owner == os.getpid():
            try:
                self.sessions.remove(self._state)
            except OSError:
                pass  # whoever opens the next one sweeps
            self._state = ""

    # --- run -----------------------------------------------------------------------------

    @_telling
    def start(
        self,
        command: str,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | Stdin | None = None,
        shell: str | None = None,
        split: bool = False,
        limit: float | None = None,
        description: str = "",
        name: str | None = None,
        after: Sequence[str] = (),
        after_failed: str = asking.SKIP,
        pass_secrets: Sequence[str] = (),
        sandbox: Sandbox | bool | None = None,
        memory: int | None = None,
        processes: int | None = None,
        cpu_time: float | None = None,
        file_size: int | None = None,
        startup_wait: float | None = None,
        ready: str | None = None,
        hold: Hold | None = None,
    ) -> Task:
        """Run a command in the background; returns when the task is durable.

        It begins with the session's state and does not change it. It is pending while `max_running` others run,
        and until all tasks in `after` completed. If one of them fails, it ends unrun; with `after_failed="run"` it
        runs when all have ended. A `name` makes a second start of the same command in the same directory one task.

        Secret variables of the caller are held back from it, but for those named in `pass_secrets`.

        With `startup_wait` or `ready` it returns when the command has ended, when a line of
        its output matches `ready`, or when that time has passed, and is a `Waited`. While
        `hold` is open, the task is not removed.

        In a `sandbox` it writes to its directory only and reaches no network. `memory` and `file_size` are
        bytes, `cpu_time` is seconds; each holds for every process by itself.
        """
        startup = self.startup(startup_wait, ready)
        task, _ = self.launch(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            shell=shell,
            split=split,
            limit=limit,
            description=description,
            name=name,
            after=after,
            after_failed=after_failed,
            pass_secrets=pass_secrets,
            sandbox=sandbox,
            memory=memory,
            processes=processes,
            cpu_time=cpu_time,
            file_size=file_size,
            hold=hold,
        )
        self.warm_up()
        if startup is None:
            return task
        return self._await(task.task_id, startup.condition, startup.seconds)

    @_telling
    def launch(
        self,
        command: str,
        *,
        background: bool = True,
        keeps: bool = False,
        after: Sequence[str] = (),
        hold: Hold | None = None,
        sandbox: Sandbox | bool | None = None,
        **how: Any,
    ) -> tuple[Task, bool]:
        """Start a command, or find the task that has its name; whether it is new.

        A foreground one needs no place. What one that `keeps` changes is there for the session's next one.
        """
        request = asking.request(
            command,
            session=self.session,
            background=background,
            after=self._all_found(after),
            sandbox=self._sandbox_for(sandbox, how.get("cwd")),
            **how,
        )
        for _ in range(_MOVES):
            grant, launch = self._granted(request, keeps)
            try:
                task, new = self.executor.start_or_find(launch, hold)
            except SessionMoved:
                continue  # it was judged and prepared in a state that is gone
            self._asked, self._asked_before = (grant, launch), self._asked
            self._showing.learn(request.env)
            if launch.state:
                self._showing.learn_state(launch.state, self.sessions.known(launch.state))
            return self._shown(task), new
        raise SessionBusy(f"The session {named(self.session)} changes too fast to run anything in it; try again.")

    def _granted(self, request: Request, keeps: bool) -> tuple[Grant, Launch]:
        """Whether it may run, and exactly what does."""
        gate = self._gate(request.cwd)
        if gate is None:
            grant = decide(request, YOLO)
            return grant, self._prepared(grant, keeps)
        return gate.granted(request, lambda grant: self._prepared(grant, keeps))

    def _gate(self, cwd: str = "") -> Gate | None:
        """Who judges a command in this directory; nobody if all is allowed."""
        if cwd not in self._gates:
            self._gates[cwd] = self._gate_for(cwd)
        return self._gates[cwd]

    def _gate_for(self, cwd: str) -> Gate | None:
        if cwd and (usual := self._gate()) is not None:
            return usual
        here = os.path.abspath(os.path.expanduser(cwd)) if cwd else asking.here()
        calm = self._call_policy in (None, YOLO, YOLO.name)
        if calm and not has_a_say(self._home, self.settings.policy, here):
            return None
        from outlast.gate import Around, Gate  # and all that judges

        around = Around(lambda: self.sessions, lambda: self._state)
        return Gate(self._home, self.settings, self._call_policy, self._mode, self._ask, around)

    @property
    def policy(self) -> str:
        """The name of what is in force."""
        gate = self._gate()
        return gate.policy_for("").name if gate else YOLO.name

    def broken_policies(self) -> Sequence[str]:
        """What is wrong with policies that have a say; while there is anything, everything is asked about."""
        gate = self._gate()
        return [layer.broken for layer in gate.policy_for("").layers if layer.broken] if gate else []

    @_telling
    def check(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, shell: str | None = None
    ) -> Judgement:
        """What would be decided of a command now, with a reason for each part of it. Nothing runs, nobody is asked."""
        from outlast.gate import unjudged

        request = asking.request(command, session=self.session, cwd=cwd, env=env, shell=shell)
        gate = self._gate(request.cwd)
        return unjudged() if gate is None else gate.judged(request)

    def _sandbox_for(self, asked: Sandbox | bool | None, cwd: str | None) -> Sandbox | None:
        if not asked and not self.sandbox and not self.settings.sandbox:
            return None
        from outlast.sandbox import wanted  # most commands run without

        return wanted(asked, self.sandbox, self.settings, cwd)

    def _prepared(self, grant: Grant, keeps: bool) -> Launch:
        """What exactly runs for a grant now, in this session's state."""
        try:
            if keeps and not self._state:
                self._begin_own_state()
            place = Place(self.sessions, self._state, keeps) if self._state else None
            environ = dict(os.environ)
            self._showing.notice(environ)
            return prepare(grant, self.settings, environ, place, self.executor.registry.home.path)
        except OSError as error:
            where = os.path.dirname(self.sessions.path)
            raise StartFailed(f"The task cannot be prepared in {where}: {error.strerror}.") from None

    def warm_up(self) -> None:
        """Have the next task prepared, if the last two were asked for alike: it then only has to be let go.

        So a host that runs one command does not pay for a second one, and a command that is like no
        other is no reason to throw away what was prepared.
        """
        asked, before = self._asked, self._asked_before
        if asked is None or before is None or _how_asked(*asked) != _how_asked(*before):
            return
        grant, launch = asked
        try:
            if launch.state and self.sessions.read(launch.state).mark != launch.snapshot:
                launch = self._prepared(grant, launch.keeps)
            self.executor.warm_up(launch)
        except (OSError, ValueError, OutlastError):
            pass  # then the next one begins cold

    def _begin_own_state(self) -> None:
        with self._guard:
            if not self._state:
                self.sessions.sweep()
                self._state = self.sessions.private()

    def release(self, task_id: str, ours: bool = True) -> None:
        """Nobody waits for this one any more: it goes on in the background, and changes nothing in its session."""
        if ours:
            self._own(task_id)
            self.executor.release(task_id)

    def _all_found(self, ids: Sequence[str]) -> Sequence[str]:
        if not ids or isinstance(ids, str):
            return ids
        try:
            return [self._find(one) for one in ids]
        except (UnknownTask, AmbiguousTask) as error:
            raise BadInput(f"It cannot wait for that: {error.message}") from None

    def startup(self, seconds: float | None, ready: str | None) -> Startup | None:
        """How long a start waits, and for what."""
        wait = asking.seconds("startup wait", seconds)
        condition = conditions.chosen(until=ready)
        if seconds is None and condition is None:
            return None
        most = self.settings.max_wait_s
        return Startup(min(READY_WAIT_S if seconds is None else most if wait is None else wait, most), condition)

    def run(
        self,
        command: str,
        *,
        wait: float | None = None,
        on_output: Callable[[Slice], None] | None = None,
        auto_background: bool | None = None,
        show: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Result:
        """Run a command and wait for its end. `how` is as for `start`, `show` as for `read`.

        If `wait` runs out first, the task goes on and the result says running. If no
        `limit` was asked for and the default one strikes while we wait, it is ended. With
        `startup_wait` or `ready` it is only waited for as `start` does. With
        `auto_background` (by default a setting) a development command that has printed
        something after 2 s goes on as if `wait` had run out.
        """
        if how.get("startup_wait") is not None or how.get("ready") is not None:
            refuse_to_wait(wait, on_output)
            with Hold() as hold:
                return self.read(self.start(command, hold=hold, **how).task_id, **(show or {}))
        patience = self.patience(wait, how.get("limit"))
        with Hold() as hold:
            task, ours = self.launch(command, background=False, keeps=True, hold=hold, **how)
            try:
                if task.status == "pending":
                    patience = self._once_begun(task.task_id, patience, wait)
                leave = self.leaving(command, auto_background)
                self._attend(task.task_id, patience, on_output, leave)
            except BaseException:
                self.release(task.task_id, ours)
                raise
            if ours and patience.then_end and not (leave and leave.met) and not self.executor.has_ended(task.task_id):
                self.end_for_limit(task.task_id)
            self.release(task.task_id, ours)
            result = self.read(task.task_id, **(show or {}))
        self.warm_up()
        return result

    def _attend(
        self, task_id: str, patience: Patience, on_output: Callable[[Slice], None] | None, leave: UnderWay | None
    ) -> None:
        if on_output is not None:
            for piece in self.follow(task_id, timeout=patience.seconds, to_end_of="command", leave=leave):
                on_output(piece)
        elif leave is None:
            self.await_end(task_id, patience.seconds)
        else:
            self._await_condition(task_id, leave, patience.seconds)

    def leaving(self, command: str, auto_background: bool | None) -> UnderWay | None:
        """When a foreground command is left alone before its end, if it is."""
        if not (self.settings.auto_background if auto_background is None else auto_background):
            return None
        from outlast.rootcommand import runs_any  # most callers do without

        wanted = runs_any(command, development_commands(self.settings))
        return conditions.UnderWay(self.settings.auto_background_after_s) if wanted else None

    def _once_begun(self, task_id: str, patience: Patience, wait: float | None) -> Patience:
        """The default limit is for running. Until a task runs we wait as long as a call may."""
        if self.executor.has_begun(task_id):
            return patience
        deadline = Deadline(self.settings.max_wait_s if wait is None else patience.seconds)
        begun = self.await_begin(task_id, deadline.left())
        if patience.then_end and begun:
            return patience
        return Patience(deadline.left() or 0.0, then_end=False)

    @_telling
    def await_begin(self, task_id: str, patience: float | None) -> bool:
        """Block until the task is not pending; False if `patience` ran out first."""
        self._own(task_id)
        with self.executor.watch(task_id) as watch:
            return until(watch, lambda: self.executor.has_begun(task_id), Deadline(patience))

    def patience(self, wait: float | None, limit: float | None) -> Patience:
        """How long a foreground call waits, and whether it then ends the task."""
        wait = asking.seconds("wait", wait)
        longest = self.settings.max_wait_s
        if limit is not None:
            return Patience(min(longest if wait is None else wait, longest), then_end=False)
        default = self.settings.foreground_limit_s
        if wait is not None and wait < default:
            return Patience(min(wait, longest), then_end=False)
        return Patience(default, then_end=True)

    def end_for_limit(self, task_id: str) -> Receipt:
        """The default limit struck while somebody waited."""
        self._own(task_id)
        limit = self.settings.foreground_limit_s
        rule = f"default limit of {limit:g} s in the foreground"
        return self.executor.signal([task_id], self.settings.kill_grace_s, "limit", rule)[0]

    # --- read ----------------------------------------------------------------------------

    @_telling
    def read(
        self,
        task_id: str,
        *,
        cursor: str | Cursor | None = None,
        new: bool = False,
        reader: str | None = None,
        tail: int | None = None,
        lines: tuple[int, int | None] | None = None,
        stream: str | None = None,
        filter: str | None = None,
        exclude: str | None = None,
        ignore_case: bool = False,
        max_chars: int | None = None,
        marked: bool = False,
        interleaved: bool = False,
    ) -> Result:
        """What a task printed, as text for a model: all, from a cursor, the last lines, a range, or what is new.

        `new` reads on from where `reader` (by default this session) stopped. `marked`: each line of ours in the text,
        about what is left out, stands between the two `reading.MARKS`, which no output contains. `interleaved`: the
        output of a split task is both streams, whole, in the order they came, not one after the other.
        """
        task = self._shown(self.executor.status(self._find(task_id)))
        directory = os.path.dirname(task.output_file)
        who = reader or f"session {self.session}"
        if new:
            if cursor is not None or tail is not None or lines is not None:
                raise BadInput("What is new starts where the last read ended; leave out cursor, tail and lines.")
            cursor = places.place_of(directory, who)
        selection = Selection(
            cursor=asking.cursor(cursor) if cursor is not None else None,
            tail=tail,
            lines=lines,
            stream=stream,
            filter=filter,
            exclude=exclude,
            ignore_case=ignore_case,
            marked=marked,
            interleaved=interleaved,
        )
        if interleaved and (cursor is not None or selection.tail or lines or filter or exclude):
            raise BadInput("Both streams in the order they came are shown whole; leave out what selects a part.")
        budget = self.settings.shown_chars if max_chars is None else max_chars
        if budget < 1:
            raise BadInput(f"The number of characters to show must be 1 or more, not {budget}.")
        try:
            result = reading.read(
                task, selection, lambda one: self.executor.source(task.task_id, one), budget, self.mask_for(task)
            )
            if new:
                places.move(directory, who, asking.cursor(result.cursor))
        except OSError as error:
            raise self.executor.trouble(task.task_id, error) from None
        return result

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
        task = self.executor.status(self._find(task_id))
        place = asking.cursor(cursor)
        streams = STREAMS if task.split else STREAMS[:1]
        at = {stream: place.at(stream) for stream in streams}
        live = self.live(task, at, raw)
        over = self.executor.is_closed if to_end_of == "output" else self.executor.has_ended
        deadline = Deadline(timeout)
        if leave:
            self.begin(leave, task.task_id)
        with self.executor.watch(task.task_id) as watch:
            while True:
                watch.arm()
                ended = over(task.task_id)
                left = leave is not None and leave.look(ended)
                yield from live.take(self.fresh(task.task_id, at))
                if ended:
                    yield from live.finish()
                if ended or left or deadline.over:
                    return
                watch.wait(shorter(deadline.left(), leave.patience() if leave else None))

    def live(self, task: Task, at: dict[str, int], raw: bool = False) -> showing.Live:
        """How slices are shown that begin at these places; a place inside of a secret moves to its end."""
        live = showing.Live(OFF if raw else self.mask_for(task))
        for stream, place in at.items():
            source = self.executor.source(task.task_id, stream)
            if place and (secret := reading.inside_secret(source, place, source.end(), live.mask)):
                live.begin_inside(stream, place, place + secret)
                at[stream] += secret
        return live

    @property
    def mask(self) -> Mask:
        """What is masked in all that is shown."""
        return self._showing.mask

    def mask_for(self, task: Task) -> Mask:
        """The mask for a task's output: with what its session's commands have set."""
        for name in {task.session, self._state} - {""}:
            if not self._showing.knows(name):
                self._showing.knows_nothing_of(name)
                try:
                    self._showing.learn_state(name, self.sessions.read(name))
                except (OSError, ValueError):
                    continue  # it has no state
        return self.mask

    def _shown(self, task: Seen) -> Seen:
        return showing.task(task, self.mask)

    def fresh(self, task_id: str, at: dict[str, int]) -> Iterator[Slice]:
        """What there is to read now, moving `at` along; bounded, so that a flood cannot hide the end. Not masked."""
        self._own(task_id)
        try:
            for stream, place in at.items():
                source = self.executor.source(task_id, stream)
                for piece in source.chunks(place, source.end()):
                    at[stream] = piece.next
                    yield piece
        except OSError as error:
            raise self.executor.trouble(task_id, error) from None

    # --- wait, end, feed -----------------------------------------------------------------

    @_telling
    def wait(
        self,
        task_id: str,
        timeout: float | None = None,
        *,
        until: str | None = None,
        port: int | str | None = None,
        url: str | None = None,
        quiet: float | None = None,
        cursor: str | Cursor | None = None,
    ) -> Waited:
        """Wait for a task's end, by event; when the timeout runs out, it is returned as it is.

        Or for one of these: a line of the output (from `cursor` on) that matches `until`, a
        TCP `port` that takes connections, a `url` that answers, `quiet` for so many
        seconds. Then the wait is also over when the task is. `met` says whether it came
        true, `matched` what showed it.
        """
        patience = asking.seconds("timeout", timeout)
        condition = conditions.chosen(until=until, port=port, url=url, quiet=quiet, cursor=cursor)
        return self._await(self._find(task_id), condition, patience)

    def _await(self, task_id: str, condition: Condition | None, patience: float | None) -> Waited:
        with self.executor.hold(task_id):
            if condition is None:
                met = self.await_end(task_id, patience)
            else:
                met = self._await_condition(task_id, condition, patience)
            task = self.executor.status(task_id)
        return self.waited(task, met, condition)

    def waited(self, task: Task, met: bool, condition: Condition | None) -> Waited:
        """What a wait found out, as it is shown."""
        self.mask_for(task)
        return self._shown(Waited(**fields(task), met=met, matched=condition.matched if condition else None))

    def _await_condition(self, task_id: str, condition: Condition, patience: float | None) -> bool:
        deadline = Deadline(patience)
        self.begin(condition, task_id)
        with self.executor.watch(task_id) as watch:
            while True:
                watch.arm() if condition.by_output else watch.arm_for_end()
                met, over = self.look(condition, task_id, deadline.left())
                if met or over or deadline.over:
                    return met
                watch.wait(shorter(deadline.left(), condition.patience()))

    def begin(self, condition: Condition, task_id: str) -> None:
        """Show a condition the output that it may look at."""
        self._own(task_id)
        streams = STREAMS if self.executor.status(task_id).split else STREAMS[:1]
        condition.begin({stream: self.executor.source(task_id, stream) for stream in streams})

    def look(self, condition: Condition, task_id: str, left: float | None) -> tuple[bool, bool]:
        """Whether a condition is true now, and whether waiting for it has no point any more."""
        ends = self.executor.is_over if condition.to_end_of == "task" else self.executor.has_ended
        over = ends(task_id)  # before the look: whatever it printed is there by then
        try:
            return condition.look(over, left), over
        except OSError as error:
            raise self.executor.trouble(task_id, error) from None

    @_telling
    def await_end(self, task_id: str, patience: float | None) -> bool:
        """Block until the task ended; False if `patience` ran out first."""
        self._own(task_id)
        with self.executor.watch(task_id) as watch:
            return until(watch, lambda: self.executor.has_ended(task_id), Deadline(patience), ends_only=True)

    def kill(self, task_id: str, grace: float | None = None) -> Receipt:
        """End a task's whole tree; returns when it is gone, with a receipt."""
        return self.kill_all([task_id], grace)[0]

    @_telling
    def kill_all(self, task_ids: list[str], grace: float | None = None) -> list[Receipt]:
        """End several tasks at once. Nothing is done if one of them is unknown or has nothing left to end."""
        patience = self.settings.kill_grace_s if grace is None else asking.seconds("grace", grace)
        found = list(dict.fromkeys(self._find(task_id) for task_id in task_ids))
        for task_id in found:
            task = self.executor.status(task_id)
            if task.finished and not task.children:
                raise AlreadyEnded(f"{task_id} has ended already ({describe_end(task)}); there is nothing left to end.")
        if (gate := self._gate()) is not None:
            gate.may_kill(found, [self.executor.status(task_id).command for task_id in found])
        return self.end_now(found, patience)

    def end_now(self, task_ids: list[str], grace: float | None) -> list[Receipt]:
        """End tasks without asking: somebody was asked, or is at the keyboard and asked for it."""
        rule = f"kill by process {os.getpid()} of user {os.getuid()}"
        receipts = self.executor.signal(task_ids, float("inf") if grace is None else grace, "kill", rule)
        return [self._shown(receipt) for receipt in receipts]

    @_telling
    def send(self, task_id: str, text: str | bytes = "", *, eof: bool = False) -> None:
        """Feed the input of a task that was started with it kept open; `eof` ends it."""
        self.executor.write(self._find(task_id), asking.input_bytes(text), eof)

    # --- list, keep ----------------------------------------------------------------------

    @_telling
    def show(self, task_id: str) -> Task:
        """What is known of a task now."""
        self.executor.advance()
        return self._shown(self.executor.status(self._find(task_id)))

    @_telling
    def list(self, *, status: str | None = None, kind: str | None = None, session: str | None = None) -> list[Task]:
        """The tasks of this session (an operator: of all, or of one), newest first."""
        wanted = _STATUS_WORDS.get(status, status) if status else None
        if wanted is not None and wanted not in _STATUSES:
            raise BadInput(f"There is no status {named(status)}; use one of {', '.join(_STATUSES)}.")
        self.executor.advance()
        tasks, mask = self.executor.registry.tasks(self._scope or session), self.mask
        found = (task for task in tasks if wanted in (None, task.status) and kind in (None, task.kind))
        return [showing.task(task, mask) for task in found]

    @_telling
    def usual(self, command: str) -> Usual | None:
        """How long this command took in this session when it last went well, if it did."""
        return self.executor.registry.usual(command, self.session)

    @_telling
    def activity(self, task_id: str) -> str:
        """What a running task does at this moment, in a few words; nothing if that cannot be seen."""
        from outlast.activity import of_task

        return of_task(self.executor.members(self._find(task_id)))

    @_telling
    def printed_at(self, task: Task) -> float | None:
        """When a task last printed something."""
        sources = [self.executor.source(task.task_id, stream) for stream in (STREAMS if task.split else STREAMS[:1])]
        return max((at for source in sources if (at := source.changed_at()) is not None), default=None)

    @_telling
    def keep_newest(self, most: int) -> int:
        """Remove finished tasks of this session, the oldest first, while there are more than `most` in all."""
        tasks = list(self.executor.registry.tasks(self.session))
        old = [task.task_id for task in reversed(tasks) if task.finished and not task.children]
        return sum(self.executor.registry.remove(task_id) for task_id in old[: max(0, len(tasks) - most)])

    @_telling
    def line_counts(self, task: Task) -> tuple[int, int]:
        """How many lines of stdout and of stderr are kept."""
        self._own(task.task_id)
        return self.executor.registry.line_counts(task)

    @_telling
    def clean(self, *, older_than_hours: float | None = None, all_finished: bool = False) -> int:
        """Remove finished tasks with their output; never a running one. How many."""
        if older_than_hours is not None and not (type(older_than_hours) in (int, float) and older_than_hours >= 0):
            raise BadInput(f"The age must be 0 hours or more, not {older_than_hours}.")
        hours = 0.0 if all_finished else self.settings.retention_hours if older_than_hours is None else older_than_hours
        registry = self.executor.registry
        registry.sweep()
        # Looked at first: only what was seen to be over is known to be over.
        for task in registry.tasks(self._scope):
            if task.finished and not task.closed and not task.children:
                self._await_closed(task.task_id)
        damaged = sum(registry.remove(task_id) for task_id in list(registry.damaged())) if self._scope is None else 0
        removed = damaged + registry.prune(hours * 3600, most=-1, session=self._scope)
        self.executor.forget_names()
        return removed

    def _await_closed(self, task_id: str) -> None:
        """It ended a moment ago, and its guards are just leaving."""
        with self.executor.watch(task_id) as watch:
            until(watch, lambda: self.executor.is_closed(task_id), Deadline(_LEAVING_S))
        self.executor.status(task_id)

    # --- what a session remembers --------------------------------------------------------

    @_telling
    def session_names(self) -> Sequence[str]:
        """The sessions that remember something (an operator: all; otherwise this one)."""
        return [name for name in self.sessions.names() if self._scope in (None, name)]

    @_telling
    def session_state(self, name: str | None = None) -> SessionState:
        """What a session (by default this one) remembers; secrets are masked."""
        return showing.session(keeping.show(self.sessions, self._reached(name), self._scope), self.mask)

    @_telling
    def reset_session(self, name: str | None = None) -> None:
        """Let a session begin anew, with this process' variables and directory."""
        environ = secrets.apart(dict(os.environ), self.settings).open
        keeping.reset(self.sessions, self._reached(name), environ, self._scope)

    @_telling
    def copy_session(self, name: str, target: str) -> None:
        """A new session in the state of another; only an operator reaches two."""
        keeping.copy(self.sessions, self._reached(name), self._reached(target), self._scope)

    @_telling
    def remove_session(self, name: str | None = None) -> None:
        """Forget a session; refused while tasks of it run."""
        found = self._reached(name)
        keeping.remove(self.sessions, found, self.executor.registry.tasks(found), self._scope)

    def _reached(self, name: str | None) -> str:
        if name is None:
            return self._state or self.session
        keeping.only_own(asking.session_name(name), self._scope)
        return name

    @_telling
    def _find(self, part: str) -> str:
        if not isinstance(part, str):
            raise BadInput(f"A task id is text, not {type(part).__name__}.")
        return self.executor.registry.find(part, self._scope)

    def _own(self, task_id: str) -> None:
        """For what takes whole ids only, and is called often."""
        if self._scope is not None and not self.executor.registry.belongs(task_id, self._scope):
            self._find(task_id)  # which says what is wrong


class Startup:
    """How long a start waits for its command, and for what."""

    def __init__(self, seconds: float, condition: Condition | None) -> None:
        self.seconds, self.condition = seconds, condition


def refuse_to_wait(wait: float | None, on_output: object) -> None:
    """A start that waits by itself leaves nothing else to wait for."""
    if wait is not None or on_output is not None:
        raise BadInput("`startup_wait` and `ready` say how long to wait; leave out `wait` and `on_output`.")


def shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two times, where None is for ever."""
    return other if one is None else one if other is None else min(one, other)


def _how_asked(grant: Grant, launch: Launch) -> tuple[object, ...]:
    """What decides whether two launches can use the same preparation."""
    one = grant.request
    return launch.state, one.cwd, one.env, one.stdin, one.shell, one.split


class Patience:
    """How long a foreground call waits, and whether it ends the task then."""

    def __init__(self, seconds: float, then_end: bool) -> None:
        self.seconds, self.then_end = seconds, then_end


def describe_end(task: Task) -> str:
    """How a task ended, in a few words."""
    if task.reason == "exit":
        return f"exit code {task.exit_code}"
    if task.reason == "signal":
        return f"signal {task.signal}"
    if task.ended_by:
        return f"{task.reason}: {task.ended_by}"
    return task.reason or task.status
