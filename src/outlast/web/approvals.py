"""The questions that a person at the page can answer: a connection of a process that waits for its answer, each.

See `shell.approval_link` for the other side. Nothing is kept: a question is there as long as its process asks.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time

from outlast.errors import BadInput, UnknownTask, quote
from outlast.light import json
from outlast.policy.approval import visible
from outlast.shell.approval_link import DIRECTORY, MOST_BYTES, SUFFIX, peer_of, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from outlast.output.redaction import Mask

_MOST_WAITING = 200  # questions at once
_SAY_S = 5.0  # a process that asks sends its question at once
_TEXTS = ("category", "command", "description", "evidence", "policy", "cwd", "session", "from")
_LONGEST = 10_000  # characters of one text; what asks may be any program of this user
_MOST_ITEMS = 50


class Approvals:
    """The questions of one state directory. `changed` is called with the whole list at each change."""

    def __init__(
        self, home: str, mask: Callable[[], Mask], changed: Callable[[list[dict[str, Any]]], None], session: str
    ) -> None:
        """With a `session` only its questions are taken."""
        self._session = session
        self._directory, self._mask, self._changed = os.path.join(home, DIRECTORY), mask, changed
        self._questions: dict[str, Question] = {}
        self._expected: dict[str, asyncio.Future[str]] = {}
        self._server: asyncio.Server | None = None
        self._path = os.path.join(self._directory, f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")

    async def open(self) -> None:
        """Take questions from now on."""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        os.chmod(self._directory, 0o700)
        directory = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.bind(reach(directory, self._path))
        finally:
            os.close(directory)
        os.chmod(self._path, 0o600)
        self._server = await asyncio.start_unix_server(self._take, sock=line, limit=MOST_BYTES)

    def close(self) -> None:
        """Close the connections: the processes that ask see that there is no page any more."""
        if self._server is not None:
            self._server.close()
            os.unlink(self._path)
        for one in list(self._questions.values()):
            one.writer.close()

    # --- questions come and go -------------------------------------------------------------

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            pid, uid = peer_of(writer.get_extra_info("socket"))
            if uid != os.getuid() or len(self._questions) >= _MOST_WAITING:
                return
            async with asyncio.timeout(_SAY_S):
                said = json.loads(await reader.readline())
            if self._session not in ("", said["session"]):
                return
            question = Question(self._show_question(said, pid), writer)
            self._questions[question.id] = question
            if (expected := self._expected.get(str(said.get("reference")))) is not None and not expected.done():
                expected.set_result(question.id)
            self._tell()
            await reader.read(1)  # nothing more comes: this is its end
        except (OSError, ValueError, AttributeError, KeyError, TypeError, TimeoutError):
            return
        finally:
            self._forget(writer)
            writer.close()

    def _show_question(self, said: dict[str, Any], pid: int) -> dict[str, Any]:
        """Return a question as the page gets it: without secrets, and nothing in it larger than it may be."""
        mask = self._mask()

        def text(value: object) -> str:
            whole = mask.text(str(value))
            return "\n".join(visible(line) for line in whole[:_LONGEST].split("\n"))

        parts = [{name: text(one[name]) for name in ("command", "verdict", "why")} for one in said["parts"]]
        lists = {name: [text(one) for one in said[name]][:_MOST_ITEMS] for name in ("task_ids", "always")}
        found = {name: text(said[name]) for name in _TEXTS}
        found["from"] = f"{found['from']}, pid {pid}"
        return {"id": os.urandom(8).hex(), **found, **lists, "parts": parts[:_MOST_ITEMS], "asked_at": time.time()}

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        gone = [one.id for one in self._questions.values() if one.writer is writer]
        for question in gone:
            del self._questions[question]
        if gone:
            self._tell()

    def _tell(self) -> None:
        self._changed(self.pending())

    def pending(self) -> list[dict[str, Any]]:
        """Return the questions that wait, oldest first."""
        return [one.shown for one in self._questions.values()]

    def expect(self, reference: str) -> asyncio.Future[str]:
        """Return what becomes the id of our own question with this reference, if it has to be asked."""
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._expected[reference] = found
        found.add_done_callback(lambda _: self._expected.pop(reference, None))
        return found

    # --- answers ---------------------------------------------------------------------------

    async def answer(self, question: str, answer: str) -> None:
        """Answer a question. Raises `UnknownTask` if it does not wait any more."""
        found = self._questions.get(question)
        if found is None:
            raise UnknownTask(f"No question {quote(question)} waits any more; it was answered, or its process ended.")
        if answer in ("session", "always") and not found.shown["always"]:
            raise BadInput("No rule can say this, so it can only be answered with yes or no.")
        try:
            found.writer.write(json.dumps({"answer": answer}).encode() + b"\n")
            await found.writer.drain()
        except OSError:
            raise UnknownTask("The process that asked has ended.") from None
        self._forget(found.writer)


class Question:
    """One question, and the connection that its answer goes to."""

    def __init__(self, shown: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.id: str = shown["id"]
        self.shown, self.writer = shown, writer
