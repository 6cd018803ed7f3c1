"""A name, while it is decided which task has it."""

from __future__ import annotations

import os

from outlast.storage.locks import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Naming(Held):
    """A name while it is decided which task has it."""

    def __init__(self, path: str, opened: Callable[[str], int]) -> None:
        super().__init__(opened(path))
        self._path, self._opened = path, opened

    def __enter__(self) -> Self:
        super().__enter__()
        while not self._is_current():
            os.close(self._fd)
            self._fd = self._opened(self._path)
            super().__enter__()
        return self

    def _is_current(self) -> bool:
        """Whether what we hold is what others open: it may have been removed while we waited for it."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    @property
    def task_id(self) -> str:
        return os.pread(self._fd, 64, 0).decode(errors="replace").strip()

    def give_to(self, task_id: str) -> None:
        os.pwrite(self._fd, task_id.ljust(63).encode() + b"\n", 0)
