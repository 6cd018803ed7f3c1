"""`run`, `start`, `wait` and `follow`, each written once for `Shell` and `AsyncShell`.

A flow is a generator. It yields a `Wait` (until a task changes) or `Work` (a call that may block) and is resumed with
the result; `follow` also yields the `Slice`s that it reads. `Shell` waits with poll and works in the calling thread,
`AsyncShell` waits in the event loop and works in threads.
"""

from __future__ import annotations

from functools import partial

from outlast import conditions, validation
from outlast.errors import BadInput
from outlast.frozen import extended
from outlast.settings import development_commands
from outlast.storage.locks import Hold
from outlast.types import STREAMS, Slice, Waited
from outlast.watch import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, Protocol, TypeVar, Unpack

    from outlast.conditions import Condition, UnderWay
    from outlast.options import ConditionOptions, StartOptions
    from outlast.shell.context import Context
    from outlast.shell.control import Control
    from outlast.shell.reader import Reader
    from outlast.shell.starter import Starter
    from outlast.types import Cursor, Result, Task

    class ArmedWatch(Protocol):
        """What a flow waits on: `arm` it, look at the task, then yield a `Wait` for it."""

        def arm(self) -> bool:
            """Notice every change from now on. Returns False if the task certainly has not ended."""

    T = TypeVar("T")
    Flow = Generator["Wait | Work | Slice", Any, T]
    OpenWatch = Callable[[str, bool], AbstractContextManager[ArmedWatch]]
    OnOutput = Callable[[Slice], None]

READY_WAIT_S = 30.0  # how long a start waits for `ready` without a `startup_wait`


class Wait:
    """Wait until the watched task changes. The result is False if the timeout came first."""

    def __init__(self, watch: Any, timeout: float | None) -> None:
        self.watch, self.timeout = watch, timeout


class Work:
    """Call this, which may block. If the flow is cancelled meanwhile, `undo` gets the result that came too late."""

    def __init__(self, call: Callable[[], Any], undo: Callable[[Any], None] | None = None) -> None:
        self.call, self.undo = call, undo


class Patience:
    """How long a foreground call waits, and whether it ends the task then."""

    def __init__(self, seconds: float, then_end: bool) -> None:
        self.seconds, self.then_end = seconds, then_end


class Flows:
    """The flows of one shell."""

    def __init__(
        self,
        context: Context,
        reader: Reader,
        starter: Starter,
        control: Control,
        open_watch: OpenWatch,
        hold: Callable[[str, bool], AbstractContextManager[object]],
        on_launch: Callable[[str], None] = lambda task_id: None,
    ) -> None:
        """`open_watch` and `hold` get a task's id, and whether only its end matters. `hold` keeps it from removal."""
        self.context, self._executor = context, context.executor
        self._reader, self._starter, self._control = reader, starter, control
        self._open_watch, self._hold, self._on_launch = open_watch, hold, on_launch

    # --- start and run -----------------------------------------------------------------------

    def start(self, command: str, hold: Hold | None = None, **options: Unpack[StartOptions]) -> Flow[Task]:
        seconds, ready = options.pop("startup_wait", None), options.pop("ready", None)
        wait = validation.seconds("startup wait", seconds)
        condition = conditions.chosen(until=ready)
        task, _ = yield Work(partial(self._launch, command, hold=hold, **options))
        if seconds is None and condition is None:
            return task  # type: ignore[no-any-return]
        longest = self.context.settings.max_wait_s
        patience = READY_WAIT_S if seconds is None else longest if wait is None else wait
        return (yield from self.wait_for(task.task_id, condition, min(patience, longest)))

    def run(
        self,
        command: str,
        wait: float | None,
        on_output: OnOutput | None,
        auto_background: bool | None,
        show: Mapping[str, Any],
        **options: Unpack[StartOptions],
    ) -> Flow[Result]:
        with Hold() as hold:
            if options.get("startup_wait") is not None or options.get("ready") is not None:
                if wait is not None or on_output is not None:
                    raise BadInput("`startup_wait` and `ready` say how long to wait; leave out `wait` and `on_output`.")
                task = yield from self.start(command, hold, **options)
            else:
                options.pop("startup_wait", None)
                options.pop("ready", None)
                task = yield from self._run_in_foreground(command, wait, on_output, auto_background, hold, options)
            return (yield Work(partial(self._reader.read, task.task_id, **show)))  # type: ignore[no-any-return]

    def _run_in_foreground(
        self,
        command: str,
        wait: float | None,
        on_output: OnOutput | None,
        auto_background: bool | None,
        hold: Hold,
        options: Mapping[str, Any],
    ) -> Flow[Task]:
        patience = self.patience(wait, options.get("limit"))
        launch = partial(self._launch, command, background=False, keeps=True, hold=hold, **options)
        task, ours = yield Work(launch, undo=self._release)
        try:
            if task.status == "pending":
                patience = yield from self._wait_begun(task.task_id, patience, wait)
            leave = self.leave_condition(command, auto_background)
            ended = yield from self._attend(task.task_id, patience, on_output, leave)
        except BaseException:
            self._release((task, ours))
            raise
        if not ended:
            if ours and patience.then_end and not (leave and leave.met):
                yield Work(partial(self._control.end_for_limit, task.task_id))
            self._release((task, ours))
        return task  # type: ignore[no-any-return]

    def _launch(self, command: str, **options: Any) -> tuple[Task, bool]:
        task, ours = self._starter.launch(command, **options)
        self._on_launch(task.task_id)
        return task, ours

    def _release(self, launched: tuple[Task, bool]) -> None:
        task, ours = launched
        if ours:
            self._control.release(task.task_id)

    def _attend(
        self, task_id: str, patience: Patience, on_output: OnOutput | None, leave: UnderWay | None
    ) -> Flow[bool]:
        """Wait for a foreground command; returns whether it has ended."""
        if on_output is not None:
            options: dict[str, Any] = {"timeout": patience.seconds, "to_end_of": "command", "leave": leave}
            yield from self.follow(task_id, on_output=on_output, **options)
        elif leave is None:
            return (yield from self.wait_end(task_id, patience.seconds))
        else:
            yield from self._wait_condition(task_id, leave, Deadline(patience.seconds))
        return self._executor.has_ended(task_id)

    def _wait_begun(self, task_id: str, patience: Patience, wait: float | None) -> Flow[Patience]:
        """Wait for a queued command to begin. The default limit counts from then on."""
        deadline = Deadline(self.context.settings.max_wait_s if wait is None else patience.seconds)
        begun = yield from self.wait_begun(task_id, deadline.left())
        if patience.then_end and begun:
            return patience
        return Patience(deadline.left() or 0.0, then_end=False)

    def patience(self, wait: float | None, limit: float | None) -> Patience:
        """How long a foreground call waits, and whether it then ends the task."""
        wait = validation.seconds("wait", wait)
        longest = self.context.settings.max_wait_s
        if limit is not None:
            return Patience(min(longest if wait is None else wait, longest), then_end=False)
        default = self.context.settings.foreground_limit_s
        if wait is not None and wait < default:
            return Patience(min(wait, longest), then_end=False)
        return Patience(default, then_end=True)

    def leave_condition(self, command: str, auto_background: bool | None) -> UnderWay | None:
        """When to stop waiting for a development command (a server, say) before its end; None: never."""
        settings = self.context.settings
        if not (settings.auto_background if auto_background is None else auto_background):
            return None
        from outlast.rootcommand import runs_any  # most callers do without

        wanted = runs_any(command, development_commands(settings))
        return conditions.UnderWay(settings.auto_background_after_s) if wanted else None

    # --- wait --------------------------------------------------------------------------------

    def wait(self, task_id: str, timeout: float | None, new: bool, **options: Unpack[ConditionOptions]) -> Flow[Waited]:
        patience = validation.seconds("timeout", timeout)
        if new and options.get("cursor") is None:
            options["cursor"] = yield Work(partial(self._reader.reader_position, task_id))
        condition = conditions.chosen(**options)
        found = yield Work(partial(self._reader.find, task_id))
        return (yield from self.wait_for(found, condition, patience))

    def send_and_wait(
        self, task_id: str, text: str | bytes, timeout: float, eof: bool, until: str | None
    ) -> Flow[Waited]:
        patience = validation.seconds("timeout", timeout)
        found = yield Work(partial(self._reader.find, task_id))
        # Made before the input is sent: only what is printed afterwards counts.
        condition = yield Work(partial(self._reader.reaction, found, until))
        yield Work(partial(self._control.send, found, text, eof=eof))
        return (yield from self.wait_for(found, condition, patience))

    def wait_for(self, task_id: str, condition: Condition | None, timeout: float | None) -> Flow[Waited]:
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
        return self.context.redact(extended(Waited, task, met=met, matched=matched))

    def wait_end(self, task_id: str, timeout: float | None) -> Flow[bool]:
        return self._wait_until(task_id, self._executor.has_ended, timeout, ends_only=True)

    def wait_begun(self, task_id: str, timeout: float | None) -> Flow[bool]:
        return self._wait_until(task_id, self._executor.has_begun, timeout, ends_only=False)

    def _wait_until(
        self, task_id: str, is_done: Callable[[str], bool], timeout: float | None, ends_only: bool
    ) -> Flow[bool]:
        deadline = Deadline(timeout)
        with self._open_watch(task_id, ends_only) as watch:
            while True:
                if watch.arm():
                    yield from self._advance_if_pending(task_id)
                    if is_done(task_id):
                        return True
                in_time = yield Wait(watch, deadline.left())
                if is_done(task_id):
                    return True  # before arming again: mostly this is the end
                if not in_time:
                    return False

    def _advance_if_pending(self, task_id: str) -> Flow[None]:
        """Start queued tasks if this one is among them. Starting a task may block, so it is work."""
        if not self._executor.has_begun(task_id):
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
                yield Wait(watch, shorter(deadline.left(), condition.patience()))

    def _look(self, condition: Condition, task_id: str, left: float | None) -> tuple[bool, bool]:
        """Whether a condition is true now, and whether it cannot come true any more."""
        is_over = self._executor.is_over if condition.to_end_of == "task" else self._executor.has_ended
        over = is_over(task_id)  # before the condition looks: all output is there by then
        try:
            return condition.look(over, left), over
        except OSError as error:
            raise self._executor.trouble(task_id, error) from None

    # --- follow ------------------------------------------------------------------------------

    def follow(
        self,
        task_id: str,
        *,
        cursor: str | Cursor | None = None,
        timeout: float | None = None,
        to_end_of: str = "output",
        leave: Condition | None = None,
        raw: bool = False,
        on_output: OnOutput | None = None,
    ) -> Flow[None]:
        """Yield the task's output as it comes, or hand it to `on_output`."""
        task = yield Work(partial(self._reader.status, task_id))
        start = validation.cursor(cursor)
        at = {stream: start.at(stream) for stream in (STREAMS if task.split else STREAMS[:1])}
        live, first = yield Work(partial(self._reader.open_live, task, at, raw))
        is_over = self._executor.is_closed if to_end_of == "output" else self._executor.has_ended
        deadline = Deadline(timeout)
        if leave:
            yield Work(partial(self._reader.show_output_to, leave, task.task_id))
        with self._open_watch(task.task_id, False) as watch:
            while True:
                watch.arm()
                yield from self._advance_if_pending(task.task_id)
                over = is_over(task.task_id)
                left = leave is not None and leave.look(over)
                fresh = live.take(self._reader.fresh(task.task_id, at))
                for pieces in (first, fresh, live.finish() if over else ()):
                    for piece in pieces:
                        if on_output is None:
                            yield piece
                        else:
                            on_output(piece)
                first = []
                if over or left or deadline.over:
                    return
                yield Wait(watch, shorter(deadline.left(), leave.patience() if leave else None))


def shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two times, where None is for ever."""
    return other if one is None else one if other is None else min(one, other)


# --- driving flows in this thread ----------------------------------------------------------------


def drive(flow: Flow[T]) -> T:
    """Run a flow in this thread; returns its result."""
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    while True:
        try:
            step = resume(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            value, resume = _do(step), flow.send
        except BaseException as error:
            value, resume = error, flow.throw


def stream(flow: Flow[None]) -> Iterator[Slice]:
    """Run a flow in this thread; yields the slices that it yields."""
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    while True:
        try:
            step = resume(value)
        except StopIteration:
            return
        value, resume = None, flow.send
        if isinstance(step, Slice):
            yield step
            continue
        try:
            value = _do(step)
        except BaseException as error:
            value, resume = error, flow.throw


def _do(step: Any) -> Any:
    return step.call() if isinstance(step, Work) else step.watch.wait(step.timeout)
