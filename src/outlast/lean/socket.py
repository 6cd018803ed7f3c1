"""Sockets between processes of one machine, and descriptors sent through them."""

from __future__ import annotations

import struct
from _socket import (
    AF_UNIX,
    CMSG_LEN,
    MSG_CMSG_CLOEXEC,
    MSG_DONTWAIT,
    MSG_PEEK,
    SCM_RIGHTS,
    SHUT_RDWR,
    SHUT_WR,
    SOCK_SEQPACKET,
    SOL_SOCKET,
    socket,
    socketpair,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = (
    "AF_UNIX",
    "MSG_DONTWAIT",
    "MSG_PEEK",
    "SHUT_RDWR",
    "SHUT_WR",
    "SOCK_SEQPACKET",
    "recv_fds",
    "send_fds",
    "socket",
    "socketpair",
)

_FD = struct.calcsize("i")


def send_fds(line: socket, said: bytes, fds: Sequence[int]) -> None:
    """Send a message, and with it descriptors."""
    beside = [(SOL_SOCKET, SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    line.sendmsg([said], beside)


def recv_fds(line: socket, most_bytes: int, most_fds: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """The next message and the descriptors that came with it, which no program that we execute inherits."""
    said, beside, _, _ = line.recvmsg(most_bytes, CMSG_LEN(most_fds * _FD), flags | MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, data in beside:
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
            fds += struct.unpack(f"{len(data) // _FD}i", data[: len(data) - len(data) % _FD])
    return said, fds
