"""Which processes of this machine hold the other end of a TCP connection, and whether one of them still lives.

A connection closes alike when a client drops one request and when the client is killed.
Only the first is a cancellation. Of a client on another machine this cannot be known.
"""

from __future__ import annotations

import os

from outlast.linux import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.types import Identity

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def holders(port: int, our_port: int) -> tuple[Identity, ...]:
    """The processes whose socket has that port here and ours at its other end; only those that we may look at."""
    links = {f"socket:[{inode}]" for inode in _inodes(port, our_port)}
    return tuple(_identities(pid for pid in _pids() if _has_open(pid, links))) if links else ()


def lives(who: tuple[Identity, ...]) -> bool:
    """Whether one of them is alive."""
    return any(process.is_alive(one) for one in who)


def _identities(pids: Iterator[int]) -> Iterator[Identity]:
    for pid in pids:
        try:
            yield process.identity(pid)
        except ProcessLookupError:
            continue


def _inodes(port: int, other_port: int) -> Iterator[str]:
    for table in _TABLES:
        try:
            with open(table) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            # sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
            words = line.split()
            ports = [int(words[index].rpartition(":")[2], 16) for index in (1, 2)]
            if ports == [port, other_port] and words[9] != "0":
                yield words[9]


def _pids() -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            yield int(name)


def _has_open(pid: int, links: set[str]) -> bool:
    try:
        for fd in os.scandir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(fd.path) in links:
                    return True
            except OSError:
                continue  # closed meanwhile
    except OSError:
        return False  # gone, or another user's
    return False
