"""`SlurmExecutor`: each task is a job, whose guard writes into a directory that this machine sees, or collects.

The files of the guard are what counts; Slurm says why a job waits, and how one ended that left no record. A task runs
once though its submission may be repeated: where the nodes share a directory with this machine, a job claims its task
before it runs it; elsewhere jobs are submitted to be held, and one of them is released.
"""

from __future__ import annotations

import os
import time

from outlast.errors import BadInput, InputRefused, StartFailed, Unsupported, quote
from outlast.executors.far_launch import name_home
from outlast.executors.poller import FASTEST_S, PollingExecutor
from outlast.executors.remote import Unreachable
from outlast.executors.slurm import directory
from outlast.executors.slurm.client import Client
from outlast.executors.slurm.separate import SeparateNodes
from outlast.executors.slurm.shared import SharedNodes
from outlast.executors.slurm.steps import Steps
from outlast.guard.client import Refused
from outlast.linux.files import read_file, remove_tree, unlock_and_close
from outlast.storage import mirror, record
from outlast.types import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from outlast.executors.slurm.client import Job
    from outlast.settings import Settings
    from outlast.storage.registry import Registry
    from outlast.types import Launch, Task

KEYS: dict[str, type] = {
    **dict.fromkeys(("shared_dir", "node_dir", "partition", "account", "qos", "time", "memory", "constraint"), str),
    **dict.fromkeys(("cpus", "gpus", "poll", "keep"), int),
    "options": list,
}
# What a task can ask for, besides what the table says for all of them: the option of sbatch for each.
NEEDS = {
    **{name: f"--{name}" for name in ("partition", "account", "qos", "time", "constraint", "gpus")},
    "cpus": "--cpus-per-task",
    "memory": "--mem",
}
_POLL_S = 2.0  # between two looks at the queue, by all processes together
_ARRAY_SIZE = 1000  # Slurm's own limit is 1001 unless a cluster says otherwise
_END_WAIT_S = 15.0  # from the death of a tree until Slurm has taken note of it
_BEGIN_PATIENCE_S = 10.0  # for a command that is to begin before it gets input
_AT_ONCE = 8  # srun calls


class SlurmExecutor(PollingExecutor):
    """The tasks of one `[executors.NAME]` with kind = "slurm"."""

    needs = tuple(NEEDS)

    def __init__(self, name: str, table: Mapping[str, Any], registry: Registry, settings: Settings) -> None:
        super().__init__(name, table, registry, settings)
        base = f"{registry.home.path}/executors/{name}"
        os.makedirs(base, 0o700, exist_ok=True)
        given = {key: os.path.expanduser(table[key]) for key in ("shared_dir", "node_dir") if table.get(key)}
        for key, path in given.items():
            if not os.path.isabs(path):
                raise BadInput(f"{key} of [executors.{name}] must be an absolute path, not {path}.")
        if len(given) > 1:
            raise BadInput(f"[executors.{name}] has a shared_dir or a node_dir, not both.")
        self._poll_s = float(table.get("poll", _POLL_S))
        self._client = Client(base, self._poll_s)
        if "node_dir" in given:
            on_node = f"{given['node_dir']}/outlast-{name_home(registry)}"
            self._nodes: SharedNodes | SeparateNodes = SeparateNodes(self._client, base, on_node, table)
        else:
            self._nodes = SharedNodes(self._client, given.get("shared_dir", base))
        self._root, self.no_files = self._nodes.root, self._nodes.no_files
        self._children: dict[str, tuple[float, tuple[int, ...]]] = {}  # what tasks left running, and when that was seen

    def place(self) -> Place:
        # The nodes of a cluster have the programs of its login node: a command gets the variables that it has here.
        with open("/proc/self/status") as file:  # os.umask would change it for a moment, also for other threads
            umask = int(file.read().partition("Umask:")[2].split()[0], 8)
        return Place(self.name, dict(os.environ), self._nodes.begins_in, "/bin/bash", umask)

    def _far(self, task_id: str) -> str:
        return f"{self._root}/tasks/{directory.read_name(self.near(task_id))}"

    def _steps(self, task_id: str) -> Steps:
        return Steps(self._client, self._number(task_id), self._on_node(task_id))

    def _on_node(self, task_id: str) -> str:
        return f"{self._nodes.on_node}/tasks/{directory.read_name(self.near(task_id))}"

    # --- start -------------------------------------------------------------------------------

    def _check(self, launch: Launch) -> None:
        super()._check(launch)
        self._client.check_installed()
        self._nodes.check(launch)

    def submit(self, task_id: str, launch: Launch) -> tuple[int, float]:
        self._prepare_and_submit({task_id: launch}, is_array=False)
        return 0, time.time()

    def start_array(self, launches: Sequence[Launch]) -> list[Task]:
        self._check(launches[0])
        started: list[str] = []
        for at in range(0, len(launches), _ARRAY_SIZE):
            started += self._start_array(launches[at : at + _ARRAY_SIZE])
        return [self.registry.get(task_id) for task_id in started]

    def _start_array(self, launches: Sequence[Launch]) -> dict[str, Launch]:
        """Start tasks as one job."""
        tasks: dict[str, Launch] = {}
        lock = None
        try:
            for index, launch in enumerate(launches):
                first = next(iter(tasks), "")
                task_id, reserved, held = self._publish(launch, first=first)
                tasks[task_id], lock = reserved, lock if held is None else held
                directory.write_name(self.near(task_id), f"{first or task_id}_{index}")
            self._prepare_and_submit(tasks, is_array=True)
        except Unreachable as error:
            for task_id in tasks:
                mirror.note_problem(self.near(task_id), f"its start is not confirmed: {error.message}")
        except BaseException as error:
            for task_id in tasks:
                self._discard(task_id)
            if isinstance(error, Refused | OSError):
                why = error.reason if isinstance(error, Refused) else error.strerror
                raise StartFailed(f"The commands could not be started on {self.name}: {why}.") from None
            raise
        finally:
            if lock is not None:
                unlock_and_close(lock)
        return tasks

    def _prepare_and_submit(self, tasks: Mapping[str, Launch], is_array: bool) -> None:
        """Raises `Refused` if no task is there and none will be, `Unreachable` if that is not known."""
        try:
            for task_id, launch in tasks.items():
                directory.prepare(self._far(task_id), self.near(task_id), task_id, launch, self._on_node(task_id))
            self._submit_job(tasks, is_array)
        except (Refused, OSError) as error:
            for task_id in tasks:
                remove_tree(self._far(task_id))
            if isinstance(error, Refused):
                raise
            raise Refused(error.errno or 0, f"{self._root}: {error.strerror}") from None

    def _submit_job(self, tasks: Mapping[str, Launch], is_array: bool) -> None:
        """Submit the job of a task, or of an array, whose directories are complete."""
        first, launch = next(iter(tasks.items()))
        name = first if is_array else directory.read_name(self.near(first))
        options = self._options(name, launch) + ([f"--array=0-{len(tasks) - 1}"] if is_array else [])
        number, refusal = self._nodes.submit(name, is_array, options)
        if refusal:
            raise Refused(0, refusal)
        for index, task_id in enumerate(tasks):
            directory.write_job(self.near(task_id), f"{number}_{index}" if is_array else number, time.time())
        self._note_submitted(tasks, number)

    def _note_submitted(self, task_ids: Iterable[str], number: str) -> None:
        nears = [self.near(task_id) for task_id in task_ids]
        self._nodes.release(number, [directory.read_name(near) for near in nears])
        for near in nears:
            mirror.apply(near, None, alive=True)

    def _options(self, name: str, launch: Launch) -> list[str]:
        asked = {**{key: self.table[key] for key in NEEDS if key in self.table}, **launch.needs}
        return [
            *(f"--job-name={name}", "--nodes=1", "--ntasks=1", "--no-requeue", "--export=ALL", "--chdir=/"),
            *map(str, self.table.get("options", ())),
            *(f"{NEEDS[key]}={value}" for key, value in asked.items()),
        ]

    def settle_start(self, task_id: str) -> None:
        """Find the job of a task, or submit it again, which never runs it twice."""
        near, jobs = self.near(task_id), self._client.jobs(time.time() - 1)
        if jobs.problem:
            raise Unreachable(f"Slurm does not answer: {jobs.problem}")
        launch = {task_id: self.registry.launch_of(task_id)}
        job = jobs.find(directory.read_name(near))
        if job is not None and not directory.has_job(near):
            directory.write_job(near, job.number, time.time())
        if directory.has_job(near):
            self._note_submitted(launch, directory.read_job(near)[0])
        elif os.path.isdir(self._far(task_id)):
            self._submit_job(launch, is_array=False)
        else:
            mirror.end_unstarted(near, "the process that started it was killed before it was submitted")

    # --- look --------------------------------------------------------------------------------

    def examine(self) -> str:
        directory.install(self._root)
        words = [
            "sinfo",
            "--noheader",
            "--format=%D %a",
            *([f"--partition={p}"] if (p := self.table.get("partition")) else []),
        ]
        ran = self._client.call(words)
        if ran.returncode:
            raise StartFailed(f"Slurm does not answer: {ran.stderr.strip() or 'sinfo failed'}.")
        nodes = sum(int(line.split()[0]) for line in ran.stdout.splitlines())
        if not nodes:
            raise StartFailed(f"The cluster has no partition {quote(p)}." if p else "The cluster has no nodes.")
        return f"{nodes} node{'s' * (nodes != 1)}{f' in partition {p}' if p else ''}, tasks in {self._root}"

    def gather(self, task_ids: Sequence[str]) -> None:
        self._nodes.gather([self.near(task_id) for task_id in task_ids])

    def update_one(self, task_id: str) -> bool:
        near, far = self.near(task_id), self._far(task_id)
        if why := self._nodes.explain_absence(near):
            raise Unreachable(why)
        new, found = self._copy(task_id, near, far)
        is_over = "outcome" in found and (found["outcome"].get("alone") or self._nodes.has_ended(far))
        if is_over and not _is_cancelled(found):  # otherwise only Slurm knows why it got a signal
            mirror.apply(near, None, alive=False)
            self._nodes.let_go(self._steps(task_id))
            self._clean_up(task_id, far)
            return True
        number, _, _ = directory.read_job(near)
        jobs, claim = self._client.jobs(), directory.read_claim(far)
        job = self._nodes.find_job(near, claim, number, jobs)
        if job is None and not jobs.problem:
            jobs = self._client.jobs(time.time())  # the job that claimed the task may be younger than that list
            job = self._nodes.find_job(near, claim, number, jobs)
        if jobs.problem:
            raise Unreachable(f"Slurm does not answer: {jobs.problem}")
        if job is None or job.is_over:
            if self._nodes.can_settle(near):
                self._settle(task_id, claim or number, job)
            return True
        if is_over or self._nodes.has_ended(far):
            self._nodes.let_go(self._steps(task_id))
        if record.is_pending(near):
            mirror.note_problem(near, job.explain_wait())
        return new

    def _copy(self, task_id: str, near: str, far: str) -> tuple[bool, dict[str, Any]]:
        """Copy what is new; returns whether anything was, and what the record says."""
        if not os.path.isdir(far):
            return False, {}
        page = directory.read_page(far)  # before the output: what was printed before the end is there when the end is
        new = directory.copy_output(far, near)
        if page is None:
            return new, {}
        found = record.parse(page)
        outcome = found.get("outcome")
        if outcome and not outcome.get("alone"):
            new = self._note_children(task_id, near, page) or new
        if outcome and outcome.get("alone") and _is_cancelled(found):
            return new, found
        if page != read_file(f"{near}/{record.NAME}"):
            if "code" in found:
                directory.copy_rest(far, near, self.registry.launch_of(task_id))
            mirror.apply(near, page, alive=True, children=self._children.get(task_id, (0.0, ()))[1])
            new = True
        elif new:
            mirror.ring(near)
        return new, found

    def _note_children(self, task_id: str, near: str, page: bytes) -> bool:
        """Find what a command left running, now and then: it takes a step on the node."""
        looked, known = self._children.get(task_id, (0.0, ()))
        if time.monotonic() < looked + self._poll_s:
            return False
        found = self._steps(task_id).list_tree() or ()
        self._children[task_id] = time.monotonic(), found
        if found != known:
            mirror.apply(near, page, alive=True, children=found)
        return found != known

    def _settle(self, task_id: str, number: str, job: Job | None) -> None:
        """The job is over: take over what it left, and let Slurm explain what it did not."""
        near, far = self.near(task_id), self._far(task_id)
        state = job.state if job else self._client.ask_accounting(number)
        page = directory.read_page(far)
        found = record.parse(page) if page else {}
        if os.path.isdir(far):
            directory.copy_output(far, near)
        why = f"Slurm: {state or 'the job is gone'}" + (f" on {job.node}" if job and job.node else "")
        if "code" in found:
            directory.copy_rest(far, near, self.registry.launch_of(task_id))
            if "ending" not in found and _is_cancelled(found) and state not in ("FAILED", "COMPLETED", ""):
                ending = {
                    "by": "limit" if state in ("TIMEOUT", "DEADLINE") else "slurm",
                    "rule": why,
                    "at": time.time(),
                }
                page = record.replace_slot(page or b"", "ending", ending)
            mirror.apply(near, page, alive=False)
        elif refusal := directory.read_refusal(far):
            mirror.end_unstarted(near, refusal)
        elif self._nodes.never_began(far, job):
            mirror.end_unstarted(near, f"it never began ({why}){_explain_unseen(job)}")
        else:
            if "guards" not in found and not page:
                record.write("guards", _UNKNOWN_GUARDS | {"started": time.time()}, near)
            mirror.apply(near, page, alive=False, problem=f"the job ended without a record of how. {why}")
            return  # its directory stays for those who want to know more
        self._clean_up(task_id, far)

    def _clean_up(self, task_id: str, far: str) -> None:
        remove_tree(far)
        self._nodes.forget(self.near(task_id))
        self._children.pop(task_id, None)

    # --- act ---------------------------------------------------------------------------------

    def end(self, task_ids: Sequence[str], grace: float, ending: Mapping[str, object]) -> list[tuple[Any, Any]]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda task_id: self._end(task_id, grace, ending), task_ids))

    def _end(self, task_id: str, grace: float, ending: Mapping[str, object]) -> tuple[Any, Any]:
        near, far, number = self.near(task_id), self._far(task_id), self._number(task_id)
        is_unrun, problem = self._nodes.end_waiting(far, number)
        if is_unrun:
            if "ending" not in record.read(near):
                record.write("ending", ending, near)
            mirror.end_unstarted(near, "it was ended before it began")
            if problem:
                mirror.note_problem(near, f"its job stays in the queue, and will do nothing: {problem}")
            self._clean_up(task_id, far)
            return (), ()
        try:
            pids, survivors = self._steps(task_id).end_tree(grace, ending)
        except Unreachable as error:
            raise Unreachable(f"{task_id} could not be ended: {error.message}") from None
        if not self.await_closed(task_id, 0.0 if survivors else _END_WAIT_S):
            self._client.cancel(number)  # what a step beside the job could not do
        return pids, survivors

    def _number(self, task_id: str) -> str:
        if claim := directory.read_claim(self._far(task_id)):
            return claim
        try:
            return directory.read_job(self.near(task_id))[0]
        except FileNotFoundError:
            job = self._client.jobs(time.time()).find(directory.read_name(self.near(task_id)))
            return job.number if job else ""

    def signal(self, task_id: str, number: int) -> bool:
        if record.is_pending(self.near(task_id)):
            raise Unsupported(f"{task_id} has not begun; end it with kill.")
        return self._steps(task_id).signal(record.guards_of(self.near(task_id)).command, number)

    def set_size(self, task_id: str, size: bytes) -> None:
        self._steps(task_id).resize(size)

    def send(self, task_id: str, data: bytes, eof: bool) -> None:
        deadline = time.monotonic() + _BEGIN_PATIENCE_S
        while record.is_pending(self.near(task_id)):
            if time.monotonic() > deadline:
                raise InputRefused(f"{task_id} has not begun, so it takes no input yet; wait for it first.")
            time.sleep(FASTEST_S)
            self.update([task_id])
        self._steps(task_id).feed(task_id, data, eof)


_UNKNOWN_GUARDS = {"supervisor": [0, 0], "command": [0, 0], "boot": "", "monotonic": 0.0, "recoveries": 0}


def _is_cancelled(found: dict[str, Any]) -> bool:
    """Return whether a command ended by a signal that Slurm sends, and Outlast did not."""
    return "ending" not in found and found.get("code", {}).get("signal") in (9, 15)


def _explain_unseen(job: Job | None) -> str:
    return ": the node does not see the shared directory" if job is not None and job.state == "FAILED" else ""
