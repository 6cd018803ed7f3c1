"""A small process that forks supervisors.

Starting an interpreter takes 15 to 30 ms, forking one that is already there takes 1,
and the forks share its memory. A caller starts one nursery, keeps it as long as it
wants to start tasks, and sends it a message for each; when the caller goes, so does the
nursery. What it forked does not care.

It is started as a script (`python -I -S nursery.py`): nothing of the caller's
environment, site-packages or working directory has a say in it.
"""

from __future__ import annotations

import os
import select
import sys
from os import dup2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.lean import socket

_ROUNDS = 14  # CPython 3.11 adapts a function when it was called 8 times, and some of it later
_FEW = 2  # who asks more often will ask again
_BEFORE_S = 0.05  # who wants only one task asks for it by then
_BETWEEN_S = 0.005  # what is wanted after a shorter pause must not wait


def main() -> None:
    """Fork a supervisor for each request on descriptor 0, until the caller is gone."""
    # The directory that holds the package, so that the imports below find it without `site`.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import gc

    from outlast import process
    from outlast.lean import json, signal, socket
    from outlast.supervise import signals
    from outlast.supervise.beginning import start
    from outlast.supervise.forks import fork_into
    from outlast.supervise.request import MOST_DESCRIPTORS

    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever the caller forgot to close
    os.chdir("/")  # the caller may remove or unmount where it started us
    os.umask(0o077)
    process.rename_self("outlast-nursery", "outlast nursery")
    signals.ignore_the_usual()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors; the kernel reaps them
    # Once here rather than once in each fork.
    process.boot_id()
    process.become_subreaper(False)
    gc.collect()
    gc.disable()  # what is left is shared by all forks for as long as nobody looks at it
    requests = socket.socket(fileno=0)
    exercise = _Exercise()
    while True:
        exercise.until(requests)
        said, fds = socket.recv_fds(requests, 16, MOST_DESCRIPTORS)
        if not said:
            return

        def life(fds: list[int] = fds) -> None:
            dup2(2, 0)  # the caller must see the nursery's end, not ours
            start(*fds)

        try:
            fork_into(life)
        except OSError as error:
            os.write(fds[0], json.dumps({"error": f"no process can be started: {error.strerror}"}).encode())
        for fd in fds:
            os.close(fd)


class _Exercise:
    """Practice while nobody wants anything; a nursery that is used only once needs none."""

    def __init__(self) -> None:
        self._requests = 0
        self._rounds = _ROUNDS

    def until(self, requests: socket.socket) -> None:
        """Until there is a request."""
        pause = _BEFORE_S if not self._requests else _BETWEEN_S if self._requests > _FEW else None
        self._requests += 1
        while self._rounds and pause is not None and not select.select([requests], [], [], pause)[0]:
            from outlast.supervise import practice

            self._rounds = self._rounds - 1 if practice.practise() else 0
            if not self._rounds:
                practice.make_room()
            pause = 0


if __name__ == "__main__":
    main()
