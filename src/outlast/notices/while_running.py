"""What there is to tell of a task while it runs: a line matched, silence, a limit near, waiting for input.

All of it is read off the task's files by the process that gathers, so no guard has to look. The lines
of a task's patterns are found in its output, which is kept: nothing is lost while no process
listens. How far that went is written down together with the notice, so each line counts once.

`Launch.notify`, all of it optional: `patterns`, `cooldown` and `most` (how often at most), `silent` (seconds),
`limit` (whether to tell that it is near), `input` (whether to tell that it waits for some).
"""

from __future__ import annotations

import os
import time

from outlast.light import json
from outlast.linux import activity
from outlast.output.cleaner import Cleaner
from outlast.storage import output
from outlast.storage.layout import STDIN
from outlast.storage.outbox import Found
from outlast.storage.task_activity import activity_of
from outlast.storage.task_events import facts_of
from outlast.types import STREAMS, Ended, Running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from outlast.notices.gatherer import Gathered
    from outlast.output.line_filter import LineFilter
    from outlast.storage.outbox import Outbox
    from outlast.storage.task_events import Observation

NEAR = 0.9  # of its limit, when that is told
PROMPT_S = 2.0  # a command that asks for something has printed its question by then
ANSWER_S = 10.0  # what it asks so soon after some input is seen by the sender, who waits for the answer
_LOOK_FOR_INPUT_S = 30.0  # at least so often, while a subscriber listens
_BYTES_AT_ONCE = 8 << 20  # of one task's output; then the others have their turn
_LONGEST_LINE = 1 << 20
_MOST_SILENCES = 20


class RunningTaskNotices:
    """Finds what there is to tell of tasks that asked for it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._told: set[tuple[str, str, int]] = set()
        self._sieves: dict[tuple[str, ...], list[LineFilter]] = {}

    def __call__(self, seen: Observation, found: Gathered) -> None:
        wanted = seen.launch.notify
        if wanted.get("patterns"):
            self._patterns(seen, found)
        if isinstance(seen.status, Running):
            for one in self._while_running(seen, found):
                self._put(one, found)

    def _put(self, one: Found, found: Gathered) -> None:
        key = (one.task, one.kind, one.turn)
        if key not in self._told:
            self._told.add(key)
            found.new += self._outbox.put([one])

    def _while_running(self, seen: Observation, found: Gathered) -> Iterator[Found]:
        wanted, now = seen.launch.notify, time.time()
        if wanted.get("limit") and seen.launch.limit is not None:
            yield from self._limit(seen, now, found)
        if wanted.get("silent") is None and not wanted.get("input"):
            return
        printed = max(filter(None, (source.changed_at() for source in _sources(seen))), default=seen.task.started_at)
        quiet = now - printed
        if (silent := wanted.get("silent")) is not None:
            if quiet < silent:
                found.look_again(silent - quiet)
            elif self._outbox.count(seen.task.task_id, "silent") < _MOST_SILENCES:
                yield _make_notice(seen, "silent", round(printed * 1000), {"silent_s": round(quiet, 1)})
        if wanted.get("input"):
            yield from self._input(seen, quiet, printed, found)

    def _limit(self, seen: Observation, now: float, found: Gathered) -> Iterator[Found]:
        limit = seen.launch.limit or 0.0
        run = seen.task.elapsed_ms / 1000
        if run >= limit * NEAR:
            yield _make_notice(seen, "limit-near", 0, {"limit": limit, "left_s": round(max(0.0, limit - run), 1)})
        else:
            found.look_again(limit * NEAR - run)

    def _input(self, seen: Observation, quiet: float, printed: float, found: Gathered) -> Iterator[Found]:
        turn = round(printed * 1000)
        if (seen.task.task_id, "waits-for-input", turn) in self._told:
            return
        if quiet < PROMPT_S:
            found.look_again(PROMPT_S - quiet)
        elif _answers_input(seen, printed):
            self._told.add((seen.task.task_id, "waits-for-input", turn))
        elif (found_now := activity_of(seen.directory)) == activity.INPUT:
            yield _make_notice(seen, "waits-for-input", turn, {"evidence": found_now.evidence})
        else:
            found.look_again(min(quiet, _LOOK_FOR_INPUT_S))

    # --- patterns ------------------------------------------------------------------------

    def _patterns(self, seen: Observation, found: Gathered) -> None:
        before = self._outbox.scan_of(seen.task.task_id)
        state = _Scan(json.loads(before) if before else {})
        over = isinstance(seen.status, Ended)
        if state.silenced:
            return
        more = self._scan(seen, state, over)
        notices = list(state.list_due(seen, time.time(), over and not more))
        after = state.dump()
        if after != before and self._outbox.move_scan(seen.task.task_id, before, after, notices):
            found.new += len(notices)
        if more:
            found.look_again(0.0)
        elif (wait := state.cooling(seen.launch.notify, time.time())) is not None:
            found.look_again(wait)

    def _scan(self, seen: Observation, state: _Scan, over: bool) -> bool:
        """Look through what was printed since; whether there is more."""
        patterns = tuple(seen.launch.notify["patterns"])
        if patterns not in self._sieves:
            from outlast.output.line_filter import LineFilter

            self._sieves[patterns] = [LineFilter(pattern, None) for pattern in patterns]
        left = _BYTES_AT_ONCE
        for stream, source in zip(STREAMS, _sources(seen), strict=False):
            for line in _lines(source, state, stream, left, over):
                for pattern, sieve in zip(patterns, self._sieves[patterns], strict=True):
                    if sieve.matches(line):
                        state.match(pattern, line)
                        break
            left -= state.at[stream] - state.began[stream]
            if left <= 0:
                return True
        return False


class _Scan:
    """How far a task's output was looked through, and what is held back for a while."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.at: dict[str, int] = known.get("at", {})
        self.began = {stream: self.at.get(stream, 0) for stream in STREAMS}
        self.at = dict(self.began)
        self.turn, self.last = known.get("turn", 0), known.get("last", 0.0)
        self.held, self.line, self.pattern = known.get("held", 0), known.get("line", ""), known.get("pattern", "")
        self.silenced = known.get("silenced", False)

    def dump(self) -> str:
        names = ("at", "turn", "last", "held", "line", "pattern", "silenced")
        return json.dumps({name: getattr(self, name) for name in names})

    def match(self, pattern: str, line: str) -> None:
        if not self.held:
            self.line, self.pattern = line[:500], pattern
        self.held += 1

    def cooling(self, wanted: Any, now: float) -> float | None:
        """How long until what is held back can be told; None if nothing is."""
        return max(0.0, self.last + wanted["cooldown"] - now) if self.held and not self.silenced else None

    def list_due(self, seen: Observation, now: float, over: bool) -> Iterator[Found]:
        """What is to be told now."""
        wanted = seen.launch.notify
        if not self.held or not (over or now - self.last >= wanted["cooldown"]):
            return
        facts = {"pattern": self.pattern, "line": self.line, "count": self.held}
        yield _make_notice(seen, "matched", self.turn, facts, now)
        self.turn, self.last, self.held, self.line = self.turn + 1, now, 0, ""
        if self.turn >= wanted["most"] and not over:
            self.silenced = True
            yield _make_notice(seen, "silenced", 0, {}, now)


def _lines(source: output.Source, state: _Scan, stream: str, most: int, over: bool) -> Iterator[str]:
    """Whole lines from where we are; the last one also without its end if no more will come."""
    last = source.end()
    end = min(last, state.at[stream] + max(0, most))
    held = b""
    for piece in source.chunks(state.at[stream], end):
        data = (b"" if piece.dropped else held) + piece.data
        whole = len(data) if (over and piece.next >= last) or len(data) > _LONGEST_LINE else data.rfind(b"\n") + 1
        held = data[whole:]
        state.at[stream] = piece.next - len(held)
        cleaner = Cleaner()
        yield from (cleaner.feed(data[:whole]) + cleaner.finish()).removesuffix("\n").split("\n") if whole else ()


def _answers_input(seen: Observation, printed: float) -> bool:
    """Return whether the program printed what it printed last just after it was sent some input."""
    try:
        sent = os.stat(f"{seen.directory}/{STDIN}").st_mtime  # of the named pipe: when it was last written to
    except OSError:
        return False
    return sent > seen.task.started_at and printed - sent < ANSWER_S


def _sources(seen: Observation) -> list[output.Source]:
    bound = output.bound_of(seen.launch.output_limit, seen.launch.split)
    return [output.Source(seen.directory, stream, bound) for stream in STREAMS[: 1 + seen.launch.split]]


def _make_notice(seen: Observation, kind: str, turn: int, more: dict[str, Any], at: float | None = None) -> Found:
    facts = {**facts_of(seen.task), **more}
    return Found(seen.task.task_id, kind, turn, seen.task.session, time.time() if at is None else at, facts)
