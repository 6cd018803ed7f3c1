"""What the shell asks of an executor: of the place where tasks run."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from outlast.errors import OutlastError
    from outlast.linux.process import Stat
    from outlast.storage.output import Source
    from outlast.storage.registry import Registry
    from outlast.storage.task_directory import Hold
    from outlast.storage.watch import Watch
    from outlast.types import Launch, Receipt, Task

    class Executor(Protocol):
        """Starts, watches, feeds and ends tasks, whose directories are in `registry`."""

        @property
        def registry(self) -> Registry: ...

        def start_or_find(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
            """Start a task, or find the unfinished one of the same name. When this returns, it survives the caller."""

        def prepare_shell(self, launch: Launch) -> None:
            """Get ready for a command like this one. Changes nothing but the time that it takes."""

        def advance(self) -> None:
            """Start the queued tasks that may start now."""

        def forget_names(self) -> None:
            """Free the names of tasks that were removed."""

        def status(self, task_id: str) -> Task: ...

        def has_begun(self, task_id: str) -> bool: ...

        def has_ended(self, task_id: str) -> bool:
            """Whether the command has ended."""

        def is_over(self, task_id: str) -> bool:
            """Whether no condition on the task can come true any more."""

        def is_closed(self, task_id: str) -> bool:
            """Whether no more output will come."""

        def source(self, task_id: str, stream: str) -> Source: ...

        def members(self, task_id: str) -> dict[int, Stat]:
            """The living processes of a task."""

        def watch(self, task_id: str, ends_only: bool = False) -> Watch:
            """Something to wait on until the task changes, or only until it ends."""

        def hold(self, task_id: str) -> Hold:
            """Keep a task from being removed until it is reported."""

        def trouble(self, task_id: str, error: OSError) -> OutlastError:
            """The error to raise for a task whose files could not be used."""

        def write(self, task_id: str, data: bytes, eof: bool) -> None:
            """Write to the task's input, and end it if `eof`."""

        def release(self, task_id: str) -> None:
            """Move a foreground task to the background."""

        def interrupt(self, task_id: str) -> bool:
            """Send SIGINT to the command's process group."""

        def signal(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
            """End these trees; returns when they are gone, or says which processes survived."""

        def close(self) -> None:
            """Close everything; tasks go on."""
