"""What a running task does at this moment, read off its processes: the answer to "is it stuck?".

A process that waits for its own children says nothing: what they do counts. Where the kernel does not tell (another
user's process, an unknown machine) it is left unsaid rather than guessed.

A process waits for input only if it can go on with nothing else: it reads the task's own input or terminal, or it
waits, without an end, for them and for nothing that another program sends. The input of a task is known by its inode,
its terminal by its device number, so a pipe between two processes is never taken for either.
"""

from __future__ import annotations

import os
from struct import iter_unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from outlast.linux.process import Stat

BUSY, DISK, INPUT, STOPPED = "busy", "waiting for disk", "waiting for input", "stopped"
NETWORK, EVENTS, SLEEPING = "waiting for network", "waiting for network or a timer", "sleeping"
BUFFERED = "output probably buffered"
_PROCESS = "waiting for another process"  # mostly of the same task; said as sleeping, if all of them do
# The first that any process does is said. A shell whose job was stopped waits for input.
_TELLING = (BUSY, DISK, INPUT, STOPPED, NETWORK, EVENTS, SLEEPING, _PROCESS)
_IN_ONE_PROCESS = (BUSY, DISK, STOPPED, NETWORK, EVENTS, INPUT, SLEEPING, _PROCESS)  # a server with a console serves

BUFFERED_AFTER_S = 10.0  # without any output, of a program that keeps back what it prints into a pipe
_BUFFERING = ("python", "pypy", "ruby", "perl", "php", "lua", "awk", "gawk", "mawk", "grep", "sed", "tr", "cut")
_THREADS_AT_MOST = 64  # of one process; a Java server has hundreds, and what most of them do is alike
_FDS_AT_MOST = 1024
_WORKING = {"R": (BUSY, "computes"), "D": (DISK, "waits for a disk"), "T": (STOPPED, "was stopped by a signal")}

_READ, _POLL, _SELECT, _EPOLL, _FUTEX, _OPEN, _LOCK = "read", "poll", "select", "epoll", "futex", "open", "lock"
# The system calls in which a process sleeps, by machine: the numbers differ.
_CALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        **dict.fromkeys((0, 17, 19, 275), _READ),
        **dict.fromkeys((42, 43, 45, 47, 288), NETWORK),
        **dict.fromkeys((7, 271), _POLL),
        **dict.fromkeys((23, 270), _SELECT),
        **dict.fromkeys((232, 281, 441), _EPOLL),
        **dict.fromkeys((34, 35, 128, 130, 230), SLEEPING),
        **dict.fromkeys((61, 247), _PROCESS),
        **dict.fromkeys((2, 257), _OPEN),
        **dict.fromkeys((72, 73), _LOCK),
        202: _FUTEX,
        426: EVENTS,
    },
    "aarch64": {
        **dict.fromkeys((63, 65, 67, 76), _READ),
        **dict.fromkeys((202, 203, 207, 212, 242), NETWORK),
        73: _POLL,
        72: _SELECT,
        **dict.fromkeys((22, 441), _EPOLL),
        **dict.fromkeys((101, 115, 133, 137), SLEEPING),
        **dict.fromkeys((95, 260), _PROCESS),
        56: _OPEN,
        **dict.fromkeys((25, 32), _LOCK),
        98: _FUTEX,
        426: EVENTS,
    },
}
_HOW = {
    NETWORK: "waits for a socket",
    EVENTS: "waits for events",
    SLEEPING: "sleeps",
    _PROCESS: "waits for its children",
}
_POLL_CALLS, _EPOLL_PWAIT2 = (7,), 441  # their timeouts are milliseconds, not the address of a time; the reverse
# The same by the kernel function it sleeps in, where the call itself is kept from us.
_PLACES = (
    (b"pipe_read", _READ),
    (b"n_tty_read", _READ),
    (b"wait_woken", _READ),
    (b"nanosleep", SLEEPING),
    (b"do_sigsuspend", SLEEPING),
    (b"inet_csk_accept", NETWORK),
    (b"skb_wait_for_more_packets", NETWORK),
    (b"sk_wait_data", NETWORK),
    (b"ep_poll", EVENTS),
    (b"poll_schedule_timeout", EVENTS),
)
# Descriptors through which a program only wakes itself. Not inotify: a file that changes makes it go on.
_OWN_WAKERS = ("anon_inode:[eventfd]", "anon_inode:[signalfd]", "anon_inode:[timerfd]", "anon_inode:[io_uring]")
_DEV_TTY = os.makedev(5, 0)  # whatever terminal the process has


class Activity(str):
    """What a task does, in a few words, and the `evidence`: which process shows it, and how. Empty: not seen."""

    evidence: str

    def __new__(cls, what: str = "", evidence: str = "") -> Self:
        made = super().__new__(cls, what)
        made.evidence = evidence
        return made


class Inputs:
    """What a task reads what a person sends: its named pipe, its terminal."""

    def __init__(self, fifo: str = "", terminal: int = 0) -> None:
        """`terminal` is its device number as /proc/PID/stat has it; 0 if it has none."""
        self._terminal = os.makedev(terminal >> 8 & 0xFFF, terminal & 0xFF | terminal >> 12 & 0xFFF00)
        self._inode = (0, 0)
        try:
            found = os.stat(fifo)
            self._inode = found.st_dev, found.st_ino
        except OSError:
            pass  # its input is not kept open

    def name(self, pid: int, fd: int) -> str:
        """Return what a descriptor of a process is, if a person's input comes through it."""
        try:
            found = os.stat(f"/proc/{pid}/fd/{fd}")
        except OSError:
            return ""
        if (found.st_dev, found.st_ino) == self._inode:
            return "its standard input"
        if found.st_rdev and self._terminal and found.st_rdev in (self._terminal, _DEV_TTY):
            return "its terminal"
        return ""


def of_task(members: Mapping[int, Stat], inputs: Inputs, silent_s: float = 0.0) -> Activity:
    """Return what the processes of a task do. `silent_s`: so long it has run and printed nothing into its pipe."""
    found: dict[str, str] = {}
    for stat in members.values():
        what, how = _of_process(stat, inputs)
        if what == _PROCESS or (what and what not in found):  # of those that wait for others the last one
            found[what] = f"pid {stat.pid} ({stat.name}) {how}"
        if what == BUSY:
            break
    what = next((what for what in _TELLING if what in found), "")
    if silent_s >= BUFFERED_AFTER_S and what not in (INPUT, STOPPED) and (who := _find_buffering(members)):
        return Activity(BUFFERED, f"{who} has printed nothing into a pipe for {silent_s:.0f} s; {found.get(what, '')}")
    return Activity(SLEEPING if what == _PROCESS else what, found.get(what, ""))


def _find_buffering(members: Mapping[int, Stat]) -> str:
    """Return the process that probably keeps back what it prints, if there is one."""
    for stat in members.values():
        name = stat.name.rstrip("0123456789.")
        if name not in _BUFFERING or not _link(f"/proc/{stat.pid}/fd/1").startswith("pipe:"):
            continue
        words, variables = (_bytes(f"/proc/{stat.pid}/{file}").split(b"\0") for file in ("cmdline", "environ"))
        unbuffered = any(word[:1] == b"-" and word[1:2] != b"-" and b"u" in word for word in words[1:3])
        if not unbuffered and not any(one[:17] == b"PYTHONUNBUFFERED=" and one[17:] for one in variables):
            return f"pid {stat.pid} ({stat.name})"
    return ""


# --- one process ---------------------------------------------------------------------------


def _of_process(stat: Stat, inputs: Inputs) -> tuple[str, str]:
    """Return what a process does, by what its threads do, and how that shows."""
    state = stat.state.upper()
    if state in _WORKING:
        return _WORKING[state]
    if stat.threads == 1:
        return _of_thread(stat.pid, f"/proc/{stat.pid}", inputs)
    found = dict(_of_threads(stat.pid, inputs))
    return next(((what, found[what]) for what in _IN_ONE_PROCESS if what in found), ("", ""))


def _of_threads(pid: int, inputs: Inputs) -> Iterator[tuple[str, str]]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")[:_THREADS_AT_MOST]
    except OSError:
        return
    for thread in threads:
        place = f"/proc/{pid}/task/{thread}"
        state = _bytes(f"{place}/stat").rpartition(b") ")[2][:1].decode()
        yield _WORKING[state] if state in _WORKING else _of_thread(pid, place, inputs)


def _of_thread(pid: int, place: str, inputs: Inputs) -> tuple[str, str]:
    words = _bytes(f"{place}/syscall").split()
    if len(words) < 7:
        return _of_place(pid, place, inputs)
    number, given = int(words[0]), [int(word, 16) for word in words[1:7]]
    kind = _CALLS.get(os.uname().machine, {}).get(number, "")
    match kind:
        case "read":
            return _of_reader(pid, given[0], inputs)
        case "poll" | "select" | "epoll":
            return _of_poller(pid, number, kind, given, inputs)
        case "futex":
            return SLEEPING, "waits for another thread"
        case "open":
            return _PROCESS, "opens a pipe whose other end is not open"
        case "lock":
            return _PROCESS, "waits for a lock"
    return kind, _HOW.get(kind, "")


def _of_reader(pid: int, fd: int, inputs: Inputs) -> tuple[str, str]:
    if name := inputs.name(pid, fd):
        return INPUT, f"reads {name}"
    target = _link(f"/proc/{pid}/fd/{fd}")
    if target.startswith("socket:"):
        return NETWORK, "reads a socket"
    return (_PROCESS, "reads a pipe") if target else ("", "")


def _of_poller(pid: int, number: int, kind: str, given: Sequence[int], inputs: Inputs) -> tuple[str, str]:
    """Return what a process does that waits for several descriptors at once, or for a time."""
    fds = _POLLED[kind](pid, given)
    if kind == _SELECT or number not in (*_POLL_CALLS, 22, 232, 281):
        timed = given[4 if kind == _SELECT else 2 if kind == _POLL else 3] != 0  # the address of a time
    else:
        timed = given[2 if kind == _POLL else 3] & 0x80000000 == 0  # milliseconds; below zero there is no end
    if fds == []:
        return (SLEEPING, "sleeps") if timed else ("", "")
    if fds:
        names = {fd: inputs.name(pid, fd) for fd in fds}
        name = next(filter(None, names.values()), "")
        if (name or not timed) and all(names[fd] or _wakes_itself(pid, fd) for fd in fds):
            if timed:
                return EVENTS, f"waits for {name}, or a time"
            return (INPUT, f"waits for {name}") if name else (SLEEPING, "waits for another thread")
        if not timed and all(_link(f"/proc/{pid}/fd/{fd}").startswith("socket:") for fd in fds):
            return NETWORK, "waits for a socket"
    return EVENTS, f"waits in {kind}" + (f" for {len(fds)} descriptors" if fds else "")


def _wakes_itself(pid: int, fd: int) -> bool:
    """Return whether only the process itself can make this descriptor ready."""
    target = _link(f"/proc/{pid}/fd/{fd}")
    if target in _OWN_WAKERS:
        return True
    if not target.startswith("pipe:"):
        return False
    ends = [one for one in _fds_of(pid) if _link(f"/proc/{pid}/fd/{one}") == target]
    return any(_flags(pid, one) & os.O_ACCMODE == os.O_WRONLY for one in ends)


def _list_polled(pid: int, given: Sequence[int]) -> list[int] | None:
    """Return the descriptors that poll(2) waits for; None if that is kept from us."""
    data = _memory(pid, given[0], 8 * min(given[1], _FDS_AT_MOST))
    return None if data is None else [fd for fd, _ in iter_unpack("=iI", data) if fd >= 0]


def _list_selected(pid: int, given: Sequence[int]) -> list[int] | None:
    """Return the descriptors that select(2) waits for in order to read; None if that is kept from us."""
    count = min(given[0], _FDS_AT_MOST)
    if not count or not given[1]:
        return []
    data = _memory(pid, given[1], 8 * (-(-count // 64)))
    bits = int.from_bytes(data or b"", "little")
    return None if data is None else [fd for fd in range(count) if bits >> fd & 1]


def _list_registered(pid: int, given: Sequence[int]) -> list[int] | None:
    """Return the descriptors that epoll_wait(2) waits for; None if that is kept from us."""
    lines = _bytes(f"/proc/{pid}/fdinfo/{given[0]}").splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith(b"tfd:")] if lines else None


_POLLED = {_POLL: _list_polled, _SELECT: _list_selected, _EPOLL: _list_registered}


def _of_place(pid: int, place: str, inputs: Inputs) -> tuple[str, str]:
    """Return what a thread does by the kernel function it sleeps in, without knowing for which descriptor."""
    function = _bytes(f"{place}/wchan")
    what = next((what for part, what in _PLACES if part in function), "")
    if what != _READ:
        return what, f"sleeps in {function.decode()}" if what else ""
    # It reads, and we may not see what: certain only if it has nothing else that it could read so.
    readable = [fd for fd in _fds_of(pid) if _could_read(pid, fd)]
    names = [inputs.name(pid, fd) for fd in readable]
    if _bytes(f"{place}/wchan") != function:
        return "", ""  # it went on, and may have closed what it read before we looked
    return (INPUT, f"reads {names[0]}") if names and all(names) else ("", "")


def _could_read(pid: int, fd: int) -> bool:
    target = _link(f"/proc/{pid}/fd/{fd}")
    waits = target.startswith(("pipe:", "socket:", "/dev/pts/", "/dev/tty")) or target.endswith("/stdin")
    return waits and _flags(pid, fd) & os.O_ACCMODE != os.O_WRONLY


# --- what the kernel shows -----------------------------------------------------------------


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return b""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _fds_of(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/fd")[:_FDS_AT_MOST]]
    except OSError:
        return []


def _flags(pid: int, fd: int) -> int:
    found = _bytes(f"/proc/{pid}/fdinfo/{fd}").partition(b"flags:")[2].split()
    return int(found[0], 8) if found else 0


def _memory(pid: int, address: int, size: int) -> bytes | None:
    if not size:
        return b""
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as file:
            file.seek(address)
            data = file.read(size)
    except (OSError, OverflowError, ValueError):
        return None
    return data if len(data) == size else None
