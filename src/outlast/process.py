"""Processes as the kernel knows them: who they are, whose children, how they ended.

What Linux has and others lack is used here and nowhere else: `/proc`, pidfd, subreapers.
"""

from __future__ import annotations

import os
import signal
import struct
from fcntl import ioctl

from outlast.frozen import frozen
from outlast.model import Exited, Identity, Signalled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.model import Outcome

_PR_SET_CHILD_SUBREAPER = 36
_PIDFD_INFO_BYTES = 80
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO_BYTES << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 8
_PIDFD_SIGNAL_PROCESS_GROUP = 4

_boot: str | None = None


def boot_id() -> str:
    """What tells this boot from every other."""
    global _boot
    if _boot is None:
        with open("/proc/sys/kernel/random/boot_id") as file:
            _boot = file.read().strip()
    return _boot


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

    @property
    def dead(self) -> bool:
        return self.state in "ZX"


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of `pid` now; None if there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        line = os.read(fd, 1024)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    # The name stands in brackets and may itself contain blanks and brackets.
    head, _, tail = line.rpartition(b")")
    part = tail.split()
    return Stat(
        pid=pid,
        name=head.partition(b"(")[2].decode(errors="replace"),
        state=part[0].decode(),
        parent=int(part[1]),
        group=int(part[2]),
        session=int(part[3]),
        tick=int(part[19]),
        cpu_ticks=sum(map(int, part[11:15])),
        wait_status=int(part[49]),
    )


class Table:
    """Every process of this machine (or pid namespace) that can be seen, at about one moment."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Stat] = {}
        self.children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := stat_of(int(name))):
                self.by_pid[stat.pid] = stat
                self.children.setdefault(stat.parent, []).append(stat.pid)

    def holds(self, who: Identity) -> bool:
        stat = self.by_pid.get(who.pid)
        return stat is not None and stat.tick == who.tick


def identity(pid: int) -> Identity:
    """The identity of a process that certainly lives: ourselves, or a child not yet reaped."""
    stat = stat_of(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return Identity(pid, stat.tick, boot_id())


def is_alive(who: Identity) -> bool:
    """Whether this very process still runs."""
    # A pid is not an identity: the kernel hands it out again, on a busy machine
    # within seconds. The start tick tells the two owners apart.
    if who.boot != boot_id():
        return False
    stat = stat_of(who.pid)
    return stat is not None and stat.tick == who.tick and not stat.dead


def open_pidfd(who: Identity) -> int | None:
    """A descriptor of this very process; None if it is gone."""
    if who.boot != boot_id():
        return None
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return None
    # Looked at after the open: from here on the descriptor and the tick belong together.
    stat = stat_of(who.pid)
    if stat is None or stat.tick != who.tick:
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


def ended_how(pid: int, pidfd: int) -> tuple[Outcome, float | None] | None:
    """How a process ended and the CPU seconds it took, whoever its parent is; None if it cannot be known (yet)."""
    stat = stat_of(pid)
    if stat is not None and stat.dead and stat.state == "Z":
        return _outcome(stat.wait_status), stat.cpu_ticks / os.sysconf("SC_CLK_TCK")
    # Reaped already, perhaps by init after our keeper died. Since Linux 6.15 a
    # descriptor that was opened before still knows.
    info = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("Q", info)
    if not mask & _PIDFD_INFO_EXIT:
        return None
    (wait_status,) = struct.unpack_from("i", info, 60)
    return _outcome(wait_status), None


def _outcome(wait_status: int) -> Outcome:
    code = os.waitstatus_to_exitcode(wait_status)
    return Exited(code) if code >= 0 else Signalled(-code)


def become_subreaper() -> None:
    """Orphans among our descendants become our children, not init's."""
    import _ctypes  # ctypes proper costs 0.7 MiB in every supervisor

    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type] # None: this very program
    _ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def rename_self(name: str, title: str) -> None:
    """Show `name` and `title` to ps and pkill instead of our interpreter and its arguments."""
    try:
        _put("/proc/self/comm", name[:15].encode(), 0)
        fd = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
        part = os.read(fd, 1024).rpartition(b")")[2].split()
        os.close(fd)
        start, end = int(part[45]), int(part[46])
        _put("/proc/self/mem", title.encode()[: end - start - 1].ljust(end - start, b"\0"), start)
    except (OSError, IndexError, ValueError):
        pass  # only looks: hardened kernels forbid it


def _put(path: str, data: bytes, place: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, data, place)
    finally:
        os.close(fd)
