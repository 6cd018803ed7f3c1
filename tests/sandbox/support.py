"""What the tests of the sandbox share: a contract for both kinds, and a server outside."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outlast.sandbox.choice import able
from outlast.types import BUBBLEWRAP, LANDLOCK, Sandbox

BOTH = (BUBBLEWRAP, LANDLOCK)


def inside(kind: str, **more: object) -> Sandbox:
    """A sandbox of this kind; the test is skipped where it does not work."""
    if not able(kind).works:
        pytest.skip(f"{kind} does not work here: {able(kind).detail}")
    return Sandbox(kind=kind, **more)  # type: ignore[arg-type]


@contextmanager
def server(protocol: socket.SocketKind) -> Iterator[tuple[int, list[bytes]]]:
    """One on the loopback of the machine: its port, and what it was sent."""
    got: list[bytes] = []
    with socket.socket(socket.AF_INET, protocol) as ours:
        ours.bind(("127.0.0.1", 0))
        ours.settimeout(20)
        if protocol == socket.SOCK_STREAM:
            ours.listen()

        def serve() -> None:
            try:
                if protocol == socket.SOCK_STREAM:
                    connection, _ = ours.accept()
                    got.append(connection.recv(100))
                    connection.close()
                else:
                    got.append(ours.recv(100))
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield ours.getsockname()[1], got
        ours.shutdown(socket.SHUT_RDWR) if protocol == socket.SOCK_STREAM else poke(ours.getsockname()[1])
        thread.join()


def poke(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"the end", ("127.0.0.1", port))


def python(code: str) -> str:
    """A command that runs it, with a Python that is outside of /tmp."""
    program = sys.executable if not sys.executable.startswith("/tmp/") else "/usr/bin/python3"
    program = os.path.realpath(program)
    return f"{program} -I -S -c '{code}'"
