"""A name that one living process has: a file whose lock it holds, so that it is free when this one is gone."""

from __future__ import annotations

import os
import time

from outlast.linux.files import open_locked, unlock_and_close

_MOST = 100  # living holders of one name; a later one shares the last
_LOOK_AGAIN_S = 0.02


class Lease:
    """Holds one of the names `base`, `base-2`, `base-3` …: the first that no living process has."""

    def __init__(self, directory: str, base: str, patience: float) -> None:
        """`patience`: how long to wait for `base` itself, whose last holder may be about to leave."""
        os.makedirs(directory, 0o700, exist_ok=True)
        deadline = time.monotonic() + patience
        while not self._take(directory, base):
            if time.monotonic() > deadline:
                next((number for number in range(2, _MOST + 1) if self._take(directory, f"{base}-{number}")), None)
                return
            time.sleep(_LOOK_AGAIN_S)

    def _take(self, directory: str, name: str) -> bool:
        self.name, self._fd = name, open_locked(f"{directory}/{name}", flags=os.O_RDWR | os.O_CREAT)
        return self._fd is not None

    def close(self) -> None:
        """Let another process have the name."""
        if self._fd is not None:
            unlock_and_close(self._fd)
            self._fd = None
