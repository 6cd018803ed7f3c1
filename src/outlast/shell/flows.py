"""`run`, `start`, `wait` and `follow`, each written once for `Shell` and `AsyncShell`.

A flow is a generator. It yields steps (wait until a task changes, do work that may block, open a watch) and is resumed
with their results; `follow` also yields the `Slice`s that it reads. `Shell` does the steps in the calling thread,
`AsyncShell` waits in the event loop and works in threads.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial

from outlast.errors import BadInput, Refused
from outlast.light import extend, replace
from outlast.shell import conditions, validation
from outlast.shell.context import SYSTEM_ERRORS
from outlast.shell.reader import OUTSIDE
from outlast.storage.task_directory import Hold
from outlast.storage.watch import Deadline
from outlast.types import STREAMS, Result, Waited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, TypeVar, Unpack

    from outlast.executors.base import Phase
    from outlast.shell.conditions import Condition
    from outlast.shell.context import Context
    from outlast.shell.control import Control
    from outlast.shell.options import ConditionOptions, FollowOptions, RunOptions, StartOptions, TaskId
    from outlast.shell.reader import Reader
    from outlast.shell.starter import Starter
    from outlast.types import Slice, Task

    T = TypeVar("T")
    Flow = Generator["Step | Slice", Any, T]
    OnOutput = Callable[[Slice], None]
    Undo = Callable[[Any], None]

# Set by a server whose client brings the user's answer with a second call: in its sandbox the command failed before.
go_outside: ContextVar[bool] = ContextVar("go_outside", default=False)
_NO_USER_TO_ASK = "it can run outside after a yes, and no user can be asked here"
READY_WAIT_S = 30.0  # how long a start waits for `ready` without a `startup_wait`


class Step:
    """What a flow yields for its driver to do."""

    def do(self, driver: Any) -> Any:
        raise NotImplementedError


class Wait(Step):
    """Wait until the watched task changes. The result is False if the timeout came first."""

    def __init__(self, watch: Any, timeout: float | None) -> None:
        self._watch, self._timeout = watch, timeout

    def do(self, driver: Any) -> Any:
        return self._watch.wait(self._timeout)


class Work(Step):
    """Call this, which may block. If the flow is cancelled meanwhile, `undo` gets the result that came too late."""

    def __init__(self, call: Callable[[], Any], undo: Undo | None = None, launches: bool = False) -> None:
        self.call, self.undo, self.launches = call, undo, launches

    def do(self, driver: Any) -> Any:
        return driver.work(self)


class Open(Step):
    """Open a watch of a task, or (`to_hold`) only keep the task from being removed; a context manager either way."""

    def __init__(self, task_id: str, ends_only: bool = False, to_hold: bool = False) -> None:
        """`ends_only`: only the end of the task matters."""
        self.task_id, self.ends_only, self.to_hold = task_id, ends_only, to_hold

    def do(self, driver: Any) -> Any:
        return driver.open(self)


class Flows:
    """The flows of one shell."""

    def __init__(self, context: Context, reader: Reader, starter: Starter, control: Control) -> None:
        self.context, self._executor = context, context.executor
        self._reader, self._starter, self._control = reader, starter, control

    # --- start and run -----------------------------------------------------------------------

    def start(self, command: str, hold: Hold | None = None, **options: Unpack[StartOptions]) -> Flow[Waited]:
        """Start a command in the background; while `hold` is open, the task is not removed."""
        command, how = yield Work(partial(self._starter.repeat, command, options))
        seconds, ready = how.pop("startup_wait", None), how.pop("ready", None)
        wait = validation.seconds("startup wait", seconds)
        condition = conditions.choose({"until": ready})
        task, _ = yield Work(partial(self._starter.launch, command, hold=hold, **how), launches=True)
        if seconds is None and condition is None:
            return (yield Work(lambda: self._make_waited(task, False, None)))  # type: ignore[no-any-return]
        longest = self.context.settings.max_wait_s
        timeout = READY_WAIT_S if seconds is None else longest if wait is None else wait
        return (yield from self._wait_for(task.task_id, condition, min(timeout, longest)))

    def run(self, command: str, options: RunOptions) -> Flow[Result]:
        """Run a command; if it failed because of the policy's sandbox, run it again outside after a yes."""
        command, more = yield Work(partial(self._starter.repeat, command, options))
        options.update(more)
        if go_outside.get() and self._starter.is_kept_inside(options):
            options["sandbox"] = False
        result = yield from self._run(command, **options)
        if (result.error or "").startswith(OUTSIDE) and self._starter.is_kept_inside(options):
            if not self._starter.can_ask:
                return replace(result, error=f"{result.error}; {_NO_USER_TO_ASK}")
            try:
                outside: Any = {**options, "sandbox": False, "evidence": result.error}
                result = yield from self._run(command, **outside)
            except Refused as refused:
                result = replace(result, error=f"{result.error}; {refused.message}")
        self._starter.prepare_next()
        return result

    def _run(
        self,
        command: str,
        *,
        wait: float | None = None,
        on_output: OnOutput | None = None,
        auto_background: bool | None = None,
        show: Mapping[str, Any] | None = None,
        startup_wait: float | None = None,
        ready: str | None = None,
        **options: Any,
    ) -> Flow[Result]:
        with Hold() as hold:
            if startup_wait is not None or ready is not None:
                if wait is not None or on_output is not None:
                    raise BadInput("`startup_wait` and `ready` say how long to wait; leave out `wait` and `on_output`.")
                started = yield from self.start(command, hold, startup_wait=startup_wait, ready=ready, **options)
                task_id = started.task_id
            else:
                how = wait, auto_background, on_output
                task_id = yield from self._run_in_foreground(command, {"hold": hold, **options}, *how)
            return (yield Work(lambda: self._read(task_id, show or {})))  # type: ignore[no-any-return]

    def _run_in_foreground(
        self,
        command: str,
        options: Mapping[str, Any],
        wait: float | None,
        auto_background: bool | None,
        on_output: OnOutput | None,
    ) -> Flow[str]:
        """Start a command and wait for it; when the wait is over, end it or let it go on. Returns its id."""
        settings = self.context.settings
        seconds, then_end = self.foreground_wait(wait, options.get("limit"))
        launch = partial(self._starter.launch, command, background=False, keeps=True, **options)
        task, ours = yield Work(launch, undo=self._release, launches=True)
        task_id: str = task.task_id
        leave: Condition | None = None
        try:
            if task.status == "pending":
                # The default limit counts from the moment that the command begins.
                deadline = Deadline(settings.max_wait_s if wait is None else seconds)
                begun = yield from self.wait_for_phase(task_id, "begun", deadline.left())
                if not (then_end and begun):
                    seconds, then_end = deadline.left() or 0.0, False
            if settings.auto_background if auto_background is None else auto_background:
                leave = conditions.choose_leave(command, settings)
            if on_output is not None:
                yield from self.follow(task_id, on_output, leave, timeout=seconds, to_end_of="command")
                ended = self._executor.has_reached(task_id, "ended")
            elif leave is not None:
                yield from self._wait_for_condition(task_id, leave, Deadline(seconds))
                ended = self._executor.has_reached(task_id, "ended")
            else:
                ended = yield from self.wait_for_phase(task_id, "ended", seconds)
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
                result = extend(Result, task, **nothing, dropped_bytes=0, hidden_lines=0, cursor="0")
                return self.context.redactor.redact(result)
        return self._reader.read(task_id, **show)

    def foreground_wait(self, wait: float | None, limit: float | None) -> tuple[float, bool]:
        """Return how long a foreground call waits, and whether it then ends the task."""
        wait = validation.seconds("wait", wait)
        settings = self.context.settings
        if limit is None and (wait is None or wait >= settings.foreground_limit_s):
            return settings.foreground_limit_s, True
        return min(settings.max_wait_s if wait is None else wait, settings.max_wait_s), False

    # --- wait --------------------------------------------------------------------------------

    def wait(self, task: TaskId, timeout: float | None, new: bool, options: ConditionOptions) -> Flow[Waited]:
        """Wait for the end or a condition; if `new`, from where this session stopped reading what is new."""
        timeout = validation.seconds("timeout", timeout)
        if new and options.get("cursor") is None:
            options["cursor"] = yield Work(partial(self._reader.reader_position, task))
        condition = conditions.choose(options)
        task_id = yield Work(partial(self.context.find, task))
        return (yield from self._wait_for(task_id, condition, timeout))

    def send_and_wait(
        self, task: TaskId, text: str | bytes, timeout: float, eof: bool, until: str | None, keys: str | None = None
    ) -> Flow[Waited]:
        """Send input, and wait for the reaction to it; if nothing is sent, for what the program does first."""
        seconds = validation.seconds("timeout", timeout)
        task_id = yield Work(partial(self.context.find, task))
        # Made before the input is sent: only what is printed afterwards counts.
        sends = bool(text or eof or keys)
        condition = yield Work(partial(self._reader.reaction, task_id, until, from_start=not sends))
        if sends:
            yield Work(partial(self._control.send, task_id, text, eof=eof, keys=keys))
        return (yield from self._wait_for(task_id, condition, seconds))

    def _wait_for(self, task_id: str, condition: Condition | None, timeout: float | None) -> Flow[Waited]:
        """Wait for a condition, or (None) for the end."""
        deadline = Deadline(timeout)
        with (yield Open(task_id, condition is None or not condition.by_output, to_hold=True)):
            if condition is None:
                met = yield from self.wait_for_phase(task_id, "ended", timeout)
            else:
                met = yield from self._wait_for_condition(task_id, condition, deadline)
            task = yield Work(partial(self._executor.status, task_id))
        matched = condition.matched if condition else None
        return (yield Work(lambda: self._make_waited(task, met, matched)))  # type: ignore[no-any-return]

    def _make_waited(self, task: Task, met: bool, matched: str | None) -> Waited:
        self.context.mask_for(task)
        return self.context.redactor.redact(extend(Waited, task, met=met, matched=matched))

    def wait_for_phase(self, task_id: str, phase: Phase, timeout: float | None) -> Flow[bool]:
        """Wait until the task has "begun" or "ended"; False if the timeout came first."""
        deadline = Deadline(timeout)
        with (yield Open(task_id, ends_only=phase == "ended")) as watch:
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

    def _wait_for_condition(self, task_id: str, condition: Condition, deadline: Deadline) -> Flow[bool]:
        if condition.sources is None:
            yield Work(partial(self._reader.show_output_to, condition, task_id))
        with (yield Open(task_id, not condition.by_output)) as watch:
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
        with (yield Open(task_id)) as watch:
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
                            _hand_over(piece, on_output)
                if over or left or deadline.over:
                    return
                first = ()
                yield Wait(watch, _shorter(deadline.left(), leave.patience() if leave else None))


def _hand_over(piece: Slice, on_output: OnOutput) -> None:
    try:
        on_output(piece)
    except Exception as error:
        error.of_the_caller = True  # type: ignore[attr-defined] # raised as it is, also if it looks like one of ours
        raise


def _shorter(one: float | None, other: float | None) -> float | None:
    """Return the shorter of two times, where None is for ever."""
    return other if one is None else one if other is None else min(one, other)


class Driver:
    """Does the steps of flows in the calling thread."""

    def __init__(self, context: Context) -> None:
        self._context, self._executor = context, context.executor

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow; returns its result."""
        result: T
        (result,) = self.stream(yield_result(flow))
        return result

    def stream(self, flow: Flow[Any]) -> Generator[Any, None, None]:
        """Run a flow; yields what it yields besides steps."""
        resume: Callable[[Any], Any] = flow.send
        value: Any = None
        while True:
            try:
                step = resume(value)
            except StopIteration:
                return
            except SYSTEM_ERRORS as error:
                self._context.raise_translated(error)
            value, resume = None, flow.send
            if not isinstance(step, Step):
                yield step
                continue
            try:
                value = step.do(self)
            except BaseException as error:
                value, resume = error, flow.throw

    def work(self, work: Work) -> Any:
        return work.call()

    def open(self, step: Open) -> AbstractContextManager[Any]:
        if step.to_hold:
            return Hold().take(self._executor.registry.home.task(step.task_id))
        return self._executor.watch(step.task_id, step.ends_only)


def yield_result(flow: Flow[Any]) -> Flow[None]:
    """Let a flow yield its result, too: an asynchronous generator cannot return one."""
    yield (yield from flow)
