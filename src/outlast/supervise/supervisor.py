"""The supervisor: the small process that owns one running task.

Its life: detach, take the lock, fork the keeper (which forks the command), publish the
task, let the command go, move its output, enforce its limit, record its end, and leave
when nothing of it is left. It is forked from the nursery, never from a caller.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import time

from outlast import process
from outlast.errors import OutlastError
from outlast.model import Exited, Stdin
from outlast.store import bell, launchfile, output, record, sessionfile, status
from outlast.supervise import EXISTS, invoke, signals
from outlast.supervise.ending import end_trees
from outlast.supervise.forks import fork_into
from outlast.supervise.keeper import CHILDLESS, DONE, Keeper
from outlast.supervise.post import GO, Pipe, Post, heard
from outlast.supervise.post import Stdin as HeldStdin
from outlast.supervise.pump import Pump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from outlast.model import Identity, Launch, Outcome

_LONGEST_POLL_S = 1e6  # poll takes a C int of milliseconds, which is 24 days
_TRY_AGAIN_S = 1.0  # when there is no process or descriptor to be had
_LOOK_AGAIN_S = 0.02  # while only the command's parent may see how it ended, and has not told yet


def start(staged: str, published: str, reply: int) -> NoReturn:
    """In a fork of the nursery: bring a staged task to life and stay with it."""
    try:
        supervisor = _bring_up(staged, published, reply)
    except (OSError, OutlastError, MemoryError) as error:
        _answer(reply, {"error": _why(error)})
        os._exit(1)
    _answer(reply, {"pid": supervisor.post.command.pid, "started": supervisor.post.started})
    os.close(reply)
    supervisor.run()


def _why(error: OSError | OutlastError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OutlastError):
        return error.message.removesuffix(".")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return EXISTS
    return f"{error.strerror}{': ' + str(error.filename) if error.filename else ''}"


def _answer(reply: int, value: object) -> None:
    try:
        os.write(reply, json.dumps(value).encode())
    except OSError:
        pass  # the caller is gone; the task is not


def _bring_up(staged: str, published: str, reply: int) -> Supervisor:
    os.setsid()
    os.umask(0o077)
    os.chdir(staged)
    process.rename_self("outlast-sup", f"outlast supervisor of {os.path.basename(published)}")
    process.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    launch, _ = launchfile.read()
    record.reserve()
    bell.hang()
    invoke.make_room(launch.command)
    post = Post(published, launch, _open_pipes(launch), _open_stdin(launch))
    post.take_lock()
    hand, theirs = socket.socketpair()
    ready, post.go = os.pipe()
    me = process.identity(os.getpid())

    def life() -> NoReturn:
        hand.close()
        os.close(reply)
        Keeper(post, theirs, me, resume).run(ready)

    keeper = process.identity(fork_into(life))
    theirs.close()
    os.close(ready)
    # The command is forked and waits: all that can fail for want of something is behind us.
    post.watch_command(int(_line(hand)))
    os.close(post.stdin.reader)
    launchfile.erase_secrets()
    post.start_clock()
    supervisor = Supervisor(post, hand, keeper)
    supervisor.sign_on()
    os.rename(staged, published)
    # From here on there is a task, and nothing that happens to the keeper can take it back.
    post.let_command_begin()
    try:
        hand.sendall(GO)
    except OSError:
        pass
    return supervisor


def _line(hand: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = hand.recv(64)
        if not piece:
            raise OSError(0, "the keeper could not fork the command: no more processes, or no memory")
        line += piece
    return line


def _open_pipes(launch: Launch) -> tuple[Pipe, ...]:
    return tuple(Pipe(stream, *os.pipe()) for stream in ("stdout", "stderr")[: 1 + launch.split])


def _open_stdin(launch: Launch) -> HeldStdin:
    match launch.stdin:
        case Stdin(open=True):
            os.mkfifo(status.STDIN, 0o600)
            reader = os.open(status.STDIN, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            writer = os.open(status.STDIN, os.O_WRONLY | os.O_CLOEXEC)
            os.set_blocking(reader, True)
            return HeldStdin(reader, writer)
        case Stdin(file=str(path)):
            return HeldStdin(os.open(os.path.join(launch.cwd, path), os.O_RDONLY | os.O_CLOEXEC))
        case Stdin(text=bytes()):
            return HeldStdin(os.open("input", os.O_RDONLY | os.O_CLOEXEC))
    return HeldStdin(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def resume(post: Post, hand: socket.socket, keeper: Identity) -> NoReturn:
    """In a fork of the keeper, whose supervisor died: go on where the files end."""
    process.rename_self("outlast-sup", f"outlast supervisor of {post.task_id}")
    process.become_subreaper()
    Supervisor(post, hand, keeper).run()


class Supervisor:
    """One supervisor's watch."""

    def __init__(self, post: Post, hand: socket.socket, keeper: Identity) -> None:
        self.post = post
        self._hand = hand
        self._keeper = keeper
        self._keeper_fd = process.open_pidfd(keeper)
        self._me = process.identity(os.getpid())
        self._wake = signals.Wake()
        self._bell = bell.Ringer()
        launch = post.launch
        bound = output.bound_of(launch.output_limit, launch.split)
        self._pumps = {
            pipe.reader: Pump(pipe.stream, pipe.reader, pipe.writer, bound, launch.free_floor) for pipe in post.pipes
        }
        self._ender: Identity | None = None
        self._strike_at = None if launch.limit is None else post.started_monotonic + launch.limit
        self._alone = False  # a keeper died and there is no other yet
        self._childless = False  # the keeper has nothing of the command below it
        self._adopted = False  # a keeper died: its children are ours
        self._unseen = False  # it ended, but we may not see how
        self._recorded = "outcome" in record.read()
        self._poll = select.poll()

    def sign_on(self) -> None:
        self.post.write_guards(self._me, self._keeper, self._ender)

    def run(self) -> NoReturn:
        self._register()
        ready: set[int] = set()
        while True:
            # Before the first poll too: a successor is not told again what happened before it came.
            self._move(ready)
            self.post.end_input_if_asked()
            if not self._recorded and self.post.command_is_over():
                self._record_end()
            self._hear_keeper(ready)
            self.post.reap()
            self._enforce_limit()
            if self._is_over():
                self._leave()
            ready = {fd for fd, _ in self._poll.poll(self._patience_ms())}
            self._wake.clear()

    def _register(self) -> None:
        self._poll.register(self._wake.fd, select.POLLIN)
        self._poll.register(self._hand, select.POLLIN)
        for reader in self._pumps:
            self._poll.register(reader, select.POLLIN)
        if not self.post.command_is_over():
            self._poll.register(self.post.command_fd, select.POLLIN)
        if self._keeper_fd is not None:
            self._poll.register(self._keeper_fd, select.POLLIN)

    def _move(self, ready: set[int]) -> None:
        moved = False
        for reader, pump in self._pumps.items():
            if not pump.closed and reader in ready:
                moved |= pump.move()
                if pump.closed:
                    # A pipe at its end is always ready; poll would spin.
                    self._poll.unregister(reader)
        if moved:
            self._bell.ring()

    def _record_end(self) -> None:
        """The command ended: keep what it printed before, record how, tell everybody."""
        for pump in self._pumps.values():
            if not pump.closed:
                pump.drain()
            pump.let_go()
        self.post.let_go()
        outcome = self.post.note_end()
        try:
            # Whether it is why we woke or not: it stays ready for ever, and poll would spin.
            self._poll.unregister(self.post.command_fd)
        except KeyError:
            pass  # it was over when we came
        self._unseen = outcome is None and process.is_unreaped(self.post.command_fd)
        if self._unseen:
            return  # only its parent may see how it ended: look again when it has
        self._recorded = True
        if outcome is None:
            return  # reaped by init before anybody could look, on a kernel that does not tell: lost
        elapsed = time.monotonic() - self.post.started_monotonic
        self._keep_state()
        record.write("outcome", {"ended": time.time(), "elapsed": round(elapsed, 6), "pipes": self._pipes(outcome)})
        self._bell.ring()

    def _keep_state(self) -> None:
        """Before the end is known: whoever learns of it finds the session's state."""
        if not self.post.launch.state:
            return
        try:
            sessionfile.keep(self.post.launch, self.post.task_id, os.path.join("..", "..", "sessions"))
        except (OSError, ValueError, KeyError):
            pass  # a full disk, a removed session: the state stays as it was, the task's end is recorded

    def _pipes(self, outcome: Outcome) -> tuple[int, ...] | None:
        if not isinstance(outcome, Exited):
            return None
        launch = self.post.launch
        try:
            with open(invoke.PIPES) as file:
                written = file.read(4096)
        except OSError:
            written = ""
        return invoke.stages(launch.shell, launch.command, outcome.code, written)

    def _hear_keeper(self, ready: set[int]) -> None:
        if self._hand.fileno() in ready:
            said = heard(self._hand, 64)
            self._childless |= CHILDLESS in said
            if not said:
                self._poll.unregister(self._hand)
        if self._keeper_fd in ready and self._keeper_fd is not None:
            self._poll.unregister(self._keeper_fd)
            os.close(self._keeper_fd)
            self._keeper_fd = None
        if self._keeper_fd is None:
            self._adopt()
            self._fork_keeper()

    def _adopt(self) -> None:
        """The keeper died, so the command and its orphans are our children now."""
        if self._alone:
            return
        self._alone = True
        self._adopted = True
        self._childless = True
        self.post.reap()
        self.post.recoveries += 1
        try:
            self._poll.unregister(self._hand)
        except KeyError:
            pass
        self._hand.close()

    def _fork_keeper(self) -> None:
        """Never be alone."""
        try:
            self._hand, theirs = socket.socketpair()
        except OSError:
            return  # no descriptor: later

        def life() -> NoReturn:
            self._hand.close()
            self._forget_ours()
            Keeper(self.post, theirs, self._me, resume).guard()

        try:
            self._keeper = process.identity(fork_into(life))
        except OSError:
            self._hand.close()
            return  # no process: later
        finally:
            theirs.close()
        self._alone = False
        self._keeper_fd = process.open_pidfd(self._keeper)
        self._poll.register(self._hand, select.POLLIN)
        if self._keeper_fd is not None:
            self._poll.register(self._keeper_fd, select.POLLIN)
        self.sign_on()

    def _forget_ours(self) -> None:
        """In a fork: close what only a supervisor holds."""
        self._wake.close()
        self._bell.close()

    def _patience_ms(self) -> float | None:
        waits = [_LONGEST_POLL_S]
        if (left := self._time_left()) is not None:
            waits.append(left + 0.001)
        if self._alone:
            waits.append(_TRY_AGAIN_S)
        if self._unseen:
            waits.append(_LOOK_AGAIN_S)
        return None if len(waits) == 1 else max(0.0, min(waits)) * 1000

    def _time_left(self) -> float | None:
        if self._strike_at is None or self._ender or self.post.command_is_over():
            return None
        return self._strike_at - time.monotonic()

    def _enforce_limit(self) -> None:
        if self._ender and not process.is_alive(self._ender):
            self._ender = None  # somebody ended it, or something survived it: strike again
        left = self._time_left()
        if left is None or left > 0:
            return
        status.write_ending("limit", f"limit of {self.post.launch.limit:g} s", time.time())
        try:
            self._fork_ender()
        except OSError:
            self._strike_at = time.monotonic() + _TRY_AGAIN_S  # no process or no descriptor is to be had

    def _fork_ender(self) -> None:
        """Let a child do the ending: it waits for processes to go, and the pump must not stand still for that."""
        go, ready = os.pipe()

        def life() -> None:
            os.close(ready)
            self._forget_ours()
            self.post.drop_lock()
            process.rename_self("outlast-ender", f"outlast ender of {self.post.task_id}")
            os.read(go, 1)
            end_trees([lambda: status.guards_of(".")], self.post.launch.grace)

        try:
            self._ender = process.identity(fork_into(life))
            self.sign_on()
        finally:
            os.close(go)
            os.close(ready)

    def _is_over(self) -> bool:
        if not self._recorded or not self._childless or not all(pump.closed for pump in self._pumps.values()):
            return False
        others = (self._keeper.pid, self._ender.pid if self._ender else 0)
        return not (self._adopted and self.post.reap() and self.post.has_other_children(*others))

    def _leave(self) -> NoReturn:
        try:
            self._hand.sendall(DONE)
        except OSError:
            pass  # the keeper is gone already
        self.post.release_lock()
        self._bell.ring()
        os._exit(0)
