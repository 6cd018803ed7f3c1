"""The supervisor: the small process that watches one running task.

It moves the task's output, enforces its limit, records its end, and leaves when nothing of
it is left.
"""

from __future__ import annotations

import os
import select
import time

from outlast import process
from outlast.errors import OutlastError
from outlast.lean import json, socket
from outlast.model import Exited
from outlast.store import bell, launchfile, output, record, staging
from outlast.store.hold import is_held
from outlast.store.queue import Queue
from outlast.supervise import ENDED, confine, invoke, rest
from outlast.supervise.forks import fork_into
from outlast.supervise.keeper import CHILDLESS, Keeper
from outlast.supervise.limit import Limit
from outlast.supervise.pair import Pair
from outlast.supervise.post import AWAKE, DONE, INPUT, NOTED, PLACE, hands, heard
from outlast.supervise.pump import Pump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from outlast.model import Identity, Outcome
    from outlast.store.order import Order
    from outlast.supervise.post import Post
    from outlast.supervise.request import Word

_LONGEST_POLL_S = 1e6  # poll takes a C int of milliseconds, which is 24 days
_TRY_AGAIN_S = 1.0  # when there is no process or descriptor to be had
_LOOK_AGAIN_S = 0.02  # while only the command's parent may see how it ended, and has not told yet


def home_of(published: str) -> str:
    """The state directory of a task."""
    return os.path.dirname(os.path.dirname(published))


def succeed(post: Post, hand: socket.socket, keeper: Identity) -> NoReturn:
    """In a fork of the keeper, whose supervisor died: go on where the files end."""
    process.become_subreaper()
    resume(post, Pair(hand, keeper, asleep=False))


def resume(post: Post, pair: Pair, rests: int = 0) -> NoReturn:
    """Go on with a task where the files end, after so many rests."""
    process.rename_self("outlast-sup", f"outlast supervisor of {post.task_id}")
    supervisor = Supervisor(post, pair, rests)
    supervisor.look_back()
    supervisor.run()


class Supervisor:
    """One supervisor's watch."""

    def __init__(self, post: Post, pair: Pair, rests: int = 0) -> None:
        self.post, self._pair, self._rests = post, pair, rests
        self._me = process.identity(os.getpid())
        self._bell = bell.Ringer()
        self._caller: socket.socket | None = None
        self._pumps: dict[int, Pump] = {}
        self._order: Order | None = None
        self._limit = Limit(post)
        self._made_way = False
        self._alone = False  # a keeper died and there is no other yet
        self._childless = pair.asleep  # the keeper has nothing of the command below it
        self._adopted = pair.asleep  # the command is our child: from the beginning, or because its keeper died
        self._unseen = False  # it ended, but we may not see how
        self._recorded = False  # how it ended, and everybody was told
        self._noted = False  # the keeper was told that the command is over
        self._rest_at = time.monotonic() + rest.QUIET_S * 2**rests
        self._poll = select.poll()

    def rehearse(self) -> None:
        """Nobody waits yet: go once through what is to come.

        After a fork the first time is slow, because each page that is touched has to be copied. None
        of this leaves a trace: there is no task.
        """
        self.post.rehearse()
        for pump in self._pumps.values():
            pump.rehearse()
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        record.write("outcome", self._ending(self._pipes(Exited(0), True)), fd=nowhere)
        self._bell.ring()
        bell.ring_house()
        json.dumps({"pid": self.post.command.pid, "started": self.post.started})
        self._patience_ms()
        self._pair.wake.clear()

    def open_pumps(self, limit: int = 1 << 20, floor: int = 0, *, resumed: bool = False) -> None:
        """Also puts the files in place: whoever is told their names can open them."""
        bound = output.bound_of(limit, self.post.around.split)
        pumps = [Pump(pipe.stream, pipe.reader, pipe.writer, bound, floor, resumed=resumed) for pipe in self.post.pipes]
        self._pumps = {pump.reader: pump for pump in pumps}
        if self.post.around.split:
            from outlast.store.order import Order  # most tasks have one stream

            self._order = Order()

    def take_up(self, word: Word) -> None:
        """Learn how long it may run, and how much of its output to keep."""
        said = self.post.terms = word.terms
        self.post.place = word.place
        self.post.start_clock(word.at)
        for pump in self._pumps.values():
            pump.begin(output.bound_of(said.output_limit, self.post.around.split), said.free_floor)

    def look_back(self) -> None:
        """As a successor: go on where the one before us stopped."""
        said = self.post.terms
        self.open_pumps(said.output_limit, said.free_floor, resumed=True)
        found = record.read()
        self._limit.set(struck=found.get("ending", {}).get("by") == "limit")
        if self._rests:
            self._tell_keeper(AWAKE)
        self._recorded = "outcome" in found
        if self._recorded:
            self._let_go()

    def begin(self, staged: str | None, caller: socket.socket) -> bool:
        """What is to run is written down: make it a task, and let it run. One that was pending is a task already.

        False if its caller was faster.
        """
        self._caller = caller
        if self.post.place >= 0:
            # Before it begins: while the keeper lives, its place is taken, also if we are not there any more.
            socket.send_fds(self._pair.hand, PLACE, [self.post.place])
        confine.hold(self.post)
        self._limit.set()
        self.sign_on()
        ours = True
        if staged is not None:
            ours = staging.publish(staged, self.post.published)
        else:
            # It has begun. Not a moment earlier: whoever tries again if we die needs its variables and its entry.
            launchfile.erase_secrets()
            Queue(home_of(self.post.published)).leave(self.post.published)
            self._bell.ring()
        # From here on there is a task, and nothing that happens to the keeper can take it back.
        self.post.let_command_begin()
        return ours

    def sign_on(self) -> None:
        self.post.write_guards(self._me, self._pair.keeper, self._limit.ender)

    def run(self) -> NoReturn:
        """Watch the task until nothing of it is left."""
        self._register()
        ready: set[int] = set()
        # Before the first poll too: a successor is not told again what happened before it came.
        while True:
            self._look(ready)
            ready = self._await()

    def _look(self, ready: set[int]) -> None:
        """Do what there is to do; leave if the task is over."""
        self._move(ready)
        if self.post.end_input_if_asked():
            self._tell_keeper(INPUT)
        if not self._recorded and self.post.command_is_over():
            self._record_end()
        if self._recorded and not self._noted:
            self._note()
        if self._noted and not self._made_way:
            self._make_way()
        self._hear_keeper(ready)
        self.post.reap()
        if self._limit.is_reached(lambda: not self._childless or self._has_children()):
            self._limit.strike(self._forget_ours, self.sign_on, tell=not self._recorded)
        if self._is_over():
            self._leave()
        if self._may_rest() and time.monotonic() >= self._rest_at:
            self._rest()

    def _may_rest(self) -> bool:
        """Whether the keeper can watch alone for as long as nothing happens."""
        busy = self._recorded or self._limit.ender or self._unseen or self.post.orphans
        return not busy and self._pair.asleep and self._pair.keeper_fd is not None and rest.is_possible()

    def _rest(self) -> None:
        self._rest_at = time.monotonic() + rest.QUIET_S
        ours = (self.post.command.pid, self.post.wrapper.pid if self.post.wrapper else 0)
        if not self.post.has_other_children(*ours):  # nobody would reap them
            rest.lie_down(self.post, self._pair, self._limit.at, self._rests)

    def _await(self) -> set[int]:
        ready = {fd for fd, _ in self._poll.poll(self._patience_ms())}
        if self._pair.wake.fd in ready:
            self._pair.wake.clear()
        return ready

    def practise(self) -> None:
        """In a nursery: all that happens until there is something to wait for."""
        self._register()
        self._look(set())
        self._pair.wake.ring()
        self._look(self._await())
        self._forget_ours()

    def _register(self) -> None:
        self._poll.register(self._pair.wake.fd, select.POLLIN)
        self._poll.register(self._pair.hand, select.POLLIN)
        for reader in self._pumps:
            self._poll.register(reader, select.POLLIN)
        if not self.post.command_is_over():
            self._poll.register(self.post.command_fd, select.POLLIN)
        if self._pair.keeper_fd is not None:
            self._poll.register(self._pair.keeper_fd, select.POLLIN)

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
            self._rest_at = time.monotonic() + rest.QUIET_S * 2**self._rests
            self._bell.ring()

    def _note_order(self, pump: Pump) -> None:
        if self._order is not None:
            self._order.came(pump.stream, pump.offset)

    def _record_end(self) -> None:
        """The command ended: keep what it printed before, record how, tell everybody."""
        for pump in self._pumps.values():
            if not pump.closed and pump.drain():
                self._note_order(pump)
        self._record(self.post.note_end())
        self._let_go()

    def _let_go(self) -> None:
        """Only what the command left running can print now, and we are not in the way of the end of that."""
        for pump in self._pumps.values():
            pump.let_go()
        self.post.let_go()

    def _record(self, outcome: Outcome | None) -> None:
        self._unseen = outcome is None and self.post.may_yet_be_told()
        if self._unseen:
            self._leave_alone(self.post.command_fd)
            self._tell_keeper(NOTED)
            return  # only its parent may see how it ended: look again when it has
        self._recorded = True
        if outcome is None:
            return  # reaped by init before anybody could look, on a kernel that does not tell: lost
        record.write("outcome", self._ending(self._pipes(outcome, self.post.terms.stages)))
        self._tell_caller()
        self._bell.ring()
        bell.ring_house()

    def _ending(self, pipes: tuple[int, ...] | None) -> dict[str, object]:
        """What is recorded of the end besides how the command ended."""
        elapsed = time.monotonic() - self.post.started_monotonic
        value: dict[str, object] = {"ended": time.time(), "elapsed": round(elapsed, 6), "pipes": pipes}
        if self._is_unheard():
            value["unheard"] = True  # somebody else is to be told
        if self._left_nothing():
            value["alone"] = True  # nobody has to look for what it left running
        return value | confine.what_the_kernel_did(self.post.around, self.post.task_id)

    def _note(self) -> None:
        """The end is recorded: the keeper looks after what was left behind."""
        self._noted = True
        # Whether it is why we woke or not: it stays ready for ever, and poll would spin.
        self._leave_alone(self.post.command_fd)
        self._tell_keeper(NOTED)

    def _leave_alone(self, fd: int) -> None:
        try:
            self._poll.unregister(fd)
        except KeyError:
            pass

    def _tell_keeper(self, word: bytes) -> None:
        try:
            self._pair.hand.sendall(word)
        except OSError:
            pass  # it is gone, or will look by itself

    def _is_unheard(self) -> bool:
        """Whether this is a foreground task whose caller is not there any more."""
        try:
            return self.post.place < 0 and not is_held(".")
        except OSError:
            return False

    def _left_nothing(self) -> bool:
        """Whether nothing runs any more that the command started. Its orphans are our children."""
        if not self._pair.asleep or self.post.around.sandbox:
            return False  # then there are others between them and us
        return process.has_no_child_but(os.getpid(), self.post.command.pid)

    def _make_way(self) -> None:
        """The command is over: its place is free, and whoever waited for it may begin."""
        self._made_way = True
        self.post.free_place()
        try:
            from outlast.supervise.beginning import begin_another  # which begins with us

            Queue(home_of(self.post.published)).advance(begin_another)
        except (OSError, OutlastError, ValueError):
            pass  # the next one to end, or to open the state directory, will

    def _tell_caller(self) -> None:
        """Who started it and waits for it learns of the end from us, not by looking."""
        if self._caller is None:
            return
        try:
            self._caller.sendall(ENDED)
            os.sched_yield()  # it may have been put behind us, on our core: what else there is to do can wait
        except OSError:
            pass  # nobody waits
        self._caller.close()
        self._caller = None

    def _pipes(self, outcome: Outcome, stages: bool) -> tuple[int, ...] | None:
        if not isinstance(outcome, Exited):
            return None
        return invoke.stages(outcome.code, invoke.written_stages() if stages else None)

    def _hear_keeper(self, ready: set[int]) -> None:
        pair = self._pair
        if pair.hand.fileno() in ready:
            said = heard(pair.hand)
            self._childless |= said == CHILDLESS
            if not said:
                self._poll.unregister(pair.hand)
        if pair.keeper_fd in ready and pair.keeper_fd is not None:
            self._poll.unregister(pair.keeper_fd)
            os.close(pair.keeper_fd)
            pair.keeper_fd = None
        if pair.keeper_fd is None:
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
            self._poll.unregister(self._pair.hand)
        except KeyError:
            pass
        self._pair.hand.close()

    def _fork_keeper(self) -> None:
        """Never be alone."""
        try:
            self._pair.hand, theirs = hands()
        except OSError:
            return  # no descriptor: later

        def life() -> NoReturn:
            self._pair.hand.close()
            self._forget_ours()
            Keeper(self.post, theirs, self._me, succeed).guard()

        try:
            self._pair.keeper = process.identity(fork_into(life))
        except OSError:
            self._pair.hand.close()
            return  # no process: later
        finally:
            theirs.close()
        self._alone = self._pair.asleep = False
        self._pair.keeper_fd = process.open_pidfd(self._pair.keeper)
        self._poll.register(self._pair.hand, select.POLLIN)
        if self._pair.keeper_fd is not None:
            self._poll.register(self._pair.keeper_fd, select.POLLIN)
        self.sign_on()

    def _forget_ours(self) -> None:
        """In a fork: close what only a supervisor holds."""
        self._pair.wake.close()
        self._bell.close()
        if self._caller is not None:
            self._caller.close()

    def _patience_ms(self) -> float | None:
        waits = [_LONGEST_POLL_S]
        if (left := self._limit.left()) is not None:
            waits.append(left + 0.001)
        if self._alone:
            waits.append(_TRY_AGAIN_S)
        if self._may_rest():
            waits.append(self._rest_at - time.monotonic())
        if self._unseen:
            waits.append(_LOOK_AGAIN_S)
        return None if len(waits) == 1 else max(0.0, min(waits)) * 1000

    def _is_over(self) -> bool:
        if not self._noted or not self._childless or not all(pump.closed for pump in self._pumps.values()):
            return False
        return not self._has_children()

    def _has_children(self) -> bool:
        """Whether anything that the command left behind is our child."""
        others = (self._pair.keeper.pid, self._limit.ender.pid if self._limit.ender else 0)
        return self._adopted and self.post.reap() and self.post.has_other_children(*others)

    def _leave(self) -> NoReturn:
        self._tell_keeper(DONE)
        confine.clear_away(self.post.around, self.post.task_id)
        self.post.release_lock()
        self._bell.ring()
        bell.ring_house()
        os._exit(0)
