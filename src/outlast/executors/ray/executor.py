"""`RayExecutor`: each task is a job of Ray's, which refuses a second one with the same id.

The job is `job.py`, from a package that this machine uploads; it runs the command below a guard, and what the guard
writes comes back in the job's log. So the exit code is that of the record, and the output is exact to the byte.
"""

from __future__ import annotations

import base64
import binascii
import os
import time

from outlast.errors import BadInput, InputRefused, StartFailed, Unsupported
from outlast.executors.far_launch import describe
from outlast.executors.poller import PollingExecutor
from outlast.executors.remote import Unreachable
from outlast.guard.client import HEADER, Refused, encode_items, find_guard
from outlast.light import json
from outlast.linux.files import read_file
from outlast.storage import mirror, record, sessions
from outlast.types import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.settings import Settings
    from outlast.storage.registry import Registry
    from outlast.types import Launch

KEYS: dict[str, type] = {"address": str, "python": str, **dict.fromkeys(("cpus", "gpus", "memory"), int)}
NEEDS = {"cpus": "entrypoint_num_cpus", "gpus": "entrypoint_num_gpus", "memory": "entrypoint_memory"}
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
_PATIENCE_S = 30.0  # for one request
_PROCESSES_PAUSE_S, _PROCESSES_WAIT_S = 0.15, 1.0  # a job says every 0.05 s which processes it has
_END_WAIT_S = 20.0  # Ray takes some seconds to notice that a job was stopped
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
_SESSION_SCRIPT = "session.bash"
_PACKAGE = "package.zip"  # in the mirror until the start is confirmed: what to upload again
_OUTPUTS = ("output", "stderr", "order")
_SMALL = (record.PIPES, sessions.START, sessions.STATE)


class RayExecutor(PollingExecutor):
    """The tasks of one `[executors.NAME]` with kind = "ray"."""

    needs = tuple(NEEDS)
    no_files = "Files cannot be copied to or from {}; let the command fetch them from a store that both reach."

    def __init__(self, name: str, table: Mapping[str, Any], registry: Registry, settings: Settings) -> None:
        super().__init__(name, table, registry, settings)
        self._address = str(table.get("address", "")).rstrip("/")
        if not self._address.startswith(("http://", "https://")):
            raise BadInput(f'[executors.{name}] needs an address, such as "http://127.0.0.1:8265".')
        self._read: dict[str, int] = {}  # characters of the log of each task that were taken over
        self._processes: dict[str, tuple[int, ...]] = {}  # of each task, as its job saw them last
        self._ended: dict[str, set[int]] = {}  # of each task that is being ended, all that its job saw meanwhile

    def place(self) -> Place:
        # What a worker has more is added there; neither it nor its directories are known before a job runs.
        return Place(self.name, {"PATH": _PATH, "LANG": "C.UTF-8"}, "/tmp", "/bin/bash", 0o022)

    # --- Ray's Jobs API ------------------------------------------------------------------------

    def _request(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> tuple[int, str]:
        """Return the status and the text of an answer. Raises `Unreachable` if there is none."""
        from urllib.error import HTTPError
        from urllib.request import ProxyHandler, Request, build_opener

        headers = {"Content-Type": kind} if kind else {}
        request = Request(self._address + path, method=method, data=body, headers=headers)
        opener = build_opener() if self._address.startswith("https") else build_opener(ProxyHandler({}))
        try:
            with opener.open(request, timeout=_PATIENCE_S) as answer:
                return int(answer.status), answer.read().decode(errors="replace")
        except HTTPError as error:
            return int(error.code), error.read().decode(errors="replace")
        except OSError as error:
            why = getattr(error, "reason", error)
            raise Unreachable(f"Ray at {self._address} does not answer: {why}.") from None

    def _get_job(self, task_id: str) -> dict[str, Any] | None:
        status, text = self._request("GET", f"/api/jobs/{task_id}")
        if status == 404:
            return None
        if status != 200:
            raise Unreachable(f"Ray answers {status}: {_last_line(text)}")
        found: dict[str, Any] = json.loads(text)
        return found

    def examine(self) -> str:
        status, text = self._request("GET", "/api/version")
        try:
            found = json.loads(text)
            return f"Ray {found['ray_version']} at {self._address}"
        except (ValueError, KeyError, TypeError):
            raise StartFailed(f"{self._address} answers {status} and is no Ray cluster.") from None

    # --- start -------------------------------------------------------------------------------

    def _check(self, launch: Launch) -> None:
        super()._check(launch)
        if launch.stdin.open:
            raise Unsupported(f"A job on {self.name} takes no input after its start; give it as text.")
        self._amounts(launch)

    def _amounts(self, launch: Launch) -> dict[str, float]:
        asked = {**{name: self.table[name] for name in NEEDS if name in self.table}, **launch.needs}
        return {NEEDS[name]: _parse_amount(name, str(value)) for name, value in asked.items()}

    def submit(self, task_id: str, launch: Launch) -> tuple[int, float]:
        try:
            self._request("GET", "/api/version")
        except Unreachable as error:
            raise Refused(0, error.message.rstrip(".")) from None  # nothing was asked for
        mirror.replace_file(self.near(task_id), _PACKAGE, self._pack(task_id, launch))
        self._submit_job(task_id, launch)
        return 0, time.time()

    def _pack(self, task_id: str, launch: Launch) -> bytes:
        """Return a package with all that the job needs."""
        from io import BytesIO
        from zipfile import ZIP_DEFLATED, ZipFile

        near, far = self.near(task_id), _far(task_id)
        items = [("directory", far), *describe(task_id, launch, far, f"{far}/{_SESSION_SCRIPT}")]
        names = [record.PIPES, *([sessions.BEFORE, sessions.START, sessions.STATE] if launch.state else [])]
        with BytesIO() as file:
            with ZipFile(file, "w", ZIP_DEFLATED) as package:
                package.write(f"{os.path.dirname(__file__)}/job.py", "job.py")
                package.writestr("launch", HEADER + encode_items(item for item in items if item[0] != "publish"))
                package.writestr("files/command", os.fsencode(launch.command))
                package.write(find_guard(), "files/outlast-guard")
                if launch.state:
                    from outlast.executors.local.shell_argv import SESSION_SCRIPT

                    package.write(SESSION_SCRIPT, f"files/{_SESSION_SCRIPT}")
                for name in names:
                    if os.path.exists(f"{near}/{name}"):
                        package.write(f"{near}/{name}", f"files/{name}")
            return file.getvalue()

    def _submit_job(self, task_id: str, launch: Launch) -> None:
        package = f"_ray_pkg_{task_id.replace('-', '')}.zip"
        data = read_file(f"{self.near(task_id)}/{_PACKAGE}")
        status, text = self._request("PUT", f"/api/packages/gcs/{package}", data, "application/octet-stream")
        if status != 200:
            raise Refused(0, f"Ray took no package: {_last_line(text)}")
        words = f"{self.table.get('python', 'python')} job.py {_far(task_id)} {launch.grace}"
        asked = {
            "submission_id": task_id,
            "entrypoint": words,
            "runtime_env": {"working_dir": f"gcs://{package}"},
            **self._amounts(launch),
        }
        status, text = self._request("POST", "/api/jobs/", json.dumps(asked).encode(), "application/json")
        if status != 200 and self._get_job(task_id) is None:
            raise Refused(0, f"Ray answers {status}: {_last_line(text)}")
        self._note_submitted(task_id)

    def _note_submitted(self, task_id: str) -> None:
        mirror.apply(self.near(task_id), None, alive=True)
        try:
            os.unlink(f"{self.near(task_id)}/{_PACKAGE}")
        except FileNotFoundError:
            pass

    def settle_start(self, task_id: str) -> None:
        near = self.near(task_id)
        if self._get_job(task_id) is not None:
            self._note_submitted(task_id)
        elif os.path.exists(f"{near}/{_PACKAGE}"):
            self._submit_job(task_id, self.registry.launch_of(task_id))
        else:
            mirror.end_unstarted(near, "the process that started it was killed before it was submitted")

    # --- look --------------------------------------------------------------------------------

    def update_one(self, task_id: str) -> bool:
        near, job = self.near(task_id), self._get_job(task_id)
        if job is None:
            mirror.apply(near, None, alive=False, problem="Ray knows no such job any more")
            return True
        if job["status"] == "PENDING":
            mirror.note_problem(near, f"waits in Ray: {_last_line(job.get('message') or 'for resources')}")
            return False
        is_over = job["status"] in _OVER
        status, text = self._request("GET", f"/api/jobs/{task_id}/logs")
        new = self._take(task_id, json.loads(text)["logs"] if status == 200 else "", is_over)
        if is_over:
            self._settle(task_id, job)
        return new or is_over

    def _take(self, task_id: str, log: str, is_over: bool) -> bool:
        """Take over what the log has more than at the last look."""
        at = self._read.get(task_id, 0)
        end = log.rfind("\n") + 1
        for line in log[at:end].split("\n"):
            word, _, rest = line.removeprefix("outlast ").partition(" ")
            if line.startswith("outlast "):
                self._take_line(task_id, word, rest, is_over)
        self._read[task_id] = max(at, end)
        return end > at

    def _take_line(self, task_id: str, word: str, rest: str, is_over: bool) -> None:
        near, words = self.near(task_id), rest.split(" ")
        try:
            if word == "piece" and words[0].partition(".")[0] in _OUTPUTS and "/" not in words[0]:
                mirror.write_output(near, words[0], int(words[1]), base64.b64decode(words[2]))
            elif word == "file" and words[0] in _SMALL:
                mirror.replace_file(near, words[0], base64.b64decode(words[1]))
            elif word == "record":
                page = self._complete(near, base64.b64decode(words[0]))
                mirror.apply(near, page, alive=True, children=self._children(task_id, near))
            elif word == "processes":
                self._processes[task_id] = tuple(int(pid) for pid in words if pid)
                self._ended.get(task_id, set()).update(self._processes[task_id])
                if record.has_outcome(near):
                    mirror.apply(near, None, alive=True, children=self._children(task_id, near))
            elif word == "refused":
                mirror.end_unstarted(near, rest)
        except (IndexError, ValueError, binascii.Error):
            pass  # a line that something else wrote

    def _children(self, task_id: str, near: str) -> tuple[int, ...]:
        """Return the processes that a command left running when it ended."""
        return self._processes.get(task_id, ()) if record.has_outcome(near) else ()

    def _complete(self, near: str, page: bytes) -> bytes:
        """Add to a page who ended the task, which only this machine knows."""
        found = record.parse(page)  # ValueError if it is none
        ending = record.read(near, ("ending",)).get("ending")
        return page if ending is None or "ending" in found else record.replace_slot(page, "ending", ending)

    def _settle(self, task_id: str, job: dict[str, Any]) -> None:
        near = self.near(task_id)
        found, why = record.read(near), f"Ray: {job['status']}, {_last_line(job.get('message') or '')}"
        self._read.pop(task_id, None)
        self._processes.pop(task_id, None)
        if "code" not in found and "guards" not in found:
            mirror.end_unstarted(near, f"it never began. {why}")
        else:
            mirror.apply(near, None, alive=False, problem="" if "code" in found else f"no record of its end. {why}")

    # --- act ---------------------------------------------------------------------------------

    def end(self, task_ids: Sequence[str], grace: float, ending: Mapping[str, object]) -> list[tuple[Any, Any]]:
        return [self._end(task_id, ending) for task_id in task_ids]

    def _end(self, task_id: str, ending: Mapping[str, object]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        near = self.near(task_id)
        self._hear_processes(task_id, near)
        if not {"ending", "code"} & record.read(near).keys():
            record.write("ending", ending, near)
        # What the job saw at the stop may come with the rest of its log only.
        ended = self._ended[task_id] = set(self._processes.get(task_id, ()))
        try:
            status, text = self._request("POST", f"/api/jobs/{task_id}/stop")
            if status != 200:
                raise Unreachable(f"{task_id} could not be ended: {_last_line(text)}")
            if not self.await_closed(task_id, _END_WAIT_S):
                raise Unreachable(f"Ray was told to stop {task_id}, and has not confirmed it yet.")
        finally:
            del self._ended[task_id]
        return tuple(sorted(ended)), ()

    def _hear_processes(self, task_id: str, near: str) -> None:
        """Wait until the job had time to say which processes there are: Ray ends them at a stop, before it could."""
        deadline = time.monotonic() + _PROCESSES_WAIT_S
        while True:
            time.sleep(_PROCESSES_PAUSE_S)
            self.look_at(task_id)
            if self._processes.get(task_id) or record.has_outcome(near) or time.monotonic() >= deadline:
                return

    def signal(self, task_id: str, number: int) -> bool:
        raise Unsupported(f"A job on {self.name} can be ended, and not be interrupted.")

    def send(self, task_id: str, data: bytes, eof: bool) -> None:
        raise InputRefused(f"{task_id} takes no input: a job of Ray's has none.")

    def set_size(self, task_id: str, size: bytes) -> None:
        raise Unsupported(f"The terminal of a job on {self.name} keeps its size.")


def _far(task_id: str) -> str:
    return f"/tmp/outlast-{task_id}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _parse_amount(name: str, value: str) -> float:
    try:
        shift = _UNITS.get(value[-1:].upper(), 0) if name == "memory" else 0
        amount = float(value[:-1] if shift else value) * (1 << shift)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1 << 53:
        raise BadInput(f"{name} is a number, such as {'8G' if name == 'memory' else '2'}, not {value!r}.")
    return int(amount) if name == "memory" else amount
