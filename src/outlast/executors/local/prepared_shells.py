"""Prepared shells: each is a bash that has restored its session's state, and waits to be told its command.

They are made in pauses, so that the next command need not wait for a guard, for bash and for the state. One has a
staged directory of its own and serves one command that is like the last one; its guard removes it when the host ends.
"""

from __future__ import annotations

import os
import threading

from outlast.executors.local.description import describe
from outlast.executors.local.staged_task import StagedTask
from outlast.guard.client import LAUNCH_MOST_HELD, start_guard
from outlast.storage import task_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.storage.queue import Queue
    from outlast.storage.registry import Registry
    from outlast.types import Launch

_AT_LEAST, _AT_MOST = 2, 4  # for the next command, and for those at once or right after it


class PreparedShells:
    """The prepared shells of one host."""

    def __init__(self, registry: Registry, queue: Queue) -> None:
        self._registry, self._queue = registry, queue
        self._shells, self._wanted = list[StagedTask](), 1
        self._lock = threading.Lock()  # one thread adds a shell while another one takes one
        self._closed, self._owner = False, os.getpid()

    def close(self) -> None:
        if self._owner != os.getpid():
            return  # they belong to the parent
        with self._lock:
            self._closed = True
            while self._shells:
                self._shells.pop().close()

    def has_any(self) -> bool:
        return bool(self._shells)

    def take(self, launch: Launch) -> StagedTask | None:
        """Return a shell that waits for a command like this one, if there is one."""
        if self._owner != os.getpid():
            return None  # a fork of the host, which may have a copy of the lock that nothing will unlock
        with self._lock:  # a shell that is just being prepared is ready sooner than another one
            if not self._shells:
                self._wanted = min(self._wanted + 1, _AT_MOST)  # one more next time
            for shell in self._shells[:]:
                if shell.is_prepared_for(launch):  # the next command may be like those that the others are for
                    self._shells.remove(shell)
                    if shell.is_waiting():
                        return shell
                    shell.close()
        return None

    def add(self, launch: Launch) -> bool:
        """Prepare one shell more for commands like this one; return whether more are wanted."""
        if os.path.basename(launch.shell) != "bash" or launch.groups or launch.stdin.text is not None or launch.tty:
            return False  # it needs the command, or something that a guard cannot do twice
        with self._lock:
            for shell in self._shells[:]:
                if not (shell.is_prepared_for(launch) and shell.is_waiting()):
                    self._shells.remove(shell)
                    shell.close()
            if self._closed or len(self._shells) >= max(self._wanted, _AT_LEAST):
                return False
            shell = self._start(launch)
            self._shells.append(shell)
        if shell.connection is not None:
            shell.connection.reap_starter()  # a command that takes the shell meanwhile need not wait for this
        return True

    def _start(self, launch: Launch) -> StagedTask:
        shell = StagedTask(self._registry.stage(launch), launch)
        try:
            task_directory.create_empty(shell.staged)
            shell.slots = self._queue.open_slots(min(launch.max_running, LAUNCH_MOST_HELD))
            with describe(shell.staged, shell.published, launch, prepare=True) as description:
                for slot in shell.slots:
                    description.hold(slot)
                shell.connection = start_guard(description.encode(), description.inherited)
        except BaseException:
            shell.close()
            self._registry.discard(shell.staged, shell.published)
            raise
        return shell
