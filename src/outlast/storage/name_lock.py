"""The lock on a task's name: two starts under one name take turns."""

from __future__ import annotations

import os

from outlast.linux.files import FileLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_NAME_BYTES = 64  # of the line in the file


class NameLock(FileLock):
    """The file that says which task has a name, locked while that is read and changed."""

    def __init__(self, path: str, opener: Callable[[str], int]) -> None:
        super().__init__(opener(path))
        self._path, self._opener = path, opener

    def __enter__(self) -> Self:
        super().__enter__()
        # The file may have been removed while we waited for the lock.
        while not (os.path.exists(self._path) and os.path.samestat(os.fstat(self._fd), os.stat(self._path))):
            os.close(self._fd)
            self._fd = self._opener(self._path)
            super().__enter__()
        return self

    @property
    def task_id(self) -> str:
        return os.pread(self._fd, _NAME_BYTES, 0).decode(errors="replace").strip()

    def assign(self, task_id: str) -> None:
        os.pwrite(self._fd, task_id.ljust(_NAME_BYTES - 1).encode() + b"\n", 0)
