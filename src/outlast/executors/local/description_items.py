"""The items of one launch description, and the descriptors that the guard inherits."""

from __future__ import annotations

import os

from outlast.executors.local import shell_argv
from outlast.guard.client import encode_launch
from outlast.linux.files import open_regular
from outlast.storage import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from outlast.guard.client import Item, Value
    from outlast.types import Launch


class Description:
    """One launch description, and the descriptors that belong to it. Close it when the guard has been started."""

    def __init__(self, directory: str, published: str, launch: Launch) -> None:
        self.inherited: list[int] = []
        self._own: list[int] = []
        self._items: list[Item] = [("directory", directory)]
        if directory != published:
            self.add("publish", published)
        self._directory, self._launch = directory, launch

    def __enter__(self) -> Description:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._own:
            os.close(fd)

    def encode(self) -> bytes:
        return encode_launch(self._items)

    def add(self, key: str, value: Value) -> None:
        self._items.append((key, value))

    def extend(self, items: Iterable[Item]) -> None:
        self._items.extend(items)

    def keep(self, fd: int) -> int:
        """Let the guard inherit a descriptor that is closed here afterwards; returns it."""
        self._own.append(fd)
        self.inherited.append(fd)
        return fd

    def give(self, key: str, fd: int) -> None:
        """Give the guard a descriptor of the caller's."""
        self.add(key, fd)
        self.inherited.append(fd)

    def hold(self, slot: int) -> None:
        """Let the guard hold a slot of the queue while the command runs; -1: it needs none."""
        if slot >= 0:
            self.give("hold", slot)

    def add_words(self, program: str, words: list[str]) -> None:
        self.add("program", program)
        self.extend(("arg", word) for word in words)

    def add_fds(self) -> None:
        for number, source in ((0, "stdin"), (1, "stdout"), (2, "stderr"), (shell_argv.GO_FD, "go")):
            self.add("fd", f"{number} {source}")
        self.add_state_fds()

    def add_state_fds(self) -> None:
        """What the shell restores its session from; its directory has another name when the task is published."""
        if not self._launch.state:
            return
        before, start = (sessions.BEFORE, os.O_RDONLY), (sessions.START, os.O_RDWR)
        for (name, flags), number in ((before, shell_argv.BEFORE_FD), (start, shell_argv.START_FD)):
            fd = self.keep(open_regular(f"{self._directory}/{name}", flags))
            self.add("fd", f"{number} inherit {fd}")
