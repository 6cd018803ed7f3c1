"""Ending a tree: all processes of a task, also those that left its group or its session.

Supervisor and keeper are subreapers, so whatever the command forked, however it hid,
has one of them as its ancestor. The tree is asked to end (TERM, and CONT for what is
stopped), then, after the grace, frozen process by process until no new one turns up,
and ended (KILL). Frozen first, because something that forks faster than we look would
otherwise always be one child ahead. What is still there at the very end is reported.
"""

from __future__ import annotations

import os
import select
import time

from outlast import process, tree
from outlast.lean import signal
from outlast.model import Identity, Running
from outlast.store import record, status
from outlast.store.queue import Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outlast.model import Guards

KILL_WAIT_S = 5.0  # what survives KILL this long hangs in the kernel (a dead NFS mount) and will not go now
_WRAPPER = "bwrap"
_BEGINS_S = 0.005  # about what it takes to begin a task that is no longer to be held back
_FREEZE_ROUNDS = 50
_LOOK_AGAIN_S = 0.25  # while it is ending: look for new processes this often
_PAUSE_S = 0.001  # something ended while we looked; its guard is about to reap it


def has_begun(directory: str, by: str, rule: str) -> bool:
    """Whether a task has, or had, processes to end; one that is pending is ended at once, unrun."""
    queue = Queue(os.path.dirname(os.path.dirname(directory)))
    while status.is_pending(directory):
        if queue.end_pending(directory, by, rule):
            return False
        select.select([], [], [], _BEGINS_S)
    return "guards" in record.read(directory)


def announce(directory: str, by: str, rule: str) -> None:
    """Record who ends a task that runs, and wake its guards: one that somebody stopped would not record the end."""
    runs = isinstance(status.status_of(directory)[0], Running)
    if runs:
        status.write_ending(by, rule, time.time(), directory)
    guards = status.guards_of(directory)
    for guard in (guards.supervisor, guards.keeper):
        if guard:
            process.send(guard, signal.SIGCONT)


class _Tree:
    """One tree that is being ended."""

    def __init__(self, look: Callable[[], Guards]) -> None:
        self._look = look
        self.known: dict[int, Identity] = {}
        self.living: dict[int, int] = {}  # pidfd of each that still runs, by pid
        # At the last look:
        self.missed: set[int] = set()  # ended before we had hold of them
        self.stopped: list[int] = []  # pidfds

    def refresh(self, all_processes: Callable[[], process.Table]) -> list[int]:
        """Look at the tree; the descriptors of members that were not known."""
        guards = self._look()
        seen = tree.look(guards, status.watches_another, all_processes)
        self._leave_alone(guards)
        self.missed = {pid for pid in seen.ended if pid in self.living or pid not in self.known}
        fresh = []
        watching = [who.pid for who in (guards.supervisor, guards.keeper) if who]
        for pid, stat in seen.members.items():
            who = Identity(pid, stat.tick, guards.command.boot)
            if pid == os.getpid() or self.known.get(pid) == who:
                continue  # somebody may end the task that they are part of
            if (fd := process.open_pidfd(who)) is None:
                self.missed.add(pid)
                continue
            self._forget(pid)
            self.known[pid], self.living[pid] = who, fd
            # What a sandbox is made with leaves by itself, and has to tell how the command ended.
            if not (stat.name == _WRAPPER and stat.parent in watching):
                fresh.append(fd)
        stopped = [pid for pid, stat in seen.members.items() if stat.state in "Tt"]
        self.stopped = [self.living[pid] for pid in stopped if pid in self.living]
        return fresh

    def _leave_alone(self, guards: Guards) -> None:
        """A new guard is a stranger in the tree until it is recorded."""
        for who in (guards.supervisor, guards.keeper):
            if who and self.known.get(who.pid) == who:
                if (fd := self.living.get(who.pid)) is not None:
                    _signal(fd, signal.SIGCONT)  # we may have stopped it meanwhile
                self._forget(who.pid)

    def _forget(self, pid: int) -> None:
        self.known.pop(pid, None)
        if (fd := self.living.pop(pid, None)) is not None:
            os.close(fd)

    @property
    def is_empty(self) -> bool:
        return not self.living and not self.missed

    def close(self) -> None:
        for fd in self.living.values():
            os.close(fd)


def end_trees(looks: Iterable[Callable[[], Guards]], grace: float) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """End several trees at once; for each the pids that ended and those that survived.

    `looks` tell who the guards are at the moment: they can change while we are at it.
    """
    trees = [_Tree(look) for look in looks]
    try:
        if not _ask(trees, grace):
            _force(trees)
        return [_receipt(one) for one in trees]
    finally:
        for one in trees:
            one.close()


def _receipt(one: _Tree) -> tuple[tuple[int, ...], tuple[int, ...]]:
    survivors = one.living.keys() | (one.missed - one.known.keys())
    return tuple(sorted(one.known.keys() - survivors)), tuple(sorted(survivors))


def _ask(trees: list[_Tree], grace: float) -> bool:
    """TERM and CONT until everything has left or the grace is over; whether it has left."""
    deadline = time.monotonic() + grace
    while True:
        fresh = _refresh(trees)
        for fd in fresh:
            _signal(fd, signal.SIGTERM)
        for fd in (fd for one in trees for fd in one.stopped):
            _signal(fd, signal.SIGCONT)  # at every look: a stop takes its time to show
        if not fresh and all(one.is_empty for one in trees):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        _await(trees, min(left, _LOOK_AGAIN_S))


def _force(trees: list[_Tree]) -> None:
    """Freeze, then KILL, until nothing is left or it will not go."""
    deadline = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < deadline:
        for _ in range(_FREEZE_ROUNDS):
            for one in trees:
                for fd in one.living.values():
                    _signal(fd, signal.SIGSTOP)
            if not _refresh(trees) and not any(one.missed for one in trees):
                break
        for one in trees:
            for fd in one.living.values():
                _signal(fd, signal.SIGKILL)
        _await(trees, max(0.0, min(deadline - time.monotonic(), _LOOK_AGAIN_S)))
        if not any(one.living for one in trees) and not _refresh(trees) and all(one.is_empty for one in trees):
            return


def _refresh(trees: list[_Tree]) -> list[int]:
    tables: list[process.Table] = []

    def all_processes() -> process.Table:
        # Taken when a tree needs it, and then for all of them: it takes 40 ms where 4,000 processes run.
        if not tables:
            tables.append(process.Table())
        return tables[0]

    return [fresh for one in trees for fresh in one.refresh(all_processes)]


def _await(trees: list[_Tree], patience: float) -> None:
    """Wait until all that is known has ended, or until `patience` is over."""
    deadline = time.monotonic() + patience
    poll = select.poll()
    waiting = {fd: (one, pid) for one in trees for pid, fd in one.living.items()}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    if not waiting:
        select.select([], [], [], min(_PAUSE_S, patience))
    while waiting:
        ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        for fd, _ in ended:
            poll.unregister(fd)
            one, pid = waiting.pop(fd)
            os.close(one.living.pop(pid))
        if not ended:
            return


def _signal(fd: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or changed its user: then it stays alive and is reported
