"""What callers ask of an executor, which is the place where tasks run. Executors are used through this alone."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal, Protocol

    from outlast.errors import OutlastError
    from outlast.linux.activity import Activity
    from outlast.storage.output import Source
    from outlast.storage.registry import Registry
    from outlast.storage.task_directory import Hold
    from outlast.storage.watch import Watch
    from outlast.types import Launch, Place, Receipt, Task

    Phase = Literal["begun", "ended", "over", "closed"]
    """begun: not pending (any more). ended: the command ended. over: no condition on the task can come true any more
    (a command that succeeded may have left a server running). closed: no more output will come."""

    class Executor(Protocol):
        """Starts, watches, feeds and ends tasks, whose directories are in `registry`."""

        @property
        def registry(self) -> Registry: ...

        def start(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
            """Start a task, or find the unfinished one of the same name. Returns it, and whether it is new.

            When this returns, the task is on disk and survives the caller. `hold` keeps it from being removed.
            """

        def start_array(self, launches: Sequence[Launch]) -> list[Task]:
            """Start many tasks at once, if the place has a way to. They differ in nothing but their variables."""

        def prepare(self, launch: Launch) -> bool:
            """Get ready for a command like this one; changes nothing but its time. Returns whether to call it again."""

        def has_prepared(self) -> bool:
            """Return whether it is ready for a command."""

        def advance(self) -> None:
            """Start the queued tasks that may start now: the process whose turn it was may have been killed."""

        def status(self, task_id: str) -> Task: ...

        def has_reached(self, task_id: str, phase: Phase) -> bool:
            """Return whether the task is that far: cheaper than `status`."""

        def source(self, task_id: str, stream: str) -> Source:
            """Return one stream of the output, to read from."""

        def watch(self, task_id: str, ends_only: bool = False) -> Watch:
            """Return what to wait on until the task changes, or only until it ends."""

        def activity(self, task_id: str) -> Activity:
            """Return what the processes of a task do at this moment; an empty one if that cannot be seen."""

        def explain(self, task_id: str, error: OSError) -> OutlastError:
            """Return the error to raise for a task whose files could not be used."""

        def write(self, task_id: str, data: bytes, eof: bool) -> None:
            """Write to the task's input, and end it if `eof`."""

        def resize(self, task_id: str, columns: int, rows: int) -> None:
            """Set the size of the task's terminal; the program is told by a signal."""

        def release(self, task_id: str) -> None:
            """Move a foreground task to the background: what it changes from now on stays out of its session."""

        def interrupt(self, task_id: str) -> bool:
            """Send SIGINT to the command's process group, as Ctrl-C does on a terminal. The command may go on."""

        def kill(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
            """End these trees; returns when they are gone, or says which processes survived."""

        def fetch(self, task_id: str, paths: Sequence[str], into: str) -> None:
            """Copy files from the directory that the task began in, on another machine, into one of this machine."""

        def close(self) -> None:
            """Close everything; tasks go on."""

    class Executors(Executor, Protocol):
        """All of them as one, as callers have it: the launch of a task says which one is meant."""

        def place(self, executor: str) -> Place | None:
            """Return where a command of this executor begins; None: on this machine."""

        def examine(self) -> Iterator[tuple[str, str, OutlastError | None]]:
            """Yield of each other machine its name, what it offers, and what is missing there."""

        def refresh(self) -> None:
            """Bring up to date what is known of unfinished tasks elsewhere."""
