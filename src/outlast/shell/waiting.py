"""The verbs that wait, by event."""

from __future__ import annotations

from outlast import asking, conditions
from outlast.frozen import extended
from outlast.shell.looking import Looking, shorter
from outlast.shell.opened import telling
from outlast.types import Waited
from outlast.watch import Deadline, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.conditions import Condition
    from outlast.types import Cursor, Task


_LEAVING_S = 1.0  # guards leave within milliseconds of the end, if nothing of the command is left
READY_WAIT_S = 30.0  # how long a start waits for `ready` if nobody said


class Waiting(Looking):
    """For a task to begin, to come to something, to end, to be closed."""

    @telling
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
        new: bool = False,
    ) -> Waited:
        """Wait for a task's end, by event; when the timeout runs out, it is returned as it is.

        Or for one of these: a line of the output that matches `until` (from `cursor` on; if
        `new`, from where this session's last `read(new=True)` stopped), a TCP `port` that takes
        connections, a `url` that answers, `quiet` for so many seconds. Then the wait is also
        over when the task is. `met` says whether it came true, `matched` what showed it.
        """
        patience = asking.seconds("timeout", timeout)
        start = self.place_of_reader(task_id) if new and cursor is None else cursor
        condition = conditions.chosen(until=until, port=port, url=url, quiet=quiet, cursor=start)
        return self._await(self._find(task_id), condition, patience)

    @telling
    def send_and_wait(
        self, task_id: str, text: str | bytes = "", timeout: float = 5.0, *, eof: bool = False, until: str | None = None
    ) -> Waited:
        """Send input, and wait until the program has reacted; with `until`, for a line printed afterwards."""
        patience = asking.seconds("timeout", timeout)
        condition = self.answer_to_input(task_id, until)
        self.executor.write(self._find(task_id), asking.input_bytes(text), eof)
        return self._await(self._find(task_id), condition, patience)

    def answer_to_input(self, task_id: str, until: str | None) -> Condition:
        """What to wait for after input is sent. Ask before sending: only what is printed afterwards counts."""
        found = self._find(task_id)
        if until is None:
            condition: Condition = conditions.Reaction(lambda: self.activity(found))
        else:
            condition = conditions.Line(until, self.end_of_output(found))
        self.begin(condition, found)
        return condition

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
        return self._shown(extended(Waited, task, met=met, matched=condition.matched if condition else None))

    def _await_condition(self, task_id: str, condition: Condition, patience: float | None) -> bool:
        deadline = Deadline(patience)
        if not condition.has_begun:
            self.begin(condition, task_id)
        with self.executor.watch(task_id) as watch:
            while True:
                watch.arm() if condition.by_output else watch.arm_for_end()
                met, over = self.look(condition, task_id, deadline.left())
                if met or over or deadline.over:
                    return met
                watch.wait(shorter(deadline.left(), condition.patience()))

    def look(self, condition: Condition, task_id: str, left: float | None) -> tuple[bool, bool]:
        """Whether a condition is true now, and whether waiting for it has no point any more."""
        ends = self.executor.is_over if condition.to_end_of == "task" else self.executor.has_ended
        over = ends(task_id)  # before the look: whatever it printed is there by then
        try:
            return condition.look(over, left), over
        except OSError as error:
            raise self.executor.trouble(task_id, error) from None

    @telling
    def await_end(self, task_id: str, patience: float | None) -> bool:
        """Block until the task ended; False if `patience` ran out first."""
        self._own(task_id)
        with self.executor.watch(task_id) as watch:
            return until(watch, lambda: self.executor.has_ended(task_id), Deadline(patience), ends_only=True)

    @telling
    def await_begin(self, task_id: str, patience: float | None) -> bool:
        """Block until the task is not pending; False if `patience` ran out first."""
        self._own(task_id)
        with self.executor.watch(task_id) as watch:
            return until(watch, lambda: self.executor.has_begun(task_id), Deadline(patience))

    def _await_closed(self, task_id: str) -> None:
        """It ended a moment ago, and its guards are just leaving."""
        with self.executor.watch(task_id) as watch:
            until(watch, lambda: self.executor.is_closed(task_id), Deadline(_LEAVING_S))
        self.executor.status(task_id)

    def startup(self, seconds: float | None, ready: str | None) -> Startup | None:
        """How long a start waits, and for what."""
        wait = asking.seconds("startup wait", seconds)
        condition = conditions.chosen(until=ready)
        if seconds is None and condition is None:
            return None
        most = self.settings.max_wait_s
        return Startup(min(READY_WAIT_S if seconds is None else most if wait is None else wait, most), condition)


class Startup:
    """How long a start waits for its command, and for what."""

    def __init__(self, seconds: float, condition: Condition | None) -> None:
        self.seconds, self.condition = seconds, condition
