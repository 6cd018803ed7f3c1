"""The supervisor: the small process that owns one running task.

Its life: detach, take the lock, fork the keeper (which starts the shell), wait until what
is to run is written down, publish the task, let the command go, move its output, enforce
its limit, record its end, and leave when nothing of it is left. It is forked from the
nursery, never from a caller.
"""

from __future__ import annotations

import errno
import os
import select
import time

from outlast import process
from outlast.errors import OutlastError
from outlast.lean import json, signal, socket
from outlast.model import Exited, Stdin, surroundings, terms
from outlast.store import bell, launchfile, output, record, sessionfile, staging, status
from outlast.store.hold import is_held
from outlast.store.home import Home
from outlast.store.queue import Queue
from outlast.supervise import ENDED, EXISTS, confine, invoke, request, signals
from outlast.supervise.ending import end_trees
from outlast.supervise.forks import fork_afresh, fork_into
from outlast.supervise.keeper import CHILDLESS, DONE, REFUSED, Keeper
from outlast.supervise.post import GO, PLACE, REST_S, Pipe, Post, heard
from outlast.supervise.post import Stdin as HeldStdin
from outlast.supervise.pump import Pump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from outlast.model import Identity, Outcome, Surroundings, Terms
    from outlast.store.order import Order
    from outlast.store.queue import Turn

_LONGEST_POLL_S = 1e6  # poll takes a C int of milliseconds, which is 24 days
_TRY_AGAIN_S = 1.0  # when there is no process or descriptor to be had
_BEGIN_PATIENCE_S = 5.0  # a disk that is stuck must not keep us from our own task
_LOOK_AGAIN_S = 0.02  # while only the command's parent may see how it ended, and has not told yet


def start(line: int, what: int, *beside: int) -> NoReturn:
    """In a fork of the nursery: prepare a task, wait until somebody wants it, and stay with it.

    `line` leads to the caller. The task is prepared as far as it can be without knowing its
    command, so that preparing it and writing down what it is to run go on side by side, or
    long before (a warm task). When the line closes first, nothing has happened.
    """
    caller = socket.socket(fileno=line)
    try:
        staged, published, around, given = request.understood(what, *beside)
    except (OSError, MemoryError) as error:
        _answer(caller, {"error": _why(error)})
        os._exit(1)
    pending = request.LOCK in given  # then it is published already, and its lock is ours
    warm = not published
    try:
        if warm:
            staged, published = staging.stage(
                Home(staged), request.WARM_KIND, around
            )  # a warm one: nobody waits for it
            _answer(caller, [staged, published])
        supervisor = _prepare(staged, published, around, given, caller)
        if not select.select([caller], [], [], REST_S)[0]:
            supervisor.rehearse()
        wanted = request.await_begin(caller)
        if wanted is None:
            confine.clear_away(supervisor.post.around, supervisor.post.task_id)
            _abandon(pending)
        supervisor.take_up(*wanted)
        supervisor.begin(None if pending else staged, caller)
    except (OSError, OutlastError, MemoryError) as error:
        if pending:
            _give_up(published, error)
        if warm and published:
            staging.remove(staged)
        _answer(caller, {"error": _why(error)})
        os._exit(1)
    _answer(caller, {"pid": supervisor.post.command.pid, "started": supervisor.post.started})
    bell.ring_house()
    supervisor.run()


def _abandon(pending: bool) -> NoReturn:
    """The caller is gone, or wants something else. The command sees the end of its pipe, and never was."""
    if not pending:
        staging.remove(os.getcwd())  # by the name that it has now: the caller may have put it aside
    os._exit(0)


def _why(error: OSError | OutlastError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OutlastError):
        return error.message.removesuffix(".")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return EXISTS
    return f"{error.strerror}{': ' + str(error.filename) if error.filename else ''}"


def _answer(caller: socket.socket, value: object) -> None:
    try:
        caller.sendall(json.dumps(value).encode())
    except OSError:
        pass  # the caller is gone; the task is not


def _give_up(published: str, error: OSError | OutlastError | MemoryError) -> None:
    """A pending task that can never begin ends unrun; where something is only scarce, it stays pending."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and not status.is_damage(error)):
        return
    try:
        Queue(_home(published)).end_unrun(published, _why(error))
        bell.ring_once(published)
    except (OSError, OutlastError):
        pass  # it stays pending


def _home(published: str) -> str:
    return os.path.dirname(os.path.dirname(published))


def _prepare(
    staged: str, published: str, around: Surroundings, given: dict[str, int], caller: socket.socket
) -> Supervisor:
    os.setsid()
    os.chdir(staged)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if around.sandbox:
        around = confine.furnished(around, os.path.basename(published))
    post = Post(published, around, _open_pipes(around), _open_stdin(around, given.get(request.TEXT, -1)))
    post.take_lock(given.get(request.LOCK, -1))
    hand, theirs = socket.socketpair()
    ready, post.go = os.pipe()
    me = process.identity(os.getpid())

    def life() -> NoReturn:
        hand.close()
        caller.close()
        Keeper(post, theirs, me, resume).run(ready)

    # Early: while it starts the shell, we do the rest.
    keeper = process.identity(fork_into(life))
    theirs.close()
    os.close(ready)
    process.become_subreaper()
    process.rename_self("outlast-sup", f"outlast supervisor of {post.task_id}")
    if request.LOCK not in given:  # otherwise all this is there already
        record.reserve()
        bell.hang()
        launchfile.make_room()
    output.make(pipe.stream for pipe in post.pipes)
    supervisor = Supervisor(post, hand, keeper)
    supervisor.open_pumps()
    # The command is there and waits.
    line = _line(hand)
    if line.startswith(REFUSED):
        raise OutlastError(line.removeprefix(REFUSED).decode(errors="replace").strip())
    pid, *wrapper = map(int, line.split())
    if pid <= 0:
        raise OSError(-pid, os.strerror(-pid))
    post.watch_command(pid, *wrapper)
    os.close(post.stdin.reader)
    return supervisor


def begin_another(turn: Turn) -> bool:
    """In a supervisor whose command is over: fork another, for a pending task; whether that has begun."""
    try:
        launch = launchfile.read_all(turn.directory)
        around = surroundings(launch)
        asked = request.wanted(turn.directory, turn.directory, around, turn.lock)
    except (OSError, OutlastError, ValueError) as error:
        _give_up(turn.directory, OutlastError(str(error)) if isinstance(error, ValueError) else error)
        turn.close()
        return False
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # As a number: the child leaves our frames, and what closes itself there must not be what it needs.
    fds = [theirs.detach(), *asked]

    def life() -> NoReturn:
        start(*fds)

    fork_afresh(life, *fds)
    for fd in fds:
        if fd != turn.lock:
            os.close(fd)
    ours.settimeout(_BEGIN_PATIENCE_S)
    try:
        answer = request.begin(ours, terms(launch), turn.place)
    except TimeoutError:
        answer = {}  # slow, not dead
    turn.close()
    ours.close()
    return answer is not None and "error" not in answer


def _line(hand: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = hand.recv(64)
        if not piece:
            raise OSError(0, "the keeper could not fork the command: no more processes, or no memory")
        line += piece
    return line


def _open_pipes(around: Surroundings) -> tuple[Pipe, ...]:
    return tuple(Pipe(stream, *os.pipe()) for stream in ("stdout", "stderr")[: 1 + around.split])


def _open_stdin(around: Surroundings, text: int) -> HeldStdin:
    if text >= 0:
        return HeldStdin(text)
    match around.stdin:
        case Stdin(open=True):
            if not os.path.lexists(status.STDIN):  # another may have died while it began this one
                os.mkfifo(status.STDIN, 0o600)
            reader = os.open(status.STDIN, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            writer = os.open(status.STDIN, os.O_WRONLY | os.O_CLOEXEC)
            os.set_blocking(reader, True)
            return HeldStdin(reader, writer)
        case Stdin(file=str(path)):
            return HeldStdin(os.open(os.path.join(around.cwd, path), os.O_RDONLY | os.O_CLOEXEC))
    return HeldStdin(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def resume(post: Post, hand: socket.socket, keeper: Identity) -> NoReturn:
    """In a fork of the keeper, whose supervisor died: go on where the files end."""
    process.rename_self("outlast-sup", f"outlast supervisor of {post.task_id}")
    process.become_subreaper()
    supervisor = Supervisor(post, hand, keeper)
    supervisor.look_back()
    supervisor.run()


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
        self._caller: socket.socket | None = None
        self._pumps: dict[int, Pump] = {}
        self._order: Order | None = None
        self._ender: Identity | None = None
        self._strike_at: float | None = None
        self._made_way = False
        self._ground: sessionfile.Ground | None = None
        self._alone = False  # a keeper died and there is no other yet
        self._childless = False  # the keeper has nothing of the command below it
        self._adopted = False  # a keeper died: its children are ours
        self._unseen = False  # it ended, but we may not see how
        self._recorded = False
        self._poll = select.poll()

    def rehearse(self) -> None:
        """Nobody waits yet: go once through what is to come.

        After a fork the first time is slow, because each page that is touched has to be copied. None
        of this leaves a trace: there is no task.
        """
        self.post.rehearse()
        if self.post.around.state:
            self._ground = sessionfile.Ground()
            self._ground.rehearse()
        for pump in self._pumps.values():
            pump.rehearse()
        self._pipes(Exited(0), True)
        self._is_unheard()
        self._bell.ring()
        bell.ring_house()
        json.dumps({"pid": self.post.command.pid, "started": self.post.started})
        self._patience_ms()
        self._wake.clear()

    def open_pumps(self, limit: int = 1 << 20, floor: int = 0) -> None:
        bound = output.bound_of(limit, self.post.around.split)
        pumps = [Pump(pipe.stream, pipe.reader, pipe.writer, bound, floor) for pipe in self.post.pipes]
        self._pumps = {pump.reader: pump for pump in pumps}
        if self.post.around.split:
            from outlast.store.order import Order  # most tasks have one stream

            self._order = Order()

    def take_up(self, said: Terms, place: int) -> None:
        """Learn how long it may run, and how much of its output to keep."""
        self.post.terms, self.post.place = said, place
        for pump in self._pumps.values():
            pump.begin(output.bound_of(said.output_limit, self.post.around.split), said.free_floor)

    def look_back(self) -> None:
        """As a successor: go on where the one before us stopped."""
        said = self.post.terms
        self.open_pumps(said.output_limit, said.free_floor)
        self._set_limit()
        self._recorded = "outcome" in record.read()
        if self._recorded:
            self._settle_session(self._hold_session())  # it may have died between the two

    def begin(self, staged: str | None, caller: socket.socket) -> None:
        """What is to run is written down: make it a task, and let it run. One that was pending is a task already."""
        self._caller = caller
        if self.post.place >= 0:
            # Before it begins: while the keeper lives, its place is taken, also if we are not there any more.
            socket.send_fds(self._hand, PLACE, [self.post.place])
        confine.hold(self.post)
        self.post.start_clock()
        self._set_limit()
        self.sign_on()
        if staged is not None:
            os.rename(staged, self.post.published)
        else:
            # It has begun. Not a moment earlier: whoever tries again if we die needs its variables and its entry.
            launchfile.erase_secrets()
            Queue(_home(self.post.published)).leave(self.post.published)
            self._bell.ring()
        if self.post.around.state and not self.post.terms.keeps:
            sessionfile.need_not_dump()
        # From here on there is a task, and nothing that happens to the keeper can take it back.
        self.post.let_command_begin()
        try:
            self._hand.sendall(GO)
        except OSError:
            pass

    def _set_limit(self) -> None:
        limit = self.post.terms.limit
        self._strike_at = None if limit is None else self.post.started_monotonic + limit

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
            if self._recorded and not self._made_way:
                self._make_way()
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
                if pump.move():
                    moved = True
                    self._note_order(pump)
                if pump.closed:
                    # A pipe at its end is always ready; poll would spin.
                    self._poll.unregister(reader)
        if moved:
            self._bell.ring()

    def _note_order(self, pump: Pump) -> None:
        if self._order is not None:
            self._order.came(pump.stream, pump.offset)

    def _record_end(self) -> None:
        """The command ended: keep what it printed before, record how, tell everybody."""
        for pump in self._pumps.values():
            if not pump.closed and pump.drain():
                self._note_order(pump)
            pump.let_go()
        self.post.let_go()
        outcome = self.post.note_end()
        try:
            # Whether it is why we woke or not: it stays ready for ever, and poll would spin.
            self._poll.unregister(self.post.command_fd)
        except KeyError:
            pass  # it was over when we came
        self._unseen = outcome is None and self.post.may_yet_be_told()
        if self._unseen:
            return  # only its parent may see how it ended: look again when it has
        self._recorded = True
        if outcome is None:
            return  # reaped by init before anybody could look, on a kernel that does not tell: lost
        elapsed = time.monotonic() - self.post.started_monotonic
        settling = self._hold_session()
        pipes = self._pipes(outcome, self.post.terms.stages)
        value = {"ended": time.time(), "elapsed": round(elapsed, 6), "pipes": pipes}
        if self._is_unheard():
            value["unheard"] = True  # somebody else is to be told
        record.write("outcome", {**value, **confine.what_the_kernel_did(self.post.around, self.post.task_id)})
        self._tell_caller()
        self._bell.ring()
        bell.ring_house()
        self._settle_session(settling)

    def _is_unheard(self) -> bool:
        """Whether this is a foreground task whose caller is not there any more."""
        try:
            return self.post.place < 0 and not is_held(".")
        except OSError:
            return False

    def _hold_session(self) -> sessionfile.Settling | None:
        """Before the end is known: whoever learns of it and goes on in the session waits for its state."""
        if not self.post.terms.keeps:
            return None
        try:
            return sessionfile.Settling(self.post.around.state, os.path.join("..", "..", "sessions"))
        except OSError:
            return None  # the session was removed

    def _settle_session(self, settling: sessionfile.Settling | None) -> None:
        if not self.post.around.state:
            return
        try:
            if settling is not None:
                settling.settle(self.post.around, self.post.task_id, self._ground)
        except (OSError, ValueError, KeyError, MemoryError):
            pass  # a full disk: the state stays as it was, the task's end is recorded
        sessionfile.tidy()

    def _make_way(self) -> None:
        """The command is over: its place is free, and whoever waited for it may begin."""
        self._made_way = True
        self.post.free_place()
        try:
            Queue(_home(self.post.published)).advance(begin_another)
        except (OSError, OutlastError, ValueError):
            pass  # the next one to end, or to open the state directory, will

    def _tell_caller(self) -> None:
        """Who started it and waits for it learns of the end from us, not by looking."""
        if self._caller is None:
            return
        try:
            self._caller.sendall(ENDED)
        except OSError:
            pass  # nobody waits
        self._caller.close()
        self._caller = None

    def _pipes(self, outcome: Outcome, stages: bool) -> tuple[int, ...] | None:
        if not isinstance(outcome, Exited):
            return None
        try:
            with open(invoke.PIPES) as file:
                written = file.read(4096)
        except OSError:
            written = ""
        return invoke.stages(stages, outcome.code, written)

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
        if self._caller is not None:
            self._caller.close()

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
        status.write_ending("limit", f"limit of {self.post.terms.limit:g} s", time.time())
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
            end_trees([lambda: status.guards_of(".")], self.post.terms.grace)

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
        confine.clear_away(self.post.around, self.post.task_id)
        self.post.release_lock()
        self._bell.ring()
        bell.ring_house()
        os._exit(0)
