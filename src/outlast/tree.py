"""A task's tree: all its processes, also those that left its group or its session.

A task that was started from inside another one is not part of it. Its guards are below
those of the other, because orphans go to them; but a task outlasts who started it.
"""

from __future__ import annotations

from outlast import process
from outlast.frozen import frozen
from outlast.model import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from outlast.model import Guards
    from outlast.process import Stat, Table

    Apart = Callable[[Stat, str], bool]
    """Whether a process watches another task than the one with this id."""


@frozen
class Look:
    """A tree at about one moment."""

    members: dict[int, Stat]
    ended: set[int]  # listed, but gone when we turned to them: what they forked may have been missed


def look(guards: Guards, apart: Apart, all_processes: Callable[[], Table]) -> Look:
    """The living processes of the tree, found from its guards downwards.

    Quick, whatever else runs on the machine: what forks all the time has to be caught between two forks.
    """
    if guards.command.boot != process.boot_id():
        return Look({}, set())
    watching = [who.pid for who in _those_watching(guards) if process.is_alive(who)]
    found = _descend(watching, lambda stat: apart(stat, guards.task_id))
    if guards.scattered or not watching:
        table = all_processes()
        found.members.update({pid: table.by_pid[pid] for pid in members(guards, table, apart)})
    found.ended.update(who.pid for who in _those_watching(guards) if who.pid in watching and not process.is_alive(who))
    return found


def _descend(watching: list[int], apart: Callable[[Stat], bool]) -> Look:
    # A new guard is not recorded in the moment it is forked. It is known by its session: that is its
    # guards', the command has its own from the beginning, and nobody can join another's.
    found = Look({}, set())
    ours = {stat.session for guard in watching if (stat := process.stat_of(guard))}
    waiting = [(pid, guard) for guard in watching for pid in process.children_of(guard) if pid not in watching]
    while waiting:
        pid, parent = waiting.pop()
        stat = process.stat_of(pid)
        if stat is not None and not stat.dead:
            if pid not in found.members and not apart(stat):
                if stat.session not in ours:
                    found.members[pid] = stat
                waiting.extend((child, pid) for child in process.children_of(pid))
        elif stat is None or parent in watching:
            found.ended.add(pid)  # a guard reaps what ended; others may leave it lying about
    return found


def _those_watching(guards: Guards) -> list[Identity]:
    return [who for who in (guards.supervisor, guards.keeper) if who is not None]


def members(guards: Guards, table: Table, apart: Apart) -> dict[int, Identity]:
    """The living processes of the tree, without the guards themselves."""
    boot = guards.command.boot
    if boot != process.boot_id():
        return {}
    watching = {who.pid for who in _those_watching(guards) if table.holds(who) and not table.by_pid[who.pid].dead}
    roots = set(watching)
    if table.holds(guards.command):
        roots.add(guards.command.pid)
    if guards.scattered or not watching:
        roots |= _strays(guards, table)
    ours = {table.by_pid[pid].session for pid in watching}
    return {
        stat.pid: Identity(stat.pid, stat.tick, boot)
        for stat in _below(roots, table, lambda stat: apart(stat, guards.task_id))
        if stat.pid not in watching and not stat.dead and stat.session not in ours
    }


def _below(roots: Iterable[int], table: Table, apart: Callable[[Stat], bool]) -> Iterator[Stat]:
    reached: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in reached:
            continue
        reached.add(pid)
        if pid in table.by_pid:
            if apart(table.by_pid[pid]):
                continue
            yield table.by_pid[pid]
        waiting.extend(table.children.get(pid, ()))


def _strays(guards: Guards, table: Table) -> set[int]:
    """Processes in the command's own session, or with the task's id in their environment."""
    # Once the command is reaped and its session empty, its number can be a stranger's, and that one's session too.
    session = guards.command.pid if table.holds(guards.command) else None
    found = {stat.pid for stat in table.by_pid.values() if stat.session == session}
    return found | table.marked(b"OUTLAST_TASK_ID=" + guards.task_id.encode())
