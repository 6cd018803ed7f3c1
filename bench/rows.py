"""What is measured, one function a row. Every contestant that has such a thing takes part, in turns."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench import memory
from bench.measure import Effort, Lacks, Timing, Turn, in_turns, timed
from bench.peers import Before, Ours, Peer, Raw

GB = 1_000_000_000
OPENED_S = 0.1  # a host is opened when it starts, and used later
PAUSE_S = 0.025
_TREE = 20
_AT_ONCE = 500  # ended together: each process that is watched takes a descriptor


@dataclass(frozen=True)
class Goal:
    """At most so much: a ratio to raw, or a figure in the row's own unit."""

    most: float
    is_ratio: bool = True


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    what: str
    raw_is: str
    timings: dict[str, Timing]
    goal: Goal | None = None
    unit: str = "ms"

    @property
    def ours(self) -> Timing:
        return self.timings[Ours.name]

    def ratio(self, name: str) -> float | None:
        raw, one = self.timings.get(Raw.name), self.timings.get(name)
        if raw is None or one is None or not raw.seconds or not one.seconds:
            return None
        return one.median / raw.median

    def figure(self, name: str) -> float | None:
        """In the row's own unit."""
        one = self.timings.get(name)
        if one is None or not one.seconds:
            return None
        return one.median * (1000 if self.unit == "ms" else 1)

    @property
    def reached(self) -> float | None:
        """What the goal is about."""
        if self.goal is None:
            return None
        return self.ratio(Ours.name) if self.goal.is_ratio else self.figure(Ours.name)

    @property
    def verdict(self) -> str:
        if self.goal is None or self.reached is None:
            return ""
        return "met" if self.reached <= self.goal.most else "missed"


@dataclass
class Race:
    """Who takes part in this run, and how hard it tries."""

    raw: Raw
    ours: Ours
    others: list[Peer] = field(default_factory=list)
    quick: bool = False

    @property
    def all(self) -> list[Peer]:
        return [self.ours, self.raw, *self.others]

    def effort(self, times: int = 30, warm_ups: int = 1, budget_s: float = 20.0) -> Effort:
        if self.quick:
            return Effort(min(times, 3), 0, 0.5)
        return Effort(times, warm_ups, budget_s)

    def run(self, turn_of: Callable[[Peer], Turn], effort: Effort, who: list[Peer] | None = None) -> dict[str, Timing]:
        turns = {peer.name: _mending(peer, turn_of(peer)) for peer in who or self.all}
        return in_turns(turns, effort, always=(self.ours.name, self.raw.name))


def _mending(peer: Peer, turn: Turn) -> Turn:
    """A peer that broke down is opened anew for the next row."""

    def go() -> float:
        try:
            return turn()
        except Lacks:
            raise
        except Exception:
            if not isinstance(peer, Ours | Raw):
                peer.renew()
            raise

    return go


# --- foreground ----------------------------------------------------------------------------


def _after(pause: float) -> Callable[[Peer], Turn]:
    def turn_of(peer: Peer) -> Turn:
        def turn() -> float:
            peer.foreground("true")  # so that each is measured after one of its own
            time.sleep(pause)
            return timed(lambda: peer.foreground("true"))

        return turn

    return turn_of


def foreground_back_to_back(race: Race) -> Row:
    timings = race.run(_after(0), race.effort())
    return Row("foreground", "foreground `true`, back to back", "bash -c true", timings, Goal(1.8))


def foreground_after_a_pause(race: Race) -> Row:
    timings = race.run(_after(PAUSE_S), race.effort())
    what = f"foreground `true`, {PAUSE_S * 1000:g} ms after the last"
    return Row("foreground-warm", what, "bash -c true", timings, Goal(0.7))


def foreground_first(race: Race) -> Row:
    """The first command of a shell that was opened a moment ago; whatever opening it takes is not counted."""

    def turn_of(peer: Peer) -> Turn:
        def turn() -> float:
            if isinstance(peer, Ours | Before):
                peer.reopen()
            time.sleep(OPENED_S)
            return timed(lambda: peer.foreground("true"))

        return turn

    before = [peer for peer in race.others if isinstance(peer, Before)]
    timings = race.run(turn_of, race.effort(), [race.ours, race.raw, *before])
    return Row("foreground-first", "foreground `true`, the first command of a host", "bash -c true", timings, Goal(3.0))


def foreground_at_once(race: Race) -> Row:
    with ThreadPoolExecutor(4) as threads:

        def turn_of(peer: Peer) -> Turn:
            return lambda: timed(lambda: list(threads.map(peer.foreground, ["true"] * 4)))

        timings = race.run(turn_of, race.effort(), [race.ours, race.raw])
    return Row("foreground-four", "foreground `true`, four at once", "4 × bash -c true", timings, Goal(2.5))


# --- background ----------------------------------------------------------------------------


def background(race: Race) -> Row:
    def turn_of(peer: Peer) -> Turn:
        return lambda: timed(lambda: peer.start("true"))

    return Row("start", "background start until durable", "Popen", race.run(turn_of, race.effort()), Goal(3.0))


def _woken(peer: Peer, block: Callable[[str], None]) -> float:
    """From the last deed of the command, which is to write down the time, to the moment its waiter goes on."""
    stamp = f"{peer.place}/stamp"
    block(f"sleep 0.05; echo $EPOCHREALTIME > {stamp}")
    woke = time.time()
    with open(stamp) as file:
        return woke - float(file.read())


def wake_up(race: Race) -> Row:
    timings = race.run(lambda peer: lambda: _woken(peer, peer.start_and_wait), race.effort())
    return Row("wake-up", "wake-up of the host that started it", "Popen.wait", timings, Goal(1.6))


def wake_up_elsewhere(race: Race) -> Row:
    timings = race.run(lambda peer: lambda: _woken(peer, peer.wait_elsewhere), race.effort())
    return Row("wake-up-elsewhere", "wake-up of another process", "Popen.wait", timings, Goal(2.0))


# --- output --------------------------------------------------------------------------------

_FLOOD = f"head -c {GB} /dev/zero | tr '\\0' x"


def _flood(race: Race, ours: Ours, others: list[Peer]) -> dict[str, Timing]:
    def turn_of(peer: Peer) -> Turn:
        def turn() -> float:
            os.sync()
            try:
                return timed(lambda: peer.flood(_FLOOD))
            finally:
                peer.discard()

        return turn

    return race.run(turn_of, race.effort(3, 0, 5.0), [ours, race.raw, *others])


def output_bounded(race: Race) -> Row:
    timings = _flood(race, race.ours, race.others)
    return Row("output", "1 GB of output, default bound", "> file", timings, Goal(1.05))


def output_whole(race: Race) -> Row:
    with _keeping_all() as whole:
        timings = _flood(race, whole, [])
    return Row("output-whole", "1 GB of output, kept whole", "> file", timings, Goal(1.05))


def output_cpu(race: Race) -> Row:
    """What supervisor and keeper use of the processor for it, seen in the process table until they leave."""
    with _keeping_all() as whole:
        task_id = whole.start(_FLOOD)
        timing = Timing((memory.cpu_seconds_of_guards(whole.opened, task_id),))
    timings = {Ours.name: timing}
    return Row("output-cpu", "CPU of the guards for 1 GB kept whole", "-", timings, Goal(1.1, is_ratio=False), "s")


class _keeping_all(Ours):
    """Ours with a limit of 2 GB for each task."""

    def __init__(self) -> None:
        super().__init__(output_limit_bytes=2 * GB)

    def __enter__(self) -> Ours:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def new_lines(race: Race) -> Row:
    size = 1_000_000 if race.quick else int(os.environ.get("OUTLAST_BENCH_BYTES", "100000000"))
    command = f"head -c {size} /dev/zero | tr '\\0' x | fold -w 1000; echo; echo one; echo two; echo three"
    with _keeping_all() as whole:

        def turn_of(peer: Peer) -> Turn:
            tickets: list[object] = []

            def turn() -> float:
                if not tickets:
                    tickets.append(peer.printed(command))
                found = b""

                def look() -> None:
                    nonlocal found
                    found = peer.last_lines(tickets[0])

                took = timed(look)
                if b"three" not in found:
                    raise RuntimeError("the last line is not shown")
                return took

            return turn

        timings = race.run(turn_of, race.effort(), [whole, race.raw, *race.others])
    return Row("new-lines", f"three new lines after {size // 1_000_000} MB", "read of a file", timings, Goal(2.0))


# --- many ----------------------------------------------------------------------------------


def end_of_a_tree(race: Race) -> Row:
    """Until all of them are gone, whether the contestant looked or not."""

    def turn_of(peer: Peer) -> Turn:
        pids = f"{peer.place}/pids"
        lines = f"for i in $(seq {_TREE - 1}); do sleep 100 & echo $!; done"
        command = f"{{ echo $$; {lines}; }} > {pids}.new; mv {pids}.new {pids}; wait"

        def turn() -> float:
            if not peer.can_kill:
                raise Lacks
            ticket = peer.start(command)
            deadline = time.monotonic() + 10
            while not os.path.exists(pids) and time.monotonic() < deadline:
                time.sleep(0.005)
            with open(pids) as file:
                watched = [os.pidfd_open(int(pid)) for pid in file.read().split()]
            os.remove(pids)
            try:
                return timed(lambda: _until_gone(peer, ticket, watched))
            finally:
                for fd in watched:
                    os.close(fd)

        return turn

    timings = race.run(turn_of, race.effort(10))
    return Row("tree", f"end of a tree of {_TREE}", "killpg", timings, Goal(10.0, is_ratio=False))


def _until_gone(peer: Peer, ticket: object, watched: list[int]) -> None:
    peer.kill(ticket)
    deadline = time.monotonic() + 2.0
    left = sum(not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0] for fd in watched)
    if left:
        for fd in watched:
            if not select.select([fd], [], [], 0)[0]:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        raise RuntimeError(f"{left} of {len(watched)} were left running")


def listing(race: Race) -> Row:
    timings = race.run(lambda peer: lambda: timed(peer.list_finished), race.effort())
    return Row("list", "list 1,000 finished", "stat of each", timings, Goal(10.0, is_ratio=False))


def command_line(verb: str, goal: float) -> Callable[[Race], Row]:
    def row(race: Race) -> Row:
        def turn_of(peer: Peer) -> Turn:
            def turn() -> float:
                words = [sys.executable, "-c", "pass"] if isinstance(peer, Raw) else peer.command_line(verb)
                return timed(lambda: subprocess.run(words, env=peer.env, cwd=peer.place, stdout=subprocess.DEVNULL))

            return turn

        what = {"ps": "`outlast ps`", "run": "`outlast run true`"}[verb]
        return Row(f"typed-{verb}", what, "python3 -c pass", race.run(turn_of, race.effort()), Goal(goal))

    return row


def memory_each(race: Race) -> Row:
    tasks = 10 if race.quick else 100
    return _memory(race, tasks, f"memory-{tasks}")


def memory_more(race: Race) -> Row | None:
    tasks = int(os.environ.get("OUTLAST_BENCH_TASKS", "0"))
    return _memory(race, tasks, f"memory-{tasks}") if tasks > 100 else None


def _memory(race: Race, tasks: int, key: str) -> Row:
    what = f"private memory for each of {tasks} running"
    others = race.others if tasks <= 100 else []
    timings = {peer.name: memory.for_each_task(peer, tasks) for peer in [race.ours, *others]}
    return Row(key, what, "-", timings, Goal(0.1, is_ratio=False), "MiB")


def running_at_once(race: Race) -> Row | None:
    """Only when asked for: the last thousand starts beside the first thousand."""
    tasks = int(os.environ.get("OUTLAST_BENCH_RUNNING", "0"))
    if tasks < 2:
        return None
    ids: list[str] = []
    took = []
    try:
        for _ in range(tasks):
            took.append(timed(lambda: ids.append(race.ours.start("exec sleep 10000"))))
    finally:
        for first in range(0, len(ids), _AT_ONCE):
            race.ours.opened.kill_all(ids[first : first + _AT_ONCE])
    share = min(1000, tasks // 2)
    timings = {Ours.name: Timing(tuple(took[-share:])), Raw.name: Timing(tuple(took[:share]))}
    what = f"starts: the last {share} of {tasks} at once"
    return Row("running", what, f"the first {share}", timings, Goal(2.0))


def mcp_call(race: Race) -> Row:
    from bench import mcp

    return mcp.call(race)


def mcp_start(race: Race) -> Row:
    from bench import mcp

    return mcp.start(race)


def much(name: str) -> Callable[[Race], Row]:
    def row(race: Race) -> Row:
        from bench import much

        found: Row = getattr(much, name)(race)
        return found

    return row


def telling(name: str) -> Callable[[Race], Row]:
    def row(race: Race) -> Row:
        from bench import telling

        found: Row = getattr(telling, name)(race)
        return found

    return row


def terminals(name: str) -> Callable[[Race], Row]:
    def row(race: Race) -> Row:
        from bench import terminals

        found: Row = getattr(terminals, name)(race)
        return found

    return row


def in_browser(name: str) -> Callable[[Race], Row | None]:
    def row(race: Race) -> Row | None:
        from bench import web_browser

        found: Row | None = getattr(web_browser, name)(race)
        return found

    return row


def web(name: str) -> Callable[[Race], Row]:
    def row(race: Race) -> Row:
        from bench import web

        found: Row = getattr(web, name)(race)
        return found

    return row


ROWS: dict[str, Callable[[Race], Row | None]] = {
    "foreground": foreground_back_to_back,
    "foreground-warm": foreground_after_a_pause,
    "foreground-first": foreground_first,
    "foreground-four": foreground_at_once,
    "start": background,
    "wake-up": wake_up,
    "wake-up-elsewhere": wake_up_elsewhere,
    "new-lines": new_lines,
    "new-lines-much": much("new_lines_after_much"),
    "tree": end_of_a_tree,
    "typed-ps": command_line("ps", 2.5),
    "typed-run": command_line("run", 3.0),
    "notice": telling("notice"),
    "notice-wake-up": telling("notice_wake_up"),
    "event": telling("event"),
    "mcp": mcp_call,
    "mcp-start": mcp_start,
    "web-open": in_browser("page_opens"),
    "web-open-all": in_browser("page_has_all"),
    "web-line": web("line_told"),
    "web-shown": in_browser("line_shown"),
    "web-page": web("page_of_many"),
    "web-memory": web("memory_of_server"),
    "memory": memory_each,
    "memory-more": memory_more,
    "running": running_at_once,
    "list": listing,
    "first-page": much("first_page"),
    "output": output_bounded,
    "output-whole": output_whole,
    "output-cpu": output_cpu,
    "terminal-output": terminals("terminal_output"),
    "terminal-screen": terminals("screen_after_much"),
    "keystroke": terminals("keystroke"),
}
NOT_QUICK = frozenset({"mcp-start", "list", "output", "output-whole", "output-cpu", "memory-more", "running"})
