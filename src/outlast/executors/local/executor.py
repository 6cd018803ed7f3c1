"""`LocalExecutor`: tasks on this machine. Each is a directory, watched by two guard processes."""

from __future__ import annotations

import os

from outlast.errors import AlreadyEnded, InputRefused, OutlastError
from outlast.executors.local.starter import TaskStarter
from outlast.linux.files import open_regular
from outlast.storage import record, task_directory
from outlast.storage.layout import END_OF_INPUT, open_home
from outlast.storage.registry import Registry
from outlast.storage.task_directory import Hold
from outlast.storage.watch import Watch
from outlast.types import Ended, Exited, Pending, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.linux.process import Stat
    from outlast.settings import Settings
    from outlast.storage.output import Source
    from outlast.types import Guards, Launch, Receipt, Status, Task


class LocalExecutor:
    """The tasks of one state directory: starting them is its `TaskStarter`'s, ending them `ending.py`'s."""

    def __init__(self, home: str, settings: Settings) -> None:
        self.registry = Registry(open_home(home))
        self._starter = TaskStarter(self.registry, settings)
        self._connections = self._starter.connections

    def close(self) -> None:
        """Close everything; tasks go on."""
        self._starter.close()
        self.registry.close()

    def directory(self, task_id: str) -> str:
        return self.registry.home.task(task_id)

    # --- start -------------------------------------------------------------------------------

    def start_or_find(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        """Start a task, or find the unfinished task of the same name. Returns it, and whether it is new.

        When this returns, the task is on disk and survives this process. `hold` keeps it from being removed.
        """
        return self._starter.start_or_find(launch, hold)

    def prepare_shell(self, launch: Launch) -> None:
        """Start a shell that waits for a command like this one."""
        self._starter.prepare_shell(launch)

    def advance(self) -> None:
        """Start the queued tasks that may start now: the process whose turn it was may have been killed."""
        self._starter.advance_queue()

    def forget_names(self) -> None:
        """Free the names of tasks that were removed."""
        self._starter.forget_names()

    # --- look --------------------------------------------------------------------------------

    def status(self, task_id: str) -> Task:
        return self.registry.get(task_id)

    def has_ended(self, task_id: str) -> bool:
        """Whether its end is known: cheaper than `status`."""
        if self._has_recorded_end(task_id):
            return True
        return not isinstance(self._status_of(task_id)[0], (Pending, Running))

    def is_over(self, task_id: str) -> bool:
        """Whether no condition on it can come true any more: it is closed, or its command failed.

        A command that succeeded and left something running (`server &`) may have only begun.
        """
        found, _, closed = self._status_of(task_id)
        succeeded = isinstance(found, Ended) and found.outcome == Exited(0)
        return closed or not (succeeded or isinstance(found, (Pending, Running)))

    def is_closed(self, task_id: str) -> bool:
        """Whether no more output will come."""
        return self._status_of(task_id)[2]

    def has_begun(self, task_id: str) -> bool:
        """Whether it is not pending (any more)."""
        return not isinstance(self._status_of(task_id)[0], Pending)

    def _status_of(self, task_id: str) -> tuple[Status, Guards | None, bool]:
        directory = self.directory(task_id)
        try:
            found = record.status_of(directory)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise record.explain_error(directory, error) from None
        if not isinstance(found[0], (Pending, Running)):
            self._connections.close(task_id)
        return found

    def _has_recorded_end(self, task_id: str) -> bool:
        connection = self._connections.get(task_id)
        try:
            found = (connection is not None and connection.has_ended()) or record.has_outcome(self.directory(task_id))
        except (OSError, ValueError):
            return False  # the full look at its status says what is wrong
        if found:
            self._connections.close(task_id)
        return found

    def source(self, task_id: str, stream: str) -> Source:
        """One stream of a task's output."""
        return self.registry.source(task_id, stream)

    def members(self, task_id: str) -> dict[int, Stat]:
        """The living processes of a task, without its guards."""
        from outlast.linux import process, process_tree

        try:
            guards = record.guards_of(self.directory(task_id))
        except (OSError, KeyError, TypeError, ValueError):
            return {}  # pending, or just being removed
        return process_tree.look(guards, record.is_foreign_guard, process.Table).members

    def trouble(self, task_id: str, error: OSError) -> OutlastError:
        """The error to raise for a task whose files could not be used."""
        return record.explain_error(self.directory(task_id), error)

    def watch(self, task_id: str, ends_only: bool = False) -> Watch:
        """Something to wait on until the task changes, or only until it ends."""
        connection = self._connections.get(task_id)
        return Watch(self.directory(task_id), connection.fileno() if connection is not None else -1, ends_only)

    def hold(self, task_id: str) -> Hold:
        """Keep a task from being removed until it is reported."""
        return Hold().take(self.directory(task_id))

    # --- act ---------------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes, eof: bool) -> None:
        """Write to its input, and end it if `eof`."""
        from outlast.executors.local.stdin import end_input, write_input

        directory = self.directory(task_id)
        launch, _ = task_directory.read_launch(directory)
        if not launch.stdin.open:
            raise InputRefused(f"{task_id} takes no input; start it with `--stdin open`.")
        if self.has_ended(task_id):
            raise AlreadyEnded(f"{task_id} has ended and reads no more input.")
        if not self.has_begun(task_id):
            raise InputRefused(f"{task_id} is pending and reads no input yet; send it once it runs.")
        if os.path.exists(os.path.join(directory, END_OF_INPUT)):
            raise InputRefused(f"The input of {task_id} was ended before; nothing more can be sent.")
        try:
            if data:
                write_input(directory, data)
            if eof:
                end_input(directory)
        except OSError as error:
            raise self.trouble(task_id, error) from None

    def release(self, task_id: str) -> None:
        """Move a foreground task to the background: what it changes from now on stays out of its session."""
        try:
            # The session still merges what a command changed that ended before this.
            if not self.has_ended(task_id):
                path = os.path.join(self.directory(task_id), task_directory.MOVED)
                os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
                self.registry.index.set_notice_due([task_id], 1)  # its end becomes a notice
        except OSError:
            pass  # a full disk, or the task was removed: the caller has a more important error to report

    def interrupt(self, task_id: str) -> bool:
        """Send SIGINT to the command's process group, as Ctrl-C does on a terminal. The command may go on."""
        from outlast.executors.local.ending import check_visible
        from outlast.light import signal
        from outlast.linux import process

        if not self.has_begun(task_id):
            self.signal([task_id], 0.0, "kill", "interrupted before it began")
            return True
        try:
            check_visible(self.directory(task_id))
            return process.send(record.guards_of(self.directory(task_id)).command, signal.SIGINT, to_group=True)
        except OSError as error:
            raise self.trouble(task_id, error) from None

    def signal(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        """End the process trees of these tasks; returns when they are gone, or says which processes survived."""
        from outlast.executors.local.ending import end_tasks

        return end_tasks(self, task_ids, grace, by, rule)
