"""`outlast tasks`: the dashboard, once or (--watch) until q is pressed.

Watching wakes when a task ends, when the terminal changes or a key is pressed, and once
a second, because the times that it shows run on. New tasks are seen by the change of
their directory; the list is read again only if something can have changed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import open_shell, task_json, write
from outlast.cli.tasks import width
from outlast.display import table
from outlast.errors import BadInput, OutlastError, quote
from outlast.light import replace
from outlast.storage.task_directory import MOVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

    from outlast.linux.activity import Activity
    from outlast.shell.shell import Shell
    from outlast.storage.watch import Watch
    from outlast.types import Task

TICK_S = 1.0  # the times that are shown have seconds
WATCHED_AT_MOST = 100  # tasks at once, each with three descriptors; with more, the list is read at every tick
_COARSE_S = 2.0  # a directory's time can stand still for a moment: two changes may look like one
_LEAVE_KEYS = (b"q", b"Q", b"\x1b", b"")
_HINT_LINES = 2  # with the empty line above it
_HINT = "\033[2mq leaves; the tasks go on\033[0m"


def tasks_parser() -> Parser:
    """Return the options of `outlast tasks`."""
    made = Parser(
        "tasks",
        "The dashboard: tasks with their status, time and type, as a table for people. What runs\n"
        "and what waits comes first, then what ran in the background, then other commands.",
        "  outlast tasks                  ten rows (more if more run), and how many more there are\n"
        "  outlast tasks running          only those that run\n"
        "  outlast tasks error            only those that failed\n"
        "  outlast tasks --watch          live, until q or Ctrl-C",
    )
    made.add("filter", nargs="?", default="all", metavar="|".join(table.FILTERS), help="which ones")
    made.add("--watch", action="store_true", help="draw it anew whenever something changes")
    return made.takes_session().takes_json()


def tasks(asked: Asked) -> int:
    """Do what `outlast tasks` asks; returns the exit code."""
    if asked.filter not in table.FILTERS:
        raise BadInput(f"There is no filter {quote(asked.filter)}; use one of {', '.join(table.FILTERS)}.")
    if asked.json and asked.watch:
        raise BadInput("--json lists once and --watch goes on; leave out one of them.")
    with open_shell(asked.session) as shell:
        if asked.watch:
            return _watch(_Board(shell, asked.filter))
        found = chosen(shell, asked.filter)
        if asked.json:
            write("".join(task_json(shell, task) + "\n" for task in found))
        else:
            write(table.dashboard(found, width(), colourful(), doing=shell.reader.activities(found)))
    return 0


def chosen(shell: Shell, name: str) -> list[Task]:
    """The tasks that a filter lets through, in the order of the table."""
    found = [task for task in shell.list() if task.status in table.FILTERS[name]]
    return table.in_order(found, lambda task: _ran_in_background(shell, task))


def _ran_in_background(shell: Shell, task: Task) -> bool:
    """Whether a task was started in the background, or moved there because its caller stopped waiting."""
    try:
        if shell.executor.registry.launch_of(task.task_id).background:
            return True
    except OutlastError:
        return False  # removed since it was listed
    return os.path.exists(os.path.join(os.path.dirname(task.output_file), MOVED))


def colourful() -> bool:
    """Return whether standard output is a terminal that shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


class _Board:
    """The list of tasks, kept up to date."""

    def __init__(self, shell: Shell, name: str) -> None:
        self._shell, self._name = shell, name
        self._watches: dict[str, Watch] = {}
        self._changed_at = 0.0
        self._listed_at = 0.0
        self._complete = False  # whether all that run are watched
        self.tasks: list[Task] = []

    @property
    def fds(self) -> list[int]:
        return [fd for watch in self._watches.values() for fd in watch.fds]

    def look(self, something_ended: bool) -> None:
        """Bring the list up to date."""
        changed_at = os.stat(self._shell.executor.registry.home.tasks).st_mtime
        if something_ended or not self._complete or self._is_new(changed_at):
            self._changed_at = changed_at
            self._watch([task.task_id for task in self._shell.list() if not task.finished])
            self.tasks, self._listed_at = chosen(self._shell, self._name), time.monotonic()

    def _is_new(self, changed_at: float) -> bool:
        return changed_at != self._changed_at or abs(time.time() - changed_at) < _COARSE_S

    def _watch(self, ids: Sequence[str]) -> None:
        """Be woken when one of these ends. The list is read after this, not before."""
        for task_id in self._watches.keys() - ids:
            self._watches.pop(task_id).close()
        for task_id in ids[:WATCHED_AT_MOST]:
            try:
                if task_id not in self._watches:
                    self._watches[task_id] = self._shell.executor.watch(task_id, ends_only=True)
                self._watches[task_id].arm()
            except OutlastError:  # removed meanwhile, or not started yet
                if gone := self._watches.pop(task_id, None):
                    gone.close()
        self._complete = self._watches.keys() >= set(ids)

    def update_times(self) -> list[Task]:
        """The tasks with the times of this moment."""
        since = round((time.monotonic() - self._listed_at) * 1000)
        return [
            replace(task, elapsed_ms=task.elapsed_ms + since) if task.status == "running" else task
            for task in self.tasks
        ]

    def doing(self) -> dict[str, Activity]:
        """What those do that run, at this moment; of very many, the first ones."""
        return self._shell.reader.activities(self.tasks[:WATCHED_AT_MOST])

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()


def _watch(board: _Board) -> int:
    screen = _Screen() if sys.stdout.isatty() else _Paper()
    try:
        screen.begin()
        ended = True
        while True:
            board.look(ended)
            screen.show(board.update_times(), board.doing())
            ready = _wait([*board.fds, *screen.fds])
            if not screen.goes_on(ready):
                return 0
            ended = not ready.isdisjoint(board.fds)
    finally:
        board.close()
        screen.end()


def _wait(fds: list[int]) -> set[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(TICK_S * 1000)}


class _Paper:
    """Where nothing can be drawn over: a new table whenever more than the time has changed."""

    fds: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._shown: object = None

    def begin(self) -> None:
        pass

    def show(self, tasks: list[Task], doing: Mapping[str, str]) -> None:
        now = [(task.task_id, task.status) for task in tasks]
        if now != self._shown:
            begin = "\n" if self._shown is not None else ""
            write(begin + table.dashboard(tasks, width(), colour=False, doing=doing))
            self._shown = now

    def goes_on(self, ready: set[int]) -> bool:
        return True

    def end(self) -> None:
        pass


class _Screen(_Paper):
    """A terminal that is ours while we look, and is given back as it was."""

    def __init__(self) -> None:
        super().__init__()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._modes: Any = None  # of the terminal, as they were
        self.fds = (self._woken,) if self._keys is None else (self._woken, self._keys)

    def begin(self) -> None:
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, _nothing)  # only wakes us: the size is asked for at every drawing
        signal.signal(signal.SIGTSTP, self._pause)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        self._take()

    def _take(self) -> None:
        if self._keys is not None:
            import termios
            import tty

            self._modes = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        # The other screen, no cursor, and no line goes on in the next row.
        write("\033[?1049h\033[?25l\033[?7l")

    def show(self, tasks: list[Task], doing: Mapping[str, str]) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        room = max(2, size.lines - _HINT_LINES) if size.lines else None
        text = table.dashboard(tasks, size.columns or width(), colourful(), room, doing)
        lines = [*text.splitlines(), "", _HINT if colourful() else "q leaves; the tasks go on"][: size.lines or None]
        # Each line is erased before it is drawn, not after: behind a full line the cursor stands on its last
        # character, which would go too. All is one write, so nothing flickers.
        below = "\r\n\033[J" if len(lines) < (size.lines or sys.maxsize) else ""
        write("\033[H" + "\r\n".join("\033[K" + line for line in lines) + below)

    def goes_on(self, ready: set[int]) -> bool:
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._keys is None or self._keys not in ready:
            return True
        return os.read(self._keys, 64) not in _LEAVE_KEYS

    def _pause(self, number: int, frame: FrameType | None) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _give_back(self) -> None:
        write("\033[?7h\033[?25h\033[?1049l")
        if self._keys is not None and self._modes is not None:
            import termios

            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def end(self) -> None:
        signal.set_wakeup_fd(-1)
        self._give_back()
        os.close(self._woken)
        os.close(self._wake)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
