"""Nodes that share a directory with this machine: what a job needs is in it, and what a task prints comes there."""

from __future__ import annotations

import os

from outlast.errors import BadInput, StartFailed
from outlast.executors.slurm import directory
from outlast.types import NO_SHELL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.executors.slurm.client import Client, Job, Jobs
    from outlast.executors.slurm.steps import Steps
    from outlast.types import Launch


class SharedNodes:
    """A job claims its task with mkdir before it runs it, so a job may be submitted twice."""

    no_files = "{} has the files of this machine: leave out what to send or fetch."

    def __init__(self, client: Client, root: str) -> None:
        self._client, self.root, self.on_node, self.begins_in = client, root, root, os.getcwd()

    def check(self, launch: Launch) -> None:
        if not os.path.isdir(launch.cwd):  # the nodes see what this machine sees
            raise StartFailed(f"The command cannot begin in {launch.cwd}: there is no such directory.")
        if launch.shell != NO_SHELL and not os.access(launch.shell, os.X_OK):
            raise BadInput(f"There is no shell {launch.shell}; use another one, or leave it out.")

    def submit(self, name: str, is_array: bool, options: Sequence[str]) -> tuple[str, str]:
        """Submit the job of prepared directories; see `Client.submit`."""
        guard, script = directory.install(self.root)
        path = f"{self.root}/tasks/{name}"
        log = f"--output={path}{'_%a' if is_array else ''}/job.log"
        return self._client.submit([*options, log, script, path, guard])

    def release(self, number: str, names: Sequence[str]) -> None:
        """Let a job run that was submitted, and whose number is known for good. Raises `Unreachable`."""

    def gather(self, nears: Sequence[str]) -> None:
        """Bring here what is new of tasks."""

    def explain_absence(self, near: str) -> str:
        """Return why what is new of a task could not be had."""
        return ""

    def find_job(self, near: str, claim: str | None, number: str, jobs: Jobs) -> Job | None:
        # A task that was submitted twice has two jobs: the one that claimed it counts, and until then any of them.
        job = jobs.by_number.get(claim or number) or jobs.by_number.get(number)
        return jobs.find(directory.read_name(near)) if claim is None and (job is None or job.is_over) else job

    def can_settle(self, near: str) -> bool:
        """Return whether all is here that is left of a task whose job is over."""
        return True

    def never_began(self, far: str, job: Job | None) -> bool:
        """Return whether a task whose job is over never began; then it never will."""
        return os.path.isdir(far) and directory.claim(far)

    def end_waiting(self, far: str, number: str) -> tuple[bool, str]:
        """End a task that has not begun; returns whether it never will, and why its job is still there."""
        if not (os.path.isdir(far) and directory.claim(far)):
            return False, ""
        return True, self._client.cancel(number) if number else ""

    def has_ended(self, far: str) -> bool:
        """Return whether a task is known to be over, though its job is not."""
        return False

    def let_go(self, steps: Steps) -> None:
        """Let the job of a task end that is over."""

    def forget(self, near: str) -> None:
        """Forget a task of which all is known."""
