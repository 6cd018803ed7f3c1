"""The seam: what an executor can be asked for. A task's command and where it runs meet only here."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from outlast.storage.locks import Hold
    from outlast.types import Launch, Receipt, Slice, Task
    from outlast.watch import Watch

    class Executor(Protocol):
        """Six verbs, and a descriptor to wait on between them."""

        def start(self, launch: Launch, hold: Hold | None = None) -> Task:
            """Run it. When this returns, the task is on disk and survives us; `hold` keeps it from being removed."""

        def status(self, task_id: str) -> Task:
            """What is known of it now."""

        def read(self, task_id: str, stream: str, cursor: int, most: int) -> Slice:
            """Its bytes from `cursor` on, at most so many; none if there are none yet."""

        def write(self, task_id: str, data: bytes, eof: bool) -> None:
            """Feed its input, and end it."""

        def signal(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
            """End these trees; returns when they are gone, or says who survived."""

        def close(self) -> None:
            """Let go of everything; tasks go on."""

        def watch(self, task_id: str) -> Watch:
            """Something to wait on until the task changes."""
