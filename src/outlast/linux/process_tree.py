"""A task's process tree: all its processes, also those that left its group or its session. Find them, end them.

Supervisor and keeper are subreapers, so one of them is an ancestor of every process that the command started. A task
that was started from inside another one is not part of its tree: its guards are below those of the other, because
orphans become children of them, but a task outlasts the one that started it.

To end a tree, each process gets TERM (and CONT, if it is stopped). After the grace each process gets KILL as soon as it
is found, until a look finds no new one. Nothing is ever stopped (SIGSTOP) on the way: if the process that ends the tree
is killed itself at any moment, the rest of the tree runs on and can be killed again.

KILL needs no preceding STOP: a process with a pending KILL cannot fork any more (fork fails with ERESTARTNOINTR), and
the children of a killed process become children of a guard, where the next look finds them.
"""

from __future__ import annotations

import os
import select
import time
from functools import cache

from outlast.light import frozen, signal
from outlast.linux import process
from outlast.types import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outlast.linux.process import Stat, Table
    from outlast.types import Guards

    Apart = Callable[[Stat, str], bool]
    """Whether a process watches another task than the one with this id."""

    Ended = tuple[tuple[int, ...], tuple[int, ...]]
    """The pids of a tree that ended, and those that survived."""

KILL_WAIT_S = 5.0  # a process that survives KILL this long hangs in the kernel (a dead NFS mount) and will not go now
_WRAPPER = "bwrap"
_KILL_ROUNDS = 50
_LOOK_AGAIN_S = 0.25  # while the tree is ending: look for new processes this often
_PAUSE_S = 0.001  # a process ended while we looked; its guard is about to reap it


@frozen
class Look:
    """A tree at about one moment."""

    members: dict[int, Stat]
    ended: set[int]  # listed, but gone when we turned to them: what they forked may have been missed


def look(guards: Guards, apart: Apart, all_processes: Callable[[], Table]) -> Look:
    """Find the living processes of the tree, from its guards downwards, without the guards themselves.

    Quick, whatever else runs on the machine: what forks all the time has to be caught between two forks.
    """
    found = Look({}, set())
    if not process.is_visible(guards.command.boot):
        return found
    watching = [who.pid for who in _watchers(guards) if process.is_alive(who)]
    waiting = [(pid, guard) for guard in watching for pid in process.children_of(guard)]
    if guards.scattered or not watching:
        waiting += [(pid, 0) for pid in _strays(guards, all_processes())]
    # A new guard is not recorded in the moment it is forked. It is known by its session: that is its
    # guards', the command has its own from the beginning, and no process can join another's.
    ours = {stat.session for guard in watching if (stat := process.stat_of(guard))}
    while waiting:
        pid, parent = waiting.pop()
        if pid in found.members or pid in watching:
            continue
        stat = process.stat_of(pid)
        if stat is not None and not stat.dead:
            if not apart(stat, guards.task_id):
                if stat.session not in ours:
                    found.members[pid] = stat
                waiting.extend((child, pid) for child in process.children_of(pid))
        elif stat is None or parent in watching:
            found.ended.add(pid)  # a guard reaps what ended; others may leave it lying about
    found.ended.update(who.pid for who in _watchers(guards) if who.pid in watching and not process.is_alive(who))
    return found


def _watchers(guards: Guards) -> list[Identity]:
    return [who for who in (guards.supervisor, guards.keeper) if who is not None]


def _strays(guards: Guards, table: Table) -> set[int]:
    """Return the processes in the command's own session, or with the task's id in their environment."""
    # Once the command is reaped and its session empty, its number can be a stranger's, and that one's session too.
    leader = table.by_pid.get(guards.command.pid)
    session = leader.pid if leader is not None and leader.tick == guards.command.tick else None
    found = {stat.pid for stat in table.by_pid.values() if stat.session == session}
    return found | table.find_marked(b"OUTLAST_TASK_ID=" + guards.task_id.encode())


class _Tree:
    """One tree that is being ended."""

    def __init__(self, read_guards: Callable[[], Guards], apart: Apart, hangs_up: bool) -> None:
        self._read_guards, self._apart, self._hangs_up = read_guards, apart, hangs_up
        self.known: dict[int, Identity] = {}
        self.living: dict[int, int] = {}  # pidfd of each process that still runs, by pid
        self.missed: set[int] = set()  # ended before we could open them, at the last look

    def refresh(self, all_processes: Callable[[], Table], number: int) -> bool:
        """Look at the tree, and signal each new member at once; return whether there was one."""
        guards = self._read_guards()
        seen = look(guards, self._apart, all_processes)
        for who in _watchers(guards):  # a new guard looks like a member of the tree until it is recorded
            if self.known.get(who.pid) == who:
                self._forget(who.pid)
        self.missed = {pid for pid in seen.ended if pid in self.living or pid not in self.known}
        watching = [who.pid for who in _watchers(guards)]
        found_new = False
        for pid, stat in seen.members.items():  # parents before their children: no parent sees its child killed
            who = Identity(pid, stat.tick, guards.command.boot)
            if pid == os.getpid():
                continue  # a process may end the task that it is part of
            if self.known.get(pid) != who:
                if (fd := process.open_pidfd(who)) is None:
                    self.missed.add(pid)
                    continue
                self._forget(pid)
                self.known[pid], self.living[pid] = who, fd
                # The wrapper of a sandbox leaves by itself, and has to tell how the command ended.
                if number == signal.SIGKILL or not (stat.name == _WRAPPER and stat.parent in watching):
                    self._begin_end(fd, number)
                    found_new = True
            elif pid in self.living and number == signal.SIGTERM and process.takes_default_action(pid, number):
                # A child of bash that is between fork and exec still has bash's handler, which loses the signal.
                _signal(self.living[pid], number)
            if number == signal.SIGTERM and stat.state in "Tt" and pid in self.living:
                _signal(self.living[pid], signal.SIGCONT)  # at every look: a stop takes its time to show
        return found_new

    def _begin_end(self, fd: int, number: int) -> None:
        if self._hangs_up and number == signal.SIGTERM:
            _signal(fd, signal.SIGHUP)  # an interactive shell ignores TERM
        _signal(fd, number)

    def _forget(self, pid: int) -> None:
        self.known.pop(pid, None)
        if (fd := self.living.pop(pid, None)) is not None:
            os.close(fd)

    @property
    def is_empty(self) -> bool:
        return not self.living and not self.missed

    @property
    def result(self) -> Ended:
        survivors = self.living.keys() | (self.missed - self.known.keys())
        return tuple(sorted(self.known.keys() - survivors)), tuple(sorted(survivors))

    def close(self) -> None:
        for fd in self.living.values():
            os.close(fd)


def end_trees(looks: Iterable[tuple[Callable[[], Guards], bool]], apart: Apart, grace: float) -> list[Ended]:
    """End several trees at once.

    Each of `looks` returns the guards at the moment, which can change meanwhile; with it stands whether the tree has a
    terminal, which hangs up. `apart` says whether a process watches another task.
    """
    trees = [_Tree(look, apart, hangs_up) for look, hangs_up in looks]
    try:
        if not _terminate(trees, grace):
            _kill(trees)
        return [one.result for one in trees]
    finally:
        for one in trees:
            one.close()


def _terminate(trees: list[_Tree], grace: float) -> bool:
    """Send TERM and CONT until the trees are empty or the grace is over; returns whether they are empty."""
    deadline = time.monotonic() + grace
    while True:
        if not _refresh(trees, signal.SIGTERM) and all(one.is_empty for one in trees):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        _wait(trees, min(left, _LOOK_AGAIN_S))


def _kill(trees: list[_Tree]) -> None:
    """Send KILL until the trees are empty, or until KILL_WAIT_S is over."""
    deadline = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < deadline:
        for one in trees:
            for fd in one.living.values():
                _signal(fd, signal.SIGKILL)
        for _ in range(_KILL_ROUNDS):
            if not _refresh(trees, signal.SIGKILL):
                break
        _wait(trees, max(0.0, min(deadline - time.monotonic(), _LOOK_AGAIN_S)))
        alive = any(one.living for one in trees) or _refresh(trees, signal.SIGKILL)
        if not alive and all(one.is_empty for one in trees):
            return


def _refresh(trees: list[_Tree], number: int) -> bool:
    """Look at the trees, and signal their new members; return whether there were any."""
    # Read when a tree needs it, and then for all of them: it takes 40 ms where 4,000 processes run.
    all_processes = cache(process.Table)
    return True in [one.refresh(all_processes, number) for one in trees]


def _wait(trees: list[_Tree], patience: float) -> None:
    """Wait until all known processes have ended, or until `patience` is over."""
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
        pass  # gone, or running as another user: then it stays alive and is reported
