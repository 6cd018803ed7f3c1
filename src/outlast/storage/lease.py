"""A name that one living process has: a file whose lock it holds, so that it is free when this one is gone."""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_MOST = 100  # living holders of one name; whoever comes after shares the last
_LOOK_AGAIN_S = 0.02


class Lease:
    """Holds one of the names `base`, `base-2`, `base-3` …: the first that nobody alive has."""

    def __init__(self, directory: str, base: str, patience: float) -> None:
        """`patience`: how long to wait for `base` itself, whose last holder may be about to leave."""
        os.makedirs(directory, 0o700, exist_ok=True)
        self._directory = directory
        deadline = time.monotonic() + patience
        while not self._taken(base):
            if time.monotonic() > deadline:
                self._take_another(base)
                return
            time.sleep(_LOOK_AGAIN_S)

    def _take_another(self, base: str) -> None:
        for number in range(2, _MOST):
            if self._taken(f"{base}-{number}"):
                return
        self.name, self._fd = f"{base}-{_MOST}", -1

    def _taken(self, name: str) -> bool:
        fd = os.open(os.path.join(self._directory, name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self.name, self._fd = name, fd
        return True

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let somebody else have the name."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough: what the host forked may have it open
            os.close(self._fd)
            self._fd = -1
