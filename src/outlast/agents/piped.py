"""Runs an agent that prints events, or text, to its standard output; shows it as text; ends as it ended.

The agent is a child in the same process group and has our standard input and error. Who ends the
task ends us both, so we only see to it that nothing which the agent still says is lost.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

from outlast.agents.streams import stream_of
from outlast.storage import agentfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from outlast.agents.streams import Stream

LONGEST_LINE = 32 << 20  # of an event in bytes: a picture that an agent looked at is in one
_READ_BYTES = 1 << 16
_FORWARD_AFTER_S = 0.5  # a signal to us alone is passed on; one to the whole task has reached the agent by then
_KEEP_EVERY_S = 0.2  # what is told is kept so often, and at the end
NOT_FOUND, NOT_RUN = 127, 126


def run(words: list[str], format: str, directory: str) -> int:
    """Run the agent to its end: the exit code. What it told is kept in `directory`."""
    try:
        agent = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0)
    except OSError as error:
        return not_started(words, error, directory)
    reader = Reader(stream_of(format), directory)
    asked = Asked(agent)
    assert agent.stdout is not None
    _attend(agent, agent.stdout.fileno(), reader, asked)
    code = agent.wait()
    if not reader.closed:
        _leave_to_a_child(agent.stdout.fileno(), reader)
    reader.finish()
    return ended_as(code, reader.stream.told, directory)


def not_started(words: list[str], error: OSError, directory: str) -> int:
    """Say why an agent cannot be started; the exit code, as a shell has it."""
    missing = isinstance(error, FileNotFoundError) and error.filename in (words[0], None)
    why = f"there is no program {words[0]}" if missing else f"{words[0]} cannot be run: {error.strerror}"
    print(f"outlast: {why}", file=sys.stderr)
    agentfile.write({"error": why}, directory)
    return NOT_FOUND if missing else NOT_RUN


def ended_as(code: int, told: dict[str, object], directory: str) -> int:
    """The exit code for how an agent ended. One that died of a signal is followed."""
    if code < 0:
        die_of(-code)
    if code == 0 and told.get("error"):
        # It is not for its exit code alone to say that an agent did what it was told.
        agentfile.write({**told, "agent_exit_code": 0}, directory)
        return 1
    return code


def die_of(number: int) -> NoReturn:
    """End by the same signal."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the agent left one, if it was to
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)


class Asked:
    """Whether we were asked to end, and when to pass that on."""

    def __init__(self, agent: subprocess.Popen[bytes]) -> None:
        self._agent, self._number, self._at = agent, 0, 0.0
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        self.fd = self._woken

    def _note(self, number: int, frame: object) -> None:
        self._number, self._at = number, time.monotonic() + _FORWARD_AFTER_S

    def patience(self) -> float | None:
        """How long to wait before `forward` is due, in milliseconds."""
        return max(0.0, self._at - time.monotonic()) * 1000 if self._number else None

    def forward(self) -> None:
        """Pass it on once it is due."""
        try:
            os.read(self._woken, _READ_BYTES)
        except BlockingIOError:
            pass
        if self._number and time.monotonic() >= self._at:
            self._agent.send_signal(self._number)
            self._number = 0


def _attend(agent: subprocess.Popen[bytes], fd: int, reader: Reader, asked: Asked) -> None:
    """Show what comes until the agent has ended and nothing more is there at once."""
    ended = os.pidfd_open(agent.pid)
    poll = select.poll()
    for one in (fd, ended, asked.fd):
        poll.register(one, select.POLLIN)
    os.set_blocking(fd, False)
    over = False
    while not (over or reader.closed):
        ready = {one for one, _ in poll.poll(asked.patience())}
        asked.forward()
        over = ended in ready
        while reader.take(fd):
            pass
        if reader.closed:
            break
    os.close(ended)


def _leave_to_a_child(fd: int, reader: Reader) -> None:
    """The agent has ended and left something that may still print: a child of ours goes on reading that."""
    if os.fork():
        reader.told_by_another = True
        return
    os.set_blocking(fd, True)
    while reader.take(fd):
        pass
    reader.finish()
    os._exit(0)


class Reader:
    """From the agent's pipe to our output."""

    def __init__(self, stream: Stream, directory: str) -> None:
        self.stream, self._directory = stream, directory
        self.closed = False
        self.told_by_another = False
        self._parts: list[bytes] = []
        self._size = 0
        self._skipped = 0
        self._kept: dict[str, object] = {}
        self._keep_at = 0.0

    def take(self, fd: int) -> bool:
        """Read and show some; whether there may be more at once."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.closed = True
            return False
        first, *others = data.split(b"\n")
        self._append(first)
        for piece in others:
            self._end_line()
            self._append(piece)
        if time.monotonic() >= self._keep_at:
            self._keep()
        return True

    def _append(self, piece: bytes) -> None:
        if self._skipped or self._size + len(piece) > LONGEST_LINE:
            self._skipped += self._size + len(piece)
            self._parts, self._size = [], 0
        elif piece:
            self._parts.append(piece)
            self._size += len(piece)

    def _end_line(self, newline: bytes = b"\n") -> None:
        if self._skipped:
            show(f"[an event of {self._skipped} bytes was left out]\n")
        else:
            show(self.stream.text_of(b"".join(self._parts) + newline))
        self._parts, self._size, self._skipped = [], 0, 0

    def finish(self) -> None:
        """Stop reading: no more comes, or another reader goes on."""
        if self.told_by_another:
            self._parts, self._size, self._skipped = [], 0, 0
        if self._parts or self._skipped:
            self._end_line(b"")
        self._keep()

    def _keep(self) -> None:
        if self.stream.told != self._kept:
            self._kept, self._keep_at = dict(self.stream.told), time.monotonic() + _KEEP_EVERY_S
            agentfile.write(self._kept, self._directory)


def show(text: str) -> None:
    """Print it, now and whole."""
    show_bytes(text.encode("utf-8", "backslashreplace"))


def show_bytes(data: bytes) -> None:
    """Write to standard output, also if it does not block and is full."""
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:
            # The agent has this pipe as its standard error, and node sets such a flag for everybody.
            poll = select.poll()
            poll.register(1, select.POLLOUT)
            poll.poll()
