"""A network of one's own that has the loopback address and nothing else: what is played in it cannot leave."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

_SET_FLAGS, _UP = 0x8914, 0x1


def in_own_network(words: Sequence[str]) -> list[str]:
    """How to run that where only the loopback address is."""
    return [*_alone(), sys.executable, "-m", __name__, *words]


@cache
def possible() -> bool:
    """Whether there is a way."""
    try:
        return subprocess.run([*_alone(), "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _alone() -> list[str]:
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]


def main() -> None:
    """Switch the loopback address on, and become what we were asked to run."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    os.execvp(sys.argv[1], sys.argv[1:])


def names_of_networks() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


if __name__ == "__main__":
    main()
