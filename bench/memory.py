"""What running tasks take of memory and processor beside their commands."""

from __future__ import annotations

import os
import time

from bench.measure import Lacks, Timing, first_line
from bench.peers import Before, Ours, Peer
from bench.peers.base import MARK
from outlast import Shell
from outlast.storage import record
from outlast.types import Guards

_COMMAND = "exec sleep 1000"
_OPENED_S = 0.3  # a host is opened when it starts, and used later


def private_kib(pid: int) -> int:
    """Memory that would be freed if this process ended."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))


def for_each_task(peer: Peer, tasks: int) -> Timing:
    """MiB for each of so many running tasks; one figure."""
    try:
        if isinstance(peer, Before):
            mib = peer.memory(tasks)
        else:
            mib = _ours(peer, tasks) if isinstance(peer, Ours) else _theirs(peer, tasks)
    except Lacks:
        return Timing(trouble="-")
    except Exception as error:  # whatever a peer does wrong must not end the run
        if isinstance(peer, Ours):
            raise
        return Timing(trouble=first_line(error))
    return Timing((mib,))


def _guards(shell: Shell, task_id: str) -> Guards:
    return record.guards_of(os.path.dirname(shell.show(task_id).output_file))


def _ours(peer: Ours, tasks: int) -> float:
    shell = peer.opened
    ids: list[str] = []
    time.sleep(_OPENED_S)
    try:
        for _ in range(tasks):
            ids.append(peer.start(_COMMAND))
        guards = [_guards(shell, task_id) for task_id in ids]
        kib = sum(private_kib(who.pid) for both in guards for who in (both.supervisor, both.keeper) if who is not None)
    finally:
        shell.kill_all(ids)
    return kib / tasks / 1024


def _theirs(peer: Peer, tasks: int) -> float:
    """All that carries its mark except the commands: with the tasks, less without them."""
    if not peer.can_kill:
        raise Lacks  # nothing would end them
    tickets = []
    before = _marked_kib(peer)
    try:
        for _ in range(tasks):
            tickets.append(peer.start(_COMMAND))
        return (_marked_kib(peer) - before) / tasks / 1024
    finally:
        peer.kill_all(tickets)


def _marked_kib(peer: Peer) -> int:
    mark = f"{MARK}={peer.mark}".encode()
    kib = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environ, open(f"/proc/{name}/comm") as comm:
                if mark in environ.read().split(b"\0") and comm.read().strip() != "sleep":
                    kib += private_kib(int(name))
        except OSError:
            continue  # it ended meanwhile
    return kib


def cpu_seconds_of_guards(shell: Shell, task_id: str) -> float:
    """What both used until they left; looked at often enough to miss only the last moment."""
    guards = _guards(shell, task_id)
    ticks = {who.pid: 0 for who in (guards.supervisor, guards.keeper) if who is not None}
    alive = set(ticks)
    while alive:
        for pid in list(alive):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                alive.discard(pid)
                continue
            ticks[pid] = max(ticks[pid], int(fields[11]) + int(fields[12]))
            if fields[0] == "Z":
                alive.discard(pid)
        time.sleep(0.01)
    return sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
