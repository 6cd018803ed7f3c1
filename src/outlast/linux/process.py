"""Processes as the kernel knows them: their identity, their children, their signals.

What Linux has and others lack is used here and nowhere else: `/proc`, pidfd.
"""

from __future__ import annotations

import os
from fcntl import ioctl

from outlast.light import frozen, signal
from outlast.types import Identity

_PIDFD_SIGNAL_PROCESS_GROUP = 4
_PIDFD_INFO_BYTES = 80
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO_BYTES << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 8
_PROC_BYTES = 4096
_boot: str | None = None
_title: tuple[int, int] | None = None
_children_told = False


def boot_id() -> str:
    """Where our pids mean something: this boot, and this pid namespace (each container has its own)."""
    global _boot  # noqa: PLW0603 # it cannot change while we live
    if _boot is None:
        with open("/proc/sys/kernel/random/boot_id") as file:
            _boot = join_boot(file.read().strip(), os.stat("/proc/self/ns/pid").st_ino)
    return _boot


def join_boot(boot: str, pid_namespace: int) -> str:
    return f"{boot}:{pid_namespace}"


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
    group: int
    session: int
    tick: int
    cpu_ticks: int
    wait_status: int
    threads: int

    @property
    def dead(self) -> bool:
        # A process whose first thread ended looks like a zombie, and its other threads go on.
        return self.state in "ZX" and self.threads <= 1


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of `pid` now; None if there is no such process."""
    # The name stands in brackets and may itself contain blanks and brackets.
    head, _, tail = _read(f"/proc/{pid}/stat").rpartition(b")")
    if not tail:
        return None
    part = tail.split()
    return Stat(
        pid,
        head.partition(b"(")[2].decode(errors="replace"),
        part[0].decode(),
        int(part[1]),
        int(part[2]),
        int(part[3]),
        int(part[19]),
        sum(map(int, part[11:15])),
        int(part[49]),
        int(part[17]),
    )


def _tick_of(pid: int) -> int | None:
    """When it began: the least that one has to know of a process."""
    part = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 20)
    return int(part[19]) if part else None


def _read(path: str, to_the_end: bool = False) -> bytes:
    """A file about a process, or the one line that it has; nothing if the process is gone."""
    # Not a file object: to end a tree is to read a hundred of these.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        data = more = os.read(fd, _PROC_BYTES)
        while to_the_end and more:  # the kernel may give less than there is
            data += (more := os.read(fd, _PROC_BYTES))
        return data
    except ProcessLookupError:
        return b""
    finally:
        os.close(fd)


def children_of(pid: int) -> list[int]:
    """Its children, ended ones that it did not reap included; empty if it is gone.

    A snapshot of the whole table can miss a process whose parent ends meanwhile. This cannot:
    if it is empty, there was a moment without any child.
    """
    if not _tells_children():
        return Table().children.get(pid, [])  # a kernel built without CONFIG_PROC_CHILDREN
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for thread in threads for child in _children(f"/proc/{pid}/task/{thread}")]


def _children(thread: str) -> list[int]:
    # Nothing if that thread ended: its children are another's now.
    return [int(word) for word in _read(f"{thread}/children", to_the_end=True).split()]


def _tells_children() -> bool:
    """Whether this kernel lists the children of a process."""
    global _children_told  # noqa: PLW0603 # it cannot change while we live
    if not _children_told:
        _children_told = os.path.exists("/proc/thread-self/children")
    return _children_told


class Table:
    """Every process of this machine (or pid namespace) that can be seen, at about one moment."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Stat] = {}
        self.children: dict[int, list[int]] = {}
        self._variables: dict[int, frozenset[bytes]] | None = None
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := stat_of(int(name))):
                self.by_pid[stat.pid] = stat
        for stat in [stat for stat in self.by_pid.values() if stat.parent and stat.parent not in self.by_pid]:
            # Its parent ended while we looked, so it has another one now.
            if again := stat_of(stat.pid):
                self.by_pid[stat.pid] = again
        for stat in self.by_pid.values():
            self.children.setdefault(stat.parent, []).append(stat.pid)

    def marked(self, variable: bytes) -> set[int]:
        """The processes that were started with this variable, as NAME=VALUE; those that we may look at."""
        if self._variables is None:
            self._variables = {pid: environment(pid) for pid in self.by_pid}
        return {pid for pid, variables in self._variables.items() if variable in variables}

    def holds(self, who: Identity) -> bool:
        stat = self.by_pid.get(who.pid)
        return stat is not None and stat.tick == who.tick


def environment(pid: int) -> frozenset[bytes]:
    """The variables that a process began with."""
    try:
        with open(f"/proc/{pid}/environ", "rb", 0) as file:
            return frozenset(file.read().split(b"\0"))
    except OSError:
        return frozenset()  # gone, or not ours


def identity(pid: int) -> Identity:
    """The identity of a process that certainly lives: ourselves, or a child not yet reaped."""
    tick = _tick_of(pid)
    if tick is None:
        raise ProcessLookupError(pid)
    return Identity(pid, tick, boot_id())


def is_alive(who: Identity) -> bool:
    """Whether this very process still runs."""
    # A pid is not an identity: the kernel hands it out again, on a busy machine
    # within seconds. The start tick tells the two owners apart.
    if not is_visible(who.boot):
        return False
    stat = stat_of(who.pid)
    return stat is not None and stat.tick == who.tick and not stat.dead


def is_below(who: Identity | None) -> bool:
    """Whether this very process is an ancestor of ours."""
    stat = stat_of(os.getpid())
    while stat is not None and stat.parent:
        stat = stat_of(stat.parent)
        if stat is not None and who is not None and (stat.pid, stat.tick) == (who.pid, who.tick):
            return True
    return False


def open_pidfd(who: Identity) -> int | None:
    """A descriptor of this very process; None if it is gone."""
    if not is_visible(who.boot):
        return None
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return None
    # Looked at after the open: from here on the descriptor and the tick belong together.
    if _tick_of(who.pid) != who.tick:
        os.close(fd)
        return None
    return fd


def send(who: Identity, number: int) -> bool:
    """Signal this very process; False if it is gone."""
    fd = open_pidfd(who)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def send_group(leader: Identity, number: int) -> bool:
    """Signal the process group of a leader that was not reaped yet; False if it is gone."""
    fd = open_pidfd(leader)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        return True
    except ProcessLookupError:
        return False
    except OSError:  # before Linux 6.9
        # The leader was there a moment ago, and only its keeper can reap it: its
        # number is not free for a stranger while the descriptor says it is unreaped.
        os.killpg(leader.pid, number)
        return True
    finally:
        os.close(fd)


def has_exit_info(pidfd: int) -> bool:
    """Return whether this descriptor still tells how its process ended, after its parent reaped it (Linux 6.15)."""
    info = bytearray(_PIDFD_INFO_BYTES)
    info[0] = _PIDFD_INFO_EXIT
    try:
        ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return False
    return bool(info[0] & _PIDFD_INFO_EXIT)


def takes_default_action(pid: int, number: int) -> bool:
    """Return whether a signal would end the process: it neither blocks nor ignores nor catches it."""
    bit = 1 << (number - 1)
    found = _read(f"/proc/{pid}/status").split(b"\n")
    masks = [line for line in found if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:"))]
    return bool(masks) and not any(int(line.split()[1], 16) & bit for line in masks)


def rename_self(name: str, title: str) -> None:
    """Show `name` and `title` to ps and pkill instead of our interpreter and its arguments."""
    global _title  # noqa: PLW0603 # where the arguments are, the same in every fork
    try:
        if _title is None:
            fd = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
            part = os.read(fd, 1024).rpartition(b")")[2].split()
            os.close(fd)
            _title = int(part[45]), int(part[46])
        start, end = _title
        _put("/proc/self/comm", name[:15].encode(), 0)
        _put("/proc/self/mem", title.encode()[: end - start - 1].ljust(end - start, b"\0"), start)
    except (OSError, IndexError, ValueError):
        pass  # only looks: hardened kernels forbid it


def _put(path: str, data: bytes, place: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if place:
            os.lseek(fd, place, os.SEEK_SET)  # not pwrite: /proc/self/comm takes none, wherever it is to write
        os.write(fd, data)
    finally:
        os.close(fd)
