"""A small process that forks supervisors.

Starting an interpreter takes 15 to 30 ms, forking one that is already there takes 1,
and the forks share its memory. A caller starts one nursery, keeps it as long as it
wants to start tasks, and sends it a message for each; when the caller goes, so does the
nursery. What it forked does not care.

It is started as a script (`python -I -S nursery.py`): nothing of the caller's
environment, site-packages or working directory has a say in it.
"""

import os
import sys


def main() -> None:
    """Fork a supervisor for each request on descriptor 0, until the caller is gone."""
    # The directory that holds the package, so that the imports below find it without `site`.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import gc

    from outlast import process
    from outlast.lean import json, signal, socket
    from outlast.supervise import beginning, signals
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
    import _ctypes  # noqa: F401
    import resource  # noqa: F401

    gc.collect()
    gc.disable()  # what is left is shared by all forks for as long as nobody looks at it
    requests = socket.socket(fileno=0)
    while True:
        said, fds = socket.recv_fds(requests, 16, MOST_DESCRIPTORS)
        if not said:
            return

        def life(fds: list[int] = fds) -> None:
            os.dup2(2, 0)  # the caller must see the nursery's end, not ours
            beginning.start(*fds)

        try:
            fork_into(life)
        except OSError as error:
            os.write(fds[0], json.dumps({"error": f"no process can be started: {error.strerror}"}).encode())
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    main()
