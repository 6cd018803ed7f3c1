"""A small process that forks supervisors.

Starting an interpreter takes 15 to 30 ms, forking one that is already there takes 1,
and the forks share its memory. A caller starts one nursery, keeps it as long as it
wants to start tasks, and sends it a line for each; when the caller goes, so does the
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
    import json
    import signal
    import socket

    from outlast import process
    from outlast.supervise import signals, supervisor
    from outlast.supervise.forks import fork_into

    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever the caller forgot to close
    os.chdir("/")  # the caller may remove or unmount where it started us
    process.rename_self("outlast-nursery", "outlast nursery")
    signals.ignore_the_usual()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors; the kernel reaps them
    # Once here rather than once in each fork.
    process.boot_id()
    import _ctypes  # noqa: F401
    import resource  # noqa: F401

    gc.collect()
    gc.freeze()  # forks share what is never looked at again
    requests = socket.socket(fileno=0)
    while True:
        line, fds, _, _ = socket.recv_fds(requests, 65536, 3)
        if not line:
            return
        staged, published, *names = json.loads(line)
        for fd in fds:
            os.set_inheritable(fd, False)
        given = dict(zip(names, fds, strict=True))
        reply = given["reply"]

        def life(staged: str = staged, published: str = published, given: dict[str, int] = given) -> None:
            os.dup2(2, 0)  # the caller must see the nursery's end, not ours
            supervisor.start(staged, published, **given)

        try:
            fork_into(life)
        except OSError as error:
            os.write(reply, json.dumps({"error": f"no process can be started: {error.strerror}"}).encode())
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    main()
