"""Chooses the executor: for a start by its launch, for everything later by what the task's launch says.

This is the one object that callers have. Without `[executors.*]` in the settings everything goes to this machine.
"""

from __future__ import annotations

from importlib import import_module

from outlast.errors import BadInput, OutlastError, quote
from outlast.executors.local import LocalExecutor
from outlast.types import LOCAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outlast.executors.base import Executor, Phase
    from outlast.executors.remote import RemoteExecutor
    from outlast.linux.activity import Activity
    from outlast.settings import Settings
    from outlast.storage.output import Source
    from outlast.storage.task_directory import Hold
    from outlast.storage.watch import Watch
    from outlast.types import Launch, Place, Receipt, Task

# Each kind: the module and the class. Its module's KEYS are what a table of that kind may have, with the type of each.
KINDS = {
    "ssh": ("outlast.executors.ssh", "SshExecutor"),
    "slurm": ("outlast.executors.slurm", "SlurmExecutor"),
    "ray": ("outlast.executors.ray", "RayExecutor"),
}


class Router:
    """All executors of one state directory, as one: see `Executor`."""

    def __init__(self, home: str, settings: Settings) -> None:
        self._settings, self.local = settings, LocalExecutor(home, settings)
        self.registry = self.local.registry
        self._others: dict[str, RemoteExecutor] = {}

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        self.local.close()

    # --- choose ------------------------------------------------------------------------------

    def _find_named(self, name: str) -> RemoteExecutor:
        """Return an executor that the settings name. Raises `BadInput`."""
        if name not in self._others:
            self._others[name] = self._open(name)
        return self._others[name]

    def _open(self, name: str) -> RemoteExecutor:
        table = self._settings.executors.get(name)
        if table is None:
            known = ", ".join((LOCAL, *self._settings.executors))
            raise BadInput(
                f"There is no executor {quote(name)}; known are {known}. Add [executors.{name}] to config.toml."
            )
        where = f"[executors.{name}]"
        if not isinstance(table, dict) or table.get("kind") not in KINDS:
            raise BadInput(f"{where} in config.toml needs a kind: {' or '.join(KINDS)}.")
        module, class_name = KINDS[table["kind"]]
        loaded = import_module(module)
        for key, value in table.items():
            kind = str if key == "kind" else loaded.KEYS.get(key)
            if kind is None:
                raise BadInput(f"{where} in config.toml has no key {quote(key)}; known are {', '.join(loaded.KEYS)}.")
            if type(value) is not kind:
                raise BadInput(f"The key {key} of {where} in config.toml must be {_WORDS[kind]}, not {value!r}.")
        made: RemoteExecutor = getattr(loaded, class_name)(name, table, self.registry, self._settings)
        return made

    def _of(self, task_id: str, acts: bool = False) -> Executor:
        """Return the executor of a task. Of one that the settings do not name any more, the mirror can be read."""
        if not self._settings.executors and not acts:
            return self.local
        try:
            name = self.registry.launch_of(task_id).executor
        except OutlastError:
            return self.local  # which says what is wrong with it
        if name == LOCAL:
            return self.local
        if name not in self._settings.executors and not acts:
            return self.local
        return self._find_named(name)

    def place(self, executor: str) -> Place | None:
        return None if executor == LOCAL else self._find_named(executor).place()

    def examine(self) -> Iterator[tuple[str, str, OutlastError | None]]:
        for name in self._settings.executors:
            try:
                yield name, self._find_named(name).examine(), None
            except OutlastError as error:
                yield name, "", error

    # --- start and look ----------------------------------------------------------------------

    def start(self, launch: Launch, hold: Hold | None = None) -> tuple[Task, bool]:
        return self._for_launch(launch).start(launch, hold)

    def start_array(self, launches: Sequence[Launch]) -> list[Task]:
        return self._for_launch(launches[0]).start_array(launches)

    def _for_launch(self, launch: Launch) -> Executor:
        if launch.executor != LOCAL:
            return self._find_named(launch.executor)
        if launch.needs:
            raise BadInput("Only a cluster can be asked for resources; name an executor, or limit the command instead.")
        return self.local

    def prepare(self, launch: Launch) -> bool:
        return launch.executor == LOCAL and self.local.prepare(launch)

    def has_prepared(self) -> bool:
        return self.local.has_prepared()

    def advance(self) -> None:
        self.local.advance()

    def refresh(self) -> None:
        for name in self._settings.executors if self._settings.executors and self._has_others() else ():
            try:
                self._find_named(name).refresh()
            except OutlastError:
                continue  # a wrong table: an act on one of its tasks says so

    def _has_others(self) -> bool:
        unfinished = self.registry.index.sample_unfinished(float("inf"), -1)
        return any(self._executor_of(one) != LOCAL for one in unfinished)

    def _executor_of(self, task_id: str) -> str:
        try:
            return self.registry.launch_of(task_id).executor
        except OutlastError:
            return LOCAL

    def status(self, task_id: str) -> Task:
        return self._of(task_id).status(task_id)

    def has_reached(self, task_id: str, phase: Phase) -> bool:
        return self._of(task_id).has_reached(task_id, phase)

    def source(self, task_id: str, stream: str) -> Source:
        return self._of(task_id).source(task_id, stream)

    def watch(self, task_id: str, ends_only: bool = False) -> Watch:
        return self._of(task_id).watch(task_id, ends_only)

    def activity(self, task_id: str) -> Activity:
        return self._of(task_id).activity(task_id)

    def explain(self, task_id: str, error: OSError) -> OutlastError:
        return self.local.explain(task_id, error)

    # --- act ---------------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes, eof: bool) -> None:
        self._of(task_id, acts=True).write(task_id, data, eof)

    def resize(self, task_id: str, columns: int, rows: int) -> None:
        self._of(task_id, acts=True).resize(task_id, columns, rows)

    def release(self, task_id: str) -> None:
        self._of(task_id).release(task_id)

    def interrupt(self, task_id: str) -> bool:
        return self._of(task_id, acts=True).interrupt(task_id)

    def fetch(self, task_id: str, paths: Sequence[str], into: str) -> None:
        self._of(task_id, acts=True).fetch(task_id, paths, into)

    def kill(self, task_ids: Sequence[str], grace: float, by: str, rule: str) -> list[Receipt]:
        places: dict[str, list[str]] = {}
        for task_id in task_ids:
            places.setdefault(self._executor_of(task_id), []).append(task_id)
        receipts: dict[str, Receipt] = {}
        for some in places.values():
            ended = self._of(some[0], acts=True).kill(some, grace, by, rule)
            receipts.update(zip(some, ended, strict=True))
        return [receipts[task_id] for task_id in task_ids]


_WORDS = {str: "text", int: "a whole number", bool: "true or false", list: "a list"}
