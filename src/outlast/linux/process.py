"""Processes as the kernel knows them: their identity, their children, their signals.

What Linux has and others lack is used here and nowhere else: `/proc`, pidfd.
"""

from __future__ import annotations

import os
from functools import cache

from outlast.light import frozen, signal
from outlast.types import Identity

_PIDFD_SIGNAL_PROCESS_GROUP = 4
_PROC_BYTES = 4096


@cache  # it cannot change while we live
def boot_id() -> str:
    """Return where our pids mean something: this boot, and this pid namespace (each container has its own)."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"


def is_visible(boot: str) -> bool:
    """Return whether the pids of an identity with this `boot` are pids of ours. Older versions kept no namespace."""
    return boot in (boot_id(), boot_id().partition(":")[0])


@frozen
class Stat:
    """One line of the process table."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    tick: int
    cpu_ticks: int
    threads: int
    terminal: int  # the device number of its controlling terminal, as the kernel writes it here; 0: none

    @property
    def dead(self) -> bool:
        # A process whose first thread ended looks like a zombie, and its other threads go on.
        return self.state in "ZX" and self.threads <= 1


def stat_of(pid: int) -> Stat | None:
    """Return what the kernel says of `pid` now; None if there is no such process."""
    # The name stands in brackets and may itself contain blanks and brackets.
    head, _, tail = _read(f"/proc/{pid}/stat", is_long=False).rpartition(b")")
    if not tail:
        return None
    part = tail.split()
    name = head.partition(b"(")[2].decode(errors="replace")
    parent, session, terminal, threads, tick = (int(part[n]) for n in (1, 3, 4, 17, 19))
    return Stat(pid, name, part[0].decode(), parent, session, tick, sum(map(int, part[11:15])), threads, terminal)


def _read(path: str, is_long: bool = True) -> bytes:
    """Return a file about a process, or the one line that it has; nothing if the process is gone."""
    # Not a file object: to end a tree is to read a hundred of these.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        data = more = os.read(fd, _PROC_BYTES)
        while is_long and more:  # the kernel may give less than there is
            data += (more := os.read(fd, _PROC_BYTES))
        return data
    except ProcessLookupError:
        return b""
    finally:
        os.close(fd)


def children_of(pid: int) -> list[int]:
    """Return its children, ended ones that it did not reap included; empty if it is gone.

    A snapshot of the whole table can miss a process whose parent ends meanwhile. This cannot:
    if it is empty, there was a moment without any child.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    if not os.path.exists("/proc/thread-self/children"):
        return Table().children.get(pid, [])  # a kernel built without CONFIG_PROC_CHILDREN
    # Nothing if a thread ended: its children are another's now.
    return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


class Table:
    """Every process of this machine (or pid namespace) that can be seen, at about one moment."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Stat] = {}
        self.children: dict[int, list[int]] = {}
        self._variables: dict[int, frozenset[bytes]] | None = None
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := stat_of(int(name))):
                self.by_pid[stat.pid] = stat
        for stat in self.by_pid.values():
            self.children.setdefault(stat.parent, []).append(stat.pid)

    def find_marked(self, variable: bytes) -> set[int]:
        """Return the processes that were started with this variable, as NAME=VALUE; those that we may look at."""
        if self._variables is None:
            self._variables = {pid: environment(pid) for pid in self.by_pid}
        return {pid for pid, variables in self._variables.items() if variable in variables}


def environment(pid: int) -> frozenset[bytes]:
    """Return the variables that a process began with."""
    try:
        return frozenset(_read(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()  # not ours


def identity(pid: int) -> Identity:
    """Return the identity of a process that certainly lives: ourselves, or a child not yet reaped."""
    stat = stat_of(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return Identity(pid, stat.tick, boot_id())


def is_alive(who: Identity) -> bool:
    """Return whether this very process still runs."""
    # A pid is not an identity: the kernel hands it out again, on a busy machine
    # within seconds. The start tick tells the two owners apart.
    if not is_visible(who.boot):
        return False
    stat = stat_of(who.pid)
    return stat is not None and stat.tick == who.tick and not stat.dead


def is_below(who: Identity | None) -> bool:
    """Return whether this very process is an ancestor of ours."""
    stat = stat_of(os.getppid())
    while stat is not None and who is not None and (stat.pid, stat.tick) != (who.pid, who.tick):
        stat = stat_of(stat.parent) if stat.parent else None
    return stat is not None and who is not None


def open_pidfd(who: Identity) -> int | None:
    """Return a descriptor of this very process; None if it is gone."""
    if not is_visible(who.boot):
        return None
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return None
    # Look at the tick after the open: from here on the descriptor and the tick belong together.
    stat = stat_of(who.pid)
    if stat is None or stat.tick != who.tick:
        os.close(fd)
        return None
    return fd


def send(who: Identity, number: int, to_group: bool = False) -> bool:
    """Signal this very process, or the group that it leads if it was not reaped yet; False if it is gone."""
    fd = open_pidfd(who)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number, None, _PIDFD_SIGNAL_PROCESS_GROUP if to_group else 0)
    except ProcessLookupError:
        return False
    except OSError:
        if not to_group:
            raise
        # Before Linux 6.9. The leader was there a moment ago, and only its keeper can reap it: its number is
        # not free for a stranger while the descriptor says it is unreaped.
        os.killpg(who.pid, number)
    finally:
        os.close(fd)
    return True


def takes_default_action(pid: int, number: int) -> bool:
    """Return whether a signal would end the process: it neither blocks nor ignores nor catches it."""
    bit = 1 << (number - 1)
    found = _read(f"/proc/{pid}/status").split(b"\n")
    masks = [line for line in found if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:"))]
    return bool(masks) and not any(int(line.split()[1], 16) & bit for line in masks)


def read_umask() -> int:
    """Return the umask of this process. os.umask would have to change it, which other threads could notice."""
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 4096).partition(b"\nUmask:")[2].split(None, 1)[0], 8)
    finally:
        os.close(fd)
