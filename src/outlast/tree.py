"""A task's tree: all its processes, also those that left its group or its session."""

from __future__ import annotations

from outlast.model import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from outlast.model import Guards
    from outlast.process import Stat, Table


def members(guards: Guards, table: Table) -> dict[int, Identity]:
    """The living processes of the tree, without the guards themselves."""
    boot = guards.command.boot
    watching = {
        who.pid for who in (guards.supervisor, guards.keeper, guards.ender) if who is not None and table.holds(who)
    }
    roots = set(watching)
    if table.holds(guards.command):
        roots.add(guards.command.pid)
    if guards.scattered:
        roots |= _strays(guards, table)
    return {
        stat.pid: Identity(stat.pid, stat.tick, boot)
        for stat in _below(roots, table)
        if stat.pid not in watching and not stat.dead
    }


def _below(roots: Iterable[int], table: Table) -> Iterator[Stat]:
    reached: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in reached:
            continue
        reached.add(pid)
        if pid in table.by_pid:
            yield table.by_pid[pid]
        waiting.extend(table.children.get(pid, ()))


def _strays(guards: Guards, table: Table) -> set[int]:
    """Processes in the command's own session, or with the task's id in their environment."""
    marker = b"OUTLAST_TASK_ID=" + guards.task_id.encode() + b"\0"
    found = set()
    for stat in table.by_pid.values():
        if stat.session == guards.command.pid and stat.tick >= guards.command.tick:
            found.add(stat.pid)
            continue
        try:
            with open(f"/proc/{stat.pid}/environ", "rb") as file:
                if marker in file.read():
                    found.add(stat.pid)
        except OSError:
            continue  # gone, or not ours
    return found
