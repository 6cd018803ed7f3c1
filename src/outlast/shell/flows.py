"""`run`, `start`, `wait` and `follow`, each written once for `Shell` and `AsyncShell`.

A flow is a generator. It yields a `Wait` (until a task changes) or `Work` (a call that may block) and is resumed with
the result; `follow` also yields the `Slice`s that it reads. `Shell` waits with poll and works in the calling thread,
`AsyncShell` waits in the event loop and works in threads.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial

from outlast.errors import BadInput, Refused
from outlast.light import extended, replaced
from outlast.shell import conditions, validation
from outlast.shell.context import SYSTEM_ERRORS
from outlast.shell.reader import OUTSIDE
from outlast.storage.task_directory import Hold
from outlast.storage.watch import Deadline
from outlast.types import STREAMS, Result, Slice, Waited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, TypeVar, Unpack

    from outlast.executors.base import Phase
    from outlast.shell.conditions import Condition
    from outlast.shell.context import Context
    from outlast.shell.control import Control
    from outlast.shell.options import FollowOptions, TaskId
    from outlast.shell.reader import Reader
    from outlast.shell.starter import Starter
    from outlast.types import Task

    T = TypeVar("T")
    Flow = Generator["Wait | Work | Slice", Any, T]
    OpenWatch = Callable[[str, bool], AbstractContextManager[Any]]
    OnOutput = Callable[[Slice], None]
    Undo = Callable[[Any], None]

# Set by a server whose client brings the user's answer with a second call: in its sandbox the command failed before.
go_outside: ContextVar[bool] = ContextVar("go_outside", default=False)
_NOBODY_TO_ASK = "it can run outside after a yes, and nobody can be asked here"
READY_WAIT_S = 30.0  # how long a start waits for `ready` without a `startup_wait`


class Wait:
    """Wait until the watched task changes. The result is False if the timeout came first."""

    def __init__(self, watch: Any, timeout: float | None) -> None:
        self.watch, self.timeout = watch, timeout


class Work:
    """Call this, which may block. If the flow is cancelled meanwhile, `undo` gets the result that came too late."""

    def __init__(self, call: Callable[[], Any], undo: Undo | None = None, launches: bool = False) -> None:
        self.call, self.undo, self.launches = call, undo, launches


class Flows:
    """The flows of one shell."""

    def __init__(
        self, context: Context, reader: Reader, starter: Starter, control: Control, open_watch: OpenWatch | None = None
    ) -> None:
        """`open_watch` opens what a flow waits on, given a task's id and whether only its end matters."""
        self.context, self._executor = context, context.executor
        self._reader, self._starter, self._control = reader, starter, control
        self._open_watch: OpenWatch = open_watch or context.executor.watch
        home = context.executor.registry.home
        self._hold: OpenWatch = open_watch or (lambda task_id, ends_only: Hold().take(home.task(task_id)))

    # --- start and run -----------------------------------------------------------------------

    def start(self, command: str, hold: Hold | None, options: dict[str, Any]) -> Flow[Waited]:
        seconds, ready = options.pop("startup_wait", None), options.pop("ready", None)
        wait = validation.seconds("startup wait", seconds)
        condition = conditions.choose(until=ready)
        task, _ = yield Work(partial(self._starter.launch, command, hold=hold, **options), launches=True)
        if seconds is None and condition is None:
            return (yield Work(lambda: self._waited(task, False, None)))  # type: ignore[no-any-return]
        longest = self.context.settings.max_wait_s
        timeout = READY_WAIT_S if seconds is None else longest if wait is None else wait
        return (yield from self._wait_for(task.task_id, condition, min(timeout, longest)))

    def run(self, command: str, options: dict[str, Any]) -> Flow[Result]:
        """Run a command; if it failed because of the policy's sandbox, run it again outside after a yes."""
        if go_outside.get() and self._starter.is_kept_inside(options):
            options["sandbox"] = False
        result = yield from self._run(command, dict(options))
        if not (result.error or "").startswith(OUTSIDE) or not self._starter.is_kept_inside(options):
            return result
        if not self._starter.can_ask:
            return replaced(result, error=f"{result.error}; {_NOBODY_TO_ASK}")
        try:
            return (yield from self._run(command, {**options, "sandbox": False, "evidence": result.error}))
        except Refused as refused:
            return replaced(result, error=f"{result.error}; {refused.message}")

    def _run(self, command: str, options: dict[str, Any]) -> Flow[Result]:
        how = {name: options.pop(name, None) for name in ("wait", "on_output", "auto_background", "show")}
        with Hold() as hold:
            if options.get("startup_wait") is not None or options.get("ready") is not None:
                if how["wait"] is not None or how["on_output"] is not None:
                    raise BadInput("`startup_wait` and `ready` say how long to wait; leave out `wait` and `on_output`.")
                task_id = (yield from self.start(command, hold, options)).task_id
            else:
                given = {name: value for name, value in options.items() if name not in ("startup_wait", "ready")}
                task_id = yield from self._run_in_foreground(command, hold, given, how)
            return (yield Work(lambda: self._read(task_id, how["show"] or {})))  # type: ignore[no-any-return]

    def _run_in_foreground(
        self, command: str, hold: Hold, options: Mapping[str, Any], how: Mapping[str, Any]
    ) -> Flow[str]:
        """Start a command and wait for it; when the wait is over, end it or let it go on. Returns its id."""
        settings, wait, on_output, wants = self.context.settings, how["wait"], how["on_output"], how["auto_background"]
        seconds, then_end = self.foreground_wait(wait, options.get("limit"))
        launch = partial(self._starter.launch, command, background=False, keeps=True, hold=hold, **options)
        task, ours = yield Work(launch, undo=self._release, launches=True)
        task_id: str = task.task_id
        try:
            if task.status == "pending":
                # The default limit counts from the moment that the command begins.
                deadline = Deadline(settings.max_wait_s if wait is None else seconds)
                begun = yield from self.wait_begun(task_id, deadline.left())
                if not (then_end and begun):
                    seconds, then_end = deadline.left() or 0.0, False
            leaves = settings.auto_background if wants is None else wants
            leave = conditions.choose_leave(command, leaves, settings) if leaves else None
            if on_output is None and leave is None:
                ended = yield from self.wait_end(task_id, seconds)
            else:
                if leave is not None and on_output is None:
                    yield from self._wait_condition(task_id, leave, Deadline(seconds))
                else:
                    yield from self.follow(task_id, on_output, leave, timeout=seconds, to_end_of="command")
                ended = self._executor.has_reached(task_id, "ended")
        except BaseException:
            self._release((task, ours))
            raise
        if not ended:
            if ours and then_end and not (leave and leave.met):
                yield Work(partial(self._control.end_for_limit, task_id))
            self._release((task, ours))
        return task_id

    def _release(self, launched: tuple[Task, bool]) -> None:
        task, ours = launched
        if ours:
            self._control.release(task.task_id)

    def _read(self, task_id: str, show: Mapping[str, Any]) -> Result:
        """Read what a foreground command printed; mostly it is over, and often it printed nothing."""
        if not show:
            task = self._executor.status(task_id)
            if not task.split and not self._executor.source(task_id, STREAMS[0]).end():
                nothing = {"output": "", "stdout": None, "stderr": None, "truncated": False}
                result = extended(Result, task, **nothing, dropped_bytes=0, hidden_lines=0, cursor="0")
                return self.context.redactor.redact(result)
        return self._reader.read(task_id, **show)

    def foreground_wait(self, wait: float | None, limit: float | None) -> tuple[float, bool]:
        """Return how long a foreground call waits, and whether it then ends the task."""
        wait = validation.seconds("wait", wait)
        settings = self.context.settings
        if limit is not None:
            return min(settings.max_wait_s if wait is None else wait, settings.max_wait_s), False
        if wait is not None and wait < settings.foreground_limit_s:
            return min(wait, settings.max_wait_s), False
        return settings.foreground_limit_s, True

    # --- wait --------------------------------------------------------------------------------

    def wait(self, task: TaskId, timeout: float | None, new: bool, options: dict[str, Any]) -> Flow[Waited]:
        timeout = validation.seconds("timeout", timeout)
        if new and options.get("cursor") is None:
            options["cursor"] = yield Work(partial(self._reader.reader_position, task))
        condition = conditions.choose(**options)
        task_id = yield Work(partial(self.context.find, task))
        return (yield from self._wait_for(task_id, condition, timeout))

    def send_and_wait(
        self, task: TaskId, text: str | bytes, timeout: float, eof: bool, until: str | None
    ) -> Flow[Waited]:
        seconds = validation.seconds("timeout", timeout)
        task_id = yield Work(partial(self.context.find, task))
        # Made before the input is sent: only what is printed afterwards counts.
        condition = yield Work(partial(self._reader.reaction, task_id, until))
        yield Work(partial(self._control.send, task_id, text, eof=eof))
        return (yield from self._wait_for(task_id, condition, seconds))

    def _wait_for(self, task_id: str, condition: Condition | None, timeout: float | None) -> Flow[Waited]:
        """Wait for a condition, or (None) for the end."""
        deadline = Deadline(timeout)
        with self._hold(task_id, condition is None or not condition.by_output):
            if condition is None:
                met = yield from self.wait_end(task_id, timeout)
            else:
                met = yield from self._wait_condition(task_id, condition, deadline)
            task = yield Work(partial(self._executor.status, task_id))
        matched = condition.matched if condition else None
        return (yield Work(lambda: self._waited(task, met, matched)))  # type: ignore[no-any-return]

    def _waited(self, task: Task, met: bool, matched: str | None) -> Waited:
        self.context.mask_for(task)
        return self.context.redactor.redact(extended(Waited, task, met=met, matched=matched))

    def wait_end(self, task_id: str, timeout: float | None) -> Flow[bool]:
        return self._wait_until(task_id, "ended", timeout, ends_only=True)

    def wait_begun(self, task_id: str, timeout: float | None) -> Flow[bool]:
        return self._wait_until(task_id, "begun", timeout, ends_only=False)

    def _wait_until(self, task_id: str, phase: Phase, timeout: float | None, ends_only: bool) -> Flow[bool]:
        deadline = Deadline(timeout)
        with self._open_watch(task_id, ends_only) as watch:
            while True:
                if watch.arm():
                    yield from self._advance_if_pending(task_id)
                    if self._executor.has_reached(task_id, phase):
                        return True
                in_time = yield Wait(watch, deadline.left())
                if self._executor.has_reached(task_id, phase):
                    return True  # before arming again: mostly this is the end
                if not in_time:
                    return False

    def _advance_if_pending(self, task_id: str) -> Flow[None]:
        """Start queued tasks if this one is among them. Starting a task may block, so it is work."""
        if not self._executor.has_reached(task_id, "begun"):
            yield Work(self._executor.advance)

    def _wait_condition(self, task_id: str, condition: Condition, deadline: Deadline) -> Flow[bool]:
        if not condition.has_begun:
            yield Work(partial(self._reader.show_output_to, condition, task_id))
        with self._open_watch(task_id, not condition.by_output) as watch:
            while True:
                watch.arm()
                yield from self._advance_if_pending(task_id)
                met, over = yield Work(partial(self._look, condition, task_id, deadline.left()))
                if met or over or deadline.over:
                    return bool(met)
                yield Wait(watch, _shorter(deadline.left(), condition.patience()))

    def _look(self, condition: Condition, task_id: str, left: float | None) -> tuple[bool, bool]:
        """Return whether a condition is true now, and whether it cannot come true any more."""
        phase: Phase = "over" if condition.to_end_of == "task" else "ended"
        over = self._executor.has_reached(task_id, phase)  # before the condition looks: all output is there by then
        try:
            return condition.look(over, left), over
        except OSError as error:
            raise self._executor.explain(task_id, error) from None

    # --- follow ------------------------------------------------------------------------------

    def follow(
        self,
        task: TaskId,
        on_output: OnOutput | None = None,
        leave: Condition | None = None,
        **options: Unpack[FollowOptions],
    ) -> Flow[None]:
        """Yield the task's output as it comes, or hand it to `on_output`, until `leave` is true at the latest."""
        deadline = Deadline(options.get("timeout"))
        open_live = partial(self._reader.open_live, task, options.get("cursor"), options.get("raw", False))
        task_id, live, first = yield Work(open_live)
        phase: Phase = "closed" if options.get("to_end_of", "output") == "output" else "ended"
        if leave:
            yield Work(partial(self._reader.show_output_to, leave, task_id))
        with self._open_watch(task_id, False) as watch:
            while True:
                watch.arm()
                yield from self._advance_if_pending(task_id)
                over = self._executor.has_reached(task_id, phase)
                left = leave is not None and leave.look(over)
                fresh = live.take(self._reader.read_fresh(task_id, live.at))
                for pieces in (first, fresh, live.finish() if over else ()):
                    for piece in pieces:
                        if on_output is None:
                            yield piece
                        else:
                            on_output(piece)
                if over or left or deadline.over:
                    return
                first = ()
                yield Wait(watch, _shorter(deadline.left(), leave.patience() if leave else None))

    # --- driving flows in this thread --------------------------------------------------------

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow in this thread; returns its result."""
        steps = self.stream(flow)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def stream(self, flow: Flow[T]) -> Generator[Slice, None, T]:
        """Run a flow in this thread; yields the slices that it yields, and returns its result."""
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        while True:
            try:
                step = resume(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            value, resume = None, flow.send
            if isinstance(step, Slice):
                yield step
                continue
            try:
                value = self._do(step)
            except BaseException as error:
                value, resume = error, flow.throw

    def _do(self, step: Any) -> Any:
        return self.call(step.call) if isinstance(step, Work) else step.watch.wait(step.timeout)

    def call(self, work: Callable[[], T]) -> T:
        """Call this; errors of the system become an `OutlastError` without secrets."""
        try:
            return work()
        except SYSTEM_ERRORS as error:
            if (told := self.context.translate(error)) is error:
                raise
            raise told from None


def _shorter(one: float | None, other: float | None) -> float | None:
    """Return the shorter of two times, where None is for ever."""
    return other if one is None else one if other is None else min(one, other)
