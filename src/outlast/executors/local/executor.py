"""Tasks on this machine: each one a directory, watched by a supervisor and its keeper."""

from __future__ import annotations

import errno
import os
import select

from outlast.errors import AlreadyEnded, InputRefused, OutlastError
from outlast.executors.local.starting import Starting
from outlast.frozen import extended
from outlast.light import signal
from outlast.linux import process, process_tree
from outlast.linux.files import open_regular
from outlast.storage import launchfile, output, sessions, status
from outlast.storage.layout import END_OF_INPUT, STDIN
from outlast.storage.locks import Hold
from outlast.types import Ended, Exited, Pending, Receipt, Running
from outlast.watch import Deadline, Watch, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.linux.process import Stat
    from outlast.types import Guards, Slice, Status, Task

INPUT_PATIENCE_S = 2.0  # how long a command may take to start reading what it was sent
RECORD_PATIENCE_S = 5.0  # between the death of a tree and the record of it; milliseconds, unless the disk is stuck
_WAKE = "wake"  # the named pipe on which a guard listens for the end of the input
_TREES_AT_ONCE = 100  # each process of a tree takes a descriptor while it is being ended


class LocalExecutor(Starting):
    """The tasks of one state directory."""

    # --- look ----------------------------------------------------------------------------

    def status(self, task_id: str) -> Task:
        return self.registry.get(task_id)

    def has_ended(self, task_id: str) -> bool:
        """Whether its end is known: cheaper than `status`."""
        if self._is_recorded(task_id):
            return True
        return not isinstance(self._status_moved_on(task_id)[0], (Pending, Running))

    def is_over(self, task_id: str) -> bool:
        """Whether nothing more can be hoped of it: it is closed, or its command failed.

        A command that went well and left something running (`server &`) may have only begun.
        """
        found, _, closed = self._status_moved_on(task_id)
        went_well = isinstance(found, Ended) and found.outcome == Exited(0)
        return closed or not (went_well or isinstance(found, (Pending, Running)))

    def is_closed(self, task_id: str) -> bool:
        """Whether no more output will come."""
        return self._status_moved_on(task_id)[2]

    def has_begun(self, task_id: str) -> bool:
        """Whether it is not pending (any more)."""
        return not isinstance(self._status_moved_on(task_id)[0], Pending)

    def _status_moved_on(self, task_id: str) -> tuple[Status, Guards | None, bool]:
        """As `_status_of`, for callers that wait: they start a pending task if the process that should was killed."""
        found = self._status_of(task_id)
        if not isinstance(found[0], Pending):
            return found
        self.advance()
        return self._status_of(task_id)

    def _status_of(self, task_id: str) -> tuple[Status, Guards | None, bool]:
        directory = self._directory(task_id)
        try:
            found = status.status_of(directory)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise status.explain_error(directory, error) from None
        if not isinstance(found[0], (Pending, Running)):
            self._let_go(task_id)
        return found

    def _is_recorded(self, task_id: str) -> bool:
        begun = self._begun.get(task_id)
        try:
            found = (begun is not None and begun.has_ended()) or status.has_outcome(self._directory(task_id))
        except (OSError, ValueError):
            return False  # whoever looks longer says what is wrong
        if found:
            self._let_go(task_id)
        return found

    def _let_go(self, task_id: str) -> None:
        """The command ended; close the connection to its guard."""
        self._foreground.discard(task_id)
        connection = self._begun.pop(task_id, None)
        if connection is not None:
            connection.leave()

    def read(self, task_id: str, stream: str, cursor: int, most: int) -> Slice:
        return self.source(task_id, stream).read(cursor, most)

    def source(self, task_id: str, stream: str) -> output.Source:
        """One stream of a task's output."""
        return self.registry.source(task_id, stream)

    def members(self, task_id: str) -> dict[int, Stat]:
        """The living processes of a task, without its guards."""
        try:
            guards = status.guards_of(self._directory(task_id))
        except (OSError, KeyError, TypeError, ValueError):
            return {}  # pending, or just being removed
        return process_tree.look(guards, status.is_foreign_guard, process.Table).members

    def trouble(self, task_id: str, error: OSError) -> OutlastError:
        """What to tell of a task whose files could not be used."""
        return status.explain_error(self._directory(task_id), error)

    def watch(self, task_id: str) -> Watch:
        begun = self._begun.get(task_id)
        return Watch(self._directory(task_id), begun.fileno() if begun is not None else -1)

    def hold(self, task_id: str) -> Hold:
        """Keep a task from being removed until it is reported."""
        return Hold().take(self._directory(task_id))

    def _directory(self, task_id: str) -> str:
        return self.registry.home.task(task_id)

    # --- input ---------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes, eof: bool) -> None:
        directory = self._directory(task_id)
        launch, _ = launchfile.read(directory)
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
                self._feed(task_id, os.path.join(directory, STDIN), data)
            if eof:
                self._end_input(directory)
        except OSError as error:
            raise self.trouble(task_id, error) from None

    def _feed(self, task_id: str, path: str, data: bytes) -> None:
        """Write all of it, or refuse: a command that does not read must not hold us for ever."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise InputRefused(f"{task_id} has closed its input.") from None
            raise
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        sent = 0
        try:
            while sent < len(data):
                ready = poll.poll(INPUT_PATIENCE_S * 1000)
                if not ready:
                    raise InputRefused(f"{task_id} does not read its input: {sent} of {len(data)} bytes were taken.")
                try:
                    sent += os.write(fd, data[sent : sent + 65536])
                except BlockingIOError:
                    continue  # somebody else filled it
        except BrokenPipeError:
            raise InputRefused(f"{task_id} closed its input after {sent} of {len(data)} bytes.") from None
        finally:
            os.close(fd)

    def _end_input(self, directory: str) -> None:
        # The guards keep the input open. The file tells them to close it, also those that come later.
        path = os.path.join(directory, END_OF_INPUT)
        os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
        try:
            fd = os.open(os.path.join(directory, _WAKE), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return  # no guard listens: the one that comes next looks for the file
        try:
            os.write(fd, b"\0")
        except OSError:
            pass  # it is full of bytes that wake the guard
        finally:
            os.close(fd)

    def release(self, task_id: str) -> None:
        """Nobody waits for it any more: what it changes stays its own."""
        directory = self._directory(task_id)
        try:
            # The session takes over what a command changed that ended before this.
            if not self.has_ended(task_id):
                path = os.path.join(directory, sessions.MOVED)
                os.close(open_regular(path, os.O_WRONLY | os.O_CREAT))
                self.registry.index.set_notice_due([task_id], 1)  # of its end somebody has to be told
        except OSError:
            pass  # a full disk, or it was removed: whoever asked has more important things to learn

    # --- end -----------------------------------------------------------------------------

    def interrupt(self, task_id: str) -> bool:
        """What Ctrl-C does on a terminal: INT to the command's process group. It may go on."""
        from outlast.executors.local.ending import check_visible

        if not self.has_begun(task_id):
            self.signal([task_id], 0.0, "kill", "interrupted before it began")
            return True
        try:
            check_visible(self._directory(task_id))
            return process.send_group(status.guards_of(self._directory(task_id)).command, signal.SIGINT)
        except OSError as error:
            raise self.trouble(task_id, error) from None

    def signal(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        receipts = []
        for start in range(0, len(task_ids), _TREES_AT_ONCE):
            some = task_ids[start : start + _TREES_AT_ONCE]
            try:
                receipts += self._end(some, grace, by, rule)
            except OSError as error:
                raise self.trouble(some[0], error) from None
        return receipts

    def _end(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        from outlast.executors.local.ending import has_begun

        unrun = [one for one in map(self._directory, task_ids) if not has_begun(one, by, rule)]
        receipts = {one: self._unrun(one) for one in map(os.path.basename, unrun)}
        begun = [one for one in task_ids if one not in receipts]
        end = self._end_with_agents if any(one.startswith("agent-") for one in begun) else self._end_running
        receipts.update(zip(begun, end(begun, grace, by, rule), strict=True))
        self.advance()
        return [receipts[one] for one in task_ids]

    def _unrun(self, task_id: str) -> Receipt:
        return extended(Receipt, self.status(task_id), ended=(), survivors=())

    def _end_with_agents(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        """As `_end_running`, with all that those of them started that are agents."""
        from outlast.executors.local import offspring  # most tasks are none

        agents = [one for one in task_ids if offspring.ends_with(one)]
        for one in agents:
            offspring.end_pending(self._directory(one), by)
        receipts = self._end_running(task_ids, grace, by, rule)
        return [
            offspring.end_offspring(self._directory(one.task_id), one, grace, by) if one.task_id in agents else one
            for one in receipts
        ]

    def _end_running(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        from outlast.executors.local.ending import announce, check_visible
        from outlast.linux.process_tree import end_trees

        directories = [self._directory(task_id) for task_id in task_ids]
        for directory in directories:
            check_visible(directory)
        for directory in directories:
            announce(directory, by, rule)
        looks = [lambda directory=directory: status.guards_of(directory) for directory in directories]
        ended = end_trees(looks, status.is_foreign_guard, grace)
        return [
            self._receipt(task_id, gone, left, grace) for task_id, (gone, left) in zip(task_ids, ended, strict=True)
        ]

    def _receipt(self, task_id: str, ended: tuple[int, ...], survivors: tuple[int, ...], grace: float) -> Receipt:
        if not survivors:
            # Who ends the task that they are part of would wait for themselves.
            inside = process.is_below(status.guards_of(self._directory(task_id)).keeper)
            over = self.has_ended if inside else self.is_closed
            with self.watch(task_id) as watch:
                until(watch, lambda: over(task_id), Deadline(RECORD_PATIENCE_S))
        return extended(Receipt, self.status(task_id), ended=ended, survivors=survivors)
