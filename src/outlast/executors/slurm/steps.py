"""What is done beside a running job, on its node: end its tree, list it, signal it, feed it. Each is a step of it."""

from __future__ import annotations

import os

from outlast.errors import InputRefused
from outlast.executors.remote import Unreachable
from outlast.linux.files import read_file
from outlast.storage import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import CompletedProcess

    from outlast.executors.slurm.client import Client
    from outlast.types import Identity

_HERE = os.path.dirname(os.path.abspath(__file__))
_END_PATIENCE_S, _LIST_PATIENCE_S = 30.0, 10.0  # for a step beside a job, which takes 50 ms
_SEND_PATIENCE_S = 10.0  # for a command that is to read
_CODE = record.SLOTS["code"][0]
# Unless the command ended before: what the record says of its end is then true.
_NOTE = 'cd "$1" && [ "$(head -c "$2" record | tail -c 1)" = " " ] && dd of=record bs=1 seek="$3" conv=notrunc'
# Field 22 of its stat line tells whether it is still the same process; 19 fields come between.
_SIGNAL = 'stat=$(cat /proc/$1/stat) && set -- "$@" ${stat##*) } && [ "${23}" = "$2" ] && kill -s "$3" -- "-$1"'
_RESIZE = 'cd "$1" && cat >size.new && mv size.new size && if [ -p wake ]; then printf x >wake; fi'
_FEED = 'cd "$1" && cat >stdin && if [ "$2" = 1 ]; then : >stdin.eof; [ ! -p wake ] || printf x >wake; fi'


class Steps:
    """Beside the job `number`, whose task has this directory on its node."""

    def __init__(self, client: Client, number: str, directory: str) -> None:
        self._client, self._number, self._directory = client, number, directory

    def _run(self, script: str, *words: str, data: bytes = b"", patience: float = 30.0) -> CompletedProcess[str]:
        return self._client.run_on_node(self._number, ["/bin/sh", "-c", script, "sh", *words], data, patience)

    def list_tree(self) -> tuple[int, ...] | None:
        """Return the processes of the task; None if that is not known."""
        found = self._call_end("list", _LIST_PATIENCE_S)
        return found and found[0]

    def end_tree(self, grace: float, ending: Mapping[str, object]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """End the processes of the task; returns them, and those that survive. Raises `Unreachable`.

        If the cluster refuses the step, the job is cancelled.
        """
        start = record.SLOTS["ending"][0]
        self._run(_NOTE, self._directory, str(_CODE + 1), str(start), data=record.encode("ending", ending))
        # When the last process ends, so does the job, and Slurm drops what a step beside it just printed.
        listed = self.list_tree() or ()
        ended = self._call_end(str(round(min(grace, 1e6) * 10)), grace + _END_PATIENCE_S)
        if ended is None and (problem := self._client.cancel(self._number)):
            raise Unreachable(problem)
        pids, survivors = ended or ((), ())
        return tuple(sorted({*pids, *listed} - {*survivors})), survivors

    def _call_end(self, how: str, patience: float) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Run `end.sh`; returns the pids that it ended or lists, and survivors. None: it did not begin."""
        ran = self._run(read_file(f"{_HERE}/end.sh").decode(), self._directory, how, patience=patience)
        begun, *lines = ran.stdout.split("\n")
        if not begun:
            return None
        left = {int(line.split()[1]) for line in lines if line.startswith("left ")}
        return tuple(sorted({int(line) for line in lines if line.isdecimal()} - left)), tuple(sorted(left))

    def signal(self, command: Identity, number: int) -> bool:
        return self._run(_SIGNAL, str(command.pid), str(command.tick), str(number)).returncode == 0

    def resize(self, size: bytes) -> None:
        self._run(_RESIZE, self._directory, data=size)

    def feed(self, task_id: str, data: bytes, eof: bool) -> None:
        """Write to the input of the task. Raises `InputRefused`."""
        try:
            ran = self._run(_FEED, self._directory, str(int(eof)), data=data, patience=_SEND_PATIENCE_S)
        except Unreachable:
            raise InputRefused(
                f"{task_id} does not read its input now; it is not known how much of it arrived."
            ) from None
        if ran.returncode:
            raise InputRefused(f"{task_id} could not be given input: {ran.stderr.strip() or 'it has ended'}.")

    def note_collected(self) -> None:
        """Let the job end that keeps the results of its task; it also ends by itself."""
        try:
            self._run(': >"$1/collected"', self._directory)
        except Unreachable:
            pass
