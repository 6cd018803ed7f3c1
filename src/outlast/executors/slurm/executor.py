"""`SlurmExecutor`: each task is a job, whose guard writes into a directory that this machine sees as well.

The files of the guard are what counts; Slurm says why a job waits, and how one ended that left no record. A job script
claims its task before it runs it, so submitting a task again is safe whenever it is not known whether it was submitted.
"""

from __future__ import annotations

import os
import time

from outlast.errors import BadInput, InputRefused, StartFailed, Unsupported, named
from outlast.executors.polling import FASTEST_S, PollingExecutor
from outlast.executors.remote import Unreachable
from outlast.executors.slurm import directory
from outlast.executors.slurm.client import Client
from outlast.guard.client import Refused
from outlast.linux.files import read_file, unlock_and_close
from outlast.storage import mirror, record
from outlast.storage.task_directory import remove_tree
from outlast.types import NO_SHELL, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.executors.slurm.client import Job, Jobs
    from outlast.settings import Settings
    from outlast.storage.registry import Registry
    from outlast.types import Launch

KEYS: dict[str, type] = {
    **dict.fromkeys(("shared_dir", "partition", "account", "qos", "time", "memory", "constraint"), str),
    **dict.fromkeys(("cpus", "gpus", "poll"), int),
    "options": list,
}
# What a task can ask for, besides what the table says for all of them: the option of sbatch for each.
NEEDS = {
    **{name: f"--{name}" for name in ("partition", "account", "qos", "time", "constraint", "gpus")},
    "cpus": "--cpus-per-task",
    "memory": "--mem",
}
_POLL_S = 2.0  # between two looks at the queue, by all processes together
_JOB = "job"  # in the mirror: the number of the job and when it was submitted
_END_WAIT_S = 15.0  # from the death of a tree until Slurm has taken note of it
_END_PATIENCE_S, _LIST_PATIENCE_S = 30.0, 10.0  # for a step beside a job, which takes 50 ms
_SEND_PATIENCE_S = 10.0  # for a command that is to begin, and then to read
_AT_ONCE = 8  # srun calls
_WAITS_FOR = {
    "Resources": "for free resources",
    "Priority": "behind jobs of a higher priority",
    "None": "to be scheduled",
    "Dependency": "for another job",
    "JobHeldUser": "to be released (scontrol release)",
    "JobHeldAdmin": "to be released by an administrator",
}


class SlurmExecutor(PollingExecutor):
    """The tasks of one `[executors.NAME]` with kind = "slurm"."""

    needs = tuple(NEEDS)
    no_files = "{} has the files of this machine: leave out what to send or fetch."

    def __init__(self, name: str, table: Mapping[str, Any], registry: Registry, settings: Settings) -> None:
        super().__init__(name, table, registry, settings)
        base = f"{registry.home.path}/executors/{name}"
        os.makedirs(base, 0o700, exist_ok=True)
        self._root = os.path.expanduser(table.get("shared_dir", "")) or base
        if not os.path.isabs(self._root):
            raise BadInput(f"shared_dir of [executors.{name}] must be an absolute path, not {self._root}.")
        self._poll_s = float(table.get("poll", _POLL_S))
        self._client = Client(base, self._poll_s)
        self._children: dict[str, tuple[float, tuple[int, ...]]] = {}  # what tasks left running, and when that was seen

    def place(self) -> Place:
        # The nodes of a cluster have the directories and programs of its login node: a command begins as it does here.
        here = os.getcwd()
        with open("/proc/self/status") as file:  # os.umask would change it for a moment, also for other threads
            umask = int(file.read().partition("Umask:")[2].split()[0], 8)
        return Place(self.name, dict(os.environ), here, "/bin/bash", umask)

    def _far(self, task_id: str) -> str:
        return f"{self._root}/tasks/{task_id}"

    # --- start -------------------------------------------------------------------------------

    def _check(self, launch: Launch) -> None:
        super()._check(launch)
        self._client.check_installed()
        if not os.path.isdir(launch.cwd):  # the nodes see what this machine sees
            raise StartFailed(f"The command cannot begin in {launch.cwd}: there is no such directory.")
        if launch.shell != NO_SHELL and not os.access(launch.shell, os.X_OK):
            raise BadInput(f"There is no shell {launch.shell}; use another one, or leave it out.")

    def submit(self, task_id: str, launch: Launch) -> tuple[int, float]:
        try:
            directory.prepare(self._far(task_id), self.near(task_id), launch)
        except OSError as error:
            raise Refused(error.errno or 0, f"{self._root}: {error.strerror}") from None
        try:
            self._submit_job(task_id, launch)
        except Refused:
            remove_tree(self._far(task_id))
            raise
        return 0, time.time()

    def _submit_job(self, task_id: str, launch: Launch) -> None:
        """Submit the job of a task whose directory is complete."""
        guard, script = directory.install(self._root)
        number, refusal = self._client.submit([*self._options(task_id, launch), script, self._far(task_id), guard])
        if refusal:
            raise Refused(0, refusal)
        self._note_job(task_id, number)

    def _note_job(self, task_id: str, number: str) -> None:
        mirror.replace_file(self.near(task_id), _JOB, f"{number} {time.time()}".encode())
        mirror.apply(self.near(task_id), None, alive=True)

    def _options(self, task_id: str, launch: Launch) -> list[str]:
        asked = {**{name: self.table[name] for name in NEEDS if name in self.table}, **launch.needs}
        return [
            *(f"--job-name={task_id}", "--nodes=1", "--ntasks=1", "--no-requeue", "--export=ALL", "--chdir=/"),
            f"--output={self._far(task_id)}/job.log",
            *map(str, self.table.get("options", ())),
            *(f"{NEEDS[name]}={value}" for name, value in asked.items()),
        ]

    def _confirm(self, task_id: str, jobs: Jobs) -> None:
        """Settle a start whose answer is missing: find its job, or submit it again, which never runs it twice."""
        near = self.near(task_id)
        lock = mirror.lock_start(near)
        if lock is None:
            return  # another process does
        try:
            if mirror.is_confirmed(near):
                return
            job = jobs.find(task_id)
            if job is not None:
                self._note_job(task_id, job.number)
            elif not os.path.isdir(self._far(task_id)):
                mirror.end_unstarted(near, "the process that started it was killed before it was submitted")
            else:
                self._submit_job(task_id, self.registry.launch_of(task_id))
        except Refused as refused:
            mirror.end_unstarted(near, refused.reason)
        finally:
            unlock_and_close(lock)

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
            raise StartFailed(f"The cluster has no partition {named(p)}." if p else "The cluster has no nodes.")
        return f"{nodes} node{'s' * (nodes != 1)}{f' in partition {p}' if p else ''}, tasks in {self._root}"

    def update_one(self, task_id: str) -> bool:
        """Bring one mirror up to date; returns whether anything is new."""
        near, far = self.near(task_id), self._far(task_id)
        if not mirror.is_confirmed(near):
            self._confirm(task_id, self._client.jobs(time.time() - 1))
            return True
        new, over = self._copy(task_id, near, far)
        if over:
            self._close(task_id, near, far, None)
            return True
        number, submitted = read_file(f"{near}/{_JOB}").decode().split()
        jobs, claim = self._client.jobs(), directory.read_claim(far)
        if jobs.problem:
            raise Unreachable(f"Slurm does not answer: {jobs.problem}")
        # A task that was submitted twice has two jobs: the one that claimed it counts, and until then any of them.
        number = claim or number
        job = jobs.by_number.get(number)
        if claim is None and (job is None or job.is_over):
            job = jobs.find(task_id)
        if (job is None and jobs.at > float(submitted)) or (job is not None and job.is_over):
            self._settle(task_id, number, job)
            return True
        if job is not None and record.is_pending(near):
            mirror.note_problem(near, _explain_pending(job))
        return new

    def _copy(self, task_id: str, near: str, far: str) -> tuple[bool, bool]:
        """Copy what is new; returns whether anything was, and whether the task is closed."""
        if not os.path.isdir(far):
            return False, False
        page = directory.read_page(far)  # before the output: what was printed before the end is there when the end is
        new = directory.copy_output(far, near)
        if page is None:
            return new, False
        found = record.parse(page)
        outcome = found.get("outcome")
        if outcome and not outcome.get("alone"):
            new = self._note_children(task_id, near, page) or new
        if outcome and outcome.get("alone") and _is_cancelled(found):
            return new, False  # only Slurm knows why it got a signal
        if page != read_file(f"{near}/{record.NAME}"):
            if "code" in found:
                directory.copy_rest(far, near, self.registry.launch_of(task_id))
            mirror.apply(near, page, alive=True, children=self._children.get(task_id, (0.0, ()))[1])
            new = True
        elif new:
            mirror.ring(near)
        return new, bool(outcome and outcome.get("alone"))

    def _note_children(self, task_id: str, near: str, page: bytes) -> bool:
        """Find what a command left running, now and then: it takes a step on the node."""
        looked, known = self._children.get(task_id, (0.0, ()))
        if time.monotonic() < looked + self._poll_s:
            return False
        found, _ = self._call_end(task_id, self._number(task_id), "list", _LIST_PATIENCE_S) or ((), ())
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
        elif os.path.isdir(far) and directory.claim(far):
            mirror.end_unstarted(near, f"it never began ({why}){_explain_unseen(job)}")
        else:
            if "guards" not in found and not page:
                record.write("guards", _UNKNOWN_GUARDS | {"started": time.time()}, near)
            mirror.apply(near, page, alive=False, problem=f"the job ended without a record of how. {why}")
            return  # its directory stays for those who want to know more
        remove_tree(far)

    def _close(self, task_id: str, near: str, far: str, page: bytes | None) -> None:
        mirror.apply(near, page, alive=False)
        remove_tree(far)

    # --- act ---------------------------------------------------------------------------------

    def end(self, task_ids: Sequence[str], grace: float, ending: Mapping[str, object]) -> list[tuple[Any, Any]]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda task_id: self._end(task_id, grace, ending), task_ids))

    def _end(self, task_id: str, grace: float, ending: Mapping[str, object]) -> tuple[Any, Any]:
        near, far = self.near(task_id), self._far(task_id)
        number = self._number(task_id)
        if os.path.isdir(far) and directory.claim(far):
            if "ending" not in record.read(near):
                record.write("ending", ending, near)
            mirror.end_unstarted(near, "it was ended before it began")
            problem = self._client.cancel(number) if number else ""
            if problem:
                mirror.note_problem(near, f"its job stays in the queue, and will do nothing: {problem}")
            remove_tree(far)
            return (), ()
        pids, survivors = self._end_tree(task_id, number, grace, ending)
        if not self.await_closed(task_id, 0.0 if survivors else _END_WAIT_S):
            self._client.cancel(number)  # what a step beside the job could not do
        return pids, survivors

    def _end_tree(
        self, task_id: str, number: str, grace: float, ending: Mapping[str, object]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """End the processes of a running task on its node. If the cluster refuses that step, cancel the job."""
        far = self._far(task_id)
        page = directory.read_page(far)
        if page and not {"ending", "code"} & record.parse(page).keys():
            record.write("ending", ending, far)
        # When the last process ends, so does the job, and Slurm drops what a step beside it just printed.
        listed = self._call_end(task_id, number, "list", _END_PATIENCE_S)
        ended = self._call_end(task_id, number, str(round(grace * 10)), grace + _END_PATIENCE_S)
        if ended is None and (problem := self._client.cancel(number)):
            raise Unreachable(f"{task_id} could not be ended: {problem}")
        pids, survivors = ended or ((), ())
        return tuple(sorted({*pids, *(listed[0] if listed else ())} - {*survivors})), survivors

    def _call_end(
        self, task_id: str, number: str, how: str, patience: float
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Run `end.sh` beside the job; returns the pids it ended or lists, and survivors. None: it did not begin."""
        script = read_file(f"{directory.HERE}/end.sh").decode()
        ran = self._client.run_on_node(number, ["/bin/sh", "-c", script, "sh", self._far(task_id), how], b"", patience)
        begun, *lines = ran.stdout.split("\n")
        if not begun:
            return None
        left = {int(line.split()[1]) for line in lines if line.startswith("left ")}
        return tuple(sorted({int(line) for line in lines if line.isdecimal()} - left)), tuple(sorted(left))

    def _number(self, task_id: str) -> str:
        if claim := directory.read_claim(self._far(task_id)):
            return claim
        try:
            return read_file(f"{self.near(task_id)}/{_JOB}").decode().split()[0]
        except FileNotFoundError:
            job = self._client.jobs(time.time()).find(task_id)
            return job.number if job else ""

    def signal(self, task_id: str, number: int) -> bool:
        if record.is_pending(self.near(task_id)):
            raise Unsupported(f"{task_id} has not begun; end it with kill.")
        command = record.guards_of(self.near(task_id)).command
        # Field 22 of its stat line tells whether it is still the same process; 19 fields come between.
        script = 'stat=$(cat /proc/$1/stat) && set -- "$@" ${stat##*) } && [ "${23}" = "$2" ] && kill -s "$3" -- "-$1"'
        words = ["/bin/sh", "-c", script, "sh", str(command.pid), str(command.tick), str(number)]
        return self._client.run_on_node(self._number(task_id), words).returncode == 0

    def set_size(self, task_id: str, size: bytes) -> None:
        script = 'cd "$1" && cat >size.new && mv size.new size && if [ -p wake ]; then printf x >wake; fi'
        self._client.run_on_node(self._number(task_id), ["/bin/sh", "-c", script, "sh", self._far(task_id)], size)

    def send(self, task_id: str, data: bytes, eof: bool) -> None:
        deadline = time.monotonic() + _SEND_PATIENCE_S
        while record.is_pending(self.near(task_id)):
            if time.monotonic() > deadline:
                raise InputRefused(f"{task_id} has not begun, so it takes no input yet; wait for it first.")
            time.sleep(FASTEST_S)
            self.update([task_id])
        script = 'cd "$1" && cat >stdin && if [ "$2" = 1 ]; then : >stdin.eof; [ ! -p wake ] || printf x >wake; fi'
        words = ["/bin/sh", "-c", script, "sh", self._far(task_id), str(int(eof))]
        try:
            ran = self._client.run_on_node(self._number(task_id), words, data, _SEND_PATIENCE_S)
        except Unreachable:
            raise InputRefused(
                f"{task_id} does not read its input now; it is not known how much of it arrived."
            ) from None
        if ran.returncode:
            raise InputRefused(f"{task_id} could not be given input: {ran.stderr.strip() or 'it has ended'}.")


_UNKNOWN_GUARDS = {"supervisor": [0, 0], "command": [0, 0], "boot": "", "monotonic": 0.0, "recoveries": 0}


def _is_cancelled(found: dict[str, Any]) -> bool:
    """Return whether a command ended by a signal that Slurm sends, and Outlast did not."""
    return "ending" not in found and found.get("code", {}).get("signal") in (9, 15)


def _explain_pending(job: Job) -> str:
    waits = _WAITS_FOR.get(job.reason)
    return f"job {job.number} waits{f' {waits}' if waits else ''} (Slurm: {job.reason})"


def _explain_unseen(job: Job | None) -> str:
    return ": the node does not see the shared directory" if job is not None and job.state == "FAILED" else ""
