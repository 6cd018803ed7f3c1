"""What a running task does at this moment, read off its processes: the answer to "is it stuck?".

A process that waits for its own children says nothing: what they do counts. Where the
kernel does not tell (another user's process, an unknown machine) it is left unsaid
rather than guessed.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.linux.process import Stat

BUSY, DISK, INPUT, STOPPED = "busy", "waiting for disk", "waiting for input", "stopped"
NETWORK, EVENTS, SLEEPING = "waiting for network", "waiting for network or a timer", "sleeping"
_TELLING = (BUSY, DISK, INPUT, STOPPED, NETWORK, EVENTS, SLEEPING)  # the first that any process does is said

_BY_STATE = {"R": BUSY, "D": DISK, "T": STOPPED, "t": STOPPED}
_READ = "read"
# The system calls in which a process sleeps, by machine: the numbers differ.
_CALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        **dict.fromkeys((0, 17, 19), _READ),
        **dict.fromkeys((42, 43, 45, 47, 288), NETWORK),
        **dict.fromkeys((7, 23, 232, 270, 271, 281, 441), EVENTS),
        **dict.fromkeys((34, 35, 130, 230), SLEEPING),
    },
    "aarch64": {
        **dict.fromkeys((63, 65, 67), _READ),
        **dict.fromkeys((202, 203, 207, 212, 242), NETWORK),
        **dict.fromkeys((22, 72, 73, 441), EVENTS),
        **dict.fromkeys((101, 115, 133), SLEEPING),
    },
}
# The same by the kernel function it sleeps in, where the call itself is kept from us.
_PLACES = (
    ("pipe_read", _READ),
    ("n_tty_read", _READ),
    ("wait_woken", _READ),
    ("nanosleep", SLEEPING),
    ("do_sigsuspend", SLEEPING),
    ("inet_csk_accept", NETWORK),
    ("skb_wait_for_more_packets", NETWORK),
    ("sk_wait_data", NETWORK),
    ("ep_poll", EVENTS),
    ("poll_schedule_timeout", EVENTS),
)


def of_task(members: Mapping[int, Stat]) -> str:
    """What the processes of a task do; nothing if that cannot be seen."""
    found = {_of_process(stat) for stat in members.values()}
    return next((what for what in _TELLING if what in found), "")


def _of_process(stat: Stat) -> str:
    if stat.state in _BY_STATE:
        return _BY_STATE[stat.state]
    what, fd = _asleep_in(stat.pid)
    return _reading_from(stat.pid, fd) if what == _READ else what


def _asleep_in(pid: int) -> tuple[str, int]:
    """In what a process sleeps, and if it reads, from which descriptor."""
    words = _text(f"/proc/{pid}/syscall").split()
    if len(words) > 1 and words[0].lstrip("-").isdigit():
        return _CALLS.get(os.uname().machine, {}).get(int(words[0]), ""), int(words[1], 16)
    place = _text(f"/proc/{pid}/wchan")
    return next((what for part, what in _PLACES if part in place), ""), 0


def _reading_from(pid: int, fd: int) -> str:
    try:
        source = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""
    if source.endswith("/stdin") or source.startswith("/dev/pts/"):
        return INPUT  # the task's own input, or its terminal; what comes through a pipe is another process' to send
    return NETWORK if source.startswith("socket:") else ""


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
