"""Which processes of this machine hold the other end of a TCP connection, and whether one of them still lives.

A connection closes alike when a client drops one request and when the client is killed. Only the first is a
cancellation. Of a client on another machine this cannot be known.
"""

from __future__ import annotations

import os
from glob import iglob

from outlast.linux import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.types import Identity

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def find_owners(port: int, our_port: int) -> tuple[Identity, ...]:
    """Return the processes whose socket has that port and ours at its other end; only those that we may look at."""
    links = {f"socket:[{inode}]" for inode in _inodes(port, our_port)}
    return tuple(_holders(links)) if links else ()


def is_any_alive(owners: tuple[Identity, ...]) -> bool:
    """Return whether one of the processes is still alive."""
    return any(process.is_alive(one) for one in owners)


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


def _holders(links: set[str]) -> Iterator[Identity]:
    found = {os.getpid()}
    for path in iglob("/proc/[0-9]*/fd/*"):  # without those of other users
        pid = int(path.split("/")[2])
        try:
            if pid not in found and os.readlink(path) in links:
                found.add(pid)
                yield process.identity(pid)
        except OSError:
            continue  # closed or gone meanwhile
