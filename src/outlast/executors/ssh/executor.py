"""`SshExecutor`: what the connection brings goes into mirrors here, and what callers want goes over it.

Whatever breaks the connection, the next one goes on from the sizes of the mirror's files.
"""

from __future__ import annotations

import os
import time

from outlast.errors import AlreadyEnded, BadInput, InputRefused, OutlastError, OutOfReach
from outlast.executors.far_launch import name_home
from outlast.executors.remote import RemoteExecutor, Unreachable
from outlast.executors.ssh import files
from outlast.executors.ssh.connection import Connection
from outlast.executors.ssh.link import Link, build_ssh, encode_start, find_guards
from outlast.guard.client import Refused
from outlast.light import json
from outlast.linux.files import unlock_and_close
from outlast.storage import mirror, record, sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.settings import Settings
    from outlast.storage.registry import Registry
    from outlast.types import Launch, Place

KEYS = {"host": str, "options": list, "guard": str, "retention_hours": int}
_RETENTION_HOURS = 168  # how long the other machine keeps a task that ended: a laptop may sleep that long
_CONFIRM_S = 2.0
_START_S = 30.0  # until a start that gets no answer is reported as not confirmed
_LOOK_S = 5.0  # how long a look at a task waits for its machine before it shows what is known
_KILL_S = 15.0  # beyond the grace
_INPUT_S = 30.0
_INPUT_BYTES = 1 << 20  # at once
_UNKNOWN = "there is no such task"  # as far.c says it
_WHOLE = (record.PIPES, sessions.START, sessions.STATE)


class SshExecutor(RemoteExecutor):
    """One machine that ssh reaches."""

    def __init__(self, name: str, table: Mapping[str, Any], registry: Registry, settings: Settings) -> None:
        super().__init__(name, table, registry, settings)
        if not table.get("host") or table["host"][0] == "-":
            raise BadInput(f"[executors.{name}] in config.toml needs a host: a name that ssh knows.")
        home = registry.home.path
        self._ssh = build_ssh(table["host"], [str(one) for one in table.get("options", ())], home)
        self._home_id = name_home(registry)
        self._connection = Connection(name, self._connect, self._watch_all, self._note_failure)
        self._changed = self._connection.changed  # protects what follows
        self._followed: dict[str, int] = {}
        self._looked: dict[str, bool] = {}  # tasks that a look asked about, and whether the answer came
        self._giving_up: dict[str, int] = {}  # the locks of starts that are being settled

    # --- the connection ----------------------------------------------------------------------

    def _connect(self) -> Link:
        seconds = self.table.get("retention_hours", _RETENTION_HOURS) * 3600
        guards, far = find_guards(self.table.get("guard", "")), f"{self._home_id} {seconds}"
        link = Link(self.name, self._ssh, far, guards, self._handle)
        link.wait_hello()
        if not link.needs:
            return link
        link.install()
        link.close()
        link = Link(self.name, self._ssh, far, guards, self._handle)
        link.wait_hello()
        if link.needs:
            link.close()
            raise Unreachable(f"The guard cannot be run on {self.name}; is its ~/.cache mounted noexec?")
        return link

    def _watch_all(self, link: Link) -> None:
        with self._changed:
            followed = list(self._followed)
        for task_id in followed:
            self._watch(link, task_id)

    def _note_failure(self, error: OutlastError) -> None:
        with self._changed:
            followed = list(self._followed)
        for task_id in followed:
            self.note_problem(task_id, error.message.rstrip("."))

    def close(self) -> None:
        self._connection.close()
        for lock in self._giving_up.values():
            unlock_and_close(lock)
        self._giving_up.clear()

    # --- what comes ------------------------------------------------------------------------------

    def _handle(self, word: str, words: list[str], payload: bytes) -> None:
        """Take one frame, in the thread that reads the connection."""
        task_id = words[0] if words else ""
        directory = self.near(task_id)
        if word == "over":
            self._connection.note_loss()
        elif word in ("data", "file", "state", "none", "never"):
            try:
                self._take(word, words, payload, directory)
            except FileNotFoundError:
                self._forget(task_id)  # it was removed here
        else:
            answer = "started" if word == "refused" else word
            self._connection.put_answer(answer, task_id, [word, *words[1:]], payload)

    def _take(self, word: str, words: list[str], payload: bytes, directory: str) -> None:
        task_id = words[0]
        if word == "data" and mirror.is_output(words[1]):
            mirror.write_output(directory, words[1], int(words[2]), payload)
            mirror.ring(directory)
        elif word == "file" and words[1] in _WHOLE:
            mirror.replace_file(directory, words[1], payload)
        elif word == "state":
            children = [int(pid) for pid in words[2].split(",") if pid.isdecimal()]
            mirror.drop_segments(directory)
            mirror.apply(directory, payload, words[1] == "1", children)
            self._note_looked(task_id)
        elif word == "none":
            self._settle(task_id, directory)
        elif word == "never":
            self._end_settling(task_id, directory, payload.decode(errors="replace"))

    def _settle(self, task_id: str, directory: str) -> None:
        """The other side does not know a task. If its start was never confirmed, make sure that it never begins."""
        if mirror.is_confirmed(directory):
            mirror.note_gone(directory)
            self._note_looked(task_id)
            return
        if task_id not in self._giving_up:  # otherwise the connection was lost before its answer came
            lock = mirror.lock_start(directory)
            if lock is None:
                self._note_looked(task_id)  # the process that starts it is still at it
                return
            self._giving_up[task_id] = lock
        if (link := self._connection.link) is not None:
            link.send("never", task_id)

    def _end_settling(self, task_id: str, directory: str, problem: str) -> None:
        lock = self._giving_up.pop(task_id, None)
        if not problem and "guards" not in record.read(directory):
            mirror.end_unstarted(directory, f"its start never reached {self.name}")
        if lock is not None:
            unlock_and_close(lock)
        self._connection.put_answer("never", task_id, [problem], b"")
        if problem == "started" and (link := self._connection.link) is not None:
            self._watch(link, task_id)
        self._note_looked(task_id)

    def _note_looked(self, task_id: str) -> None:
        with self._changed:
            if task_id in self._looked:
                self._looked[task_id] = True
            self._changed.notify_all()

    def _forget(self, task_id: str) -> None:
        if (link := self._connection.link) is not None:
            link.send("leave", task_id)
        self._note_looked(task_id)

    # --- requests --------------------------------------------------------------------------------

    def place(self) -> Place:
        place = self._connection.need(2 * _START_S, tries=1).place
        assert place is not None
        return place

    def examine(self) -> str:
        link = self._connection.need(2 * _START_S, tries=1)
        assert link.place is not None
        return f"{self.table['host']}: {link.system}, {link.place.shell}, tasks in {link.state}"

    def submit(self, task_id: str, launch: Launch) -> tuple[int, float]:
        link = self._connection.need(_START_S)
        directory = self.near(task_id)
        payload = encode_start(task_id, launch, directory, link.state)
        words, text = self._connection.request("start", task_id, 0, payload, "started", _START_S)
        if words[0] == "refused":
            raise Refused(int(words[1]), text.decode(errors="replace"))
        mirror.note_confirmed(directory)
        self.update([task_id], _CONFIRM_S)  # its record, so that it is known to run if the connection breaks now
        return int(words[1]), float(words[3]) or time.time()

    def update(self, task_ids: Sequence[str], patience: float | None = None) -> None:
        wanted = [one for one in task_ids if one not in self._followed or self._connection.link is None]
        if not wanted:
            return
        began = time.monotonic()
        deadline = began + (_LOOK_S if patience is None else patience)
        try:
            link = self._connection.need(deadline - time.monotonic(), tries=1)
            with self._changed:
                self._looked.update(dict.fromkeys(wanted, False))
            for task_id in wanted:
                self._watch(link, task_id)
            with self._changed:
                self._changed.wait_for(
                    lambda: link.is_over or all(self._looked.get(one, True) for one in wanted),
                    max(0.0, deadline - time.monotonic()),
                )
                late = [one for one in wanted if not self._looked.pop(one, True)]
            for task_id in wanted:
                if task_id not in self._followed:
                    link.send("leave", task_id)
            problem = f"the connection to {self.name} was lost" if link.is_over else f"{self.name} is slow to answer"
        except OutlastError as error:
            late, problem = wanted, error.message.rstrip(".")
        for task_id in late:
            self.note_problem(task_id, problem)
        if late:
            self.note_silence(problem, time.monotonic() - began)

    def _watch(self, link: Link, task_id: str) -> None:
        """Ask for what is new of a task: beyond what its mirror has."""
        try:
            with os.scandir(self.near(task_id)) as entries:
                have = [f"{one.name} {one.stat().st_size}" for one in entries if mirror.is_output(one.name)]
        except OSError:
            return
        link.send("watch", task_id, 0, "\n".join(have).encode())

    def follow(self, task_id: str) -> None:
        with self._changed:
            self._followed[task_id] = self._followed.get(task_id, 0) + 1
            link = self._connection.hold()
        if link is not None:
            self._watch(link, task_id)

    def unfollow(self, task_id: str) -> None:
        with self._changed:
            self._connection.release()
            self._followed[task_id] -= 1
            if self._followed[task_id]:
                return
            del self._followed[task_id]
        if (link := self._connection.link) is not None:
            link.send("leave", task_id)

    def end(self, task_ids: Sequence[str], grace: float, ending: Mapping[str, object]) -> list[tuple[Any, Any]]:
        found: dict[str, tuple[Any, Any]] = {}
        for task_id in task_ids:
            if not mirror.is_confirmed(self.near(task_id)):
                lock = mirror.lock_start(self.near(task_id))
                if lock is not None:
                    self._giving_up[task_id] = lock
                words, _ = self._connection.request("never", task_id, 0, b"", "never", _KILL_S)
                if not words[0]:
                    found[task_id] = ((), ())
        deadline = time.monotonic() + min(grace, 1e6) + _KILL_S
        payload = json.dumps(dict(ending)).encode()
        waiting = [one for one in task_ids if one not in found]
        tries = 2  # to reach it at all; once it was reached, as many as it takes
        while waiting:
            link, tries = self._connection.need(deadline - time.monotonic(), tries), 1 << 30
            for task_id in waiting:
                self._connection.ask(link, "kill", task_id, grace, payload, "kill")
            for task_id in list(waiting):
                answer = self._connection.await_answer(link, task_id, "kill", deadline)
                if answer is not None:
                    found[task_id] = self._parse_kill(task_id, answer[1].decode())
                    waiting.remove(task_id)
            if waiting and time.monotonic() >= deadline:
                raise Unreachable(f"{self.name} did not answer: whether {waiting[0]} ended is not known; try again")
        return [found[one] for one in task_ids]

    def _parse_kill(self, task_id: str, text: str) -> tuple[list[int], list[int]]:
        word, *pids = text.split()
        if pids == _UNKNOWN.split():
            return [], []  # the next look finds out the same, and what that means
        if word != "ended":
            raise OutOfReach(f"{task_id} cannot be ended on {self.name}: {' '.join(pids)}.")
        numbers = [int(pid) for pid in pids]
        return [pid for pid in numbers if pid > 0], [-pid for pid in numbers if pid < 0]

    def signal(self, task_id: str, number: int) -> bool:
        return self._connection.request("signal", task_id, number, b"", "signal", _KILL_S)[1] == b"sent"

    def copy_there(self, paths: Sequence[str], directory: str) -> None:
        files.send(self._ssh, paths, directory, self.name)

    def copy_here(self, paths: Sequence[str], directory: str, into: str) -> None:
        files.fetch(self._ssh, paths, directory, into, self.name)

    def set_size(self, task_id: str, size: bytes) -> None:
        self._connection.request("resize", task_id, 0, size, "resize", _KILL_S)

    def send(self, task_id: str, data: bytes, eof: bool) -> None:
        sent = 0
        while True:
            piece = data[sent : sent + _INPUT_BYTES]
            is_last = sent + len(piece) == len(data)
            link, deadline = self._connection.need(_LOOK_S), time.monotonic() + _INPUT_S
            # Asked once: a second time the command would read it twice.
            self._connection.ask(link, "input", task_id, float(eof and is_last), piece, "input")
            answer = self._connection.await_answer(link, task_id, "input", deadline)
            if answer is None:
                raise InputRefused(f"The connection to {self.name} was lost; it is not known how much was taken.")
            word, _, rest = answer[1].decode().partition(" ")
            if word == "closed":
                raise InputRefused(f"{task_id} has closed its input.")
            if word != "sent":
                raise AlreadyEnded(f"{task_id} reads no more input: {rest}.")
            sent += int(rest)
            if int(rest) < len(piece):
                raise InputRefused(f"{task_id} does not read its input: {sent} of {len(data)} bytes were taken.")
            if is_last:
                return
