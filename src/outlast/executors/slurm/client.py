"""Slurm's own commands: sbatch, squeue, scancel, srun. Nothing here keeps a state but the list of jobs on disk."""

from __future__ import annotations

import os
import time

from outlast.errors import BadInput
from outlast.executors.remote import Unreachable
from outlast.light import frozen, json
from outlast.linux.files import FileLock, find_program, open_regular, read_file
from outlast.storage import mirror

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from subprocess import CompletedProcess

_PATIENCE_S = 30.0  # for a controller that is busy; its own commands give up after ten seconds to a minute
_FORMAT = "%i|%A|%j|%T|%r|%N"
_NOT_INSTALLED = "There is no {} on this machine; install Slurm's client programs, or run this on a login node."
_OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
_WAITS_FOR = {
    "Resources": "for free resources",
    "Priority": "behind jobs of a higher priority",
    "None": "to be scheduled",
    "Dependency": "for another job",
    "JobHeldUser": "to be released (scontrol release)",
    "JobHeldAdmin": "to be released by an administrator",
}
# What Slurm says when it did not answer in time: the job may exist all the same.
_UNKNOWN = ("timed out", "unable to contact", "connection", "zero bytes", "resource temporarily", "communication")
# All that they get, and the job script. Others may be secrets, or those of a job that this process is in, which sbatch
# would take for options. (With --export=NONE each job first spends seconds on the login shell of its user.)
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@frozen
class Job:
    """One job, or one element of an array, as the controller sees it."""

    number: str  # of an element: that of its array, and its index
    raw: str  # as the job itself has it, once it runs
    name: str
    state: str
    reason: str
    node: str

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    def explain_wait(self) -> str:
        waits = _WAITS_FOR.get(self.reason)
        return f"job {self.number} waits{f' {waits}' if waits else ''} (Slurm: {self.reason})"


@frozen
class Jobs:
    """All jobs of this user that the controller remembers, and when it was asked. `problem`: why it did not answer."""

    at: float
    by_number: Mapping[str, Job]
    problem: str = ""

    @property
    def listed(self) -> list[Job]:
        """Each job once."""
        return [job for number, job in self.by_number.items() if number == job.number]

    def find_all(self, name: str) -> list[Job]:
        return [job for job in self.listed if job.name == name]

    def find(self, name: str) -> Job | None:
        """Return the job of this name; of several one that is not over."""
        return min(self.find_all(name), key=lambda job: job.is_over, default=None)


class Client:
    """Calls Slurm. `directory` is where the list of jobs is kept, so that one squeue serves all processes."""

    def __init__(self, directory: str, poll_s: float) -> None:
        self._directory, self._poll_s = directory, poll_s

    def check_installed(self) -> None:
        if find_program("sbatch", os.environ.get("PATH")) is None:
            raise BadInput(_NOT_INSTALLED.format("sbatch"))

    def call(self, words: Sequence[str], data: bytes = b"", patience: float = _PATIENCE_S) -> CompletedProcess[str]:
        """Run one of Slurm's commands. Raises `Unreachable` if it does not end in time."""
        from subprocess import CompletedProcess

        ran = self.call_for_bytes(words, data, patience)
        out, said = (one.decode(errors="replace") for one in (ran.stdout, ran.stderr))
        return CompletedProcess(words, ran.returncode, out, said)

    def call_for_bytes(
        self, words: Sequence[str], data: bytes = b"", patience: float = _PATIENCE_S
    ) -> CompletedProcess[bytes]:
        """As `call`, for what is no text."""
        from subprocess import TimeoutExpired, run

        env = {"LC_ALL": "C", **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}}
        try:
            return run(words, input=data, capture_output=True, timeout=patience, env=env, check=False)
        except FileNotFoundError:
            raise BadInput(_NOT_INSTALLED.format(words[0])) from None
        except TimeoutExpired:
            raise Unreachable(f"{words[0]} did not answer within {patience:.0f} s.") from None

    def submit(self, words: Sequence[str], script: bytes = b"") -> tuple[str, str]:
        """Submit a job; returns its number, or why it was refused. Raises `Unreachable` if that is not known."""
        ran = self.call(["sbatch", "--parsable", *words], script)
        if ran.returncode == 0 and ran.stdout.strip():
            return ran.stdout.strip().partition(";")[0], ""
        why = explain(ran.stderr)
        if ran.returncode == 0 or any(word in why.lower() for word in _UNKNOWN):
            raise Unreachable(f"sbatch: {why or 'no answer'}")
        return "", why

    def cancel(self, number: str, *options: str) -> str:
        """Cancel a job; returns what went wrong. Slurm says nothing if the job is over or forgotten."""
        ran = self.call(["scancel", *options, number])
        return explain(ran.stderr) if ran.returncode else ""

    def release(self, number: str) -> None:
        """Let a job run that was submitted to be held. Raises `Unreachable` if it is not known whether it will."""
        ran = self.call(["scontrol", "release", number])
        why = explain(ran.stderr)
        if ran.returncode and "already" not in why:
            raise Unreachable(f"scontrol: {why or 'no answer'}")

    def run_on_node(
        self, number: str, words: Sequence[str], data: bytes = b"", patience: float = _PATIENCE_S
    ) -> CompletedProcess[str]:
        """Run a program beside a running job, on its node. Its data is not in an argument list."""
        return self.call([*build_step(number), *words], data, patience)

    # --- what the controller says ----------------------------------------------------------

    def jobs(self, since: float = 0.0) -> Jobs:
        """Return the jobs as they were not before `since`, and not longer ago than the interval between two looks."""
        found = self._read()
        if self._is_fresh(found, since):
            return found
        with FileLock(open_regular(f"{self._directory}/jobs.lock", os.O_WRONLY | os.O_CREAT)):
            found = self._read()  # another process may have asked meanwhile
            if not self._is_fresh(found, since):
                found = self._ask()
                self._write(found)
        return found

    def _is_fresh(self, jobs: Jobs, since: float) -> bool:
        return since <= jobs.at and 0 <= time.time() - jobs.at < self._poll_s

    def _ask(self) -> Jobs:
        at = time.time()
        try:
            which = ("--array", "--states=all", f"--user={os.geteuid()}")
            ran = self.call(["squeue", "--noheader", *which, f"--format={_FORMAT}"])
            said, problem = ran.stdout, (explain(ran.stderr) or "squeue failed") if ran.returncode else ""
        except (Unreachable, BadInput) as error:
            said, problem = "", error.message
        if problem:
            return Jobs(at, self._read().by_number, problem)
        return Jobs(at, _index(filter(None, map(parse_job, said.splitlines()))))

    def _read(self) -> Jobs:
        try:
            found = json.loads(read_file(f"{self._directory}/jobs"))
            return Jobs(float(found["at"]), _index(Job(*words) for words in found["jobs"]), str(found["problem"]))
        except (OSError, ValueError, TypeError, KeyError):
            return Jobs(0.0, {})

    def _write(self, jobs: Jobs) -> None:
        words = [[job.number, job.raw, job.name, job.state, job.reason, job.node] for job in jobs.listed]
        text = json.dumps({"at": jobs.at, "problem": jobs.problem, "jobs": words})
        mirror.replace_file(self._directory, "jobs", text.encode())

    def ask_accounting(self, number: str) -> str:
        """Return the last state of a job that the controller forgot, if the cluster keeps accounts; else nothing."""
        try:
            ran = self.call(
                ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}", "--format=State"]
            )
        except (Unreachable, BadInput):
            return ""
        return ran.stdout.split()[0] if ran.returncode == 0 and ran.stdout.split() else ""


def _index(jobs: Iterable[Job]) -> dict[str, Job]:
    """Return jobs by both their numbers: of elements that wait, the second one is that of their whole array."""
    found = list(jobs)
    return {**{job.raw: job for job in found}, **{job.number: job for job in found}}


def parse_job(line: str) -> Job | None:
    """Parse a line of squeue; None if it is none of ours: the name of a job may hold anything."""
    words = [word.strip() for word in line.split("|")]
    if len(words) != len(_FORMAT.split("|")):
        return None
    number, raw, name, *rest = words
    _, dash, index = number.partition("_")
    return Job(number, raw, f"{name}{dash}{index}", *rest)


def build_step(number: str) -> list[str]:
    """Return the words before those of a program that is to run beside a job."""
    how = ("--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--quiet", "--input=all", "--chdir=/")
    return ["srun", f"--jobid={number}", *how]


def explain(said: str) -> str:
    """Return what a command of Slurm's complains about, in one line."""
    lines = [line.partition("error: ")[2] or line for line in said.strip().splitlines() if line.strip()]
    return lines[-1].removeprefix("Batch job submission failed: ").strip() if lines else ""
