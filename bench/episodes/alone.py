"""Runs a command in process and network namespaces of its own: it sees only its own processes and the loopback address.

When it ends, the kernel kills whatever is left in the process namespace.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

_SET_FLAGS, _UP = 0x8914, 0x1


def in_own_namespaces(words: Sequence[str]) -> list[str]:
    """Return the command that runs `words` in namespaces of its own."""
    # unshare has to die with the process that starts it, also if that is killed: --kill-child then ends the rest.
    bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*bound, *_unshare(), sys.executable, "-m", __name__, *words]


@cache
def is_possible() -> bool:
    """Return whether this user may make such namespaces here."""
    try:
        return subprocess.run([*_unshare(), "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]


def main() -> None:
    """Start the command as the first process of the namespaces, and reap orphans until it ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    command = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
    while True:
        pid, status = os.wait()
        if pid == command:
            sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
