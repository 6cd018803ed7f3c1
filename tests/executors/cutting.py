"""A TCP proxy on loopback that cuts connections after a number of bytes."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_PIECE = 4096


class CuttingProxy:
    """Forwards to `port`. `choose` says after how many bytes the next connection is cut; 0: never."""

    def __init__(self, port: int, choose: Callable[[], int]) -> None:
        self._target, self.choose, self.cuts = port, choose, 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = int(self._listening.getsockname()[1])
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        left = self.choose() or (1 << 60)
        far = socket.create_connection(("127.0.0.1", self._target))
        self._open |= {near, far}
        with near, far, suppress(OSError):
            while left > 0:
                for one in select.select([near, far], [], [])[0]:
                    data = one.recv(_PIECE)
                    if not data:
                        return
                    (far if one is near else near).sendall(data[:left])
                    left -= len(data)
            self.cuts += 1
        self._open -= {near, far}

    def cut_all(self) -> None:
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        self.cut_all()
