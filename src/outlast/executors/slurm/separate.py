"""Nodes that share no file system with this machine. A job carries what its task needs; steps bring back what is new.

Each task has a directory here that becomes what the one on its node is, file by file, so that everything else is as
with a shared directory. `alone.sh` is the job, `collect.sh` the step.
"""

from __future__ import annotations

import os

from outlast.errors import BadInput
from outlast.executors.remote import Unreachable
from outlast.executors.slurm import directory
from outlast.executors.slurm.client import build_step, explain
from outlast.linux.files import read_file
from outlast.storage import mirror, record, sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from outlast.executors.slurm.client import Client, Job, Jobs
    from outlast.executors.slurm.steps import Steps
    from outlast.types import Launch

_HERE = os.path.dirname(os.path.abspath(__file__))
_CLAIM, _OVER = "claimed/job", "over"
_SMALL = frozenset((record.PIPES, sessions.START, sessions.STATE, "refused", _CLAIM, record.NAME, _OVER))
_KEEP_S = 300  # how long a job waits at its end until its results were collected
_PATIENCE_S = 60.0  # for a step that may carry all of a long output
_GONE, _DONE = "gone", "."


class SeparateNodes:
    """Jobs are submitted to be held, and one of them is released: another one of the same task never runs."""

    no_files = "Files cannot be copied to or from {}; let the command fetch them from a store that both reach."
    begins_in = "/tmp"

    def __init__(self, client: Client, root: str, on_node: str, table: Mapping[str, Any]) -> None:
        self._client, self.root, self.on_node, self._table = client, root, on_node, table
        self._collected: set[str] = set()  # mirrors of tasks whose job is over, and that have all that their node had
        self._absent: dict[str, str] = {}  # why what is new of a task could not be had, by mirror

    def check(self, launch: Launch) -> None:
        if launch.given.get("pass"):
            raise BadInput(f"A secret is not passed to {launch.executor}: the cluster keeps what a job is sent with.")

    def submit(self, name: str, is_array: bool, options: Sequence[str]) -> tuple[str, str]:
        job = build_job(
            f"{self.root}/tasks", name, directory.install(self.root), self.on_node, self._table.get("keep", _KEEP_S)
        )
        return self._client.submit([*options, "--output=/dev/null", "--hold"], job)

    def release(self, number: str, names: Sequence[str]) -> None:
        self._client.release(number)
        for name in names:
            directory.forget_launch(f"{self.root}/tasks/{name}")

    def gather(self, nears: Sequence[str]) -> None:
        """Collect what is new of tasks: one step for all of a node."""
        jobs, on_nodes, steps = self._client.jobs(), dict[str, list[str]](), dict[str, list[str]]()
        for near in nears:
            if not mirror.is_confirmed(near):
                continue
            number, submitted, node = directory.read_job(near)
            job = jobs.by_number.get(number)
            if job is not None and job.node and not node:
                node = job.node
                directory.write_job(near, number, submitted, node)
            if node:
                on_nodes.setdefault(node, []).append(near)
            if job is not None and node and not job.is_over:
                steps[node] = build_step(job.raw)
            if not node and (job.is_over if job else jobs.at > submitted):
                self._collected.add(near)  # it had no node, or none that was seen
        for node, some in on_nodes.items():
            self._collect(some, steps.get(node) or self._build_visit(node), jobs)

    def _build_visit(self, node: str) -> list[str]:
        """Return a job of its own for a look at a node: those of its tasks are over."""
        given = [f"--{key}={self._table[key]}" for key in ("partition", "account", "qos") if key in self._table]
        words = ["srun", "--job-name=outlast-collect", f"--nodelist={node}", "--nodes=1", "--ntasks=1", *given]
        return [*words, "--quiet", "--input=all", "--chdir=/"]

    def _collect(self, nears: Sequence[str], where: Sequence[str], jobs: Jobs) -> None:
        found = {near: jobs.by_number.get(directory.read_job(near)[0]) for near in nears}
        try:
            collect(
                self._client, where, self.on_node, f"{self.root}/tasks", [directory.read_name(one) for one in nears]
            )
        except Unreachable as error:
            self._absent.update(dict.fromkeys(nears, error.message))
        else:
            self._collected |= {near for near, job in found.items() if job is None or job.is_over}

    def explain_absence(self, near: str) -> str:
        return self._absent.pop(near, "")

    def find_job(self, near: str, claim: str | None, number: str, jobs: Jobs) -> Job | None:
        return jobs.by_number.get(number)

    def can_settle(self, near: str) -> bool:
        return near in self._collected

    def never_began(self, far: str, job: Job | None) -> bool:
        return job is not None and not job.node and directory.read_claim(far) is None

    def end_waiting(self, far: str, number: str) -> tuple[bool, str]:
        if not number:
            return True, ""  # what was submitted without an answer is held
        problem = self._client.cancel(number, "--state=PENDING")
        jobs = self._client.jobs(since=float("inf"))
        if problem or jobs.problem:
            raise Unreachable(f"Slurm does not answer: {problem or jobs.problem}")
        job = jobs.by_number.get(number)
        return job is not None and job.state == "CANCELLED" and not job.node, ""

    def has_ended(self, far: str) -> bool:
        return os.path.exists(f"{far}/{_OVER}")

    def let_go(self, steps: Steps) -> None:
        steps.note_collected()

    def forget(self, near: str) -> None:
        self._collected.discard(near)


def build_job(directory: str, name: str, programs: Sequence[str], on_node: str, wait_s: int) -> bytes:
    """Return the script of a job for the prepared directories of a task, or of an array, which begin with `name`.

    It is what sbatch reads: whatever stands in it is in no argument list.
    """
    from base64 import encodebytes
    from io import BytesIO
    from shlex import quote
    from tarfile import open as open_archive

    with BytesIO() as file:
        with open_archive(fileobj=file, mode="w:gz", compresslevel=6) as archive:
            for program in programs:
                archive.add(program, f"bin/{os.path.basename(program)}")
            for one in sorted(os.listdir(directory)):
                if one == name or (one.startswith(f"{name}_") and one[len(name) + 1 :].isdecimal()):
                    archive.add(f"{directory}/{one}", one)
        packed = encodebytes(file.getvalue())
    script = read_file(f"{_HERE}/alone.sh")
    first_line, _, rest = script.partition(b"\n")
    given = f"root={quote(on_node)} name={quote(name)} wait={wait_s}\n"
    return first_line + b"\n" + os.fsencode(given) + rest + packed


def collect(client: Client, where: Sequence[str], on_node: str, directory: str, names: Sequence[str]) -> set[str]:
    """Bring here what is new of some tasks of one node; returns those that it does not have. `where`: a step there.

    Raises `Unreachable`.
    """
    gone, left = set[str](), set(names)
    while left:  # an output that is longer than a step carries takes several
        asked = "".join(f"{line}\n" for name in sorted(left) for line in _list_known(directory, name)).encode()
        script = read_file(f"{_HERE}/collect.sh").decode()
        ran = client.call_for_bytes([*where, "/bin/sh", "-c", script, "sh", f"{on_node}/tasks"], asked, _PATIENCE_S)
        answered = set[str]()
        for name, file, number, data in _parse(ran.stdout):
            if name not in left:
                continue  # a step prints nothing else; what comes from elsewhere is no answer
            if file in (_GONE, _DONE):
                answered.add(name)
                gone |= {name} if file == _GONE else set()
                left -= {name} if not number else set()
            elif mirror.is_output(file):
                mirror.write_output(f"{directory}/{name}", file, number, data)
            elif file in _SMALL:
                _write_small(f"{directory}/{name}", file, data)
        if not answered:
            raise Unreachable(f"its node sends nothing: {explain(ran.stderr.decode(errors='replace')) or 'no answer'}")
    return gone


def _list_known(directory: str, name: str) -> Iterator[str]:
    yield name
    with os.scandir(f"{directory}/{name}") as entries:
        for entry in entries:
            if mirror.is_output(entry.name):
                yield f"{name} {entry.name} {entry.stat().st_size}"


def _write_small(directory: str, file: str, data: bytes) -> None:
    if file == _CLAIM:
        os.makedirs(f"{directory}/claimed", 0o700, exist_ok=True)
    mirror.replace_file(directory, file, data)


def _parse(answer: bytes) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield what a step sent: a task, a file, an offset, and what is there; as far as it is whole."""
    at = 0
    while (end := answer.find(b"\n", at)) >= 0:
        words = answer[at:end].decode(errors="replace").split(" ")
        if len(words) != 4 or not (words[2].isdecimal() and words[3].isdecimal()):
            return
        at = end + 1 + int(words[3])
        if at > len(answer):
            return
        yield words[0], words[1], int(words[2]), answer[end + 1 : at]
