"""Tells a thread that waits to leave: a descriptor that becomes ready."""

from __future__ import annotations

import os


class StopEvent:
    """Set once."""

    def __init__(self) -> None:
        self.fd, self._writer = os.pipe()
        self.is_set = False

    def set(self) -> None:
        if not self.is_set:
            self.is_set = True
            os.write(self._writer, b".")

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._writer)
